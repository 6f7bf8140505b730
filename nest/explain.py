"""Why a problem has no plan, which of its constraints clash, and the least change of each kind that helps.

Every statement here is checked, not guessed: a conflict is minimal because each of its constraints was left out in turn
and the rest had a plan, and a relaxation is the least because one unit less of it has none. Whether a plan exists is
decided by memory, devices and choices alone (rules C1 to C11), which takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from nest.cluster import Cluster
from nest.cost.scale import scale_of
from nest.dp import has_plan, why_constrained, why_infeasible
from nest.errors import InvalidProblem
from nest.problem import Choices, Problem
from nest.tables import Tables
from nest.units import Number

MOST_BYTES = 2**53
"""More memory than this is not suggested for a device."""

MOST_DEVICES = 2**24
"""More devices than this are not suggested for a cluster."""


MOST_TIMES = 8
"""How many times as many devices are tried where side constraints make each try a search."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A change that makes a problem feasible.

    Attributes
    ----------
    kind
        ``"memory"``, ``"devices"``, ``"zero"``, ``"recompute"`` or ``"constraint"``.
    text
        What to change, for people.
    problem
        The problem after the change.
    """

    kind: str
    text: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a problem is infeasible.

    Attributes
    ----------
    reason
        The reason that rules out the most, in one sentence.
    conflict
        A minimal set of constraints that no plan keeps together, as on the command line.
    relaxations
        The least change of each kind that makes the problem feasible, where one does.
    """

    reason: str
    conflict: tuple[str, ...]
    relaxations: tuple[Relaxation, ...]


def explain(problem: Problem) -> Explanation | None:
    """Explain why a problem has no plan; None where it has one."""
    reason = _reason(problem)
    if reason is None:
        return None
    return Explanation(reason, _conflict(problem), tuple(_relaxations(problem)))


def _reason(problem: Problem) -> str | None:
    tables = Tables(problem, scale_of(problem))
    return why_infeasible(tables) or (None if has_plan(tables) else why_constrained(tables))


def _feasible(problem: Problem) -> bool:
    """Whether a changed problem has a plan; a change too large to be counted in ticks is none to suggest."""
    try:
        return _reason(problem) is None
    except InvalidProblem:
        return False


def _constraints(problem: Problem) -> dict[str, Problem]:
    """Return each constraint, as on the command line, with the problem that lacks it."""
    found = {}
    free = Choices()
    for spec in fields(Choices):
        value = getattr(problem.choices, spec.name)
        if spec.name != "recompute" and value != getattr(free, spec.name):
            found[f"{spec.name}={_spell(value)}"] = problem.with_choices(**{spec.name: getattr(free, spec.name)})
    for constraint in problem.constraints:
        others = [each for each in problem.constraints if each != constraint]
        found[f"{constraint.kind}: {constraint.text}"] = problem.with_constraints(*others)
    return found


def _spell(value: frozenset[int] | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value == {0} else ",".join(str(each) for each in sorted(value))


def _conflict(problem: Problem) -> tuple[str, ...]:
    """Return a minimal conflict; of two found in opposite orders, the smaller."""
    names = [*_constraints(problem), "devices", "memory"]
    found = [_minimal(problem, order) for order in (names, names[::-1])]
    return min(found, key=len)


def _minimal(problem: Problem, order: list[str]) -> tuple[str, ...]:
    """Leave constraints out in turn, and keep out those without which there is still no plan."""
    needed = []
    for name in order:
        without = _without(problem, name)
        if without is not None and not _feasible(without):
            problem = without
        else:
            needed.append(name)
    return tuple(_with_figure(problem, name) for name in needed)


def _without(problem: Problem, name: str) -> Problem | None:
    if name == "memory":
        return _with_memory(problem, MOST_BYTES)
    if name == "devices":
        return _with_devices(problem, MOST_TIMES * problem.cluster.devices if problem.constraints else MOST_DEVICES)
    return _constraints(problem).get(name)


def _with_figure(problem: Problem, name: str) -> str:
    figures: dict[str, Number] = {"memory": problem.cluster.hbm_bytes, "devices": problem.cluster.devices}
    return f"{name}={figures[name]:,}" if name in figures else name


def _relaxations(problem: Problem) -> Iterator[Relaxation]:
    yield from _more_memory(problem)
    yield from _more_devices(problem)
    yield from _sharding(problem)
    yield from _recomputation(problem)
    for name, without in _constraints(problem).items():
        if _feasible(without):
            yield Relaxation("constraint", f"drop {name}", without)


def _more_memory(problem: Problem) -> Iterator[Relaxation]:
    def more(size: int) -> Problem:
        return _with_memory(problem, size)

    size = _least(more, int(problem.cluster.hbm_bytes), MOST_BYTES)
    if size is not None:
        yield Relaxation("memory", f"give each device {size:,} bytes of memory ({size / 2**30:.2f} GiB)", more(size))


def _more_devices(problem: Problem) -> Iterator[Relaxation]:
    def more(devices: int) -> Problem:
        return _with_devices(problem, devices)

    have = problem.cluster.devices
    devices = _least(more, have, MOST_TIMES * have if problem.constraints else MOST_DEVICES)
    if devices is not None:
        yield Relaxation("devices", f"use {devices:,} devices", more(devices))


def _least(changed: Callable[[int], Problem], have: int, most: int) -> int | None:
    """Return the least amount above ``have`` with which the changed problem is feasible, None up to ``most``.

    Looks at twice the distance each time, then bisects; more of either never makes a problem infeasible.
    """
    step = 1
    while not _feasible(changed(min(have + step, most))):
        if have + step >= most:
            return None
        step *= 2
    low, high = have + step // 2, min(have + step, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _feasible(changed(middle)) else (middle, high)
    return high if step > 1 else have + 1


def _sharding(problem: Problem) -> Iterator[Relaxation]:
    """Allow the lowest further ZeRO type that suffices."""
    for zero in (1, 2, 3):
        if zero not in problem.choices.zero:
            freed = problem.with_choices(zero=problem.choices.zero | {zero})
            if _feasible(freed):
                yield Relaxation("zero", f"allow ZeRO-{zero} (zero={_spell(freed.choices.zero)})", freed)
                return


def _recomputation(problem: Problem) -> Iterator[Relaxation]:
    if problem.choices.recompute == "none":
        recomputing = problem.with_choices(recompute="full")
        if _feasible(recomputing):
            yield Relaxation("recompute", "recompute activations (recompute=full)", recomputing)


def _with_memory(problem: Problem, size: Number) -> Problem:
    return replace(problem, cluster=replace(problem.cluster, hbm_bytes=size))


def _with_devices(problem: Problem, devices: int) -> Problem:
    """Return the problem on a cluster whose top level is widened for so many devices."""
    cluster: Cluster = problem.cluster
    below = cluster.group_sizes[-1] // cluster.levels[-1].fanout
    top = replace(cluster.levels[-1], fanout=-(-devices // below))
    grown = replace(cluster, devices=devices, levels=(*cluster.levels[:-1], top), partial=devices % below != 0)
    return replace(problem, cluster=grown)
