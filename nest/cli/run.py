"""``nest run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nest.cli.exits import ExitCode
from nest.cli.options import json_option, plan_options, positive
from nest.cli.output import print_json, screen
from nest.cli.reading import plan_from
from nest.errors import InvalidPlan

WHOLE = click.IntRange(min=1)


@click.command("run")
@plan_options
@click.option(
    "--model",
    type=click.Choice(("tiny",)),
    default="tiny",
    show_default=True,
    expose_value=False,  # there is no other yet
    help="What is trained.",
)
@click.option("--layers", "blocks", metavar="N", type=WHOLE, help="Without embedding and head.  [default: the plan's]")
@click.option("--steps", metavar="N", type=WHOLE, default=3, show_default=True, help="Of the optimizer.")
@click.option("--microbatches", metavar="N", type=WHOLE, help="Of a replica.  [default: 2 for each stage]")
@click.option("--schedule", type=click.Choice(("1f1b", "gpipe")), help="Instead of the plan's own.")
@click.option("--processes", metavar="N", type=WHOLE, default=8, show_default=True, help="The most that are started.")
@click.option("--scale-down", is_flag=True, help="Run at most 2 replicas, and narrower stages where that is needed.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Of weights and tokens.  [default: 0]")
@click.option(
    "--timeout",
    metavar="S",
    type=float,
    default=300.0,
    show_default=True,
    callback=positive("seconds"),
    help="Stop processes that take longer.",
)
@json_option
def run_command(
    *,
    first_path: Path,
    second_path: Path | None,
    problem_path: Path | None,
    preset: str | None,
    settings: tuple[str, ...],
    timeout: float,
    as_json: bool,
    **asked: Any,
) -> int:
    """Execute the shape of a plan: train a tiny model with PyTorch on a few processes of this machine.

    The tiny model is cut into stages as PLAN.json cuts its own; replicas, widths, ZeRO types and recomputation are the
    plan's. Exits with 1 unless losses and weights are those of one process that trains alone.
    """
    from nest.execute import Asked, execute, prepare
    from nest.report.executed import executed_document, executed_text

    found, plan_path = plan_from((first_path, second_path), problem_path, preset, settings)
    try:
        prepared = prepare(found.problem, found.plan, Asked(**asked))
    except InvalidPlan as error:
        raise error.at(str(plan_path)) from None
    outcome = execute(prepared.job, timeout)
    if as_json:
        print_json(executed_document(outcome, found.problem.name, prepared.notes))
    else:
        click.echo(executed_text(outcome, found.problem.name, prepared.notes, screen()))
    return ExitCode.OK if outcome.equal else ExitCode.REFUTED
