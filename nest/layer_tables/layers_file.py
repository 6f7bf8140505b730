"""Tables of layers as files: CSV, or rows in JSON or TOML under the schema ``nest.layers/1``."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nest.errors import InvalidProblem
from nest.files.columns import SIZES, TIMES, Columns, Figure, figure, first_cells, is_csv
from nest.files.disk import write_text
from nest.files.document import Document
from nest.files.faults import item
from nest.files.limits import MOST_BYTES, MOST_LAYERS, Count, Place, Switch, Table, Text
from nest.layer_tables.table import LayerFigures, LayerTable, Point, TableRow

SCHEMA = "nest.layers/1"

Name = Annotated[str, Meta(min_length=1, max_length=1000, description="the name of a layer")]
Number = Annotated[int, Meta(ge=0, le=MOST_BYTES, description=f"a whole number from 0 to {MOST_BYTES}")]
Repeated = Annotated[int, Meta(ge=1, le=MOST_LAYERS, description=f"a whole number from 1 to {MOST_LAYERS}")]

PARTS = {
    "forward_s": "forward",
    "backward_s": "backward",
    "together_s": "together",
    "weight_bytes": "weights",
    "kept_bytes": "kept",
    "memory_bytes": "memory",
    "output_bytes": "output",
    "input_bytes": "input",
    "working_bytes": "working",
    "exchanged_bytes": "all_reduce",
}
"""Figures of a layer, and what their columns begin with."""

COLUMNS = Columns(("layer", "kind"), ("place", "tensor", "microbatch", "count", "parameters"), ("repeats",))

_MARK = re.compile(r"(forward|backward|together)_\w+")
_SCHEMA = re.compile(r"""["']?\bschema["']?\s*[:=]\s*["']nest\.layers/""")


class LayerRow(Table):
    """A layer, under which widths it was measured, and what it takes; each figure in exactly one unit."""

    layer: Name
    place: Place | UnsetType = UNSET
    kind: Text = ""
    count: Repeated = 1
    tensor: Count = 1
    microbatch: Count | UnsetType = UNSET
    forward_s: Figure = UNSET
    forward_ms: Figure = UNSET
    forward_us: Figure = UNSET
    backward_s: Figure = UNSET
    backward_ms: Figure = UNSET
    backward_us: Figure = UNSET
    together_s: Figure = UNSET
    together_ms: Figure = UNSET
    together_us: Figure = UNSET
    parameters: Number | UnsetType = UNSET
    weights_bytes: Figure = UNSET
    weights_kib: Figure = UNSET
    weights_mib: Figure = UNSET
    weights_gib: Figure = UNSET
    kept_bytes: Figure = UNSET
    kept_kib: Figure = UNSET
    kept_mib: Figure = UNSET
    kept_gib: Figure = UNSET
    memory_bytes: Figure = UNSET
    memory_kib: Figure = UNSET
    memory_mib: Figure = UNSET
    memory_gib: Figure = UNSET
    output_bytes: Figure = UNSET
    output_kib: Figure = UNSET
    output_mib: Figure = UNSET
    output_gib: Figure = UNSET
    input_bytes: Figure = UNSET
    input_kib: Figure = UNSET
    input_mib: Figure = UNSET
    input_gib: Figure = UNSET
    working_bytes: Figure = UNSET
    working_kib: Figure = UNSET
    working_mib: Figure = UNSET
    working_gib: Figure = UNSET
    all_reduce_bytes: Figure = UNSET
    all_reduce_kib: Figure = UNSET
    all_reduce_mib: Figure = UNSET
    all_reduce_gib: Figure = UNSET
    repeats: Switch = True


class LayersFile(Table):
    """Measured layers of a model, in its order unless they have places."""

    schema: Annotated[Literal["nest.layers/1"], Meta(description='"nest.layers/1", the version read here')]
    rows: Annotated[list[LayerRow], Meta(min_length=1, description="a list of layers")]
    name: Text = ""


def layers_schema() -> dict[str, Any]:
    """Return the JSON Schema of tables of layers in JSON and TOML, as published in ``docs/layers.schema.json``."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"Table of layers for nest, {SCHEMA}"}
    return head | msgspec.json.schema(LayersFile)


def is_layer_table(path: Path) -> bool:
    """Whether a file is a table of layers: by its schema, whatever else is wrong with it, or in CSV by its columns."""
    if not path.is_file():
        return False
    try:
        document = Document.read(path)
        if is_csv(document):
            return _is_headed(document)
    except InvalidProblem:
        return False
    return _SCHEMA.search(document.text) is not None and _says_so(document)


def _says_so(document: Document) -> bool:
    """Whether the schema stands at the top of a document, or nobody can tell, since the document is broken."""
    try:
        return str(document.tree.get("schema")).startswith("nest.layers/")
    except InvalidProblem:
        return True


def _is_headed(document: Document) -> bool:
    """Whether a table in CSV begins as one of layers does, upright or on its side."""
    first = [name.lower() for name in first_cells(document)]
    return first[0] == "layer" or "layer" in first or any(_MARK.fullmatch(name) for name in first)


def read_layer_table(path: str | Path) -> LayerTable:
    """Read a table of layers; JSON, TOML and CSV are told apart by content.

    Raises
    ------
    InvalidProblem
        Naming file, row, column and remedy.
    """
    document = Document.read(path)
    name, notes = Path(path).stem, list[str]()
    if is_csv(document):
        rows = list(COLUMNS.rows(document, LayerRow, may_lie=True))
    else:
        document.require_schema(SCHEMA, ", or a table in CSV")
        tables = document.decode(LayersFile)
        name = tables.name or name
        rows = [(row, item("rows", at)) for at, row in enumerate(tables.rows)]
    if any(row.microbatch is UNSET for row, _ in rows):
        notes.append("rows that name no microbatch are taken to be of one sequence")
    read = tuple(_row(document, row, where) for row, where in rows)
    return LayerTable(name, read, document.source, notes=tuple(notes))


def _row(document: Document, row: LayerRow, where: str) -> TableRow:
    figures: dict[str, Any] = {}
    for name, part in PARTS.items():
        value = figure(document, row, part, TIMES if name.endswith("_s") else SIZES, where)
        figures[name] = value if value is None or name.endswith("_s") else ceil(value)
    try:
        return TableRow(
            row.layer,
            Point(row.tensor, 1 if row.microbatch is UNSET else row.microbatch),
            LayerFigures(parameters=None if row.parameters is UNSET else row.parameters, **figures),
            row.kind,
            None if row.place is UNSET else row.place,
            row.count,
            row.repeats,
            where,
        )
    except InvalidProblem as fault:
        document.fail(where, fault.problem, fault.remedy)


def write_layer_table(table: LayerTable, path: str | Path) -> None:
    """Write a table in CSV, cells empty where nobody measured; raises `OSError` if it cannot."""
    write_text(path, layer_table_csv(table))


def layer_table_csv(table: LayerTable) -> str:
    """Return a table in CSV, with a column for each figure that a plan needs, and for others that some layer has."""
    wanted = [name for name in _WANTED if name in _NEEDED or any(_cell(row, name) for row in table.rows)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_header(name) for name in wanted])
    writer.writerows([[_cell(row, name) for name in wanted] for row in _ordered(table)])
    return text.getvalue()


_WANTED = ("layer", "place", "kind", "count", "tensor", "microbatch", *PARTS, "parameters", "repeats")
_NEEDED = ("layer", "tensor", "microbatch", "forward_s", "backward_s", "weight_bytes", "kept_bytes", "output_bytes")


def _ordered(table: LayerTable) -> Iterable[TableRow]:
    return (row for point in table.points for row in table.at(point))


def _header(name: str) -> str:
    if name not in PARTS:
        return name
    return f"{PARTS[name]}_{'s' if name.endswith('_s') else 'bytes'}"


def _cell(row: TableRow, name: str) -> str:
    """Return a cell; empty for what is left out, or as usual."""
    others: dict[str, object] = {
        "layer": row.name,
        "place": row.place,
        "kind": row.kind,
        "count": row.count if row.count > 1 else None,
        "tensor": row.point.tensor,
        "microbatch": row.point.microbatch,
        "repeats": None if row.repeats else "no",
    }
    value = others[name] if name in others else getattr(row.figures, name)
    return "" if value is None else str(value)
