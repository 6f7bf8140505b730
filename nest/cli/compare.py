"""``nest compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest.cli.exits import ExitCode
from nest.cli.options import PRESETS, json_option
from nest.cli.output import print_json, screen
from nest.errors import InvalidPlan

if TYPE_CHECKING:
    from nest.report.compare import Compared


@click.command("compare")
@click.argument("plan_paths", metavar="PLAN.json ...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--problem",
    "problem_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Judge all plans by this problem, in place of the ones that they carry.",
)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Change a choice, as in --set zero=none.")
@click.option("--preset", type=click.Choice(PRESETS), help="Price plans by this preset, not by the problem's.")
@json_option
def compare_command(
    *,
    plan_paths: tuple[Path, ...],
    problem_path: Path | None,
    settings: tuple[str, ...],
    preset: str | None,
    as_json: bool,
) -> int:
    """Lay plans side by side: time, memory, choices, and where they differ.

    Each is judged by the problem that it carries; where these are not the same, that is said. --problem puts one in
    their place. Exits with 3 if a plan breaks a rule.
    """
    if len(plan_paths) < 2:
        raise click.UsageError("give at least two plans")
    plans = [_read(path, problem_path, preset, settings) for path in plan_paths]
    if as_json:
        from nest.report.compare import comparison_document

        print_json(comparison_document(plans))
    else:
        from nest.report.compare import comparison_text

        click.echo(comparison_text(plans, screen()))
    return ExitCode.OK if all(each.evaluation.legal for each in plans) else ExitCode.INFEASIBLE


def _read(path: Path, problem: Path | None, preset: str | None, settings: tuple[str, ...]) -> Compared:
    from nest.report.compare import Compared
    from nest.report.throughput import Workload
    from nest.runs import read_self_contained

    found = read_self_contained(path, problem=problem, preset=preset, settings=settings)
    compared = Compared(str(path), found.problem, found.plan, Workload.of(found.run))
    try:
        compared.evaluation  # noqa: B018 - what is wrong with it is said before anything is printed
    except InvalidPlan as error:
        raise error.at(str(path)) from None
    return compared
