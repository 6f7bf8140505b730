"""The program: its commands, and what it does when one of them fails."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import click

from nest import __version__
from nest.cli.ablate import ablate_command
from nest.cli.capture import capture_command
from nest.cli.certify import certify_command
from nest.cli.compare import compare_command
from nest.cli.estimate import estimate_command
from nest.cli.evaluate import evaluate_command
from nest.cli.exits import FAILURES, ExitCode
from nest.cli.export import export_command
from nest.cli.frontier import frontier_command
from nest.cli.profile import profile_command
from nest.cli.report import report_command
from nest.cli.run import run_command
from nest.cli.show import show_command
from nest.cli.simulate import simulate_command
from nest.cli.solve import solve_command
from nest.cli.validate import validate_command
from nest.cli.versions import versions_command
from nest.errors import NestError

COMMANDS = (
    ablate_command,
    capture_command,
    certify_command,
    compare_command,
    estimate_command,
    evaluate_command,
    export_command,
    frontier_command,
    profile_command,
    report_command,
    run_command,
    show_command,
    simulate_command,
    solve_command,
    validate_command,
    versions_command,
)


SETTINGS = {"help_option_names": ["-h", "--help"]}


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
        return _fail(_with_advice(error), ExitCode.INVALID)
    except OSError as error:
        if error.filename is None:
            _discard_output()
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", ExitCode.INVALID)
    except Exception as error:
        return _explain(error)


@click.group(invoke_without_command=True, context_settings=SETTINGS)
@click.version_option(__version__, prog_name="nest", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int:
    """Decide how to train a large model on a cluster, and prove that no other plan is better.

    Exit codes: 0 a plan was found (evaluate: the plan is legal; certify: it is proven optimal), 1 certify: there is a
    better plan; run: it does not train as one process does, 2 invalid input, 3 infeasible (evaluate, certify: the plan
    breaks a rule), 4 a limit was reached without a plan (certify: without a proof), 5 internal error.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        return ExitCode.INVALID
    return ExitCode.OK


for _command in COMMANDS:
    _command.context_settings = (
        SETTINGS  # its own: click keeps the names of a command's help option from the first call on
    )
    cli.add_command(_command)


def _invoke(arguments: list[str]) -> int:
    try:
        with cli.make_context("nest", arguments) as context:
            return int(cli.invoke(context))
    except click.exceptions.Exit as stop:  # --help and --version
        return stop.exit_code


def _with_advice(error: click.ClickException) -> str:
    """Return what is wrong as one line that ends in where to read on, whether or not its text is a sentence."""
    if isinstance(error, click.NoSuchOption) and list(error.possibilities or ()) == ["--help"]:  # nobody meant that
        error = click.NoSuchOption(error.option_name, ctx=error.ctx)
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message.rstrip('. ')}; see '{context.command_path} --help'" if context else message


def _explain(error: Exception) -> int:
    for kind, code in FAILURES:
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
