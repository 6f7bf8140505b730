"""The search: outer choices in the order of their bounds, each settled exactly, until no bound can win."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from nest.dp.incumbent import Incumbent
from nest.dp.outer import Bounds, OuterChoice, OuterChoices, outer_choices
from nest.dp.reason import why_infeasible
from nest.dp.sharded import ShardedSearch
from nest.dp.uniform import UniformSearch
from nest.dp.watch import TimeUp, Watch
from nest.plan import Plan
from nest.result import Report
from nest.tables import Tables
from nest.units import NEVER


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the dynamic program found.

    Attributes
    ----------
    complete
        The whole space was settled; else the time was up.
    """

    plan: Plan | None
    objective_ticks: int | None
    bound_ticks: int | None
    complete: bool
    reason: str | None


class Engine(Protocol):
    """Settles outer choices of one variant."""

    def settle(self, choice: OuterChoice) -> None:
        """Offer the best plan of an outer choice to the incumbent, if it is better."""


Agenda: TypeAlias = list[tuple[Engine, OuterChoices]]


def optimum(tables: Tables, deadline: float | None, report: Report | None) -> Outcome:
    """Find the best plan of a problem.

    Plans without sharding come first: they are fast to settle, and their best is what sharding has to beat.

    Parameters
    ----------
    deadline
        Reading of `time.perf_counter` after which the search stops; None for never.
    report
        Called now and then.
    """
    incumbent = Incumbent()
    watch = Watch(deadline, report, incumbent)
    bounds = [Bounds(variant) for variant in tables.variants]
    try:
        sharded = [(each, outer_choices(each, sharded=True)) for each in bounds if each.tables.may_shard]
        least = min((choices.least for _, choices in sharded), default=NEVER)
        if 0 in tables.problem.choices.zero:
            plain: Agenda = [(UniformSearch(each, watch), outer_choices(each, sharded=False)) for each in bounds]
            _settle_all(plain, watch, least)
        watch.bound = least
        engines = [ShardedSearch(each, choices, watch) for each, choices in sharded]
        _settle_all([(engine, engine.choices) for engine in engines], watch, NEVER)
    except TimeUp:
        return _stopped(incumbent, watch.bound)
    if incumbent.objective == NEVER:
        return Outcome(None, None, None, True, why_infeasible(tables))
    return Outcome(incumbent.plan(), incumbent.objective, incumbent.objective, True, None)


def _settle_all(agenda: Agenda, watch: Watch, elsewhere: int) -> None:
    """Settle the outer choices of several engines by their bounds, until none can win.

    Parameters
    ----------
    elsewhere
        Least bound of what is not on this agenda.
    """
    if not agenda:
        return
    bounds = np.concatenate([choices.bounds for _, choices in agenda])
    sizes = [len(choices) for _, choices in agenda]
    owner = np.repeat(np.arange(len(agenda)), sizes)
    within = np.concatenate([np.arange(size) for size in sizes])
    incumbent = watch.incumbent
    watch.total = len(bounds)
    for settled, at in enumerate(np.argsort(bounds, kind="stable").tolist()):
        if bounds[at] >= incumbent.objective:
            return
        watch.settled, watch.bound = settled, min(int(bounds[at]), elsewhere)
        watch.check()
        engine, choices = agenda[owner[at]]
        engine.settle(choices[within[at]])


def _stopped(incumbent: Incumbent, bound: int) -> Outcome:
    reason = "the time limit was reached before the search was complete"
    if incumbent.objective == NEVER:
        return Outcome(None, None, bound, False, reason)
    return Outcome(incumbent.plan(), incumbent.objective, min(bound, incumbent.objective), False, reason)
