"""Whether changed problems have plans: what an explanation asks, within the time for all of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum, auto
from typing import TypeVar

import numpy as np

from nest.constraints import Filters, Mask, Run, none_keeps
from nest.cost.scale import scale_of
from nest.dp import optimum, why_constrained, why_infeasible
from nest.errors import InvalidProblem, OutOfScope, SolverUnavailable
from nest.milp import solve_cpsat
from nest.problem import Problem, Variant
from nest.result import Progress, Status
from nest.tables import Tables
from nest.technologies import affordable, why_none_affordable

ASKING = 0.8
"""Part of the time for questions; the rest is for the one that is asked last, and for what is suggested."""

SLICE = 1 / 4
"""A question takes at most this part of the time that is left, so that the first hard one leaves time for others."""

MOST_CUT, MOST_CUT_BY_STAGE = 512, 96
"""With more layers, or more where constraints look at a stage's position, cuts are left to the search."""


Found = TypeVar("Found")


class Answer(Enum):
    """Whether a problem has a plan; ``UNCOUNTED``: its times cannot be counted, so that it is none to suggest."""

    PLAN = auto()
    NONE = auto()
    UNKNOWN = auto()
    UNCOUNTED = auto()


class Questions:
    """Whether changed problems have plans, within the time for all of them."""

    def __init__(self, time_limit_s: float | None) -> None:
        self._end = None if time_limit_s is None else time.perf_counter() + time_limit_s
        self.all_answered = True

    def has_plan(self, problem: Problem) -> bool:
        """Whether it is certain that a problem has a plan."""
        return self.answer(problem) is Answer.PLAN

    def has_none(self, problem: Problem) -> bool:
        """Whether it is certain that a problem has no plan."""
        return self.answer(problem) is Answer.NONE

    def answer(self, problem: Problem) -> Answer:
        """Answer for a changed problem; unknown without a look at it once the time is over."""
        if self.over:
            return Answer.UNKNOWN
        try:
            by_variants = not problem.cluster.menus and decided_by_variants(problem)
            return self._of_variants(problem) if by_variants else self.ask(problem)[0]
        except InvalidProblem:
            return Answer.UNCOUNTED

    def apart(self, ask: Callable[[], Found]) -> tuple[Found, bool]:
        """Return what something finds out, and whether the time sufficed for all that it asked."""
        before, self.all_answered = self.all_answered, True
        found, settled = ask(), self.all_answered
        self.all_answered = before and settled
        return found, settled

    @property
    def over(self) -> bool:
        """Whether the time is; what is left open then is noted."""
        is_over = self._end is not None and time.perf_counter() >= self._end
        self.all_answered &= not is_over
        return is_over

    def _of_variants(self, problem: Problem) -> Answer:
        """Answer for one variant after the other: a problem has a plan where one of them alone has."""
        variants, asked = likeliest_first(problem), 0
        for variant in self.while_time(variants, SLICE):
            alone = with_variant(problem, variant)
            if why_infeasible(Tables(alone, scale_of(alone))) is None:
                return Answer.PLAN
            asked += 1
        return Answer.NONE if asked == len(variants) else Answer.UNKNOWN

    def while_time(self, variants: Iterable[Variant], part: float) -> Iterator[Variant]:
        """Yield variants for a part of the time that is left; that some were left out is noted."""
        deadline = self._deadline(part)
        for variant in variants:
            if deadline is not None and time.perf_counter() > deadline:
                self.all_answered = False
                return
            yield variant

    def ask(self, problem: Problem, part: float = SLICE) -> tuple[Answer, str | None]:
        """Answer, with the reason where there is no plan, in at most a part of the time that is left.

        What the links are decides on no plan but by the budget, and by what ties stages together.
        """
        if not problem.cluster.menus:
            return self._ask_built(problem, part)
        found = affordable(problem)
        if not found:
            return Answer.NONE, why_none_affordable(problem)
        some = found if Filters(problem).coupling else found[:1]
        answers = [self._ask_built(problem.built(each.technologies), part / len(some)) for each in some]
        return min(answers, key=lambda each: (Answer.PLAN, Answer.UNKNOWN, Answer.NONE).index(each[0]))

    def _ask_built(self, problem: Problem, part: float) -> tuple[Answer, str | None]:
        """Answer for one choice of what the links are."""
        answer, reason = self._ask_local(seen_from_one_replica(problem), part)
        if answer is Answer.PLAN and Filters(problem).coupling:
            answer, reason = _coupled(problem, self._deadline(part))
            self.all_answered &= answer is not Answer.UNKNOWN
        return answer, reason

    def _ask_local(self, problem: Problem, part: float) -> tuple[Answer, str | None]:
        """Answer without the side constraints that tie stages together."""
        tables = Tables(problem, scale_of(problem))
        if not tables.grouped_prices:
            reason = why_infeasible(tables)
            if reason is not None:
                return Answer.NONE, reason
            if not tables.filters.local:
                return Answer.PLAN, None
        if not may_be_cut(tables.filters):
            return Answer.NONE, why_constrained(tables)
        answer, reason = _searched(tables, self._deadline(part))
        self.all_answered &= answer is not Answer.UNKNOWN
        return answer, reason

    def _deadline(self, part: float) -> float | None:
        now = time.perf_counter()
        return None if self._end is None else now + part * max(self._end - now, 0.0)


def decided_by_variants(problem: Problem) -> bool:
    """Whether nothing but memory, devices and choices decides which plans there are, of each variant by itself."""
    apart = not problem.choices.uneven
    return apart and problem.preset.collectives == "groups" and not problem.constraints


def likeliest_first(problem: Problem) -> list[Variant]:
    """Return the variants, those first that most probably need the least memory."""
    return sorted(problem.variants, key=lambda each: (each.microbatch, -each.width, -each.tensor, not each.sequence))


def with_variant(problem: Problem, variant: Variant) -> Problem:
    """Return a problem with one of its variants."""
    return replace(problem, graphs={variant: problem.graphs[variant]})


def may_be_cut(filters: Filters) -> bool:
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


def _searched(tables: Tables, deadline: float | None) -> tuple[Answer, str | None]:
    """Search for any plan, as far as the time reaches; with the reason where there is none."""

    def report(progress: Progress) -> None:
        """Stop the search at the first plan."""
        if progress.best_ticks is not None:
            raise _Found

    try:
        outcome = optimum(tables, deadline, report)
    except _Found:
        return Answer.PLAN, None
    if outcome.plan is not None:
        return Answer.PLAN, None
    return (Answer.NONE, outcome.reason) if outcome.complete else (Answer.UNKNOWN, None)


def _coupled(problem: Problem, deadline: float | None) -> tuple[Answer, str | None]:
    """Have CP-SAT search for a plan that also keeps what ties stages together; with the reason where there is none."""
    left = None if deadline is None else max(deadline - time.perf_counter(), 0.0)
    try:
        claim = solve_cpsat(problem, time_limit_s=left, first=True)
    except (OutOfScope, SolverUnavailable):
        return Answer.UNKNOWN, None
    if claim.plan is not None:
        return Answer.PLAN, None
    return (Answer.NONE, none_keeps(problem)) if claim.status is Status.INFEASIBLE else (Answer.UNKNOWN, None)


def seen_from_one_replica(problem: Problem) -> Problem:
    """Return a problem with the same plans, in which it takes less time to tell places apart by what they cost."""
    if problem.preset.collectives == "groups":
        return problem
    return problem.with_preset(replace(problem.preset, all_replicas=False))
