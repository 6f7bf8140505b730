"""One published measurement with everything that was run."""

from __future__ import annotations

from dataclasses import dataclass

from nest.costing import Layout, Recipe, Setting
from nest.families import Architecture
from nest.hardware import Hardware


@dataclass(frozen=True)
class Case:
    """A measurement.

    Parameters
    ----------
    name, section
        For people to read; ranks are compared within a section.
    fitted
        Whether constants were fitted on it.
    model, hardware, setting, layout, recipe
        What was run.
    seconds
        Time of an iteration; None if it was not measured.
    memory_bytes
        The most on any device, or on each stage; empty if not measured.
    fits
        Whether it ran; None if that is not stated.
    """

    name: str
    section: str
    fitted: bool
    model: Architecture
    hardware: Hardware
    setting: Setting
    layout: Layout
    recipe: Recipe
    seconds: float | None = None
    memory_bytes: tuple[int, ...] = ()
    fits: bool | None = None
