"""``nest report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest.cli.exits import ExitCode
from nest.cli.options import json_option, plan_options, positive
from nest.cli.output import PictureKind, check_files, is_terminal, print_json
from nest.cli.reading import plan_from
from nest.cli.shown import MOST_RUNNERS
from nest.errors import InvalidPlan

if TYPE_CHECKING:
    from nest.report.figures import PricedPlan
    from nest.report.page import Reported
    from nest.runs import SelfContained


@click.command("report")
@plan_options
@click.option("-o", "--output", metavar="FILE.html", type=click.Path(path_type=Path), help="Where the page goes.")
@click.option("--png", metavar="FILE", type=click.Path(path_type=Path), help="Also draw the figures for a paper.")
@click.option("--svg", metavar="FILE", type=click.Path(path_type=Path), help="The same, as vectors.")
@click.option(
    "--runners-up",
    "runners",
    metavar="N",
    type=click.IntRange(0, MOST_RUNNERS),
    default=3,
    show_default=True,
    help="Show the best plans of N other widths, stages and replicas.",
)
@click.option(
    "--time-limit",
    metavar="S",
    type=float,
    default=60.0,
    show_default=True,
    callback=positive("seconds"),
    help="For each of: other choices, solving again under changes, the proof, and the search to tell of.",
)
@click.option("--judge-only", is_flag=True, help="Judge the plan, and search for no others and no proof.")
@json_option
def report_command(
    *,
    first_path: Path,
    second_path: Path | None,
    problem_path: Path | None,
    preset: str | None,
    settings: tuple[str, ...],
    output: Path | None,
    png: Path | None,
    svg: Path | None,
    runners: int,
    time_limit: float,
    judge_only: bool,
    as_json: bool,
) -> int:
    """Draw a plan as one page that needs nothing else: time, memory, pipeline, cluster, sensitivity, proof.

    The page loads nothing from anywhere; --json has the same for programs. Exits with 3 if the plan breaks a rule, with
    2 if it is so broken that it has no price.
    """
    from nest.report.page import page_text, report_document

    if not as_json and output is None and png is None and svg is None:
        raise click.UsageError("say where the report goes: -o report.html, --png, --svg or --json")
    check_files(first_path, {"-o": output, "--png": png, "--svg": svg})
    if output is not None and output.suffix.lower() in (".pdf", ".png", ".svg", ".json"):
        what = f"{output} is to be a page in HTML; --png and --svg draw pictures, --json is for programs"
        raise click.BadParameter(what, param_hint="'-o'")
    pictures: dict[PictureKind, Path | None] = {"png": png, "svg": svg}
    for picture, option in ((png, "--png"), (svg, "--svg")):
        _check_picture(picture, option)
    found, plan_path = plan_from((first_path, second_path), problem_path, preset, settings)
    priced = _priced(found, plan_path)
    if output is not None or as_json:
        reported = _reported(found, priced, plan_path, None if judge_only else (runners, time_limit))
        if output is not None:
            _write(output, page_text(reported).encode())
        if as_json:
            print_json(report_document(reported))
    for kind, picture in pictures.items():
        if picture is not None:
            from nest.report.plan_plot import plan_plot

            _write(picture, plan_plot(priced, kind))
    return ExitCode.OK if priced.evaluation.legal else ExitCode.INFEASIBLE


def _check_picture(picture: Path | None, option: str) -> None:
    """Refuse a picture that cannot be drawn, by its name or for want of what draws."""
    from importlib.util import find_spec

    if picture is None:
        return
    kind = f".{option.removeprefix('--')}"
    if picture.suffix.lower() != kind:
        raise click.BadParameter(f"{picture} is no {kind}", param_hint=f"'{option}'")
    if find_spec("matplotlib") is None:
        raise click.UsageError(f"{option} needs matplotlib, which is not installed; pip install matplotlib")


def _priced(found: SelfContained, path: Path) -> PricedPlan:
    from nest.evaluate import evaluate
    from nest.report.figures import PricedPlan
    from nest.report.throughput import Workload

    try:
        evaluation = evaluate(found.problem, found.plan)
    except InvalidPlan as error:
        raise error.at(str(path)) from None
    priced = PricedPlan.of(found.problem, found.plan, evaluation, Workload.of(found.run))
    if priced is None:
        broken = ", ".join(sorted({violation.rule for violation in evaluation.violations}))
        raise InvalidPlan("plan", f"has no price, it breaks {broken}", "repair it as 'nest evaluate' says", str(path))
    return priced


def _reported(found: SelfContained, priced: PricedPlan, path: Path, searches: tuple[int, float] | None) -> Reported:
    """Return everything that the page shows; ``searches`` are the number of runners-up, and seconds for each search."""
    from nest.alternatives import looked_at, runners_up, sensitivity
    from nest.certify import certify
    from nest.cost.schedules import schedule_named
    from nest.report.page import Reported, searched_of
    from nest.simulate import pipeline_of, simulate

    problem, plan = priced.problem, priced.plan
    run = simulate(pipeline_of(problem, plan, priced.evaluation), schedule_named(plan.schedule, plan.chunks))
    file, provenance = str(path), found.provenance
    if searches is None:
        changed = sensitivity(problem, plan)
        why = "only the judge was"
        return Reported(priced, run, changed, None, (), 0, None, why, provenance, file, found.tried)
    count, limit_s = searches
    _tell("searching for a proof, for what changes are worth, and for other choices")
    certificate = certify(problem, plan, time_limit_s=limit_s)
    changed = sensitivity(problem, plan, time_limit_s=limit_s)
    runners = runners_up(problem, plan, count, time_limit_s=limit_s)[0] if count else None
    looked = looked_at(problem, time_limit_s=limit_s)
    rows = searched_of(looked, priced)
    return Reported(priced, run, changed, runners, rows, len(looked), certificate, "", provenance, file, found.tried)


def _tell(what: str) -> None:
    """Say on standard error what takes its time, where a person looks on."""
    if is_terminal(sys.stderr):
        click.echo(f"{what} ...", err=True)


def _write(path: Path, content: bytes) -> None:
    from nest.files.disk import write_bytes

    write_bytes(path, content)
