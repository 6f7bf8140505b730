"""A layer profile of another tool in the place of a problem: ``nest show graph.txt``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from nest.cli.output import print_json, screen


def show_profiles(path: Path, others: Mapping[str, object], *, as_json: bool) -> bool:
    """Print the layer profiles of a file; False where it holds none.

    Parameters
    ----------
    others
        Options that say nothing of profiles, with what was typed.

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
    profiles = read_layer_profiles(path)
    if as_json:
        print_json(profiles_facts(profiles))
    else:
        click.echo(profiles_text(profiles, screen()))
    return True
