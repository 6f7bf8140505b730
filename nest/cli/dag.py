"""What ``nest solve`` does with the inputs of dnn-partitioning and Piper, graphs with branches under load models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest.cli.described import dag_at
from nest.cli.exits import ExitCode
from nest.cli.options import refuse_others
from nest.cli.output import print_json, screen, writable

if TYPE_CHECKING:
    from nest.dag import DagResult

TAKEN = frozenset({"problem_path", "settings", "time_limit", "output", "as_json"})
"""Parameters of the command that these inputs have a use for."""


def dag_answer(
    path: Path | None, settings: Sequence[str], time_limit_s: float | None, output: Path | None, *, as_json: bool
) -> ExitCode | None:
    """Solve a graph with branches and print the answer, or return None if the file holds something else.

    Raises
    ------
    click.UsageError
        If an option was typed that is not for such inputs.
    InvalidProblem
        Naming the file.
    """
    if path is None or not path.is_file():
        return None
    from nest.dag import solve_dag
    from nest.errors import InvalidProblem
    from nest.files.ancestors import with_devices
    from nest.files.dag_file import write_dag_result

    problem = dag_at(path)
    if problem is None:
        return None
    refuse_others(TAKEN, f"inputs of {problem.preset.name}")
    if output is not None:
        writable(output, path)
    try:
        result = solve_dag(with_devices(problem, settings), time_limit_s=time_limit_s)
    except InvalidProblem as error:
        raise error.at(str(path)) from None
    if output is not None and result.stages:
        write_dag_result(result, output)
    return _printed(result, as_json=as_json)


def _printed(result: DagResult, *, as_json: bool) -> ExitCode:
    if as_json:
        from nest.files.dag_file import dag_result_document

        print_json(dag_result_document(result))
    else:
        from nest.report.dag import dag_text

        click.echo(dag_text(result, screen()))
    if result.stages:
        return ExitCode.OK
    return ExitCode.INFEASIBLE if result.bound is None else ExitCode.LIMIT
