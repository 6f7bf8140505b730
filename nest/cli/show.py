"""``nest show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest.cli.captured import show_captured
from nest.cli.described import show_dag, show_network
from nest.cli.exits import ExitCode
from nest.cli.options import json_option, of_checkout, problem_options
from nest.cli.output import print_json, screen
from nest.cli.profiled import show_measured, show_profiles
from nest.cli.reading import model_from, problem_from
from nest.cli.run_options import network_options
from nest.cli.tabled import show_table
from nest.errors import InvalidProblem

if TYPE_CHECKING:
    from nest.families import Description


@click.command("show")
@problem_options
@click.option(
    "--vocab",
    metavar="N",
    type=click.IntRange(min=1),
    help="Tokens of a model's vocabulary, where its file leaves them to a tokenizer.",
)
@network_options
@click.option(
    "-o", "output", metavar="FILE.csv", type=click.Path(path_type=Path), help="Write measured layers as a table, too."
)
@json_option
def show_command(
    *,
    problem_path: Path,
    preset: str | None,
    settings: tuple[str, ...],
    vocab: int | None,
    output: Path | None,
    as_json: bool,
    **networks: Any,
) -> int:
    """Show what was read from a problem, a model, or whatever else there are readers for.

    Of a problem that is its model, cluster, training and choices, and how many plans fit on the devices; of a model
    (a config.json, arguments of Megatron-LM, and others) its layers, and its parameters by component. Of layers that
    were measured, in a table of ours, or in a file or folder of other planners and profilers, it is what they take, in
    seconds and bytes; of tables of collectives, size, time and bandwidth; of a network its levels; of graphs with
    branches (dnn-partitioning, Piper) layers, edges and sums.
    """
    problem_path = of_checkout(problem_path)
    typed = {f"--{name.replace('_', '-')}": value for name, value in networks.items()}
    others: dict[str, object] = {"--preset": preset, "--set": settings, "--vocab": vocab}
    if show_captured(problem_path, as_json=as_json) or show_table(
        problem_path, others | typed, output, as_json=as_json
    ):
        return ExitCode.OK
    if show_profiles(problem_path, others | typed, output, as_json=as_json):
        return ExitCode.OK
    if output is not None:
        from nest.files.disk import read_text

        read_text(problem_path, InvalidProblem)  # says what is wrong with a file that cannot be read
        raise click.UsageError("'-o' is for measured layers; this is something else.")
    if _showed_other(problem_path, others, networks, as_json=as_json):
        return ExitCode.OK
    model = model_from(problem_path, vocab)
    if model is not None:
        _only_of_problems("--preset", preset)
        _only_of_problems("--set", settings)
        _show_model(model, as_json=as_json)
        return ExitCode.OK
    problem = problem_from(problem_path, preset, settings)
    if vocab is not None:
        raise click.UsageError("'--vocab' is for models; this is a problem.")
    if as_json:
        from nest.report.facts import problem_facts

        print_json(problem_facts(problem))
    else:
        from nest.report.problem import problem_text

        click.echo(problem_text(problem, screen()))
    return ExitCode.OK


def _showed_other(path: Path, others: dict[str, object], networks: dict[str, Any], *, as_json: bool) -> bool:
    """Show what is no problem, no model and no layers: collectives, memory, graphs with branches, networks."""
    typed = {f"--{name.replace('_', '-')}": value for name, value in networks.items()}
    if show_measured(path, others | typed, as_json=as_json) or show_dag(path, others | typed, as_json=as_json):
        return True
    return show_network(path, others, networks, as_json=as_json)


def _show_model(model: Description, *, as_json: bool) -> None:
    from nest.report.model import model_facts, model_text

    if as_json:
        print_json(model_facts(model))
    else:
        click.echo(model_text(model, screen()))


def _only_of_problems(option: str, value: object) -> None:
    if value:
        raise click.UsageError(f"'{option}' is for problems; this is a model.")
