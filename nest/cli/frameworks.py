"""``nest solve --for``: the best plan that a training framework can run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nest.cli.reading import searching

if TYPE_CHECKING:
    from nest.problem import Problem
    from nest.result import Result
    from nest.runs import Posed

Command = TypeVar("Command", bound=Callable[..., Any])

TARGETS = ("megatron", "torchtitan", "deepspeed", "accelerate")


def for_option(command: Command) -> Command:
    """Add ``--for``."""
    text = "Only plans that it can run, as nest export writes them."
    return click.option("--for", "target", type=click.Choice(TARGETS), help=text)(command)


def require_alone(target: str | None, *, minimize: str, backend: str, certify: bool) -> None:
    """Refuse what does not go with ``--for``.

    Raises
    ------
    click.UsageError
        Naming the option.
    """
    if target is None:
        return
    others = {"--minimize": minimize != "time", "--backend": backend not in ("auto", "dp"), "--certify": certify}
    for option, given in others.items():
        if given:
            raise click.UsageError(f"{option} does not go with --for {target}")


def solved_for(
    problem: Problem, posed: Posed | None, target: str, time_limit_s: float | None, *, quiet: bool
) -> tuple[Problem, Result]:
    """Return the problem of the plans that a framework can run, and the best of them.

    Raises
    ------
    InvalidProblem
        If the problem is a file of costs, or frameworks have no such model.
    Infeasible
        If the framework has none of the ZeRO types that are allowed.
    """
    from nest.errors import InvalidProblem
    from nest.export import FRAMEWORKS, best_for, problem_for

    if posed is None:
        what = "the problem does not say what the model is, which decides what a framework can run"
        raise InvalidProblem("--for", what, "give a run: --model with --cluster, or a run file")
    framework = FRAMEWORKS[target]
    with searching(problem, quiet=quiet) as report:
        result = best_for(problem, posed.run, framework, time_limit_s=time_limit_s, report=report)
    return problem_for(problem, posed.run, framework), result
