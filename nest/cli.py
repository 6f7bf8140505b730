"""The command line: reads files, calls the library, prints. Everything heavy is imported by the command that needs it.

Standard output carries the answer, standard error everything else, and every failure is one line there.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from nest import __version__
from nest.errors import Infeasible, InvalidPlan, InvalidProblem, LimitReached, NestError, SolverUnavailable

if TYPE_CHECKING:
    from nest.certify import Certificate
    from nest.explain import Explanation
    from nest.problem import Problem
    from nest.report.layout import Screen
    from nest.result import Result
    from nest.solve import Backend

Command = TypeVar("Command", bound=Callable[..., Any])


class ExitCode(IntEnum):
    """What the exit code of a command says."""

    OK = 0
    REFUTED = 1
    INVALID = 2
    INFEASIBLE = 3
    LIMIT = 4
    INTERNAL = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141


_FAILURES = (
    (InvalidProblem, ExitCode.INVALID),
    (SolverUnavailable, ExitCode.INVALID),
    (Infeasible, ExitCode.INFEASIBLE),
    (LimitReached, ExitCode.LIMIT),
)

_PRESETS = ("artifact", "paper", "default")

_BACKENDS = ("auto", "dp", "cpsat", "pyomo")


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character gets "?"
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command.

    Parameters
    ----------
    arguments
        As typed, without the name of the program.

    Returns
    -------
    int
        An `ExitCode`; no exception leaves.
    """
    try:
        code = _invoke(list(arguments))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return ExitCode.BROKEN_PIPE
    except click.ClickException as error:
        return _fail(f"{error.format_message()}{_advice(error)}", ExitCode.INVALID)
    except OSError as error:
        if error.filename is None:
            _discard_output()
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", ExitCode.INVALID)
    except Exception as error:
        return _explain(error)


def _invoke(arguments: list[str]) -> int:
    try:
        with cli.make_context("nest", arguments) as context:
            return int(cli.invoke(context))
    except click.exceptions.Exit as stop:  # --help and --version
        return stop.exit_code


def _advice(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f" See '{context.command_path} --help'." if context else ""


def _explain(error: Exception) -> int:
    for kind, code in _FAILURES:
        if isinstance(error, kind):
            return _fail(str(error), code)
    if os.environ.get("NEST_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    what = str(error) if isinstance(error, NestError) else f"{type(error).__name__}: {error}"
    return _fail(f"internal error: {what}; please report", ExitCode.INTERNAL)


def _fail(message: str, code: ExitCode) -> int:
    click.echo(f"nest: {' '.join(message.split())}", err=True)
    return code


def _discard_output() -> None:
    """Send what is still buffered nowhere, or the interpreter would complain about it on its way out."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nest", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int:
    """Decide how to train a large model on a cluster, and prove that no other plan is better.

    Exit codes: 0 a plan was found (evaluate: the plan is legal; certify: it is proven optimal), 1 certify: there is a
    better plan, 2 invalid input, 3 infeasible (evaluate, certify: the plan breaks a rule), 4 a limit was reached
    without a plan (certify: without a proof), 5 internal error.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        return ExitCode.INVALID
    return ExitCode.OK


def _problem_options(command: Command) -> Command:
    """Add what every command that reads a problem takes."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output."),
        click.option(
            "--set", "settings", metavar="KEY=VALUE", multiple=True, help="Change a choice, as in --set zero=none."
        ),
        click.option("--preset", type=click.Choice(_PRESETS), help="Price plans by this preset, not by the problem's."),
        click.argument("problem_path", metavar="PROBLEM", type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


def _time_limit(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (value > 0 and isfinite(value)):
        raise click.BadParameter(f"{value} is not a finite number of seconds above 0")
    return value


@cli.command("solve")
@_problem_options
@click.option("--backend", type=click.Choice(_BACKENDS), default="auto", show_default=True, help="Which solver to ask.")
@click.option("--time-limit", metavar="S", type=float, callback=_time_limit, help="Stop proving after S seconds.")
@click.option("--certify", is_flag=True, help="Have the optimality checker confirm the answer.")
@click.option("-o", "--output", metavar="PLAN.json", type=click.Path(path_type=Path), help="Write the plan to a file.")
def solve_command(
    *,
    problem_path: Path,
    preset: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    backend: Backend,
    time_limit: float | None,
    certify: bool,
    output: Path | None,
) -> int:
    """Find the best plan and prove it.

    PROBLEM is a file in TOML or JSON. The plan is printed as a table with a summary, and written to a file with -o.
    """
    from nest.files import proof_document, result_document, write_plan

    target = None if output is None else _writable(output, problem_path)
    problem = _read(problem_path, preset, settings)
    result = _solve(problem, time_limit, quiet=as_json, backend=backend)
    certificate = _confirm(problem, result, time_limit) if certify else None
    explanation = _explanation(problem, result)
    if target is not None and result.plan is not None:
        write_plan(result.plan, target)
    if as_json:
        proof = None if certificate is None else proof_document(certificate)
        _print_json(result_document(result, proof, explanation))
    else:
        from nest.report.terminal import solution_text

        click.echo(solution_text(problem, result, _screen(), certificate, explanation))
    return _exit_code(result)


@cli.command("certify")
@_problem_options
@click.argument("plan_path", metavar="[PLAN.json]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--with", "provers", metavar="NAMES", default="checker", show_default=True, help="Ask checker, cpsat, pyomo."
)
@click.option("--time-limit", metavar="S", type=float, callback=_time_limit, help="Give each prover S seconds.")
@click.option("-o", "--output", metavar="PLAN.json", type=click.Path(path_type=Path), help="Write the better plan.")
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

    target = None if output is None else _writable(output, problem_path)
    names = [name.strip() for name in provers.split(",")]
    require(names)
    problem = _read(problem_path, preset, settings)
    if plan_path is not None:
        certificate = certify(problem, read_plan(plan_path), provers=names, time_limit_s=time_limit)
    else:
        result = _solve(problem, time_limit, quiet=as_json)
        certificate = certify_result(problem, result, provers=names, time_limit_s=time_limit)
    if target is not None and certificate.better is not None:
        write_plan(certificate.better, target)
    if as_json:
        from nest.provenance import versions

        _print_json(certificate_document(problem, certificate, versions()))
    else:
        from nest.report.terminal import certificate_text

        click.echo(certificate_text(problem, certificate, _screen()))
    return _finding_code(certificate)


@cli.command("evaluate")
@_problem_options
@click.argument("plan_path", metavar="PLAN.json", type=click.Path(path_type=Path))
def evaluate_command(
    *, problem_path: Path, plan_path: Path, preset: str | None, settings: tuple[str, ...], as_json: bool
) -> int:
    """Judge a plan: its price and the rules it breaks.

    Also says which figures that PLAN.json claims are not those of PROBLEM. Exits with 3 if the plan breaks a rule.
    """
    from nest.evaluate import evaluate
    from nest.files import read_claimed_plan

    problem = _read(problem_path, preset, settings)
    plan, objective = read_claimed_plan(plan_path)
    try:
        evaluation = evaluate(problem, plan)
    except InvalidPlan as error:
        raise error.at(str(plan_path)) from None
    if as_json:
        from nest.report.verdict import verdict_document

        _print_json(verdict_document(problem, plan, evaluation, objective))
    else:
        from nest.report.terminal import verdict_text

        click.echo(verdict_text(problem, plan, evaluation, _screen(), objective))
    return ExitCode.OK if evaluation.legal else ExitCode.INFEASIBLE


@cli.command("show")
@_problem_options
def show_command(*, problem_path: Path, preset: str | None, settings: tuple[str, ...], as_json: bool) -> int:
    """Show what was read from a problem.

    That is its model, cluster, training and choices, and how many plans fit on the devices.
    """
    problem = _read(problem_path, preset, settings)
    if as_json:
        from nest.report.facts import problem_facts

        _print_json(problem_facts(problem))
    else:
        from nest.report.terminal import problem_text

        click.echo(problem_text(problem, _screen()))
    return ExitCode.OK


@cli.command("versions")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
def versions_command(as_json: bool) -> int:
    """Show the versions of nest and what it runs on."""
    from nest.provenance import versions

    known = versions()
    if as_json:
        _print_json(known)
    else:
        for name, version in known.items():
            click.echo(f"{name:<10}{version}")
    return ExitCode.OK


def _read(path: Path, preset: str | None, settings: Sequence[str]) -> Problem:
    from nest.cost.scale import scale_of
    from nest.files import apply_settings, read_problem
    from nest.presets import preset_named

    problem = read_problem(path)
    if preset is not None:
        problem = problem.with_preset(preset_named(preset))
    problem = apply_settings(problem, settings)
    try:
        scale_of(problem)
    except InvalidProblem as error:
        raise error.at(str(path)) from None
    return problem


def _solve(problem: Problem, time_limit_s: float | None, *, quiet: bool, backend: Backend = "auto") -> Result:
    from nest.cost.scale import scale_of
    from nest.solve import solve

    if quiet or not _is_terminal(sys.stderr):
        return solve(problem, backend=backend, time_limit_s=time_limit_s)
    from nest.report.progress import ProgressBar

    with ProgressBar(scale_of(problem).time) as bar:
        return solve(problem, backend=backend, time_limit_s=time_limit_s, report=bar)


def _explanation(problem: Problem, result: Result) -> Explanation | None:
    """Explain an infeasible problem."""
    from nest.explain import explain
    from nest.result import Status

    return explain(problem) if result.status is Status.INFEASIBLE else None


def _confirm(problem: Problem, result: Result, time_limit_s: float | None) -> Certificate:
    from nest.certify import confirm

    return confirm(problem, result, time_limit_s=time_limit_s)


def _finding_code(certificate: Certificate) -> ExitCode:
    from nest.certify import Finding

    codes = {Finding.OPTIMAL: ExitCode.OK, Finding.REFUTED: ExitCode.REFUTED, Finding.UNDECIDED: ExitCode.LIMIT}
    return codes.get(certificate.finding, ExitCode.INFEASIBLE)


def _exit_code(result: Result) -> ExitCode:
    from nest.result import Status

    if result.plan is not None:
        return ExitCode.OK
    return ExitCode.INFEASIBLE if result.status is Status.INFEASIBLE else ExitCode.LIMIT


def _writable(output: Path, problem_path: Path) -> Path:
    """Return the path of a plan to be written, once it is sure that it can be."""
    import tempfile

    try:
        target = output.resolve()
        if target == problem_path.resolve():
            raise click.BadParameter(f"{output} is the problem itself", param_hint="'-o'")
        if target.is_dir():
            raise click.BadParameter(f"{output} is a directory", param_hint="'-o'")
        if target.is_file() or not target.exists():
            tempfile.TemporaryFile(dir=target.parent).close()  # where the writer will put its own
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise click.BadParameter(f"cannot write {output}: {why}", param_hint="'-o'") from error
    return output


def _screen() -> Screen:
    from nest.report.layout import Screen

    if not _is_terminal(sys.stdout):
        return Screen()
    import shutil

    return Screen(width=shutil.get_terminal_size().columns, colour=True)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _print_json(document: object) -> None:
    import json

    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # the number of plans is exact, however long
    try:
        text = json.dumps(document, indent=2, allow_nan=False)
    finally:
        sys.set_int_max_str_digits(limit)
    click.echo(text)
