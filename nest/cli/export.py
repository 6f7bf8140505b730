"""``nest export``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest.cli.exits import ExitCode
from nest.cli.frameworks import TARGETS
from nest.cli.options import json_option, plan_options, time_limit_option
from nest.cli.output import check_files, print_json
from nest.cli.reading import plan_from

if TYPE_CHECKING:
    from nest.export import Exported, Framework
    from nest.runs import SelfContained


@click.command("export")
@plan_options
@click.option("--to", "target", type=click.Choice((*TARGETS, "ranks")), required=True, help="Whose settings to write.")
@click.option("--approximate", is_flag=True, help="Where it cannot run the plan, write the nearest that it can.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Instead of standard output.")
@time_limit_option("With --approximate: stop proving after S seconds.")
@json_option
def export_command(
    *,
    first_path: Path,
    second_path: Path | None,
    problem_path: Path | None,
    preset: str | None,
    settings: tuple[str, ...],
    target: str,
    approximate: bool,
    output: Path | None,
    time_limit: float | None,
    as_json: bool,
) -> int:
    """Write a plan as settings of a training framework, or as a table of ranks.

    What is written is read again and checked against the framework's own rules. A plan that the framework cannot run is
    refused, with the stage and the value; --approximate writes the nearest plan that it can run, and says what the
    difference costs. How to start it, and what the settings do not say, goes to standard error.
    """
    found, plan_path = plan_from((first_path, second_path), problem_path, preset, settings)
    check_files(problem_path or plan_path, {"-o": output})
    if target == "ranks":
        _give(_ranks(found, as_json=as_json or (output is not None and output.suffix == ".json")), output)
        return ExitCode.OK
    from nest.errors import InvalidProblem
    from nest.export import FRAMEWORKS, export_plan

    framework = FRAMEWORKS[target]
    try:
        written = export_plan(found, framework, approximate=approximate, time_limit_s=time_limit)
    except InvalidProblem as error:
        raise (error if error.source else error.at(str(plan_path))) from None
    if as_json:
        _print(written, framework, output)
        return ExitCode.OK
    _give(written.export.text, output)
    for line in _remarks(written, framework, "FILE" if output is None else str(output)):
        click.echo(line, err=True)
    return ExitCode.OK


def _remarks(written: Exported, framework: Framework, file: str) -> Iterator[str]:
    """Yield how to start what was written, what it does not say, and what it costs where it is another plan."""
    yield f"Start with  {written.export.launch.replace('FILE', file)}"
    yield from (f"Note        {note}" for note in written.export.notes)
    if written.approximated:
        more = written.iteration_s / written.asked_s - 1 if written.asked_s else 0.0
        times = f"the plan takes {written.asked_s:.6g} s an iteration, what was written {written.iteration_s:.6g} s"
        yield f"Difference  {times} ({more:+.3%})"
        yield f"Note        nest solve --for {framework.name} finds the best of all plans that it can run"


def _ranks(found: SelfContained, *, as_json: bool) -> str:
    from nest.export import ranks_csv, ranks_json, ranks_of

    names = () if found.run is None else found.run.hardware.order
    ranks = ranks_of(found.plan, found.problem.cluster, names)
    return ranks_json(ranks) if as_json else ranks_csv(ranks)


def _give(text: str, output: Path | None) -> None:
    from nest.files.disk import write_text

    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)


def _print(written: Exported, framework: Framework, output: Path | None) -> None:
    if output is not None:
        _give(written.export.text, output)
    times = {"plan_s": written.asked_s, "written_s": written.iteration_s}
    print_json(
        {
            "framework": framework.name,
            "versions": framework.versions,
            "text": written.export.text,
            "launch": written.export.launch,
            "notes": list(written.export.notes),
            "approximated": times if written.approximated else None,
        }
    )
