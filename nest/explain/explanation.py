"""Why a problem has no plan, which of its constraints clash, and the least change of each kind that helps.

Every statement here is checked, not guessed: a conflict is minimal because each of its constraints was left out in turn
and the rest had a plan, and a relaxation is the least because one unit less of it has none. Whether a plan exists is
decided by memory, devices, choices and side constraints alone (rules C1 to C11). Without side constraints that takes
milliseconds; with them, or where prices follow from the places of groups, each question is a search, and what the time
did not suffice for is not said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from typing import TypeAlias

from nest.cost.scale import scale_of
from nest.errors import InvalidProblem
from nest.explain.questions import ASKING, Answer, Questions, decided_by_variants, likeliest_first, with_variant
from nest.problem import Choices, Form, Problem, SideConstraint, Variant
from nest.units import Number

MOST_BYTES = 2**53
"""More memory than this is not suggested for a device."""

MOST_DEVICES = 2**24
"""More devices than this are not suggested for a cluster."""

MOST_TIMES = 8
"""How many times as many devices are tried where each try is a search."""

MOST_ASKED = 2**17
"""Devices that are tried where variants decide by themselves; beyond, a try takes seconds."""

SECONDS = 10.0
"""How long an explanation may take where nobody says otherwise."""

Change: TypeAlias = Callable[[Problem], Problem]


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A change that makes a problem feasible.

    Attributes
    ----------
    kind
        ``"reserve"``, ``"memory"``, ``"devices"``, ``"zero"``, ``"recompute"`` or ``"constraint"``.
    text
        What to change, for people.
    problem
        The problem after the change.
    """

    kind: str
    text: str
    problem: Problem


UNSETTLED = "how much is enough was not found out"
"""Said of an amount where only the largest that is ever tried is known to help."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a problem is infeasible.

    Attributes
    ----------
    reason
        The reason that rules out the most, in one sentence.
    conflict
        Constraints that no plan keeps together, as on the command line; none of them can be spared.
    relaxations
        The least change of each kind that makes the problem feasible, where one does.
    complete
        Whether the time sufficed for every question. If not, the conflict may hold more than it has to, relaxations may
        be missing, and memory and devices may be more than the least; that the conflict is one, and that each
        relaxation helps, is certain all the same.
    """

    reason: str
    conflict: tuple[str, ...]
    relaxations: tuple[Relaxation, ...]
    complete: bool = True


def explain(problem: Problem, reason: str | None = None, *, time_limit_s: float | None = SECONDS) -> Explanation | None:
    """Explain why a problem has no plan; None where it has one, or where the time does not suffice to tell.

    Parameters
    ----------
    reason
        Of a problem that is known to have no plan, as a solver said.
    time_limit_s
        For all of it, in seconds; None for no limit.
    """
    questions = Questions(None if time_limit_s is None else ASKING * time_limit_s)
    if reason is None:
        reason = questions.ask(problem, part=1.0)[1]
    if reason is None:
        return None
    conflict = _conflict(problem, questions)
    need, settled = None, True
    if _names(conflict, MEMORY):
        need, settled = questions.apart(lambda: _least_of(problem, _with_memory, _memories(problem), questions, 1 / 2))
    relaxations = tuple(_relaxations(problem, conflict, need, questions))
    if need is not None and need.size < MOST_BYTES:
        reason = f"{_needed(problem, need, settled=settled)}; {reason}"
    return Explanation(reason, conflict, relaxations, questions.all_answered)


def _names(conflict: tuple[str, ...], what: str) -> bool:
    return any(part.startswith(what) for part in conflict)


def _needed(problem: Problem, need: _Amount, *, settled: bool) -> str:
    """Say how much memory is the least with which there is a plan, or is enough, and how much there is."""
    reserve = int(problem.training.overhead_bytes)
    beside = f" with the reserve of {_gib(reserve)}" if reserve else ""
    closest = "" if need.variant is None or len(problem.variants) == 1 else f" (variant {need.variant})"
    cluster = problem.cluster
    most = max(cluster.hbm_bytes_of({name}) for name in cluster.class_names or (cluster.own_class,))
    enough, has = _gib(need.size, up=True), _gib(int(most))
    if settled:
        return f"a device needs {enough} at least{beside}{closest}, and has {has}"
    return f"a device has {has}, and {enough} would do{beside}{closest}, or less"


def _gib(size: int, *, up: bool = False) -> str:
    """Return a size in GiB, the next or one that is no smaller, or in bytes where it is small."""
    gib = -(-size * 100 // 2**30) / 100 if up else size / 2**30
    return f"{gib:,.2f} GiB" if size >= 2**30 else f"{size:,} bytes"


MEMORY, DEVICES = "memory=", "devices="
"""How a conflict names the memory of a device, and the devices of the cluster."""

WIDENING = {"recompute", "stage_tensor", "shard_inside", "splits_batch"}
"""Choices that demand nothing: without them there are no more plans."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Something that a problem demands: as on the command line, and what takes it away."""

    text: str
    without: Change
    change: str = ""  # what takes it away, in words, where it is not dropped


def _parts(problem: Problem) -> list[_Part]:
    """Return the choices that a problem narrows, and its side constraints, equal ones as one."""
    choices, free = problem.choices, Choices()
    names = [spec.name for spec in fields(Choices) if spec.name not in WIDENING | {"schedules"} | _idle(problem)]
    narrowed = [name for name in names if getattr(choices, name) != getattr(free, name)]
    found = [_Part(f"{name}={_spell(getattr(choices, name))}", _freeing(name)) for name in narrowed]
    if not free.schedules <= choices.schedules:  # chunks and others keep their meaning beside 1F1B
        more = choices.schedules | free.schedules
        spelt = f"schedules={','.join(sorted(choices.schedules))}"
        change = f"allow schedule 1f1b (schedules={','.join(sorted(more))})"
        found.append(_Part(spelt, lambda problem: problem.with_choices(schedules=more), change))
    distinct: list[SideConstraint] = []
    for constraint in problem.constraints:
        if constraint not in distinct:
            distinct.append(constraint)
    return found + [_Part(f"{each.kind}: {each.text}", _dropping(each)) for each in distinct]


def _idle(problem: Problem) -> set[str]:
    """Return the widths whose choice leaves out nothing that the problem has figures for."""
    found = set()
    for name in ("context", "microbatch"):
        asked = getattr(problem.choices, name)
        if asked is not None and asked.issuperset(getattr(variant, name) for variant in problem.graphs):
            found.add(name)
    return found


def _freeing(name: str) -> Change:
    return lambda problem: problem.with_choices(**{name: getattr(Choices(), name)})


def _dropping(constraint: SideConstraint) -> Change:
    return lambda problem: problem.with_constraints(*(each for each in problem.constraints if each != constraint))


def _spell(value: frozenset[int] | bool | float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.15g}"
    return "none" if value == {0} else ",".join(str(each) for each in sorted(value))


def _conflict(problem: Problem, questions: Questions) -> tuple[str, ...]:
    """Return a minimal conflict; of two found in opposite orders, the smaller."""
    cluster = problem.cluster
    most = _most_devices(problem)
    more = _with_devices(problem, most)
    parts = [
        *_parts(problem),
        _Part(f"{MEMORY}{cluster.hbm_bytes:,}", lambda problem: _with_memory(problem, MOST_BYTES)),
    ]
    if _nests_alike(problem, more):
        parts.insert(-1, _Part(f"{DEVICES}{cluster.devices:,}", lambda problem: _with_devices(problem, most)))
    found = [_minimal(problem, order, questions) for order in (parts, parts[::-1])]
    least = min(found, key=len)
    return tuple(part.text for part in parts if part in least)


def _nests_alike(problem: Problem, more: Problem) -> bool:
    """Whether more devices rule no plan out: what was the whole cluster is a group then, with which variants nest."""
    forms: list[Variant | Form] = [*problem.variants, *chain.from_iterable(problem.families)]
    return not any(more.unnested(form) and not problem.unnested(form) for form in forms)


def _minimal(problem: Problem, order: list[_Part], questions: Questions) -> list[_Part]:
    """Leave parts out in turn, and keep out those without which there is still no plan."""
    needed = []
    for part in order:
        without = part.without(problem)
        if questions.has_none(without):
            problem = without
        else:
            needed.append(part)
    return needed


def _relaxations(
    problem: Problem, conflict: tuple[str, ...], need: _Amount | None, questions: Questions
) -> Iterator[Relaxation]:
    """Yield what helps. What takes one question each is asked before what takes many.

    What is no part of a conflict does not help by itself, since the conflict would be left.
    """
    sharding = _sharding(problem, questions) if _names(conflict, "zero=") else ()
    single = [*sharding, *_recomputation(problem, questions)]
    for part in (each for each in _parts(problem) if each.text in conflict):
        without = part.without(problem)
        if questions.has_plan(without):
            single.append(Relaxation("constraint", part.change or f"drop {part.text}", without))
    if _names(conflict, MEMORY):
        yield from _less_reserve(problem, need, questions)
    if need is not None:
        yield _more_memory(problem, need.size)
    if _names(conflict, DEVICES) or not _nests_alike(problem, _with_devices(problem, _most_devices(problem))):
        yield from _more_devices(problem, questions)
    yield from single


def _memories(problem: Problem) -> tuple[int, int]:
    return int(problem.cluster.hbm_bytes), MOST_BYTES


def _more_memory(problem: Problem, size: int) -> Relaxation:
    enough = -(-size * 100 // 2**30) / 100  # rounded up, since people type what they read
    text = f"give each device {size:,} bytes of memory ({enough:.2f} GiB)"
    settled = text if size < MOST_BYTES else f"give each device more memory; {UNSETTLED}"
    return Relaxation("memory", settled, _with_memory(problem, size))


def _less_reserve(problem: Problem, need: _Amount | None, questions: Questions) -> Iterator[Relaxation]:
    """Keep less in reserve, where that suffices: the most with which there is a plan."""
    reserve = int(problem.training.overhead_bytes)
    if problem.constraints or problem.cluster.classes:
        found = _least_of(problem, _with_freed, (0, reserve), questions, 1 / 4)
        freed = None if found is None else found.size
    else:  # what a device lacks is what its reserve has to give
        freed = None if need is None else need.size - int(problem.cluster.hbm_bytes)
        if freed is not None and (freed > reserve or not questions.has_plan(_with_freed(problem, freed))):
            freed = None
    if freed is not None:
        kept = reserve - freed
        amount = f"at most {kept:,} bytes of each device in reserve ({kept * 100 // 2**30 / 100:.2f} GiB)"
        text = f"keep {amount if kept else 'nothing of a device in reserve'}"
        yield Relaxation("reserve", text, _with_freed(problem, freed))


def _more_devices(problem: Problem, questions: Questions) -> Iterator[Relaxation]:
    most = _most_devices(problem)
    found = _least_of(problem, _with_devices, (problem.cluster.devices, most), questions, 1)
    if found is not None:
        devices = found.size
        settled = devices < most
        text = f"use {devices:,} devices" if settled else f"use more devices; {UNSETTLED}"
        relaxed = _with_devices(problem, devices)
        if _is_counted(relaxed):
            yield Relaxation("devices", text, relaxed)


def _is_counted(problem: Problem) -> bool:
    """Whether the times of a problem can be counted; those of one variant may be where those of all cannot."""
    try:
        scale_of(problem)
    except InvalidProblem:
        return False
    return True


def _most_devices(problem: Problem) -> int:
    searched = bool(problem.constraints) or problem.preset.collectives == "groups"
    some = MOST_TIMES * problem.cluster.devices
    if decided_by_variants(problem):
        return max(some, MOST_ASKED)
    return some if searched else MOST_DEVICES


@dataclass(frozen=True, slots=True)
class _Amount:
    """An amount with which there is a plan, and the variant that the plan is of; None where that was not asked."""

    size: int
    variant: Variant | None = None


def _least_of(
    problem: Problem,
    changed: Callable[[Problem, int], Problem],
    amounts: tuple[int, int],
    questions: Questions,
    part: float,
) -> _Amount | None:
    """Return the least amount between two with which the changed problem has a plan; None up to the second.

    Where variants decide by themselves, each is asked whether it needs less than the best so far, which for most is one
    short question; they have that part of the time that is left. How much less is found out roughly, until it is
    certain which variants may need the least: at most those that were the best once.
    """
    have, most = amounts
    if not decided_by_variants(problem):
        size = _Amounts(lambda amount: changed(problem, amount), questions).least(have, most)
        return None if size is None else _Amount(size)
    best, once = most + 1, []
    for variant in questions.while_time(likeliest_first(problem), part):
        alone = _Amounts(partial(changed, with_variant(problem, variant)), questions)
        bracket = alone.bracket(have, best - 1) if best - 1 > have and alone.has_plan(best - 1) else None
        if bracket is not None:
            best = bracket[1]
            once.append((variant, alone, *bracket))
    found: _Amount | None = None
    for variant, alone, low, high in reversed(once):
        top = high if found is None else min(high, found.size - 1)
        if top > low and alone.has_plan(top):
            found = _Amount(alone.first(low, top), variant)
    return found


COARSE = 64
"""An amount is known roughly where its last 64th is not."""


class _Amounts:
    """With which amounts a problem has a plan. More of one never makes a problem infeasible."""

    def __init__(self, changed: Callable[[int], Problem], questions: Questions) -> None:
        self._changed, self._questions = changed, questions
        self._known: dict[int, Answer] = {}

    def answer(self, amount: int) -> Answer:
        """Answer for an amount, asked once."""
        if amount not in self._known:
            self._known[amount] = self._questions.answer(self._changed(amount))
        return self._known[amount]

    def has_plan(self, amount: int) -> bool:
        """Whether it is certain that an amount suffices."""
        return self.answer(amount) is Answer.PLAN

    def least(self, have: int, most: int) -> int | None:
        """Return the least amount above ``have`` with which there is a plan, None up to ``most``."""
        bracket = self.bracket(have, most)
        return None if bracket is None else self.first(*bracket)

    def bracket(self, have: int, most: int) -> tuple[int, int] | None:
        """Return an amount without a plan, or ``have``, and one that has one and is little larger; None if none has.

        The most is asked first, as nothing helps where it does not; then the number of binary digits of the difference
        is bisected for, then the difference.
        """
        if have >= most or self.answer(most) is Answer.NONE:
            return None
        steps = [0, *(2**power for power in range((most - have - 1).bit_length())), most - have]
        at = self._between(lambda at: self.answer(have + steps[at]), 0, len(steps) - 1)[1]
        low, high = self._between(self.answer, have + steps[at - 1], have + steps[at], COARSE)
        if not self.has_plan(high):
            low, high = self._between(self.answer, low, high)
        return (low, high) if self.has_plan(high) else None

    def first(self, low: int, high: int) -> int:
        """Return the first amount with a plan between one without and one with it."""
        return self._between(self.answer, low, high)[1]

    @staticmethod
    def _between(answer: Callable[[int], Answer], low: int, high: int, share: int | None = None) -> tuple[int, int]:
        """Bisect for the first number with a plan, as far as a share of it; what is uncounted is too large."""
        while high - low > (1 if share is None else max(1, high // share)):
            middle = (low + high) // 2
            enough = answer(middle) in (Answer.PLAN, Answer.UNCOUNTED)
            low, high = (low, middle) if enough else (middle, high)
        return low, high


def _sharding(problem: Problem, questions: Questions) -> Iterator[Relaxation]:
    """Allow the lowest further ZeRO type that suffices."""
    for zero in (1, 2, 3):
        if zero not in problem.choices.zero:
            freed = problem.with_choices(zero=problem.choices.zero | {zero})
            if questions.has_plan(freed):
                yield Relaxation("zero", f"allow ZeRO-{zero} (zero={_spell(freed.choices.zero)})", freed)
                return


def _recomputation(problem: Problem, questions: Questions) -> Iterator[Relaxation]:
    if problem.preset.recompute == "choices" and problem.choices.recompute == "none":
        recomputing = problem.with_choices(recompute="full")
        if questions.has_plan(recomputing):
            yield Relaxation("recompute", "recompute activations (recompute=full)", recomputing)


def _with_freed(problem: Problem, size: int) -> Problem:
    """Return the problem with a reserve that is so many bytes smaller."""
    kept = problem.training.overhead_bytes - size
    return replace(problem, training=replace(problem.training, overhead_bytes=kept))


def _with_memory(problem: Problem, size: Number) -> Problem:
    return replace(problem, cluster=problem.cluster.with_memory(size))


def _with_devices(problem: Problem, devices: int) -> Problem:
    """Return the problem on a cluster whose top level is widened for so many devices."""
    cluster = problem.cluster
    below = cluster.group_sizes[-1] // cluster.levels[-1].fanout
    top = replace(cluster.levels[-1], fanout=-(-devices // below))
    grown = replace(cluster, devices=devices, levels=(*cluster.levels[:-1], top), partial=devices % below != 0)
    return replace(problem, cluster=grown)
