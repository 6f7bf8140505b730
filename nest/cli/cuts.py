"""``nest solve --cuts``: which cuts of a model that branches are tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def cuts_option(command: Command) -> Command:
    """Add ``--cuts``."""
    text = "Of a model that branches: all cuts, or those along one order of its layers, with a bound for all."
    return click.option("--cuts", type=click.Choice(("all", "order")), default="all", show_default=True, help=text)(
        command
    )


def require_all_cuts(cuts: str, **others: bool) -> None:
    """Refuse what does not go with ``--cuts order``; ``others`` say of options whether they are given.

    Raises
    ------
    click.UsageError
        Naming the option.
    """
    for name, given in others.items():
        if cuts == "order" and given:
            raise click.UsageError(f"--{name.replace('_', '-')} does not go with --cuts order")
