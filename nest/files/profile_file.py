"""Measured times of layers: tables in CSV, or rows in JSON or TOML under the schema ``nest.profile/1``."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from nest.costing import LayerProfile, Measurement
from nest.errors import InvalidProblem
from nest.files.document import Document
from nest.files.faults import item, key
from nest.files.limits import Count, Table, Text
from nest.files.words import meant

SCHEMA = "nest.profile/1"

TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Units of times, as they end the name of a column, in seconds."""

SIZES = {"bytes": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
"""Units of memory, in bytes."""

NUMBERS = ("microbatch", "tensor", "context", "sequence")

NotNegative = Annotated[float, Meta(ge=0, le=2**53, description="a number from 0")]

Time = NotNegative | UnsetType


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
    forward_s: Time = UNSET
    forward_ms: Time = UNSET
    forward_us: Time = UNSET
    backward_s: Time = UNSET
    backward_ms: Time = UNSET
    backward_us: Time = UNSET
    kept_bytes: NotNegative | UnsetType = UNSET
    kept_kib: NotNegative | UnsetType = UNSET
    kept_mib: NotNegative | UnsetType = UNSET
    kept_gib: NotNegative | UnsetType = UNSET
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
    if _is_csv(document):
        rows = tuple(_csv_rows(document))
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


def _is_csv(document: Document) -> bool:
    """Whether the first line that says something has columns, and assigns nothing."""
    lines = (line.strip() for line in document.text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return "," in first and "=" not in first and not document.is_json


def _csv_rows(document: Document) -> Iterator[Measurement]:
    """Yield the measurements of a table; lines that begin with ``#`` say something to people."""
    numbered = ((at, line) for at, line in enumerate(document.text.splitlines(), start=1) if line.strip())
    lines = [(at, line) for at, line in numbered if not line.lstrip().startswith("#")]
    names = [name.strip() for name in next(csv.reader([lines[0][1]]))]
    for at, name in enumerate(names):
        if name in names[:at]:
            document.fail(f"line {lines[0][0]}", f"two columns {name!r}", "take one out")
        if name not in ProfileRow.__struct_fields__:
            known = ", ".join(ProfileRow.__struct_fields__)
            remedy = meant(name, ProfileRow.__struct_fields__, f"the columns are {known}")
            document.fail(f"line {lines[0][0]}", f"there is no column {name!r}", remedy)
    for at, line in lines[1:]:
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        if len(cells) != len(names):
            document.fail(f"line {at}", f"{len(cells)} cells for {len(names)} columns", "give one for each")
        tree = {name: _value(name, cell) for name, cell in zip(names, cells, strict=True) if cell}
        yield _measured(document, document.convert(tree, ProfileRow, f"line {at}"), f"line {at}")


def _value(name: str, cell: str) -> object:
    """Return a cell as the number that it should be; as text where it is none, for the check to name."""
    if name in ("kind", "dtype", "source"):
        return cell
    try:
        return int(cell) if name in NUMBERS else float(cell)
    except ValueError:
        return cell


def _measured(document: Document, row: ProfileRow, where: str) -> Measurement:
    kept = _figure(document, row, "kept", SIZES, where)
    times = [_figure(document, row, name, TIMES, where) for name in ("forward", "backward")]
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


def _figure(document: Document, row: ProfileRow, name: str, units: Mapping[str, float], where: str) -> float | None:
    """Return a figure in seconds or bytes, given in one unit at most; None if it is left out."""
    given = {unit: value for unit in units if (value := getattr(row, f"{name}_{unit}")) is not UNSET}
    if len(given) > 1:
        both = " and ".join(f"{name}_{unit}" for unit in given)
        document.fail(where, f"both {both}", "give one of them")
    return next((value * units[unit] for unit, value in given.items()), None)
