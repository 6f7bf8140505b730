"""Captured modules as files, in TOML or JSON, under the schema ``nest.captured/1``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from nest.capture.captured import Affine, Captured, CapturedEdge, CapturedLayer, Figures, Kernel
from nest.errors import InvalidProblem
from nest.files.disk import write_text
from nest.files.document import Document, names_schema
from nest.files.limits import MOST_BYTES, Count, Place, Switch, Table, Text
from nest.files.toml import Values, assignments, listing

SCHEMA = "nest.captured/1"

Whole = Annotated[int, Meta(ge=-(2**62), le=2**62, description="a whole number")]
Line = Annotated[
    list[Whole], Meta(min_length=2, max_length=2, description="two numbers: a fixed part, and that of each sequence")
]
Number = Annotated[int, Meta(ge=0, le=MOST_BYTES, description=f"a whole number from 0 to {MOST_BYTES}")]


class KernelTable(Table):
    """Kernels of a kind of layer."""

    kind: Text
    when: Annotated[Literal["forward", "backward"], Meta(description='"forward" or "backward"')]
    name: Text
    work: Annotated[Literal["product", "attention", "moved"], Meta(description='"product", "attention" or "moved"')]
    flops: Line
    bytes: Line
    shape: Annotated[list[Line], Meta(description="a list of pairs")] = field(default_factory=list)
    count: Count = 1


class KindTable(Table):
    """A kind of layer."""

    kind: Text
    working_bytes: Line


class LayerTable(Table):
    """A layer."""

    name: Text
    kind: Text
    parameters: Number
    kept_bytes: Line
    entering_bytes: Line
    tied: Number = 0
    repeats: Switch = False


class EdgeTable(Table):
    """What goes from one layer to another, by their places."""

    source: Place
    target: Place
    bytes: Line


class CapturedFile(Table):
    """A module as `nest capture` writes it; every pair is a fixed part and that of each sequence of a microbatch."""

    schema: Annotated[Literal["nest.captured/1"], Meta(description='"nest.captured/1", the version read here')]
    name: Text
    inputs: list[Text]
    batch: Count
    dtype: Annotated[Literal["bf16", "fp16", "fp32"], Meta(description='"bf16", "fp16" or "fp32"')]
    layers: Annotated[list[LayerTable], Meta(min_length=1, description="a list of layers")]
    kinds: Annotated[list[KindTable], Meta(min_length=1, description="a list of kinds of layers")]
    kernels: Annotated[list[KernelTable], Meta(description="a list of kernels")]
    edges: Annotated[list[EdgeTable], Meta(description="a list of edges")]
    linear: Switch = True
    sequence: Annotated[int, Meta(ge=0, le=2**31, description="a whole number from 0")] = 0
    how: Annotated[Literal["export", "hooks"], Meta(description='"export" or "hooks"')] = "export"
    torch: Text = ""
    notes: list[Text] = field(default_factory=list)


def is_captured(path: Path) -> bool:
    """Whether a file is a captured module, by the schema that it names."""
    return names_schema(path, SCHEMA)


def read_captured(path: str | Path) -> Captured:
    """Read a captured module.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy.
    """
    document = Document.read(path)
    document.require_schema(SCHEMA, "")
    tables = document.decode(CapturedFile)
    try:
        return _captured(tables)
    except InvalidProblem as fault:
        raise fault.at(str(path)) from None


def write_captured(captured: Captured, path: str | Path) -> None:
    """Write a captured module, as TOML where the name ends so, else as JSON; raises `OSError` if it cannot."""
    head, tables = _head(captured), _tables(captured)
    if Path(path).suffix.lower() == ".toml":
        lines = [*assignments(head), *(line for name, rows in tables.items() for line in ("", *listing(name, rows)))]
        write_text(path, "\n".join([*lines, ""]))
    else:
        write_text(path, "\n".join([*_json(head, tables), ""]))


def _json(head: Values, tables: Mapping[str, Sequence[Values]]) -> Iterator[str]:
    """Yield JSON with one row of a table a line."""
    yield "{"
    for name, value in head.items():
        yield f"  {json.dumps(name)}: {json.dumps(value)},"
    for at, (name, rows) in enumerate(tables.items()):
        yield f"  {json.dumps(name)}: ["
        yield ",\n".join(f"    {json.dumps(row)}" for row in rows)
        yield "  ]" if at == len(tables) - 1 else "  ],"
    yield "}"


def _head(captured: Captured) -> Values:
    return {
        "schema": SCHEMA,
        "name": captured.name,
        "inputs": list(captured.inputs),
        "batch": captured.batch,
        "linear": captured.linear,
        "dtype": captured.dtype,
        "sequence": captured.sequence,
        "how": captured.how,
        "torch": captured.torch,
        "notes": list(captured.notes),
    }


def _tables(captured: Captured) -> dict[str, list[Values]]:
    return {
        "layers": [_layer_row(layer) for layer in captured.layers],
        "edges": [
            {"source": edge.source, "target": edge.target, "bytes": _pair(edge.bytes)} for edge in captured.edges
        ],
        "kinds": [
            {"kind": kind, "working_bytes": _pair(each.working_bytes)} for kind, each in captured.figures.items()
        ],
        "kernels": [row for kind, each in captured.figures.items() for row in _kernel_rows(kind, each)],
    }


def _layer_row(layer: CapturedLayer) -> Values:
    return {
        "name": layer.name,
        "kind": layer.kind,
        "parameters": layer.parameters,
        "tied": layer.tied,
        "kept_bytes": _pair(layer.kept),
        "entering_bytes": _pair(layer.entering),
        "repeats": layer.repeats,
    }


def _kernel_rows(kind: str, figures: Figures) -> Iterator[Values]:
    for when in ("forward", "backward"):
        for kernel in getattr(figures, when):
            yield {
                "kind": kind,
                "when": when,
                "name": kernel.name,
                "work": kernel.work,
                "flops": _pair(kernel.flops),
                "bytes": _pair(kernel.bytes),
                "shape": [_pair(length) for length in kernel.shape],
                "count": kernel.count,
            }


def _pair(line: Affine) -> list[int]:
    return [line.fixed, line.each]


def _captured(tables: CapturedFile) -> Captured:
    return Captured(
        tables.name,
        tuple(tables.inputs),
        tables.batch,
        tables.linear,
        tables.dtype,
        tables.sequence,
        tables.how,
        tuple(_layer(each) for each in tables.layers),
        {each.kind: _figures(each, tables.kernels) for each in tables.kinds},
        tuple(CapturedEdge(each.source, each.target, Affine(*each.bytes)) for each in tables.edges),
        tables.torch,
        tuple(tables.notes),
    )


def _layer(table: LayerTable) -> CapturedLayer:
    kept, entering = Affine(*table.kept_bytes), Affine(*table.entering_bytes)
    return CapturedLayer(table.name, table.kind, table.parameters, table.tied, kept, entering, table.repeats)


def _figures(table: KindTable, kernels: Sequence[KernelTable]) -> Figures:
    passes = {
        when: tuple(_kernel(each) for each in kernels if each.kind == table.kind and each.when == when)
        for when in ("forward", "backward")
    }
    return Figures(passes["forward"], passes["backward"], Affine(*table.working_bytes))


def _kernel(table: KernelTable) -> Kernel:
    shape = tuple(Affine(*length) for length in table.shape)
    return Kernel(table.name, table.work, Affine(*table.flops), Affine(*table.bytes), shape, table.count)
