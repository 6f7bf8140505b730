"""Why a problem has no plan, which of its constraints clash, and the least change of each kind that helps.

Every statement here is checked, not guessed: a conflict is minimal because each of its constraints was left out in turn
and the rest had a plan, and a relaxation is the least because one unit less of it has none. Whether a plan exists is
decided by memory, devices, choices and side constraints alone (rules C1 to C11). Without side constraints that takes
milliseconds; with them, or where prices follow from the places of groups, each question is a search, and what the time
did not suffice for is not said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from functools import partial
from typing import TypeAlias

import numpy as np

from nest.constraints import Filters, Mask, Run, none_keeps
from nest.cost.scale import scale_of
from nest.dp import optimum, why_constrained, why_infeasible
from nest.errors import InvalidProblem, OutOfScope, SolverUnavailable
from nest.milp import solve_cpsat
from nest.problem import Choices, Problem, SideConstraint, Variant
from nest.result import Progress, Status
from nest.tables import Tables
from nest.technologies import affordable, why_none_affordable
from nest.units import Number

MOST_BYTES = 2**53
"""More memory than this is not suggested for a device."""

MOST_DEVICES = 2**24
"""More devices than this are not suggested for a cluster."""

MOST_TIMES = 8
"""How many times as many devices are tried where each try is a search."""

SECONDS = 10.0
"""How long an explanation may take where nobody says otherwise."""

ASKING = 0.8
"""Part of the time for questions; the rest is for the one that is asked last, and for what is suggested."""

SLICE = 1 / 4
"""A question takes at most this part of the time that is left, so that the first hard one leaves time for others."""

MOST_CUT, MOST_CUT_BY_STAGE = 512, 96
"""With more layers, or more where constraints look at a stage's position, cuts are left to the search."""

Change: TypeAlias = Callable[[Problem], Problem]


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
    questions = _Questions(None if time_limit_s is None else ASKING * time_limit_s)
    if reason is None:
        reason = questions.ask(problem, part=1.0)[1]
    if reason is None:
        return None
    conflict = _conflict(problem, questions)
    relaxations = tuple(_relaxations(problem, questions))
    return Explanation(reason, conflict, relaxations, questions.all_answered)


class _Answer(Enum):
    """Whether a problem has a plan; ``UNCOUNTED``: its times cannot be counted, so that it is none to suggest."""

    PLAN = auto()
    NONE = auto()
    UNKNOWN = auto()
    UNCOUNTED = auto()


class _Questions:
    """Whether changed problems have plans, within the time for all of them."""

    def __init__(self, time_limit_s: float | None) -> None:
        self._end = None if time_limit_s is None else time.perf_counter() + time_limit_s
        self.all_answered = True

    def has_plan(self, problem: Problem) -> bool:
        """Whether it is certain that a problem has a plan."""
        return self.answer(problem) is _Answer.PLAN

    def has_none(self, problem: Problem) -> bool:
        """Whether it is certain that a problem has no plan."""
        return self.answer(problem) is _Answer.NONE

    def answer(self, problem: Problem) -> _Answer:
        """Answer for a changed problem; unknown without a look at it once the time is over."""
        if self.over:
            return _Answer.UNKNOWN
        try:
            by_variants = not problem.cluster.menus and _decided_by_variants(problem)
            return self._of_variants(problem) if by_variants else self.ask(problem)[0]
        except InvalidProblem:
            return _Answer.UNCOUNTED

    @property
    def over(self) -> bool:
        """Whether the time is; what is left open then is noted."""
        is_over = self._end is not None and time.perf_counter() >= self._end
        self.all_answered &= not is_over
        return is_over

    def _of_variants(self, problem: Problem) -> _Answer:
        """Answer for one variant after the other: a problem has a plan where one of them alone has."""
        variants, asked = _likeliest_first(problem), 0
        for variant in self.while_time(variants, SLICE):
            alone = _alone(problem, variant)
            if why_infeasible(Tables(alone, scale_of(alone))) is None:
                return _Answer.PLAN
            asked += 1
        return _Answer.NONE if asked == len(variants) else _Answer.UNKNOWN

    def while_time(self, variants: Iterable[Variant], part: float) -> Iterator[Variant]:
        """Yield variants for a part of the time that is left; that some were left out is noted."""
        deadline = self._deadline(part)
        for variant in variants:
            if deadline is not None and time.perf_counter() > deadline:
                self.all_answered = False
                return
            yield variant

    def ask(self, problem: Problem, part: float = SLICE) -> tuple[_Answer, str | None]:
        """Answer, with the reason where there is no plan, in at most a part of the time that is left.

        What the links are decides on no plan but by the budget, and by what ties stages together.
        """
        if not problem.cluster.menus:
            return self._ask_built(problem, part)
        found = affordable(problem)
        if not found:
            return _Answer.NONE, why_none_affordable(problem)
        some = found if Filters(problem).coupling else found[:1]
        answers = [self._ask_built(problem.built(each.technologies), part / len(some)) for each in some]
        return min(answers, key=lambda each: (_Answer.PLAN, _Answer.UNKNOWN, _Answer.NONE).index(each[0]))

    def _ask_built(self, problem: Problem, part: float) -> tuple[_Answer, str | None]:
        """Answer for one choice of what the links are."""
        answer, reason = self._ask_local(_seen_from_one_replica(problem), part)
        if answer is _Answer.PLAN and Filters(problem).coupling:
            answer, reason = _coupled(problem, self._deadline(part))
            self.all_answered &= answer is not _Answer.UNKNOWN
        return answer, reason

    def _ask_local(self, problem: Problem, part: float) -> tuple[_Answer, str | None]:
        """Answer without the side constraints that tie stages together."""
        tables = Tables(problem, scale_of(problem))
        if not tables.grouped_prices:
            reason = why_infeasible(tables)
            if reason is not None:
                return _Answer.NONE, reason
            if not tables.filters.local:
                return _Answer.PLAN, None
        if not _may_be_cut(tables.filters):
            return _Answer.NONE, why_constrained(tables)
        answer, reason = _searched(tables, self._deadline(part))
        self.all_answered &= answer is not _Answer.UNKNOWN
        return answer, reason

    def _deadline(self, part: float) -> float | None:
        now = time.perf_counter()
        return None if self._end is None else now + part * max(self._end - now, 0.0)


def _decided_by_variants(problem: Problem) -> bool:
    """Whether nothing but memory, devices and choices decides which plans there are, of each variant by itself."""
    return problem.preset.collectives == "groups" and not problem.constraints


def _likeliest_first(problem: Problem) -> list[Variant]:
    """Return the variants, those first that most probably need the least memory."""
    return sorted(problem.variants, key=lambda variant: (variant.microbatch, -variant.width))


def _alone(problem: Problem, variant: Variant) -> Problem:
    """Return a problem with one of its variants."""
    return replace(problem, graphs={variant: problem.graphs[variant]})


def _may_be_cut(filters: Filters) -> bool:
    """Whether some cut of the layers into stages keeps the side constraints, whatever it needs; True if unknown.

    Constraints that contradict each other are found out by this at once, however many devices and bytes there are.
    """
    if not (filters.by_run or filters.by_stage):
        return True
    problem = filters.problem
    sizes = {variant: len(problem.graphs[variant]) for variant in problem.variants}
    if max(sizes.values()) > (MOST_CUT_BY_STAGE if filters.by_stage else MOST_CUT):
        return True
    return any(_cuts(filters, variant, layers) for variant, layers in sizes.items())


def _cuts(filters: Filters, variant: Variant, layers: int) -> bool:
    """Whether some cut of the layers of a variant keeps the side constraints on runs of layers and their positions."""
    first, end = np.arange(layers)[:, None], np.arange(1, layers + 1)[None, :]
    run = Run(first, np.maximum(end, first + 1))
    alone = filters.run(variant, run)
    anywhere = end > first if alone is None else alone & (end > first)
    asked = filters.problem.choices.stages
    counts = [count for count in range(1, layers + 1) if asked is None or count in asked]
    if filters.by_stage:
        return any(_reaches(anywhere, filters, variant, run, count) for count in counts)
    begun = np.arange(layers + 1) == 0
    for count in range(1, max(counts, default=0) + 1):
        begun = _next(begun, anywhere)
        if begun[layers] and count in counts:
            return True
    return False


def _reaches(anywhere: Mask, filters: Filters, variant: Variant, run: Run, count: int) -> bool:
    """Whether so many stages, each allowed at its position from the end, are all layers."""
    begun = np.arange(len(anywhere) + 1) == 0
    for position in range(count, 0, -1):
        there = filters.stage(variant, count, position, run)
        begun = _next(begun, anywhere if there is None else anywhere & there)
    return bool(begun[-1])


def _next(begun: Mask, allowed: Mask) -> Mask:
    """Return where a further stage may end, by place, if it may begin at some places and be some runs of layers."""
    ends = (allowed & begun[:-1, None]).any(axis=0)
    return np.concatenate([[False], ends])


class _Found(Exception):
    """Some plan was found, and the search for the best one need not go on."""


def _searched(tables: Tables, deadline: float | None) -> tuple[_Answer, str | None]:
    """Search for any plan, as far as the time reaches; with the reason where there is none."""

    def report(progress: Progress) -> None:
        if progress.best_ticks is not None:
            raise _Found

    try:
        outcome = optimum(tables, deadline, report)
    except _Found:
        return _Answer.PLAN, None
    if outcome.plan is not None:
        return _Answer.PLAN, None
    return (_Answer.NONE, outcome.reason) if outcome.complete else (_Answer.UNKNOWN, None)


def _coupled(problem: Problem, deadline: float | None) -> tuple[_Answer, str | None]:
    """Have CP-SAT search for a plan that also keeps what ties stages together; with the reason where there is none."""
    left = None if deadline is None else max(deadline - time.perf_counter(), 0.0)
    try:
        claim = solve_cpsat(problem, time_limit_s=left, first=True)
    except (OutOfScope, SolverUnavailable):
        return _Answer.UNKNOWN, None
    if claim.plan is not None:
        return _Answer.PLAN, None
    return (_Answer.NONE, none_keeps(problem)) if claim.status is Status.INFEASIBLE else (_Answer.UNKNOWN, None)


def _seen_from_one_replica(problem: Problem) -> Problem:
    """Return a problem with the same plans, in which it takes less time to tell places apart by what they cost."""
    if problem.preset.collectives == "groups":
        return problem
    return problem.with_preset(replace(problem.preset, all_replicas=False))


@dataclass(frozen=True, slots=True)
class _Part:
    """Something that a problem demands: as on the command line, and what takes it away."""

    text: str
    without: Change


def _parts(problem: Problem) -> list[_Part]:
    """Return the choices that a problem narrows, and its side constraints, equal ones as one."""
    choices, free = problem.choices, Choices()
    names = [spec.name for spec in fields(Choices) if spec.name != "recompute"]
    narrowed = [name for name in names if getattr(choices, name) != getattr(free, name)]
    found = [_Part(f"{name}={_spell(getattr(choices, name))}", _freeing(name)) for name in narrowed]
    distinct: list[SideConstraint] = []
    for constraint in problem.constraints:
        if constraint not in distinct:
            distinct.append(constraint)
    return found + [_Part(f"{each.kind}: {each.text}", _dropping(each)) for each in distinct]


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


def _conflict(problem: Problem, questions: _Questions) -> tuple[str, ...]:
    """Return a minimal conflict; of two found in opposite orders, the smaller."""
    cluster = problem.cluster
    most = _most_devices(problem)
    more = _with_devices(problem, most)
    parts = [
        *_parts(problem),
        _Part(f"memory={cluster.hbm_bytes:,}", lambda problem: _with_memory(problem, MOST_BYTES)),
    ]
    if not any(more.unnested(variant) and not problem.unnested(variant) for variant in problem.variants):
        # else more devices rule plans out: what was the whole cluster is a group then, with which variants have to nest
        parts.insert(-1, _Part(f"devices={cluster.devices:,}", lambda problem: _with_devices(problem, most)))
    found = [_minimal(problem, order, questions) for order in (parts, parts[::-1])]
    least = min(found, key=len)
    return tuple(part.text for part in parts if part in least)


def _minimal(problem: Problem, order: list[_Part], questions: _Questions) -> list[_Part]:
    """Leave parts out in turn, and keep out those without which there is still no plan."""
    needed = []
    for part in order:
        without = part.without(problem)
        if questions.has_none(without):
            problem = without
        else:
            needed.append(part)
    return needed


def _relaxations(problem: Problem, questions: _Questions) -> Iterator[Relaxation]:
    """Yield what helps. What takes one question each is asked before what takes many."""
    single = [*_sharding(problem, questions), *_recomputation(problem, questions)]
    for part in _parts(problem):
        without = part.without(problem)
        if questions.has_plan(without):
            single.append(Relaxation("constraint", f"drop {part.text}", without))
    yield from _more_memory(problem, questions)
    yield from _more_devices(problem, questions)
    yield from single


def _more_memory(problem: Problem, questions: _Questions) -> Iterator[Relaxation]:
    size = _least_of(problem, _with_memory, (int(problem.cluster.hbm_bytes), MOST_BYTES), questions, 1 / 2)
    if size is not None:
        text = f"give each device {size:,} bytes of memory ({size / 2**30:.2f} GiB)"
        settled = text if size < MOST_BYTES else f"give each device more memory; {UNSETTLED}"
        yield Relaxation("memory", settled, _with_memory(problem, size))


def _more_devices(problem: Problem, questions: _Questions) -> Iterator[Relaxation]:
    most = _most_devices(problem)
    devices = _least_of(problem, _with_devices, (problem.cluster.devices, most), questions, 1)
    if devices is not None:
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
    return MOST_TIMES * problem.cluster.devices if searched else MOST_DEVICES


def _least_of(
    problem: Problem,
    changed: Callable[[Problem, int], Problem],
    amounts: tuple[int, int],
    questions: _Questions,
    part: float,
) -> int | None:
    """Return the least amount with which the changed problem has a plan, as `_least`.

    Where variants decide by themselves, each is asked whether it needs less than the best so far, which for most is one
    short question; they have that part of the time that is left.
    """
    have, most = amounts
    if not _decided_by_variants(problem):
        return _least(lambda amount: changed(problem, amount), have, most, questions)
    best: int | None = None
    for variant in questions.while_time(_likeliest_first(problem), part):
        alone = partial(changed, _alone(problem, variant))
        top = most if best is None else best - 1
        if top > have and questions.has_plan(alone(top)):
            best = _least(alone, have, top, questions)
    return best


def _least(changed: Callable[[int], Problem], have: int, most: int, questions: _Questions) -> int | None:
    """Return the least amount above ``have`` with which the changed problem has a plan, None up to ``most``.

    More of either never makes a problem infeasible. So the most is asked first, as nothing helps where it does not;
    then the number of binary digits of the difference is bisected for, then the difference.
    """
    known: dict[int, _Answer] = {}

    def answer(amount: int) -> _Answer:
        if amount not in known:
            known[amount] = questions.answer(changed(amount))
        return known[amount]

    if have >= most or answer(most) is _Answer.NONE:
        return None
    steps = [0, *(2**power for power in range((most - have - 1).bit_length())), most - have]
    at = _first(lambda at: answer(have + steps[at]), 0, len(steps) - 1)
    amount = _first(answer, have + steps[at - 1], have + steps[at])
    return amount if answer(amount) is _Answer.PLAN else None


def _first(answer: Callable[[int], _Answer], low: int, high: int) -> int:
    """Return the first number above ``low`` with a plan, ``high`` at the latest; what is uncounted is too large."""
    while high - low > 1:
        middle = (low + high) // 2
        enough = answer(middle) in (_Answer.PLAN, _Answer.UNCOUNTED)
        low, high = (low, middle) if enough else (middle, high)
    return high


def _sharding(problem: Problem, questions: _Questions) -> Iterator[Relaxation]:
    """Allow the lowest further ZeRO type that suffices."""
    for zero in (1, 2, 3):
        if zero not in problem.choices.zero:
            freed = problem.with_choices(zero=problem.choices.zero | {zero})
            if questions.has_plan(freed):
                yield Relaxation("zero", f"allow ZeRO-{zero} (zero={_spell(freed.choices.zero)})", freed)
                return


def _recomputation(problem: Problem, questions: _Questions) -> Iterator[Relaxation]:
    if problem.preset.recompute == "choices" and problem.choices.recompute == "none":
        recomputing = problem.with_choices(recompute="full")
        if questions.has_plan(recomputing):
            yield Relaxation("recompute", "recompute activations (recompute=full)", recomputing)


def _with_memory(problem: Problem, size: Number) -> Problem:
    return replace(problem, cluster=replace(problem.cluster, hbm_bytes=size))


def _with_devices(problem: Problem, devices: int) -> Problem:
    """Return the problem on a cluster whose top level is widened for so many devices."""
    cluster = problem.cluster
    below = cluster.group_sizes[-1] // cluster.levels[-1].fanout
    top = replace(cluster.levels[-1], fanout=-(-devices // below))
    grown = replace(cluster, devices=devices, levels=(*cluster.levels[:-1], top), partial=devices % below != 0)
    return replace(problem, cluster=grown)
