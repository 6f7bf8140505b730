"""Values that a choice may take, as files and settings write them: ``any``, ``4``, ``1,2``, ``8..16``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nest.files.limits import MOST_COUNT
from nest.files.words import show
from nest.presets import SCHEDULES, ScheduleName
from nest.problem import RECOMPUTE, Allowed, Recompute

RANGES = r"[0-9]{1,10}(\.\.[0-9]{1,10})?(,[0-9]{1,10}(\.\.[0-9]{1,10})?)*"
GRAMMAR = rf"^(any|{RANGES})$"
WIDEST_RANGE = 65_536
RANGES_ADVICE = "whole numbers from 1, as in 4, 1,2 or 8..16 (both ends included)"
ADVICE = f'{RANGES_ADVICE}, or "any"'
WIDTHS_GRAMMAR = rf"^(none|{RANGES})$"
WIDTHS_ADVICE = f'{RANGES_ADVICE}, or "none"'
ZERO_ADVICE = '"none", "any", or ZeRO types among 0, 1, 2, 3, as in 3 or 0,3'

DEVICES_ADVICE = "devices from 0 on, as in 7 or 8..15,40, or none"

RECOMPUTE_ADVICE = '"any", or kinds among "none", "selective" and "full"'

SCHEDULE_ADVICE = "one or several of " + ", ".join(SCHEDULES)

EVERY_ZERO = frozenset({0, 1, 2, 3})


def parse_allowed(text: str) -> Allowed:
    """Return the values that a text allows.

    Raises
    ------
    ValueError
        If it is none; the message says what is wrong with it, not what would be right.
    """
    if text == "any":
        return None
    values: set[int] = set()
    for part in text.split(","):
        values.update(_part(part.strip()))
    return frozenset(values)


def parse_widths(text: str) -> Allowed:
    """Return the widths that a text names, None for ``none``; raises `ValueError` like `parse_allowed`."""
    return None if text == "none" else frozenset(width for part in text.split(",") for width in _part(part.strip()))


def parse_zero(text: str) -> frozenset[int]:
    """Return the ZeRO types that a text allows; raises `ValueError` like `parse_allowed`."""
    if text in ("none", "any"):
        return frozenset({0}) if text == "none" else EVERY_ZERO
    values = set[int]()
    for part in text.split(","):
        values.update(_part(part.strip(), least=0, most=3))
    return frozenset(values)


def parse_devices(text: str) -> frozenset[int]:
    """Return the devices that a text names, from 0 on; raises `ValueError` like `parse_allowed`."""
    if text == "none":
        return frozenset()
    return frozenset(device for part in text.split(",") for device in _part(part.strip(), least=0))


def parse_recompute(text: str) -> frozenset[Recompute] | None:
    """Return the kinds of recomputation that a text allows; raises `ValueError` like `parse_allowed`."""
    if text == "any":
        return None
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if part not in RECOMPUTE:
            raise ValueError(f"{show(part)} is no kind of recomputation")
    return frozenset(each for each in RECOMPUTE if each in parts)


def parse_schedules(text: str) -> frozenset[ScheduleName]:
    """Return the schedules that a text allows; raises `ValueError` like `parse_allowed`."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if part not in SCHEDULES:
            raise ValueError(f"{show(part)} is no schedule")
    return frozenset(each for each in SCHEDULES if each in parts)


def spell_allowed(values: Iterable[int]) -> int | list[int] | str:
    """Return the shortest way to write some values in a file."""
    ordered = sorted(values)
    first, last = ordered[0], ordered[-1]
    if len(ordered) > 2 and last - first == len(ordered) - 1 < WIDEST_RANGE:
        return f"{first}..{last}"
    return ordered if len(ordered) > 1 else first


def _part(text: str, least: int = 1, most: int = MOST_COUNT) -> range:
    """Return the values of one number or range."""
    ends = re.fullmatch(r"([0-9]{1,10})(?:\.\.([0-9]{1,10}))?", text, re.ASCII)
    if ends is None:
        raise ValueError(f"{show(text)} is no whole number and no range")
    low, high = int(ends[1]), int(ends[2] or ends[1])
    if not least <= low <= high <= most:
        raise ValueError(f"{text} is out of range" if low <= high else f"{text} is an empty range")
    if high - low >= WIDEST_RANGE:
        raise ValueError(f"{text} holds more than {WIDEST_RANGE} values")
    return range(low, high + 1)
