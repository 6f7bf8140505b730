"""What commands show of a plan besides its summary: ``--details`` and ``--runners-up``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nest.cli.options import positive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nest.alternatives import RunnerUp
    from nest.plan import Plan
    from nest.problem import Problem
    from nest.report.shown import Shown
    from nest.runs import Run

Command = TypeVar("Command", bound=Callable[..., Any])

MOST_RUNNERS = 100
"""Each takes a search of its own, so that thousands would take hours."""


def shown_options(command: Command) -> Command:
    """Add ``--details`` and ``--runners-up``."""
    for option in (
        click.option(
            "--runners-up",
            "runners",
            metavar="N",
            type=click.IntRange(1, MOST_RUNNERS),
            help="Also find the best plans of N other widths, stages and replicas.",
        ),
        click.option("--details", is_flag=True, help="Show what loads and memory of each stage consist of."),
    ):
        command = option(command)
    return command


def runners_limit_option(command: Command) -> Command:
    """Add ``--time-limit`` where nothing but runners-up is searched for."""
    help_ = "Stop searching for runners-up after S seconds."
    option = click.option("--time-limit", metavar="S", type=float, callback=positive("seconds"), help=help_)
    return option(command)


def others(
    problem: Problem, plan: Plan | None, count: int | None, time_limit_s: float | None
) -> Sequence[RunnerUp] | None:
    """Return the runners-up that were asked for; None where none were, or there is no plan."""
    if count is None or plan is None:
        return None
    from nest.alternatives import runners_up

    return runners_up(problem, plan, count, time_limit_s=time_limit_s)[0]


def shown(run: Run | None, runners: Sequence[RunnerUp] | None, *, details: bool) -> Shown:
    """Return what is shown besides a plan's summary."""
    from nest.report.shown import Shown
    from nest.report.throughput import Workload

    return Shown(Workload.of(run), details, runners)
