"""What ``nest solve`` does when something else than time is to be the least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nest.cli.options import positive
from nest.cli.output import print_json, print_tried, screen
from nest.cli.reading import searching

if TYPE_CHECKING:
    from nest.certify import Proof
    from nest.objectives import Least, Quantity, Search
    from nest.problem import Problem
    from nest.runs import Tried

Command = TypeVar("Command", bound=Callable[..., Any])

MINIMA = ("time", "devices", "memory")


def minimize_options(command: Command) -> Command:
    """Add ``--minimize`` and how much time the plan may take then."""
    for option in (
        click.option(
            "--throughput",
            metavar="X",
            type=float,
            callback=positive("iterations per second"),
            help="With --minimize devices or memory: at least X iterations per second.",
        ),
        click.option(
            "--time-at-most",
            metavar="S",
            type=float,
            callback=positive("seconds"),
            help="With --minimize devices or memory: an iteration takes at most S seconds.",
        ),
        click.option(
            "--minimize", type=click.Choice(MINIMA), default="time", show_default=True, help="What shall be the least."
        ),
    ):
        command = option(command)
    return command


def time_allowed_s(minimize: str, time_at_most: float | None, throughput: float | None, backend: str) -> float | None:
    """Return the seconds that an iteration may take, None where its time is what shall be the least.

    Raises
    ------
    click.UsageError
        If the options do not go together.
    """
    from nest.objectives import period_s

    given = [name for name, value in (("--time-at-most", time_at_most), ("--throughput", throughput)) if value]
    if minimize == "time":
        if given:
            raise click.UsageError(f"{given[0]} goes with --minimize devices or memory")
        return None
    if len(given) != 1:
        raise click.UsageError(f"--minimize {minimize} takes one of --time-at-most and --throughput")
    if backend not in ("auto", "dp"):
        raise click.UsageError(f"--minimize {minimize} asks the dynamic program only, not --backend {backend}")
    return time_at_most if throughput is None else period_s(throughput)


def minimized(
    problem: Problem,
    quantity: Quantity,
    time_at_most_s: float,
    time_limit_s: float | None,
    searched: tuple[Search, str],
    *,
    quiet: bool,
) -> Least:
    """Return the least of a quantity, with a progress bar where a person looks on and did not ask for quiet.

    ``searched`` is what finds the best plan of a problem, and what is said of the plans that it searches.
    """
    from nest.objectives import least

    search, plans = searched
    with searching(problem, quiet=quiet) as report:
        limits: dict[str, Any] = {"time_limit_s": time_limit_s, "report": report}
        return least(problem, quantity, time_at_most_s, search=search, plans=plans, **limits)


def print_least(answer: Least, tried: Tried, time_limit_s: float | None, *, certify: bool, as_json: bool) -> None:
    """Print an answer, for a person or a program, with what the checker says to it where that shall be asked."""
    from nest.explain import explain
    from nest.objectives import confirm_claims

    proofs: tuple[Proof, ...] = confirm_claims(answer.claims(), time_limit_s) if certify else ()
    explanation = explain(answer.amounts.problem, answer.result.reason) if answer.impossible else None
    if explanation is not None:
        answer = replace(answer, result=replace(answer.result, reason=explanation.reason))
    if as_json:
        from nest.files import least_document

        print_json(least_document(answer, proofs, explanation) | tried.document())
    else:
        from nest.report.objectives import least_text

        click.echo(least_text(answer, screen(), proofs, explanation, tried=tried))
        print_tried(tried)
