"""``nest solve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from nest.cli.exits import result_code
from nest.cli.minimize import minimize_options, minimized, print_least, time_allowed_s
from nest.cli.options import json_option, plan_output_option, problem_options, time_limit_option
from nest.cli.output import print_json, screen, writable
from nest.cli.reading import problem_from, solved

if TYPE_CHECKING:
    from nest.certify import Certificate
    from nest.explain import Explanation
    from nest.problem import Problem
    from nest.result import Result
    from nest.solve import Backend

BACKENDS = ("auto", "dp", "cpsat", "pyomo")


@click.command("solve")
@problem_options
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True, help="Which solver to ask.")
@minimize_options
@time_limit_option("Stop proving after S seconds.")
@click.option("--certify", is_flag=True, help="Have the optimality checker confirm the answer.")
@plan_output_option("Write the plan to a file.")
@json_option
def solve_command(
    *,
    problem_path: Path,
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
) -> int:
    """Find the best plan and prove it.

    PROBLEM is a file in TOML or JSON. The plan is printed as a table with a summary, and written to a file with -o.
    With --minimize devices or memory it is the plan that keeps a time with the least of them.
    """
    from nest.files import proof_document, result_document, write_plan

    allowed_s = time_allowed_s(minimize, time_at_most, throughput, backend)
    target = None if output is None else writable(output, problem_path)
    problem = problem_from(problem_path, preset, settings)
    if minimize != "time" and allowed_s is not None:
        answer = minimized(problem, minimize, allowed_s, time_limit, quiet=as_json)
        if target is not None and answer.result.plan is not None:
            write_plan(answer.result.plan, target)
        print_least(answer, time_limit, certify=certify, as_json=as_json)
        return result_code(answer.result)
    result = solved(problem, time_limit, quiet=as_json, backend=backend)
    certificate = _confirm(problem, result, time_limit) if certify else None
    explanation = _explanation(problem, result)
    if target is not None and result.plan is not None:
        write_plan(result.plan, target)
    if as_json:
        proof = None if certificate is None else proof_document(certificate)
        print_json(result_document(result, proof, explanation))
    else:
        from nest.report.terminal import solution_text

        click.echo(solution_text(problem, result, screen(), certificate, explanation))
    return result_code(result)


def _explanation(problem: Problem, result: Result) -> Explanation | None:
    """Explain an infeasible problem."""
    from nest.explain import explain
    from nest.result import Status

    return explain(problem, result.reason) if result.status is Status.INFEASIBLE else None


def _confirm(problem: Problem, result: Result, time_limit_s: float | None) -> Certificate:
    from nest.certify import confirm

    return confirm(problem, result, time_limit_s=time_limit_s)
