"""Measured times of layers: tables in CSV, or rows in JSON or TOML under the schema ``nest.profile/1``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from nest.costing import LayerProfile, Measurement
from nest.errors import InvalidProblem
from nest.files.columns import SIZES, TIMES, Columns, Figure, figure, is_csv
from nest.files.document import Document
from nest.files.faults import item, key
from nest.files.limits import Count, Table, Text

SCHEMA = "nest.profile/1"

NUMBERS = ("microbatch", "tensor", "context", "sequence")

COLUMNS = Columns(("kind", "dtype", "source"), NUMBERS)


class ProfileRow(Table):
    """A block, under which widths it was measured, and how long it took.

    Times are in exactly one unit each. What is left out of ``context`` is 1, of ``sequence`` and ``dtype`` the run's.
    """

    kind: Annotated[str, Meta(min_length=1, max_length=1000, description="the kind of a block, as nest show names it")]
    microbatch: Count
    tensor: Count
    context: Count = 1
    sequence: Count | UnsetType = UNSET
    dtype: (
        Annotated[
            Literal["bf16", "fp16", "fp8", "fp32", "tf32"], Meta(description='"bf16", "fp16", "fp8", "fp32" or "tf32"')
        ]
        | UnsetType
    ) = UNSET
    forward_s: Figure = UNSET
    forward_ms: Figure = UNSET
    forward_us: Figure = UNSET
    backward_s: Figure = UNSET
    backward_ms: Figure = UNSET
    backward_us: Figure = UNSET
    kept_bytes: Figure = UNSET
    kept_kib: Figure = UNSET
    kept_mib: Figure = UNSET
    kept_gib: Figure = UNSET
    source: Text = ""


class ProfileFile(Table):
    """Measured times of the blocks of a model."""

    schema: Annotated[Literal["nest.profile/1"], Meta(description='"nest.profile/1", the version read here')]
    rows: Annotated[list[ProfileRow], Meta(min_length=1, description="a list of measurements")] = field()
    name: Text = ""


def read_profile(path: str | Path) -> LayerProfile:
    """Read measured times; JSON, TOML and CSV are told apart by content.

    Raises
    ------
    InvalidProblem
        Naming file, row, column and remedy.
    """
    document = Document.read(path)
    if is_csv(document):
        rows = tuple(_measured(document, row, where) for row, where in COLUMNS.rows(document, ProfileRow, may_lie=True))
        if not rows:
            document.fail("", "no rows below the names of the columns", "give a row for each block that was measured")
        return LayerProfile(rows, document.source)
    document.require_schema(SCHEMA, ", or a table in CSV")
    return profile_of(document, document.tree, "")


def profile_of(document: Document, tree: object, where: str) -> LayerProfile:
    """Return the profile that a table describes, found at the key ``where`` of a document.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy; of the class that the document raises.
    """
    table = document.convert(tree, ProfileFile, where)
    rows = [_measured(document, row, item(key(where, "rows"), at)) for at, row in enumerate(table.rows)]
    return LayerProfile(tuple(rows), table.name or document.source)


def profile_document(profile: LayerProfile) -> dict[str, Any]:
    """Return a profile as a plain object under ``nest.profile/1``, for other files to carry."""
    return {"schema": SCHEMA, "name": profile.source, "rows": [_values(row) for row in profile.rows]}


def _values(row: Measurement) -> dict[str, Any]:
    names = ("kind", *NUMBERS, "dtype", "forward_s", "backward_s", "kept_bytes", "source")
    return {name: value for name in names if (value := getattr(row, name)) not in (None, "")}


def _measured(document: Document, row: ProfileRow, where: str) -> Measurement:
    kept = figure(document, row, "kept", SIZES, where)
    times = [figure(document, row, name, TIMES, where) for name in ("forward", "backward")]
    forward, backward = (0.0 if time is None else time for time in times)
    if None in times:
        name = "forward" if times[0] is None else "backward"
        units = ", ".join(f"{name}_{unit}" for unit in TIMES)
        document.fail(where, f"no time of the {name} pass", f"give one of {units}")
    try:
        return Measurement(
            row.kind,
            row.microbatch,
            row.tensor,
            forward,
            backward,
            row.context,
            None if row.sequence is UNSET else row.sequence,
            None if row.dtype is UNSET else row.dtype,
            None if kept is None else int(kept),
            row.source,
            where,
        )
    except InvalidProblem as fault:
        document.fail(fault.where, fault.problem, fault.remedy)
