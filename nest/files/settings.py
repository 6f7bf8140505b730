"""``KEY=VALUE`` settings that replace choices of a problem, as the command line's ``--set`` takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nest.constraints import ReservedDevices
from nest.errors import InvalidProblem
from nest.files.allowed import (
    ADVICE,
    DEVICES_ADVICE,
    SCHEDULE_ADVICE,
    WIDTHS_ADVICE,
    ZERO_ADVICE,
    parse_allowed,
    parse_devices,
    parse_recompute,
    parse_schedules,
    parse_widths,
    parse_zero,
)
from nest.files.words import meant, show
from nest.problem import Choices, Problem

DOWN = "down"
"""What is no choice of the problem, but may be set as if it was: devices that no plan may take."""


def apply_settings(problem: Problem, settings: Sequence[str]) -> Problem:
    """Return the problem with some choices replaced; of two settings of one key the later counts.

    Parameters
    ----------
    settings
        Such as ``zero=none``, ``tensor=1,2``, ``stages=8..16`` (both ends included), ``recompute=full``,
        ``sequence=true``; ``any`` frees a choice. ``down=8..15,40`` reserves devices, in the place of those that were.

    Raises
    ------
    InvalidProblem
        Naming the setting, what is wrong with it, and what would be right.
    """
    changes = dict(map(_change, settings))
    down: Any = changes.pop(DOWN, None)
    try:
        changed = problem.with_choices(**changes)
        return changed if down is None else _without(changed, down)
    except InvalidProblem as fault:
        raise InvalidProblem(f"--set {' '.join(settings)}", fault.problem, fault.remedy) from None


OWN = ("stage_tensor", "shard_inside")
"""Choices that let each stage be of figures of its own."""

NAMED = ("context", "microbatch")
"""Choices of which a run tries the usual values, unless others are named."""


def with_own(choices: Choices, settings: Sequence[str]) -> Choices:
    """Return choices with what settings name or let each stage have of its own, so that a run has the figures for it.

    Raises
    ------
    InvalidProblem
        As `apply_settings`, if a setting is none.
    """
    changes: dict[str, Any] = dict(map(_change, settings))
    named = {name: changes[name] for name in NAMED if name in changes and getattr(choices, name) is None}
    choices = replace(choices, **named)
    if all(changes.get(name) is None for name in OWN):
        return choices
    names = (*OWN, "splits_batch") if changes.get("shard_inside") is not None else OWN
    return replace(choices, **{name: changes[name] for name in names if name in changes})


def parse_price(text: str) -> float | None:
    """Return the price that a text says, None for any.

    Raises
    ------
    ValueError
        If it is none.
    """
    try:
        return None if text == "any" else float(text)
    except ValueError:
        raise ValueError(f"{show(text)} is no price") from None


def _without(problem: Problem, down: frozenset[int]) -> Problem:
    """Return a problem with some devices reserved, and no others."""
    kept = [each for each in problem.constraints if not isinstance(each, ReservedDevices)]
    if not down:
        return problem.with_constraints(*kept)
    reserved = ReservedDevices(sorted(down))
    reserved.check(problem)
    return problem.with_constraints(*kept, reserved)


def _change(setting: str) -> tuple[str, object]:
    """Return the choice that a setting names, and its value."""
    name, equals, text = (part.strip() for part in setting.partition("="))
    if not equals:
        raise InvalidProblem(f"--set {setting}".rstrip(), "no KEY=VALUE", "write it as in zero=none or tensor=1,2")
    name, known = ALIASES.get(name, name), {**PARSERS, DOWN: (parse_devices, DEVICES_ADVICE)}
    if name not in known:
        raise InvalidProblem(
            f"--set {setting}", f"{show(name)} is no choice", meant(name, known, f"the choices are {', '.join(known)}")
        )
    parse, advice = known[name]
    try:
        return name, parse(text)
    except (ValueError, KeyError) as fault:
        problem = f"{show(text)} is none of its values" if isinstance(fault, KeyError) else str(fault)
        raise InvalidProblem(f"--set {setting}", problem, f"give {advice}") from None


Parser = tuple[Callable[[str], object], str]
"""How to read the value of a choice, and what would be right."""

ALIASES = {"sequence_parallel": "sequence"}
"""Names of choices beside their own: where a run says how long a sequence is, ``sequence`` would mean two things."""

PARSERS: Mapping[str, Parser] = {
    **dict.fromkeys(("tensor", "expert", "context", "microbatch"), (parse_allowed, ADVICE)),
    "sequence": ({"true": True, "false": False, "any": None}.__getitem__, "true, false or any"),
    **dict.fromkeys(("replicas", "stages"), (parse_allowed, ADVICE)),
    "zero": (parse_zero, ZERO_ADVICE),
    **dict.fromkeys(("zero_degree", "recomputed", "chunks"), (parse_allowed, ADVICE)),
    "hybrid": ({"true": True, "false": False}.__getitem__, "true or false"),
    **dict.fromkeys(("stage_tensor", "shard_inside"), (parse_widths, WIDTHS_ADVICE)),
    "splits_batch": ({"true": True, "false": False, "any": None}.__getitem__, "true, false or any"),
    "stage_recompute": (parse_recompute, "any, or kinds among none, selective and full, as in none,full"),
    "schedules": (parse_schedules, SCHEDULE_ADVICE),
    "price_at_most": (parse_price, "a price from 0, or any"),
    "recompute": ({"none": "none", "full": "full"}.__getitem__, "none or full"),
}
