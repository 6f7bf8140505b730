"""The search: outer choices in the order of their bounds, each settled exactly, until no bound can win."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nest.dp.outer import Bounds, OuterChoices, outer_choices
from nest.dp.reason import why_infeasible
from nest.dp.traceback import Incumbent
from nest.dp.uniform import UniformSearch
from nest.plan import Plan
from nest.result import Progress, Report
from nest.tables import Tables
from nest.units import NEVER

REPORT_EVERY_S = 0.1


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

    def settle(self, stages: int, replicas: int, rounds: int, incumbent: Incumbent) -> None:
        """Offer the best plan of an outer choice to the incumbent, if it is better."""


def optimum(tables: Tables, deadline: float | None, report: Report | None) -> Outcome:
    """Find the best plan of a problem.

    Parameters
    ----------
    deadline
        Reading of `time.perf_counter` after which the search stops; None for never.
    report
        Called now and then.
    """
    engines = _engines(tables)
    bounds = np.concatenate([choices.bounds for _, choices in engines])
    owner = np.repeat(np.arange(len(engines)), [len(choices.bounds) for _, choices in engines])
    within = np.concatenate([np.arange(len(choices.bounds)) for _, choices in engines])
    order = np.argsort(bounds, kind="stable")
    incumbent = Incumbent()
    reported = time.perf_counter()
    for settled, at in enumerate(order.tolist()):
        if bounds[at] >= incumbent.objective:
            break
        now = time.perf_counter()
        if deadline is not None and now > deadline:
            return _stopped(incumbent, int(bounds[at]))
        if report is not None and now - reported > REPORT_EVERY_S:
            reported = now
            report(_progress(settled, len(order), incumbent))
        engine, choices = engines[owner[at]]
        row = within[at]
        engine.settle(int(choices.stages[row]), int(choices.replicas[row]), int(choices.rounds[row]), incumbent)
    if report is not None:
        report(_progress(len(order), len(order), incumbent))
    if incumbent.objective == NEVER:
        return Outcome(None, None, None, True, why_infeasible(tables))
    return Outcome(incumbent.plan(), incumbent.objective, incumbent.objective, True, None)


def _engines(tables: Tables) -> list[tuple[Engine, OuterChoices]]:
    engines: list[tuple[Engine, OuterChoices]] = []
    for variant in tables.variants:
        bounds = Bounds(variant)
        engines.append((UniformSearch(variant, bounds), outer_choices(bounds, 0)))
    return engines


def _stopped(incumbent: Incumbent, bound: int) -> Outcome:
    reason = "the time limit was reached before the search was complete"
    if incumbent.objective == NEVER:
        return Outcome(None, None, bound, False, reason)
    return Outcome(incumbent.plan(), incumbent.objective, bound, False, reason)


def _progress(settled: int, total: int, incumbent: Incumbent) -> Progress:
    best = None if incumbent.objective == NEVER else incumbent.objective
    return Progress(settled, total, best)
