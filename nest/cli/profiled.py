"""What another tool measured in the place of a problem: ``nest show graph.txt``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from nest.cli.output import print_json, screen, writable


def show_profiles(path: Path, others: Mapping[str, object], output: Path | None, *, as_json: bool) -> bool:
    """Print the layer profiles of a file; False where it holds none.

    Parameters
    ----------
    others
        Options that say nothing of profiles, with what was typed.
    output
        Where to write them as a table of layers in CSV, too.

    Raises
    ------
    click.UsageError
        If one of the others was typed.
    InvalidProblem
        Naming the file, if it is a profile with a value that is missing or wrong.
    """
    from nest.layer_profiles import is_layer_profile, read_layer_profiles
    from nest.report.layer_profile import profiles_facts, profiles_text

    if not is_layer_profile(path):
        return False
    for option, value in others.items():
        if value:
            raise click.UsageError(f"'{option}' says nothing of a layer profile, which this is.")
    if output is not None:
        from nest.layer_tables import read_profiled, write_layer_table

        write_layer_table(read_profiled(path), writable(output, path))
    profiles = read_layer_profiles(path)
    if as_json:
        print_json(profiles_facts(profiles))
    else:
        click.echo(profiles_text(profiles, screen()))
    return True


def show_measured(path: Path, others: Mapping[str, object], *, as_json: bool) -> bool:
    """Print the collectives or the memory that a file has, measured by another planner; False where it has neither.

    Raises
    ------
    click.UsageError
        If one of the others was typed, options that say nothing of such a file.
    InvalidProblem
        Naming the file, if a value is missing or wrong.
    """
    from nest.collective_tables import is_collective_table, read_collective_table
    from nest.layer_profiles import read_memory_profile
    from nest.report.collective_table import collectives_facts, collectives_text
    from nest.report.memory_profile import memory_facts, memory_text

    memory = read_memory_profile(path)
    if memory is None and not is_collective_table(path):
        return False
    for option, value in others.items():
        if value:
            what = "a table of collectives" if memory is None else "a memory profile"
            raise click.UsageError(f"'{option}' says nothing of {what}, which this is.")
    if memory is not None:
        facts, text = memory_facts(memory), memory_text(memory, screen())
    else:
        table = read_collective_table(path)
        facts, text = collectives_facts(table), collectives_text(table, screen())
    if as_json:
        print_json(facts)
    else:
        click.echo(text)
    return True


def refuse_as_model(path: Path) -> None:
    """Refuse collectives or memory in the place of a model; raises `InvalidProblem`, which says what the file is."""
    from nest.collective_tables import is_collective_table
    from nest.errors import InvalidProblem
    from nest.layer_profiles import read_memory_profile

    if is_collective_table(path):
        what = "a table of collectives, and no profile of layers"
    elif read_memory_profile(path) is not None:
        what = "memory of ranks, and no times of layers"
    else:
        return
    raise InvalidProblem("", what, "nest show prints it; give a model, or a table of layers", str(path))
