"""Options and arguments that several commands take."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

Command = TypeVar("Command", bound=Callable[..., Any])

PRESETS = ("artifact", "paper", "default", "simulated")


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")(command)


def problem_options(command: Command) -> Command:
    """Add the argument PROBLEM and what changes the problem that is read: ``--preset`` and ``--set``."""
    return _change_options(_problem_argument(required=True)(command))


def optional_problem_options(command: Command) -> Command:
    """Add the same, where other options may stand for the argument."""
    return _change_options(_problem_argument(required=False)(command))


def of_checkout(typed: Path) -> Path:
    """Return the file of a model that was typed; where that is the ``config.json`` of a folder, say so."""
    from nest.files.disk import model_file

    found = model_file(typed)
    if found != typed:
        click.echo(f"nest: {typed}: a folder; the model is its {found.name}", err=True)
    return found


def model_option(meaning: str) -> Callable[[Command], Command]:
    """Return what adds ``--model``: a file, or a folder that holds a ``config.json`` or profiles."""

    def found(_context: click.Context, _parameter: click.Parameter, typed: Path | None) -> Path | None:
        """Return the file of the model, None where nothing was typed."""
        return None if typed is None else of_checkout(typed)

    kind = click.Path(path_type=Path)
    return click.option("--model", "model_path", metavar="FILE", type=kind, callback=found, help=meaning)


def plan_options(command: Command) -> Command:
    """Add the argument PLAN, what may stand in place of the problem that it carries, and what changes a problem.

    The plan comes first; where two files are given, the first is the problem.
    """
    kind = click.Path(path_type=Path)
    for add in (
        click.option(
            "--problem", "problem_path", metavar="FILE", type=kind, help="In place of the problem that PLAN carries."
        ),
        click.argument("second_path", metavar="", required=False, type=kind),
        click.argument("first_path", metavar="PLAN.json", type=kind),
    ):
        command = add(command)
    return _change_options(command)


def _problem_argument(*, required: bool) -> Callable[[Command], Command]:
    metavar = "PROBLEM" if required else "[PROBLEM]"
    kind = click.Path(path_type=Path)
    return click.argument("problem_path", metavar=metavar, required=required, type=kind)


def _change_options(command: Command) -> Command:
    """Add what changes the problem that is read."""
    for option in (
        click.option(
            "--set", "settings", metavar="KEY=VALUE", multiple=True, help="Change a choice, as in --set zero=none."
        ),
        click.option("--preset", type=click.Choice(PRESETS), help="Price plans by this preset, not by the problem's."),
    ):
        command = option(command)
    return command


def time_limit_option(text: str) -> Callable[[Command], Command]:
    """Return what adds ``--time-limit``, explained by ``text``."""
    return click.option("--time-limit", metavar="S", type=float, callback=positive("seconds"), help=text)


def plan_output_option(text: str) -> Callable[[Command], Command]:
    """Return what adds ``-o``, a file for a plan, explained by ``text``."""
    return click.option("-o", "--output", metavar="PLAN.json", type=click.Path(path_type=Path), help=text)


def positive(what: str) -> Callable[[click.Context, click.Parameter, float | None], float | None]:
    """Return what refuses a number of ``what`` that is not finite and above 0."""

    def checked(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
        """Return the value of an option if it is such a number; errors as click reports them."""
        if value is not None and not (value > 0 and isfinite(value)):
            raise click.BadParameter(f"{value} is not a finite number of {what} above 0")
        return value

    return checked


def refuse_others(taken: Collection[str], what: str) -> None:
    """Refuse options of the command that were typed and say nothing of what it is about.

    Raises
    ------
    click.UsageError
        Naming the first that is not among those ``taken``.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        typed = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if typed and parameter.name not in taken:
            raise click.UsageError(f"{parameter.opts[0]} is not for {what}")
