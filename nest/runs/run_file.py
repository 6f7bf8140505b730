"""Run files: a model, a cluster and a batch in a few lines of TOML or JSON, under the schema ``nest.run/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from nest.costing import FRAMEWORKS, RECIPES, LayerProfile, framework_named, recipe_named
from nest.errors import InvalidProblem
from nest.families import Architecture, describe, is_model
from nest.families.hyperparameters import read_hyperparameters
from nest.files.cluster_file import ClusterText, cluster_of, read_cluster
from nest.files.disk import model_file, read_text
from nest.files.document import Document, names_schema
from nest.files.faults import key
from nest.files.limits import Count, Switch, Table, Text
from nest.files.profile_file import profile_of, read_profile
from nest.files.settings import ALIASES, PARSERS
from nest.files.words import meant, show
from nest.hardware import Hardware
from nest.problem import Choices
from nest.runs.run import Run

SCHEMA = "nest.run/1"

FORMER = {"variant_recompute": "stage_recompute", **ALIASES}
"""Names of choices that are read, too, and their own."""

AtLeastOne = Annotated[float, Meta(ge=1, le=1e6, description="a number from 1")]
NotNegative = Annotated[float, Meta(ge=0, le=1e6, description="a number from 0")]
WholeText = Annotated[str, Meta(description="the text of a file")]


class LengthTable(Table):
    """Tokens of a stream that has its own number."""

    stream: Text
    tokens: Count


class ModelText(Table):
    """A model file as text, with the vocabulary where the text leaves it open."""

    text: WholeText
    vocabulary: Count | UnsetType = UNSET


class ClusterTextTable(Table):
    """A cluster file as text, with that of the network that it names."""

    text: WholeText
    name: Text = ""
    network: WholeText = ""


class RunFile(Table):
    """A training run for `nest`.

    ``model`` is the path of a model file next to this one, a table with the keys of our own model files, or a table
    with the ``text`` of any model file; ``cluster`` a name as in "dgx-h100:512", a file next to this one, or a table
    with the ``text`` of one.
    """

    schema: Annotated[Literal["nest.run/1"], Meta(description='"nest.run/1", the version read here')]
    model: Annotated[str | dict[str, object], Meta(description="the path of a model file, or a table with its keys")]
    cluster: Annotated[
        Annotated[str, Meta(min_length=1)] | dict[str, object],
        Meta(description='a cluster, as in "dgx-h100:512", its file, or a table with its text'),
    ]
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
    reserve_gib: NotNegative | UnsetType = UNSET
    choices: Annotated[
        dict[str, int | float | bool | str | list[int | str]], Meta(description="a table of choices")
    ] = field(default_factory=dict)
    source: Text = ""
    profile: (
        Annotated[
            Annotated[str, Meta(min_length=1)] | dict[str, object],
            Meta(description="the path of a file of measured times, or a table with its rows"),
        ]
        | UnsetType
    ) = UNSET


def is_run(path: Path) -> bool:
    """Whether a file is a run, by the schema that it names."""
    return names_schema(path, SCHEMA)


def read_run(path: str | Path) -> Run:
    """Read a run file.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy.
    """
    document = Document.read(path)
    document.require_schema(SCHEMA, "")
    return run_of(document, document.tree, "", Path(path))


def run_of(document: Document, tree: object, where: str, path: Path) -> Run:
    """Return the run that a table describes.

    Parameters
    ----------
    document, where
        What holds the table, and its key in there.
    path
        Of the file, beside which model and cluster are looked for.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy; of the class that the document raises.
    """
    tables = document.convert(tree, RunFile, where)
    try:
        return _Reader(document, where, path).run(tables)
    except InvalidProblem as fault:
        raise (
            fault
            if fault.source
            else document.error(key(where, fault.where), fault.problem, fault.remedy, document.source)
        ) from None


@dataclass(frozen=True)
class _Reader:
    """Reads what a run names.

    Parameters
    ----------
    document, where
        Which holds the run, and the key of it in there.
    path
        Of its file.
    """

    document: Document
    where: str
    path: Path

    def run(self, tables: RunFile) -> Run:
        """Return the run that the tables describe; errors name key and value."""
        return Run(
            self._model(tables.model),
            self._hardware(tables.cluster),
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
            None if tables.reserve_gib is UNSET else int(tables.reserve_gib * 2**30),
            _choices(tables.choices),
            self._name if tables.name is UNSET else tables.name,
            tables.source,
            None if tables.profile is UNSET else self._profile(tables.profile),
        )

    @property
    def _name(self) -> str:
        """The name of a run that says none: its file's, or none where another file carries it."""
        return "" if self.where else self.path.stem

    def _profile(self, given: str | dict[str, object]) -> LayerProfile:
        if isinstance(given, str):
            return read_profile(self.path.parent / given)
        return profile_of(self.document, given, key(self.where, "profile"))

    def _hardware(self, given: str | dict[str, object]) -> Hardware:
        if not isinstance(given, str):
            table = self.document.convert(given, ClusterTextTable, key(self.where, "cluster"))
            try:
                return cluster_of(ClusterText(table.name, table.text, table.network))
            except InvalidProblem as error:
                raise InvalidProblem(key("cluster", error.where), error.problem, error.remedy) from None
        beside = self.path.parent / given
        if beside.is_file():
            return read_cluster(beside)
        try:
            return read_cluster(given)
        except InvalidProblem as error:
            named = 'give a name and a number of devices, as in "dgx-h100:64", or a file'
            raise InvalidProblem(
                "cluster", f"{given!r}: {error.problem}", error.remedy if ":" in given else named
            ) from None

    def _model(self, given: str | dict[str, object]) -> Architecture:
        if isinstance(given, str):
            path = model_file(self.path.parent / given)
            try:
                text = read_text(path, InvalidProblem)
                if not is_model(text):
                    raise InvalidProblem("", "no model that a run file takes", _measured(given))
                return describe(text).model
            except InvalidProblem as error:
                raise (error if error.source else error.at(str(path))) from None
        try:
            if "text" not in given:
                return read_hyperparameters(given)
            table = self.document.convert(given, ModelText, key(self.where, "model"))
            return describe(table.text, None if table.vocabulary is UNSET else table.vocabulary).model
        except InvalidProblem as error:
            if error.source:
                raise
            raise InvalidProblem(key("model", error.where), error.problem, error.remedy) from None


def _measured(given: str) -> str:
    """Return what to do with a file that is no model: what was measured or captured is typed, without a run file."""
    instead = f"nest solve --model {given} --cluster NAME:N --global-batch N"
    return f"name a config.json or another model file; measured or captured layers go without a run: {instead}"


def _choices(table: Mapping[str, object]) -> Choices:
    """Return choices written as in problem files; each is read as ``--set`` reads it."""
    values = {}
    for given, value in table.items():
        name, where = FORMER.get(given, given), f"choices.{given}"
        if name not in PARSERS or name == "recompute":
            known = [each for each in PARSERS if each != "recompute"]
            raise InvalidProblem(where, "is no choice", meant(name, known, f"the choices are {', '.join(known)}"))
        if name in values:
            raise InvalidProblem(where, f"there is {name} already", "give it once")
        parse, advice = PARSERS[name]
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            values[name] = parse(text.lower() if isinstance(value, bool) else text)
        except (ValueError, KeyError):
            raise InvalidProblem(where, f"{show(text)} is none of its values", f"give {advice}") from None
    return Choices(**values)  # type: ignore[arg-type]
