"""``nest versions``."""

from __future__ import annotations

import click

from nest.cli.exits import ExitCode
from nest.cli.options import json_option
from nest.cli.output import print_json


@click.command("versions")
@json_option
def versions_command(as_json: bool) -> int:
    """Show the versions of nest and what it runs on."""
    from nest.provenance import versions

    known = versions()
    if as_json:
        print_json(known)
    else:
        for name, version in known.items():
            click.echo(f"{name:<10}{version}")
    return ExitCode.OK
