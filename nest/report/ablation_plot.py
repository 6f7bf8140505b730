"""What parts of the optimisation are worth, as a picture. Needs `matplotlib`, which nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from math import inf
from typing import Literal, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nest.ablate import FULL, Point, Row, Verdict
from nest.problem import Problem

Format: TypeAlias = Literal["png", "svg"]

_MARKERS = {"x": "breaks a rule", ".": "no plan"}

_SHAPES = "osD^v<>ph*"
"""Markers of the lines, which may lie upon each other."""

_STEEP = 20
"""Above this ratio the scale is logarithmic, or everything else lies on one line."""

_FLOOR = 0.03
"""Height, as a part of the axes, of the marks of what has no time."""


def ablation_plot(problem: Problem, rows: Sequence[Row], kind: Format) -> bytes:
    """Draw the time of each blinded plan over that of the full optimum, and return the picture's file.

    Over the values of the sweep where there is one of numbers, else over the points by name, and without any over the
    blindings. A cross at the bottom is a plan that breaks a rule, a dot there is no plan.
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    points = list(dict.fromkeys(row.point for row in rows))
    blinded = [row for row in rows if row.blinding != FULL]
    if points == [()]:
        _bars(axes, blinded)
    else:
        _lines(axes, blinded, points)
    axes.axhline(1, color="black", linewidth=1, linestyle="--", label="full optimum")
    axes.set_ylabel("time of an iteration / that of the full optimum")
    if max([row.ratio or 0 for row in blinded], default=0) > _STEEP:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_title(f"{problem.name}, preset {problem.preset.name}")
    for marker, meaning in _MARKERS.items():
        axes.plot([], [], marker=marker, linestyle="none", color="black", label=meaning)
    figure.legend(loc="outside right upper", fontsize="small")
    file = BytesIO()
    figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def _bars(axes: Axes, rows: Sequence[Row]) -> None:
    names = [row.blinding for row in rows]
    axes.bar(names, [row.ratio or 0 for row in rows])
    axes.tick_params(axis="x", rotation=30)
    _mark(axes, range(len(rows)), rows, "black")


def _lines(axes: Axes, rows: Sequence[Row], points: Sequence[Point]) -> None:
    """Draw a line for each blinding, broken where a plan has no time."""
    places = _places(points)
    for at, name in enumerate(dict.fromkeys(row.blinding for row in rows)):
        mine = sorted((row for row in rows if row.blinding == name), key=lambda row: places[row.point])
        across = [places[row.point] for row in mine]
        heights = [float("nan") if row.ratio is None else row.ratio for row in mine]
        axes.plot(across, heights, marker=_SHAPES[at % len(_SHAPES)], fillstyle="none", color=f"C{at}", label=name)
        _mark(axes, across, mine, f"C{at}")
    if len(points[0]) == 1:
        axes.set_xlabel(points[0][0][0])
    if not _numeric(points):
        names = [", ".join(f"{key}={value}" for key, value in point) for point in points]
        axes.set_xticks([places[point] for point in points], names, rotation=30, ha="right", fontsize="small")


def _places(points: Sequence[Point]) -> dict[Point, float]:
    if _numeric(points):
        return {point: float(point[0][1]) for point in points}
    return {point: float(at) for at, point in enumerate(points)}


def _numeric(points: Sequence[Point]) -> bool:
    """Whether the points are values of one sweep that are all numbers."""
    try:
        return len(points[0]) == 1 and all(-inf < float(point[0][1]) < inf for point in points)
    except ValueError:
        return False


def _mark(axes: Axes, across: Sequence[float], rows: Sequence[Row], colour: str) -> None:
    """Mark plans that break a rule, and where there is no plan, at the bottom."""
    for marker, meaning in _MARKERS.items():
        where = [at for at, row in zip(across, rows, strict=True) if _meaning(row) == meaning]
        heights = [_FLOOR] * len(where)
        axes.plot(where, heights, marker, color=colour, transform=axes.get_xaxis_transform())


def _meaning(row: Row) -> str:
    """Return why a row has no time; empty where it has one."""
    if row.outcome.plan is None:
        return "no plan"
    return "breaks a rule" if row.outcome.verdict is Verdict.BROKEN else ""
