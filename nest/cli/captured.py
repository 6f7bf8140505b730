"""A captured module in the place of a model's file: ``nest solve --model graph.json``, ``nest show graph.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest.cli.asked import OF_NETWORKS
from nest.cli.output import print_json, screen
from nest.cli.run_options import PINS

if TYPE_CHECKING:
    from nest.problem import Problem
    from nest.runs import Tried

TAKEN = {"model_path", "cluster_source", "global_batch", "recipe", "framework", "reserve", "profile_path"} | {
    *PINS,
    *OF_NETWORKS,
}
"""Options of a run that say something of a captured module; all else was settled when it was captured."""


def typed_captured(options: Mapping[str, Any]) -> tuple[Problem, Tried] | None:
    """Return the problem of a captured module that was typed as the model, and how it is tried; None where it is none.

    Raises
    ------
    click.UsageError
        If something is missing, or was settled when the module was captured.
    InvalidProblem
        If a file or a value is wrong.
    """
    from nest.capture import Wanted, captured_problem, is_captured, read_captured, usual_recipe
    from nest.cli.asked import asked_cluster, reserve_bytes
    from nest.cli.run_options import typed_choices, typed_profile
    from nest.costing import framework_named, recipe_named
    from nest.runs import Tried

    path: Path | None = options["model_path"]
    if path is None or not is_captured(path):
        return None
    _check(path, options)
    captured = read_captured(path)
    more = {} if options["framework"] is None else {"framework": framework_named(options["framework"])}
    wanted = Wanted(
        asked_cluster(options["cluster_source"], options),
        options["global_batch"],
        recipe_named(options["recipe"]) if options["recipe"] else usual_recipe(captured),
        reserve_bytes=reserve_bytes(options),
        choices=typed_choices(options),
        profile=typed_profile(options),
        **more,
    )
    return captured_problem(captured, wanted), Tried(reserve=wanted.reserve)


def _check(path: Path, options: Mapping[str, Any]) -> None:
    for name, option in (("cluster_source", "--cluster"), ("global_batch", "--global-batch")):
        if options[name] is None:
            raise click.UsageError(f"{option} is missing: a captured module, {path}, does not say it")
    for name, value in options.items():
        if value is not None and name not in TAKEN:
            what = f"--{name.replace('_', '-')}: {path} is a captured module, whose sizes are those of its capture"
            raise click.UsageError(f"{what}; leave it out, or capture the module again")


def show_captured(path: Path, *, as_json: bool) -> bool:
    """Print a captured module; False where the file is none."""
    from nest.capture import is_captured, read_captured
    from nest.report.captured import captured_facts, captured_text

    if not is_captured(path):
        return False
    captured = read_captured(path)
    if as_json:
        print_json(captured_facts(captured))
    else:
        click.echo(captured_text(captured, screen()))
    return True
