"""A layer profile of another tool in the place of a problem: ``nest show graph.txt``."""

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
