"""``nest simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest.cli.exits import ExitCode
from nest.cli.options import json_option, plan_options
from nest.cli.output import check_files, print_json, screen
from nest.cli.reading import plan_from
from nest.errors import InvalidPlan

if TYPE_CHECKING:
    from nest.cost.schedules import Schedule
    from nest.plan import Plan
    from nest.report.simulation import Played
    from nest.runs import SelfContained

SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1")


@click.command("simulate")
@plan_options
@click.option("--schedule", type=click.Choice(SCHEDULES), help="Instead of the plan's own.")
@click.option(
    "--chunks", metavar="N", type=click.IntRange(min=2), help="Of each stage; interleaved only.  [default: 2]"
)
@click.option("--overlap", is_flag=True, help="Transfers leave the stage that receives free for other work.")
@click.option(
    "--weight-share",
    metavar="X",
    type=click.FloatRange(0, 1),
    help="Part of backward passes that takes gradients of weights, instead of the layers' own or 0.5; zb-h1 only.",
)
@click.option("--trace", metavar="FILE.json", type=click.Path(path_type=Path), help="Write what Perfetto shows.")
@json_option
def simulate_command(
    *,
    first_path: Path,
    second_path: Path | None,
    problem_path: Path | None,
    preset: str | None,
    settings: tuple[str, ...],
    schedule: str | None,
    chunks: int | None,
    overlap: bool,
    weight_share: float | None,
    trace: Path | None,
    as_json: bool,
) -> int:
    """Play a plan, pass by pass, with the loads and transfers that the judge finds.

    Says how long each stage works and waits, and what an iteration takes beside what formulas say. The problem is the
    one that PLAN.json carries, or that --problem gives. Exits with 3 if the plan breaks a rule, with 2 if it is so
    broken that it has no price.
    """
    check_files(problem_path or first_path, {"--trace": trace})
    found, plan_path = plan_from((first_path, second_path), problem_path, preset, settings)
    asked = _schedule(found.plan, schedule, chunks, plan_path)
    try:
        played = _played(found, asked, weight_share=weight_share, overlapped=overlap)
    except InvalidPlan as error:
        raise error.at(str(plan_path)) from None
    if trace is not None:
        from nest.files.disk import write_text
        from nest.report.trace import trace_text

        write_text(trace, trace_text(played.run, played.evaluation.scale.time))
    if as_json:
        from nest.report.simulation import simulation_document

        print_json(simulation_document(played))
    else:
        from nest.report.simulation import simulation_text

        click.echo(simulation_text(played, screen()))
    return ExitCode.OK if played.evaluation.legal else ExitCode.INFEASIBLE


def _played(found: SelfContained, schedule: Schedule, *, weight_share: float | None, overlapped: bool) -> Played:
    from nest.evaluate import evaluate
    from nest.report.simulation import Played
    from nest.simulate import pipeline_of, simulate

    problem, plan = found.problem, found.plan
    evaluation = evaluate(problem, plan)
    pipeline = pipeline_of(problem, plan, evaluation, weight_share=weight_share, overlapped=overlapped)
    return Played(problem, plan, evaluation, simulate(pipeline, schedule))


def _schedule(plan: Plan, typed: str | None, chunks: int | None, path: Path) -> Schedule:
    """Return the schedule to play: the typed one, or the plan's own, with chunks that go with it."""
    from nest.cost.schedules import schedule_named

    name = typed or plan.schedule
    if name == "interleaved":
        own = plan.chunks if name == plan.schedule and plan.chunks > 1 else 2
        return schedule_named(name, chunks or own)
    if chunks is not None:
        raise click.UsageError(f"--chunks goes with --schedule interleaved, not with {name}")
    if typed is None and plan.chunks > 1:
        what = f"{plan.chunks} in a plan whose schedule is {name}"
        raise InvalidPlan("chunks", what, 'give the plan "schedule": "interleaved", or leave chunks out', str(path))
    return schedule_named(name)
