"""``nest ablate``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest.cli.exits import ExitCode
from nest.cli.options import json_option, problem_options, time_limit_option
from nest.cli.output import PictureKind, check_files, is_terminal, picture_kind, print_json, screen
from nest.cli.reading import problem_from

if TYPE_CHECKING:
    from nest.ablate import Row
    from nest.ablate.study import Report
    from nest.problem import Problem


@click.command("ablate")
@problem_options
@click.option(
    "--without", metavar="NAMES", multiple=True, help="What to hide, as in memory,topology or memory+zero; none, all."
)
@click.option("--sweep", "sweeps", metavar="KEY=VALUES", multiple=True, help="Vary a figure, as in hbm_gb=16,24,32.")
@time_limit_option("Give each solve S seconds.")
@click.option(
    "-j", "--jobs", metavar="N", type=click.IntRange(1), default=1, show_default=True, help="Use N processes."
)
@click.option("--resume", metavar="FILE.jsonl", type=click.Path(path_type=Path), help="Keep finished rows in a file.")
@click.option("--csv", "table", metavar="FILE.csv", type=click.Path(path_type=Path), help="Write the rows as CSV.")
@click.option("--plot", "picture", metavar="FILE", type=click.Path(path_type=Path), help="Draw a .png or .svg.")
@json_option
def ablate_command(
    *,
    problem_path: Path,
    preset: str | None,
    settings: tuple[str, ...],
    without: tuple[str, ...],
    sweeps: tuple[str, ...],
    time_limit: float | None,
    jobs: int,
    resume: Path | None,
    table: Path | None,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Show what each part of the optimisation is worth.

    Each row is the plan of a solver that does not see one thing (default: each of them in turn), judged with everything
    in view, beside the full optimum. With --sweep the problem itself is varied; several make every combination. With
    --resume, rows that FILE.jsonl holds are not computed again.
    """
    from nest.ablate import ablate
    from nest.ablate.sweeps import parse_sweeps

    check_files(problem_path, {"--resume": resume, "--csv": table, "--plot": picture})
    kind = None if picture is None else picture_kind(picture)
    problem = problem_from(problem_path, preset, settings)
    names, varied = _blindings(without), parse_sweeps(sweeps)
    with _progress(quiet=as_json) as report:
        rows = ablate(problem, names, varied, time_limit_s=time_limit, jobs=jobs, journal=resume, report=report)
    if table is not None:
        _write_table(table, rows)
    if picture is not None and kind is not None:
        _draw(picture, kind, problem, rows)
    if as_json:
        from nest.provenance import versions
        from nest.report.ablation import ablation_document

        print_json(ablation_document(problem, rows, versions(), time_limit))
    else:
        from nest.report.ablation import ablation_text

        click.echo(ablation_text(problem, rows, screen()))
    return ExitCode.OK if varied else _code(rows[0])


def _blindings(texts: Sequence[str]) -> list[str]:
    """Return the names that were typed; all there are where none was, or ``all``, and none for ``none``."""
    from nest.ablate import BLINDINGS

    names = [name.strip() for text in texts for name in text.split(",")] or ["all"]
    return [each for name in names if name != "none" for each in (BLINDINGS if name == "all" else [name])]


def _progress(*, quiet: bool) -> AbstractContextManager[Report | None]:
    """Return a progress bar where a person looks on and did not ask for quiet."""
    if quiet or not is_terminal(sys.stderr):
        return nullcontext()
    from nest.report.progress import RowsBar

    return RowsBar()


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    from nest.files.disk import write_text
    from nest.report.ablation import ablation_csv

    write_text(path, ablation_csv(rows))


def _draw(path: Path, kind: PictureKind, problem: Problem, rows: Sequence[Row]) -> None:
    from nest.files.disk import write_bytes
    from nest.report.ablation_plot import ablation_plot

    write_bytes(path, ablation_plot(problem, rows, kind))


def _code(full: Row) -> ExitCode:
    """Return the code of a study of one problem: that of solving it."""
    from nest.ablate import Verdict

    codes = {
        Verdict.INFEASIBLE: ExitCode.INFEASIBLE,
        Verdict.UNKNOWN: ExitCode.LIMIT,
        Verdict.REFUSED: ExitCode.INVALID,
    }
    return codes.get(full.outcome.verdict, ExitCode.OK)
