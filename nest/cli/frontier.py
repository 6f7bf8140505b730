"""``nest frontier``."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest.cli.exits import ExitCode
from nest.cli.options import json_option, problem_options, time_limit_option
from nest.cli.output import (
    PictureKind,
    check_files,
    is_terminal,
    picture_kind,
    print_json,
    print_tried,
    screen,
    writable_directory,
)
from nest.cli.reading import Race, asked_from, found_in

if TYPE_CHECKING:
    from nest.certify import Proof
    from nest.files.origin import Origin
    from nest.objectives import Frontier
    from nest.objectives.frontier import Advance
    from nest.problem import Problem
    from nest.runs import Tried


@click.command("frontier")
@problem_options
@time_limit_option("Stop after S seconds, with the points found: those with the most devices.")
@click.option(
    "--against",
    type=click.Choice(("devices", "price")),
    default="devices",
    show_default=True,
    help="Trade time for devices, or for the price of the network's technologies.",
)
@click.option("--certify", is_flag=True, help="Have the optimality checker confirm that nothing beats the front.")
@click.option("--csv", "table", metavar="FILE.csv", type=click.Path(path_type=Path), help="Write the points as CSV.")
@click.option("--plot", "picture", metavar="FILE", type=click.Path(path_type=Path), help="Draw a .png or .svg.")
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="Write the plan of each point into DIR."
)
@json_option
def frontier_command(
    *,
    problem_path: Path,
    preset: str | None,
    settings: tuple[str, ...],
    time_limit: float | None,
    against: str,
    certify: bool,
    table: Path | None,
    picture: Path | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Show every trade-off of devices and time, and prove that there is no other.

    Each row is the fastest plan with so many devices or fewer, and no plan with fewer is as fast. With --against price
    it is the fastest plan whose technologies cost so much or less, where levels of the network have a menu.
    """
    from nest.objectives import frontier

    if against == "price":
        given = {"--certify": certify, "--csv": table, "--plot": picture, "-o": output}
        if wrong := next((name for name, value in given.items() if value), None):
            raise click.UsageError(f"{wrong} goes with --against devices")
        asked = asked_from(problem_path, preset, settings, Race(preset, settings, fastest=False).pose)
        return _against_price(asked, time_limit, as_json=as_json)
    check_files(problem_path, {"--csv": table, "--plot": picture})
    kind = None if picture is None else picture_kind(picture)
    problem, tried, run = found_in(problem_path, preset, settings, Race(preset, settings, fastest=False).pose)
    if output is not None:
        writable_directory(output)
    with _progress(quiet=as_json) as report:
        front = frontier(problem, time_limit_s=time_limit, report=report, plans=tried.plan)
    _write(front, table, picture, kind)
    if output is not None:
        from nest.runs.carried import origin_of_file

        usual = {} if run is None else tried.provenance
        _write_plans(front, output, origin_of_file(problem_path, problem.name, preset, settings), usual)
    _print(front, tried, time_limit, certify=certify, as_json=as_json)
    if front.points:
        return ExitCode.OK
    return ExitCode.INFEASIBLE if front.complete else ExitCode.LIMIT


def _against_price(asked: tuple[Problem, Tried], time_limit_s: float | None, *, as_json: bool) -> ExitCode:
    """Print the front of price and time."""
    from nest.explain import explain
    from nest.objectives import price_frontier

    problem, tried = asked
    front = price_frontier(problem, time_limit_s=time_limit_s)
    explanation = explain(problem, front.reason) if front.complete and not front.points else None
    front = front if explanation is None else replace(front, reason=explanation.reason)
    if as_json:
        from nest.files import price_frontier_document
        from nest.provenance import versions

        print_json(price_frontier_document(front, versions(), explanation) | tried.document())
    else:
        from nest.report.objectives import price_frontier_text

        click.echo(price_frontier_text(front, screen(), explanation, tried=tried))
        print_tried(tried)
    if front.points:
        return ExitCode.OK
    return ExitCode.INFEASIBLE if front.complete else ExitCode.LIMIT


def _progress(*, quiet: bool) -> AbstractContextManager[Advance | None]:
    """Return a progress bar where a person looks on and did not ask for quiet."""
    if quiet or not is_terminal(sys.stderr):
        return nullcontext()
    from nest.report.progress import RowsBar

    return RowsBar(what="devices")


def _print(front: Frontier, tried: Tried, time_limit_s: float | None, *, certify: bool, as_json: bool) -> None:
    from nest.explain import explain
    from nest.objectives import confirm_claims

    proofs: tuple[Proof, ...] = confirm_claims(front.claims(), time_limit_s) if certify else ()
    explanation = explain(front.problem, front.reason) if front.complete and not front.points else None
    front = front if explanation is None else replace(front, reason=explanation.reason)
    if as_json:
        from nest.files import frontier_document
        from nest.provenance import versions

        print_json(frontier_document(front, versions(), proofs, explanation) | tried.document())
    else:
        from nest.report.objectives import frontier_text

        click.echo(frontier_text(front, screen(), proofs, explanation, tried=tried))
        print_tried(tried)


def _write(front: Frontier, table: Path | None, picture: Path | None, kind: PictureKind | None) -> None:
    """Write the files that were asked for; a picture of no point is none."""
    from nest.files.disk import write_bytes, write_text

    if table is not None:
        from nest.report.objectives import frontier_csv

        write_text(table, frontier_csv(front))
    if picture is not None and kind is not None and front.points:
        from nest.report.frontier_plot import frontier_plot

        write_bytes(picture, frontier_plot(front, kind))


def _write_plans(front: Frontier, directory: Path, origin: Origin | None, usual: dict[str, str]) -> None:
    """Write the plan of each point, with its problem, as that with the fewest devices that keeps its time."""
    from nest.files import write_plan
    from nest.runs.carried import computed_now

    digits, now = len(str(front.problem.cluster.devices)), computed_now()
    for point in front.points:
        least = {"minimized": "devices", "time_at_most_s": repr(front.time.seconds_at_least(point.ticks))}
        write_plan(point.plan, directory / f"devices-{point.devices:0{digits}d}.json", origin, now | usual | least)
