"""Run files: a model, a cluster and a batch in a few lines of TOML or JSON, under the schema ``nest.run/1``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from nest.costing import FRAMEWORKS, RECIPES, framework_named, recipe_named
from nest.errors import InvalidProblem
from nest.families import Architecture, describe
from nest.families.hyperparameters import read_hyperparameters
from nest.files.cluster_file import read_cluster
from nest.files.disk import read_text
from nest.files.document import Document
from nest.files.limits import Count, Switch, Table, Text
from nest.files.settings import PARSERS
from nest.files.words import meant, show
from nest.hardware import Hardware
from nest.problem import Choices
from nest.runs.run import Run

SCHEMA = "nest.run/1"

FORMER = {"variant_recompute": "stage_recompute"}
"""Names of choices before stages chose for themselves, and those of today."""

AtLeastOne = Annotated[float, Meta(ge=1, le=1e6, description="a number from 1")]
NotNegative = Annotated[float, Meta(ge=0, le=1e6, description="a number from 0")]


class LengthTable(Table):
    """Tokens of a stream that has its own number."""

    stream: Text
    tokens: Count


class RunFile(Table):
    """A training run for `nest`.

    ``model`` is the path of a model file next to this one, or a table with the keys of our own model files;
    ``cluster`` a name as in "dgx-h100:512", or a file next to this one.
    """

    schema: Annotated[Literal["nest.run/1"], Meta(description='"nest.run/1", the version read here')]
    model: Annotated[str | dict[str, object], Meta(description="the path of a model file, or a table with its keys")]
    cluster: Annotated[str, Meta(min_length=1, description='a cluster, as in "dgx-h100:512", or its file')]
    sequence: Count
    global_batch: Count
    name: Text | UnsetType = UNSET
    recipe: Text = RECIPES[0].name
    framework: Text = FRAMEWORKS[0].name
    dtype: Annotated[Literal["bf16", "fp16", "fp8", "fp32"], Meta(description='"bf16", "fp16", "fp8" or "fp32"')] = (
        "bf16"
    )
    flash: Switch | UnsetType = UNSET
    padding: Annotated[int, Meta(ge=0, le=2**20, description="a whole number from 0")] = 128
    context_kind: Annotated[
        Literal["ring", "gather", "exchange"], Meta(description='"ring", "gather" or "exchange"')
    ] = "ring"
    cut_experts: Switch = False
    imbalance: AtLeastOne = 1.0
    capacity: NotNegative = 0.0
    lengths: Annotated[list[LengthTable], Meta(description="a list of tables with stream and tokens")] = field(
        default_factory=list
    )
    reserve_gib: NotNegative = 0.0
    choices: Annotated[dict[str, int | bool | str | list[int | str]], Meta(description="a table of choices")] = field(
        default_factory=dict
    )
    source: Text = ""


def is_run(path: Path) -> bool:
    """Whether a file is a run, by the schema that it names; whoever reads it next says what else is wrong with it."""
    if not path.is_file():
        return False
    try:
        document = Document.read(path)
        return SCHEMA in document.text and document.tree.get("schema") == SCHEMA  # large problems are parsed once only
    except InvalidProblem:
        return False


def read_run(path: str | Path) -> Run:
    """Read a run file.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy.
    """
    document = Document.read(path)
    document.require_schema(SCHEMA, "")
    tables = document.decode(RunFile)
    try:
        return _run(tables, Path(path))
    except InvalidProblem as fault:
        raise (fault if fault.source else fault.at(str(path))) from None


def _run(tables: RunFile, path: Path) -> Run:
    return Run(
        _model(tables.model, path.parent),
        _hardware(tables.cluster, path.parent),
        tables.sequence,
        tables.global_batch,
        recipe_named(tables.recipe),
        framework_named(tables.framework),
        tables.dtype,
        None if tables.flash is UNSET else tables.flash,
        tables.padding,
        tables.context_kind,
        tables.cut_experts,
        tables.imbalance,
        tables.capacity,
        tuple((each.stream, each.tokens) for each in tables.lengths),
        int(tables.reserve_gib * 2**30),
        _choices(tables.choices),
        path.stem if tables.name is UNSET else tables.name,
        tables.source,
    )


def _hardware(given: str, folder: Path) -> Hardware:
    beside = folder / given
    if beside.is_file():
        return read_cluster(beside)
    try:
        return read_cluster(given)
    except InvalidProblem as error:
        remedy = error.remedy if ":" in given else 'give a name and a number of devices, as in "dgx-h100:64", or a file'
        raise InvalidProblem("cluster", f"{given!r}: {error.problem}", remedy) from None


def _model(given: str | Mapping[str, object], folder: Path) -> Architecture:
    if isinstance(given, str):
        path = folder / given
        try:
            return describe(read_text(path, InvalidProblem)).model
        except InvalidProblem as error:
            raise (error if error.source else error.at(str(path))) from None
    try:
        return read_hyperparameters(given)
    except InvalidProblem as error:
        where = f"model.{error.where}" if error.where else "model"
        raise InvalidProblem(where, error.problem, error.remedy) from None


def _choices(table: Mapping[str, object]) -> Choices:
    """Return choices written as in problem files; each is read as ``--set`` reads it."""
    values = {}
    for given, value in table.items():
        name, where = FORMER.get(given, given), f"choices.{given}"
        if name not in PARSERS or name == "recompute":
            known = [each for each in PARSERS if each != "recompute"]
            raise InvalidProblem(where, "is no choice", meant(name, known, f"the choices are {', '.join(known)}"))
        parse, advice = PARSERS[name]
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            values[name] = parse(text.lower() if isinstance(value, bool) else text)
        except (ValueError, KeyError):
            raise InvalidProblem(where, f"{show(text)} is none of its values", f"give {advice}") from None
    return Choices(**values)  # type: ignore[arg-type]
