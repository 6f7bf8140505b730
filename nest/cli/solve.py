"""``nest solve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from nest.cli.dag import dag_answer
from nest.cli.exits import ExitCode, result_code
from nest.cli.minimize import minimize_options, minimized, print_least, time_allowed_s
from nest.cli.options import json_option, optional_problem_options, plan_output_option, time_limit_option
from nest.cli.output import check_files, print_json, screen
from nest.cli.reading import changed, posed_from, solved
from nest.cli.run_options import run_options, typed_run

if TYPE_CHECKING:
    from nest.certify import Certificate
    from nest.explain import Explanation
    from nest.problem import Problem
    from nest.result import Result
    from nest.runs import Posed
    from nest.solve import Backend

BACKENDS = ("auto", "dp", "cpsat", "pyomo")


@click.command("solve")
@optional_problem_options
@run_options
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True, help="Which solver to ask.")
@minimize_options
@time_limit_option("Stop proving after S seconds.")
@click.option("--certify", is_flag=True, help="Have the optimality checker confirm the answer.")
@plan_output_option("Write the plan to a file.")
@click.option("--write-problem", metavar="FILE.toml", type=click.Path(path_type=Path), help="Write the problem, too.")
@json_option
def solve_command(
    *,
    problem_path: Path | None,
    preset: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    backend: Backend,
    minimize: Literal["time", "devices", "memory"],
    time_at_most: float | None,
    throughput: float | None,
    time_limit: float | None,
    certify: bool,
    output: Path | None,
    write_problem: Path | None,
    **options: Any,
) -> int:
    """Find the best plan and prove it.

    PROBLEM is a file in TOML or JSON, of a problem or of a training run. Without it, --model, --cluster, --seq and
    --global-batch say what is trained; widths that are not given are chosen. The plan is printed as a table with a
    summary, and written to a file with -o. With --minimize devices or memory it is the plan that keeps a time with the
    least of them.
    """
    dag = dag_answer(problem_path, settings, time_limit, output, as_json=as_json)
    if dag is not None:
        return dag
    allowed_s = time_allowed_s(minimize, time_at_most, throughput, backend)
    source = problem_path or options["model_path"] or Path()
    check_files(source, {"-o": output, "--write-problem": write_problem})
    problem, posed = _asked(problem_path, preset, settings, options)
    if write_problem is not None:
        _write_problem(problem, write_problem)
    if minimize != "time" and allowed_s is not None:
        answer = minimized(problem, minimize, allowed_s, time_limit, quiet=as_json)
        _write_plan(answer.result, output)
        print_least(answer, time_limit, certify=certify, as_json=as_json)
        return result_code(answer.result)
    result = solved(problem, time_limit, quiet=as_json, backend=backend)
    certificate = _confirm(problem, result, time_limit) if certify else None
    _write_plan(result, output)
    return _print(problem, posed, result, certificate, as_json=as_json)


def _asked(
    problem_path: Path | None, preset: str | None, settings: tuple[str, ...], options: dict[str, Any]
) -> tuple[Problem, Posed | None]:
    """Return the problem, and the run that it is of, where it is of one."""
    from nest.files import read_problem
    from nest.runs import problem_of

    run = typed_run(problem_path, options)
    if run is not None:
        posed: Posed | None = problem_of(run)
    else:
        assert problem_path is not None
        posed = posed_from(problem_path)
    if posed is not None:
        source = str(problem_path) if problem_path else posed.problem.name
        return changed(posed.problem, preset, settings, source), posed
    assert problem_path is not None
    return changed(read_problem(problem_path), preset, settings, str(problem_path)), None


def _print(
    problem: Problem, posed: Posed | None, result: Result, certificate: Certificate | None, *, as_json: bool
) -> ExitCode:
    from nest.files import proof_document, result_document

    explanation = _explanation(problem, result)
    left_out = [] if posed is None else [str(each) for each in posed.left_out]
    if as_json:
        proof = None if certificate is None else proof_document(certificate)
        document = result_document(result, proof, explanation)
        print_json(document if posed is None else {**document, "left_out": left_out})
    else:
        from nest.report.terminal import solution_text

        click.echo(solution_text(problem, result, screen(), certificate, explanation))
        for at, line in enumerate(left_out):
            click.echo(f"{'' if at else 'Not tried':<11}{line}")
    return result_code(result)


def _write_plan(result: Result, output: Path | None) -> None:
    from nest.files import write_plan

    if output is not None and result.plan is not None:
        write_plan(result.plan, output)


def _write_problem(problem: Problem, path: Path) -> None:
    from nest.files import write_problem

    write_problem(problem, path)


def _explanation(problem: Problem, result: Result) -> Explanation | None:
    """Explain an infeasible problem."""
    from nest.explain import explain
    from nest.result import Status

    return explain(problem, result.reason) if result.status is Status.INFEASIBLE else None


def _confirm(problem: Problem, result: Result, time_limit_s: float | None) -> Certificate:
    from nest.certify import confirm

    return confirm(problem, result, time_limit_s=time_limit_s)
