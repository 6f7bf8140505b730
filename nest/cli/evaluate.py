"""``nest evaluate``."""

from __future__ import annotations

from pathlib import Path

import click

from nest.cli.exits import ExitCode
from nest.cli.options import json_option, problem_options
from nest.cli.output import print_json, screen
from nest.cli.reading import problem_from
from nest.errors import InvalidPlan


@click.command("evaluate")
@problem_options
@click.argument("plan_path", metavar="PLAN.json", type=click.Path(path_type=Path))
@json_option
def evaluate_command(
    *, problem_path: Path, plan_path: Path, preset: str | None, settings: tuple[str, ...], as_json: bool
) -> int:
    """Judge a plan: its price and the rules it breaks.

    Also says which figures that PLAN.json claims are not those of PROBLEM. Exits with 3 if the plan breaks a rule.
    """
    from nest.evaluate import evaluate
    from nest.files import read_claimed_plan

    problem = problem_from(problem_path, preset, settings)
    plan, objective = read_claimed_plan(plan_path)
    try:
        evaluation = evaluate(problem, plan)
    except InvalidPlan as error:
        raise error.at(str(plan_path)) from None
    if as_json:
        from nest.report.verdict import verdict_document

        print_json(verdict_document(problem, plan, evaluation, objective))
    else:
        from nest.report.terminal import verdict_text

        click.echo(verdict_text(problem, plan, evaluation, screen(), objective))
    return ExitCode.OK if evaluation.legal else ExitCode.INFEASIBLE
