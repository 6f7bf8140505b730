"""``nest evaluate``."""

from __future__ import annotations

from pathlib import Path

import click

from nest.cli.exits import ExitCode
from nest.cli.options import json_option, plan_options
from nest.cli.output import print_json, screen
from nest.cli.reading import plan_from
from nest.cli.shown import others, runners_limit_option, shown, shown_options
from nest.errors import InvalidPlan


@click.command("evaluate")
@plan_options
@shown_options
@runners_limit_option
@json_option
def evaluate_command(
    *,
    first_path: Path,
    second_path: Path | None,
    problem_path: Path | None,
    preset: str | None,
    settings: tuple[str, ...],
    details: bool,
    runners: int | None,
    time_limit: float | None,
    as_json: bool,
) -> int:
    """Judge a plan: its price and the rules it breaks.

    Also says which figures that PLAN.json claims are not those of its problem. That is the one that it carries, or that
    --problem gives, or the first of two files. Exits with 3 if the plan breaks a rule.
    """
    from nest.evaluate import evaluate

    found, plan_path = plan_from((first_path, second_path), problem_path, preset, settings)
    problem, plan, objective = found.problem, found.plan, found.objective
    try:
        evaluation = evaluate(problem, plan)
    except InvalidPlan as error:
        raise error.at(str(plan_path)) from None
    asked = shown(found.run, others(problem, plan, runners, time_limit), details=details)
    if as_json:
        from nest.report.verdict import verdict_document

        print_json(verdict_document(problem, plan, evaluation, objective, shown=asked))
    else:
        from nest.report.terminal import verdict_text

        click.echo(verdict_text(problem, plan, evaluation, screen(), objective, shown=asked))
    return ExitCode.OK if evaluation.legal else ExitCode.INFEASIBLE
