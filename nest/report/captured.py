"""A captured module as text for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from nest.capture import Captured, CapturedLayer
from nest.report.format import counted, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table

_COLUMNS = (
    Column("Layers", number=True),
    Column("Kind", folds=True, least=12),
    Column("Parameters", number=True),
    Column("Forward FLOPs", number=True),
    Column("Backward FLOPs", number=True),
    Column("Kept", number=True),
    Column("Sent", number=True),
)

_CHECKED = (
    Column("Figure"),
    Column("Captured", number=True),
    Column("Measured", number=True),
    Column("Off by", number=True),
)


def captured_text(captured: Captured, screen: Screen) -> str:
    """Return the layers of a captured module, runs of equal ones in one line, at the smallest batch captured."""
    batch = captured.batch
    summary = Summary()
    summary.add("Module", captured.name)
    summary.add("Inputs", ", ".join(captured.inputs))
    summary.add(
        "Captured", f"by {captured.how}, torch {captured.torch}; figures are those of {counted(batch, 'sequence')}"
    )
    summary.add("Batch", "everything is linear in it" if captured.linear else f"{batch} only")
    summary.add("Parameters", f"{captured.parameters:,}, shared ones counted once")
    summary.add(
        "FLOPs", f"{captured.forward_flops.at(batch):,} forward, {captured.backward_flops.at(batch):,} backward"
    )
    summary.add("Kept", f"{captured.kept.at(batch):,} bytes for the backward pass")
    summary.extend("Noted", captured.notes)
    return render(screen, ruled_table(_COLUMNS, _rows(captured)), summary.table)


def checked_text(rows: Sequence[tuple[str, int, int, float]], screen: Screen) -> str:
    """Return a table of figures captured and measured: name, both, and by which part they differ."""
    cells = [(what, f"{one:,}", f"{two:,}", f"{100 * off:+.2f} %") for what, one, two, off in rows]
    return render(screen, ruled_table(_CHECKED, cells))


def captured_facts(captured: Captured) -> dict[str, object]:
    """Return what the text says, ready for JSON; bytes and FLOPs of the smallest batch captured."""
    batch = captured.batch
    return {
        "schema": "nest.capture-summary/1",
        "name": captured.name,
        "inputs": list(captured.inputs),
        "batch": batch,
        "linear": captured.linear,
        "dtype": captured.dtype,
        "how": captured.how,
        "parameters": captured.parameters,
        "forward_flops": captured.forward_flops.at(batch),
        "backward_flops": captured.backward_flops.at(batch),
        "kept_bytes": captured.kept.at(batch),
        "layers": [
            {
                "name": layer.name,
                "kind": layer.kind,
                "parameters": layer.parameters,
                "tied": layer.tied,
                "forward_flops": captured.figures[layer.kind].forward_flops.at(batch),
                "backward_flops": captured.figures[layer.kind].backward_flops.at(batch),
                "kept_bytes": layer.kept.at(batch),
            }
            for layer in captured.layers
        ],
        "edges": [
            {"source": edge.source, "target": edge.target, "bytes": edge.bytes.at(batch)} for edge in captured.edges
        ],
        "notes": list(captured.notes),
    }


def _rows(captured: Captured) -> Sequence[Sequence[str]]:
    """Return a row for each run of equal layers."""
    sent = {edge.source: edge.bytes.at(captured.batch) for edge in reversed(captured.edges)}
    cells = [_cells(captured, layer, sent.get(at, 0)) for at, layer in enumerate(captured.layers)]
    return [(str(len(list(run))), *alike) for alike, run in groupby(cells)]


def _cells(captured: Captured, layer: CapturedLayer, sent: int) -> tuple[str, ...]:
    figures, batch = captured.figures[layer.kind], captured.batch
    return (
        layer.kind,
        f"{layer.parameters:,}",
        f"{figures.forward_flops.at(batch):,}",
        f"{figures.backward_flops.at(batch):,}",
        size(layer.kept.at(batch)),
        size(sent) if sent else "",
    )
