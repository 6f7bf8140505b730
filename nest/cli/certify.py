"""``nest certify``."""

from __future__ import annotations

from pathlib import Path

import click

from nest.cli.exits import finding_code
from nest.cli.options import json_option, plan_output_option, problem_options, time_limit_option
from nest.cli.output import print_json, screen, writable
from nest.cli.reading import problem_from, solved


@click.command("certify")
@problem_options
@click.argument("plan_path", metavar="[PLAN.json]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--with", "provers", metavar="NAMES", default="checker", show_default=True, help="Ask checker, cpsat, pyomo."
)
@time_limit_option("Give each prover S seconds.")
@plan_output_option("Write the better plan.")
@json_option
def certify_command(
    *,
    problem_path: Path,
    plan_path: Path | None,
    preset: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    provers: str,
    time_limit: float | None,
    output: Path | None,
) -> int:
    """Have independent provers say whether a plan is the best one.

    Without PLAN.json the problem is solved first. Exits with 0 if the plan is proven optimal, with 1 if there is a
    better one, which is printed, with 3 if it breaks a rule or there is no plan, with 4 if that is not decided within
    the limit.
    """
    from nest.certify import certify, certify_result, require
    from nest.files import certificate_document, read_plan, write_plan

    target = None if output is None else writable(output, problem_path)
    names = [name.strip() for name in provers.split(",")]
    require(names)
    problem = problem_from(problem_path, preset, settings)
    require(names, problem)
    if plan_path is not None:
        certificate = certify(problem, read_plan(plan_path), provers=names, time_limit_s=time_limit)
    else:
        result = solved(problem, time_limit, quiet=as_json)
        certificate = certify_result(problem, result, provers=names, time_limit_s=time_limit)
    if target is not None and certificate.better is not None:
        write_plan(certificate.better, target)
    if as_json:
        from nest.provenance import versions

        print_json(certificate_document(problem, certificate, versions()))
    else:
        from nest.report.terminal import certificate_text

        click.echo(certificate_text(problem, certificate, screen()))
    return finding_code(certificate)
