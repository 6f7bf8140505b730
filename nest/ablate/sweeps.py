"""Figures of a problem that a study varies: ``KEY=VALUE,VALUE``, and the product of several of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import TypeAlias

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem
from nest.files.settings import PARSERS, apply_settings
from nest.files.words import meant, show
from nest.presets import preset_named
from nest.problem import Problem
from nest.units import Number

Point: TypeAlias = tuple[tuple[str, str], ...]
"""A value for each key."""

Sweeps: TypeAlias = Mapping[str, Sequence[str | Number]]
"""Values for each key."""

MOST = 1e15
"""Largest number that a sweep may name."""

_LEVEL = re.compile(r"level(?:\.(?P<name>.+)|\[(?P<at>[0-9]+)\])\.(?P<figure>\w+)")


def points_of(sweeps: Sweeps) -> list[Point]:
    """Return every combination of the values, the last key varying fastest; one empty point without sweeps.

    Raises
    ------
    InvalidProblem
        If a key has no value, or one twice.
    """
    columns = []
    for key, values in sweeps.items():
        spelt = [str(value).strip() for value in values]
        twice = next((value for value in spelt if spelt.count(value) > 1), None)
        if not spelt or "" in spelt or twice is not None:
            what = f"{show(twice)} is there twice" if twice else "a value is empty" if spelt else "no value"
            raise InvalidProblem(f"--sweep {key}", what, "give values as in hbm_gb=16,24,32")
        columns.append([(key, value) for value in spelt])
    return list(product(*columns))


def parse_sweeps(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the sweeps that ``KEY=VALUES`` texts ask for.

    Values are separated by commas; by semicolons where there is one, so that each may hold commas: ``zero=0;0,3``.

    Raises
    ------
    InvalidProblem
        If a text is no ``KEY=VALUES``, or a key comes twice.
    """
    sweeps: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidProblem(f"--sweep {text}".rstrip(), "no KEY=VALUES", "write it as in hbm_gb=16,24,32")
        if key in sweeps:
            raise InvalidProblem(f"--sweep {text}", f"{show(key)} is swept twice", "give all its values at once")
        sweeps[key] = values.split(";" if ";" in values else ",")
    return sweeps


def apply_point(problem: Problem, point: Point) -> Problem:
    """Return the problem with the values of a point.

    Raises
    ------
    InvalidProblem
        Naming key and value, what is wrong, and what would be right.
    """
    for key, value in point:
        try:
            problem = _changer(problem, key)(problem, value)
        except InvalidProblem as fault:
            inside = f"{fault.where}: " if fault.where and not fault.where.startswith("--set") else ""
            raise InvalidProblem(f"--sweep {key}={value}", f"{inside}{fault.problem}", fault.remedy) from None
    return problem


Changer: TypeAlias = Callable[[Problem, str], Problem]


def _changer(problem: Problem, key: str) -> Changer:
    """Return what changes the figure that a key names."""
    if key in _CHANGERS:
        return _CHANGERS[key]
    if key in PARSERS:
        return lambda problem, value: apply_settings(problem, [f"{key}={value}"])
    match = _LEVEL.fullmatch(key)
    if match is None or match["figure"] not in _FIGURES:
        every = [*_CHANGERS, *PARSERS, *_level_keys(problem.cluster)]
        raise InvalidProblem("", f"{show(key)} is no key", meant(key, every, f"the keys are {', '.join(every)}"))
    at, change = _level(problem.cluster, match), _FIGURES[match["figure"]]
    return lambda problem, value: _with_levels(problem, {at}, change, value)


def _level_keys(cluster: Cluster) -> list[str]:
    names = [f"level.{level.name}" if level.name else f"level[{at}]" for at, level in enumerate(cluster.levels)]
    return [f"{name}.{figure}" for name in names for figure in _FIGURES]


def _level(cluster: Cluster, match: re.Match[str]) -> int:
    """Return the level that a key names, by its name or its number."""
    named = [at for at, level in enumerate(cluster.levels) if match["name"] in (level.name, str(at))]
    if match["at"] is not None:
        named = [at for at in range(len(cluster.levels)) if at == int(match["at"])]
    if len(named) == 1:
        return named[0]
    asked = show(match["name"] or int(match["at"]))
    what = f"there is no level {asked}" if not named else f"there are {len(named)} levels {asked}"
    names = [level.name for level in cluster.levels if level.name]
    every = ", ".join([f"0 to {len(cluster.levels) - 1}", *names])
    raise InvalidProblem("", what, f"the levels are {every}")


def _number(text: str) -> Fraction:
    """Read a number, exactly as it is written; whether it may be 0 is for what it becomes to say."""
    try:
        sane = 0 <= float(text) <= MOST
    except ValueError:
        sane = False
    if not sane:
        raise InvalidProblem("", f"{show(text)} is no number from 0 to {MOST:g}", "give one, as in 16 or 0.5")
    return Fraction(text)


def _whole(text: str) -> int:
    value = _number(text)
    if value.denominator != 1:
        raise InvalidProblem("", f"{show(text)} is no whole number", "give one from 1 on")
    return int(value)


def _with_cluster(problem: Problem, **changes: object) -> Problem:
    return replace(problem, cluster=replace(problem.cluster, **changes))  # type: ignore[arg-type]


def _memory(unit: int) -> Changer:
    def change(problem: Problem, text: str) -> Problem:
        """Return the problem with so many units of memory on each device."""
        size = _number(text) * unit
        memory = int(size) if size.denominator == 1 else float(size)
        return replace(problem, cluster=problem.cluster.with_memory(memory))

    return change


def _devices(problem: Problem, text: str) -> Problem:
    """Keep the first devices of the cluster; its last groups may then be incomplete."""
    devices, cluster = _whole(text), problem.cluster
    if devices > cluster.devices:
        raise InvalidProblem("", f"the cluster has {cluster.devices} devices", "give at most as many")
    return _with_cluster(problem, devices=devices, partial=devices < cluster.group_sizes[-1])


def _microbatches(problem: Problem, text: str) -> Problem:
    return replace(problem, training=replace(problem.training, microbatches=_whole(text)))


LevelChange: TypeAlias = Callable[[Level, Fraction], Level]

_FIGURES: Mapping[str, LevelChange] = {
    "bandwidth_x": lambda level, by: replace(level, bandwidth_bytes_per_s=float(level.bandwidth_bytes_per_s * by)),
    "bandwidth_gb_per_s": lambda level, value: replace(level, bandwidth_bytes_per_s=float(value * 10**9)),
    "latency_x": lambda level, by: replace(level, latency_s=float(level.latency_s * by)),
    "latency_us": lambda level, value: replace(level, latency_s=float(value / 10**6)),
}
"""What can be changed on a level."""


def _with_levels(problem: Problem, which: Iterable[int], change: LevelChange, text: str) -> Problem:
    value, levels = _number(text), problem.cluster.levels
    changed = {at: change(levels[at], value) for at in which}
    return _with_cluster(problem, levels=tuple(changed.get(at, level) for at, level in enumerate(levels)))


def _every_level(figure: str) -> Changer:
    return lambda problem, text: _with_levels(problem, range(problem.levels), _FIGURES[figure], text)


_CHANGERS: Mapping[str, Changer] = {
    "hbm_gb": _memory(10**9),
    "hbm_gib": _memory(2**30),
    "devices": _devices,
    "bandwidth_x": _every_level("bandwidth_x"),
    "latency_x": _every_level("latency_x"),
    "microbatches": _microbatches,
    "preset": lambda problem, name: problem.with_preset(preset_named(name)),
}
"""Keys besides those of ``--set``."""
