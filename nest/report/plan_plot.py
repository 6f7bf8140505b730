"""A plan as a picture for a paper: the iteration's time, loads, memory. Needs `matplotlib`, which nothing else does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Literal, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nest.breakdown import LoadParts, MemoryParts
from nest.report.figures import PricedPlan
from nest.report.format import duration
from nest.report.page.bars import LOADS, MEMORY, SPENT

Format: TypeAlias = Literal["png", "svg"]

COLOURS: Mapping[str, str] = {
    "compute": "#2f65b0",
    "recompute": "#8db1e2",
    "tensor": "#cf6a1f",
    "context": "#c4980f",
    "expert": "#b2435b",
    "transfer": "#17877a",
    "sharding": "#7556a8",
    "bubble": "#c3cad3",
    "sync": "#5a4a42",
    "step": "#8a6d9f",
    "weights": "#2f65b0",
    "gradients": "#17877a",
    "optimizer": "#7556a8",
    "activations": "#cf6a1f",
    "working": "#c4980f",
    "overhead": "#9aa4b1",
    "stepping": "#8a6d9f",
}
"""Colours of parts, those of the page on a light ground."""

_LEGEND: Mapping[str, Any] = {"fontsize": "x-small", "frameon": False, "columnspacing": 1.0, "handlelength": 1.2}


def plan_plot(priced: PricedPlan, kind: Format) -> bytes:
    """Draw where the time and the memory of a plan go, and return the picture's file."""
    figure = Figure(figsize=(8, 5.6), layout="constrained")
    axes = figure.subplot_mosaic("AA;BC", gridspec_kw={"height_ratios": (1, 2.6)})
    _iteration(axes["A"], priced)
    _loads(axes["B"], priced)
    _memory(axes["C"], priced)
    file = BytesIO()
    figure.savefig(file, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def _iteration(axes: Axes, priced: PricedPlan) -> None:
    parts = {name: priced.seconds(ticks) for name, ticks in priced.spent.as_dict().items()}
    _stack(axes, [parts], SPENT)
    axes.axvline(priced.limit_s, color="#ad2417", linewidth=1, linestyle="--", label="compute limit")
    axes.set_yticks([])
    axes.set_xlim(0, priced.iteration_s)
    axes.set_xlabel("time of an iteration (s)")
    axes.set_title(
        f"{priced.problem.name}, preset {priced.problem.preset.name}: {duration(priced.iteration_s)}", pad=24
    )
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=6, **_LEGEND)


def _loads(axes: Axes, priced: PricedPlan) -> None:
    _stack(axes, [_scaled(each, priced.seconds(1) * 1e3) for each in priced.loads], LOADS)
    _rows(axes)
    axes.set_xlabel("load of a microbatch (ms)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, **_LEGEND)


def _memory(axes: Axes, priced: PricedPlan) -> None:
    per_byte = priced.evaluation.scale.quanta_per_byte
    _stack(axes, [_scaled(each, 1 / per_byte / 2**30) for each in priced.memory], MEMORY)
    for at, limit in enumerate(sorted({float(priced.capacity(at)) for at in range(len(priced.memory))})):
        axes.axvline(limit / 2**30, color="#ad2417", linewidth=1, label="_" if at else "device")
    _rows(axes)
    axes.set_xlabel("memory of a device (GiB)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, **_LEGEND)


def _rows(axes: Axes) -> None:
    axes.invert_yaxis()
    axes.set_ylabel("stage")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _scaled(parts: LoadParts | MemoryParts, factor: float) -> dict[str, float]:
    return {name: value * factor for name, value in parts.as_dict().items()}


def _stack(axes: Axes, rows: Sequence[Mapping[str, float]], names: Mapping[str, str]) -> None:
    """Draw a bar of parts for each row, from the top down."""
    starts = [0.0] * len(rows)
    for name, title in names.items():
        values = [row[name] for row in rows]
        if any(values):
            axes.barh(range(len(rows)), values, left=starts, color=COLOURS[name], label=title, height=0.8)
            starts = [start + value for start, value in zip(starts, values, strict=True)]
