"""The search: outer choices in the order of their bounds, each settled exactly, until no bound can win."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from nest.dp.agenda import settle_sums
from nest.dp.incumbent import Incumbent
from nest.dp.outer import Bounds, OuterChoice, OuterChoices, outer_choices
from nest.dp.reason import why_constrained, why_infeasible
from nest.dp.sharded import ShardedSearch
from nest.dp.simulated import settle_simulated
from nest.dp.simulated_outer import least_played_of_any_cut
from nest.dp.sum_outer import least_of_any_cut
from nest.dp.trace import Trace
from nest.dp.uneven_search import least_uneven, settle_uneven
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
    bound_ticks
        Of which it is proven that no plan takes less; without a plan, None where there is none at all.
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


def optimum(
    tables: Tables,
    deadline: float | None,
    report: Report | None,
    better_than: int | None = None,
    trace: Trace | None = None,
    *,
    within: float = 0.0,
) -> Outcome:
    """Find the best plan of a problem.

    Plans without sharding come first: they are fast to settle, and their best is what sharding has to beat.

    Parameters
    ----------
    deadline
        Reading of `time.perf_counter` after which the search stops; None for never.
    report
        Called now and then.
    better_than
        Plans of so many ticks or more are of no interest: without one that takes less, the outcome has no plan.
    trace
        Is told of outer choices under the objective `sum` of groups.
    within
        Part of its time by which the plan may be above the bound: the search ends with the first that is not further.
    """
    incumbent = Incumbent(NEVER if better_than is None else max(0, min(better_than, NEVER)))
    watch = Watch(deadline, report, incumbent, trace, within)
    try:
        _search(tables, watch)
    except TimeUp:
        return _stopped(incumbent, watch)
    if not incumbent.found:
        return _without_plan(tables, incumbent.objective)
    return Outcome(incumbent.plan(), incumbent.objective, incumbent.objective, True, None)


def along_one_order(
    tables: Tables, deadline: float | None, report: Report | None, better_than: int | None = None
) -> Outcome:
    """Find the best plan of those that follow one order of layers that branch, and a bound of all plans.

    Parameters
    ----------
    tables, deadline, report, better_than
        As for `optimum`. The bound holds for the whole space; without a plan, others may exist.
    """
    played = tables.problem.preset.objective == "simulated"
    bound = least_played_of_any_cut(tables) if played else least_of_any_cut(tables)
    found = optimum(Tables(tables.problem.in_one_order(), tables.scale), deadline, report, better_than)
    if found.plan is None and bound == NEVER:
        return found
    reason = f"{ONE_ORDER}; {found.reason}" if found.reason else ONE_ORDER
    if found.objective_ticks is None:
        return Outcome(None, None, bound, False, reason)
    bound = min(bound, found.objective_ticks)
    return Outcome(found.plan, found.objective_ticks, bound, False, None if bound == found.objective_ticks else reason)


ONE_ORDER = "stages were sought along one order of the layers only, others may be better"


def _without_plan(tables: Tables, value: int) -> Outcome:
    """Return that nothing takes less than a value, or that there is no plan at all, with the reason."""
    reason = why_infeasible(tables)
    if value == NEVER or reason is not None:
        return Outcome(None, None, None, True, reason or why_constrained(tables))
    return Outcome(None, None, value, True, f"no plan takes less than {value} ticks")


def _search(tables: Tables, watch: Watch) -> None:
    """Leave the best plan with the incumbent; raises `TimeUp` after the deadline."""
    if tables.grouped_prices:
        if tables.problem.preset.objective == "simulated":
            settle_simulated(tables, watch)
        else:
            _search_sums(tables, watch)
        return
    bounds = [Bounds(variant) for variant in tables.variants]
    sharded = [(each, outer_choices(each, sharded=True)) for each in bounds if each.tables.may_shard]
    least = min((choices.least for _, choices in sharded), default=NEVER)
    if 0 in tables.problem.choices.zero:
        plain: Agenda = [(UniformSearch(each, watch), outer_choices(each, sharded=False)) for each in bounds]
        _settle_all(plain, watch, least)
    watch.bound = least
    engines = [ShardedSearch(each, choices, watch) for each, choices in sharded]
    _settle_all([(engine, engine.choices) for engine in engines], watch, NEVER)


def _search_sums(tables: Tables, watch: Watch) -> None:
    """Search plans of one variant for all stages, then those whose stages have tensor widths of their own."""
    uneven = least_uneven(tables)
    try:
        settle_sums(tables, watch)
    except TimeUp:
        watch.bound = min(watch.bound, uneven)
        raise
    if uneven < NEVER:
        settle_uneven(tables, watch)


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


def _stopped(incumbent: Incumbent, watch: Watch) -> Outcome:
    reason = "the plan is as close to the bound as was asked for" if watch.close else TIME_LIMIT
    objective = incumbent.objective if incumbent.found else None
    return Outcome(incumbent.plan(), objective, min(watch.bound, incumbent.objective), False, reason)


TIME_LIMIT = "the time limit was reached before the search was complete"
