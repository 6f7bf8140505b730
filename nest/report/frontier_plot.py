"""A front of devices and time as a picture. Needs `matplotlib`, which nothing else does."""

from __future__ import annotations

from io import BytesIO
from typing import Literal, TypeAlias

from matplotlib.figure import Figure

from nest.objectives import Frontier

Format: TypeAlias = Literal["png", "svg"]


def frontier_plot(frontier: Frontier, kind: Format) -> bytes:
    """Draw the time of an iteration over the devices, and return the picture's file.

    The line is the best time with so many devices or fewer; its dots are the points of the front.
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    devices = [point.devices for point in frontier.points]
    times = [frontier.time.seconds(point.ticks) for point in frontier.points]
    axes.step([*devices, frontier.problem.cluster.devices], [*times, *times[-1:]], where="post", linewidth=1)
    axes.plot(devices, times, marker="o", markersize=4, linestyle="none", color="C0")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if all(time > 0 for time in times):
        axes.set_yscale("log")
    axes.set_xlabel("devices")
    axes.set_ylabel("iteration (s)")
    axes.set_title(f"{frontier.problem.name}, preset {frontier.problem.preset.name}")
    file = BytesIO()
    figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()
