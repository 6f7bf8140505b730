"""``--for``: the best plan that a training framework can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nest.cli.reading import searching

if TYPE_CHECKING:
    from nest.export import BestFor
    from nest.objectives import Search
    from nest.problem import Problem
    from nest.result import Report, Result
    from nest.runs import Run, SelfContained, Tried

Command = TypeVar("Command", bound=Callable[..., Any])

TARGETS = ("megatron", "torchtitan", "deepspeed", "accelerate")
ANY = "any"


def for_option(command: Command) -> Command:
    """Add ``--for``."""
    text = "Only plans that it can run, as nest export writes them."
    return click.option("--for", "target", type=click.Choice(TARGETS), help=text)(command)


def certified_for_option(command: Command) -> Command:
    """Add the ``--for`` of ``nest certify``."""
    text = f"Among the plans that it can run; {ANY!r} for all plans.  [default: what PLAN.json was found for]"
    return click.option("--for", "target", type=click.Choice((*TARGETS, ANY)), help=text)(command)


def target_of(target: str | None, found: SelfContained, provers: Sequence[str]) -> str | None:
    """Return among whose plans one is to be certified: what is typed, or what it was found for; None for all.

    Raises
    ------
    click.UsageError
        If provers are asked that know nothing of frameworks.
    """
    wanted = target or found.provenance.get("for", ANY)
    if wanted not in TARGETS:
        return None
    others = [name for name in provers if name != "checker"]
    if others:
        what = f"--with {','.join(others)} does not go with --for {wanted}, which puts parts to the checker"
        raise click.UsageError(f"{what}; --for {ANY} asks about all plans")
    return wanted


def require_alone(target: str | None, *, minimize: str, backend: str, certify: bool) -> None:
    """Refuse what does not go with ``--for``.

    Raises
    ------
    click.UsageError
        Naming the option.
    """
    if target is None:
        return
    if backend not in ("auto", "dp"):
        raise click.UsageError(f"--backend {backend} does not go with --for {target}, which asks the dynamic program")
    if minimize != "time" and certify:
        what = f"--certify does not go with --minimize {minimize} and --for {target} at once"
        raise click.UsageError(f"{what}: the checker would be asked about plans that {target} cannot run")


def solved_for(
    problem: Problem, run: Run | None, target: str, time_limit_s: float | None, *, quiet: bool
) -> tuple[Problem, BestFor]:
    """Return the problem of the plans that a framework can run, and the best of them.

    Raises
    ------
    InvalidProblem
        If the problem is a file of costs, or frameworks have no such model.
    Infeasible
        If the framework has none of the ZeRO types that are allowed.
    """
    from nest.export import FRAMEWORKS, best_for, problem_for

    run, framework = _needed(run), FRAMEWORKS[target]
    with searching(problem, quiet=quiet) as report:
        found = best_for(problem, run, framework, time_limit_s=time_limit_s, report=report)
    return problem_for(problem, run, framework), found


def search_for(run: Run | None, tried: Tried, target: str | None) -> tuple[Search, str]:
    """Return what finds the best plan of a problem, or the best that a framework can run, and what it searches.

    Raises
    ------
    InvalidProblem
        If the problem is a file of costs.
    """
    from nest.export import FRAMEWORKS, best_for
    from nest.solve import solve

    if target is None:
        return solve, tried.plan
    model, framework = _needed(run), FRAMEWORKS[target]

    def search(
        problem: Problem, *, time_limit_s: float | None, report: Report | None, better_than: int | None
    ) -> Result:
        """Return the best plan that the framework can run."""
        limits: dict[str, Any] = {"time_limit_s": time_limit_s, "report": report, "better_than": better_than}
        return best_for(problem, model, framework, **limits).result

    return search, f"{tried.plan} that {framework.title} can run"


def _needed(run: Run | None) -> Run:
    from nest.errors import InvalidProblem

    if run is None:
        what = "the problem does not say what the model is, which decides what a framework can run"
        raise InvalidProblem("--for", what, "give a run: --model with --cluster, or a run file")
    return run
