"""A table of layers in the place of a model's file: ``nest solve --model layers.csv``, ``nest show layers.csv``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest.cli.asked import OF_NETWORKS, AskedPlan, asked_cluster, reserve_bytes
from nest.cli.exits import ExitCode
from nest.cli.options import refuse_others
from nest.cli.output import give, print_json, screen, writable
from nest.cli.profiled import refuse_as_model
from nest.cli.run_options import PINS, typed_choices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nest.hardware import Hardware
    from nest.layer_tables import LayerTable, Point, PosedTable

TAKEN = {"model_path", "cluster_source", "global_batch", "recipe", "framework", "reserve"} | {*PINS, *OF_NETWORKS}
"""Options of a run that say something of measured layers; all else was settled when they were measured."""


def typed_table(options: Mapping[str, Any], preset: str | None, settings: Sequence[str]) -> PosedTable | None:
    """Return the problem of a table of layers that was typed as the model, None where it is none.

    Raises
    ------
    click.UsageError
        If something is missing, or is settled by the table.
    InvalidProblem
        If a file or a value is wrong, or the table lacks something.
    """
    from nest.costing import framework_named, recipe_named
    from nest.files.settings import with_own
    from nest.layer_tables import TableRun, require_apart, table_problem

    path: Path | None = options["model_path"]
    table = None if path is None else table_at(path, options)
    if path is None or table is None:
        return None
    _check(path, options)
    more = {} if options["framework"] is None else {"framework": framework_named(options["framework"])}
    run = TableRun(
        table,
        asked_cluster(options["cluster_source"], options),
        options["global_batch"],
        recipe_named(options["recipe"]) if options["recipe"] else None,
        reserve_bytes=reserve_bytes(options),
        choices=with_own(typed_choices(options), settings),
        **more,
    )
    posed = table_problem(run)
    if preset not in (None, "default"):
        require_apart(table, preset)
    return posed


OF_PLANS = frozenset(
    {
        *("model_path", "cluster_source", "as_json", "global_batch", "microbatch", "tensor", "pipeline", "virtual"),
        *("data", "recompute", "recompute_layers", "stage_layers", "zero", "zero_groups", "recipe", "framework"),
        *("reserve", "technologies", "schedule", "output"),
        *OF_NETWORKS,
    }
)
"""Options of an estimate that say something of a plan of measured layers."""


def estimated_table(
    path: Path, hardware: Hardware, options: Mapping[str, Any], output: Path | None, *, as_json: bool
) -> ExitCode | None:
    """Print an estimate of a plan of measured layers, None where the model is no table of them.

    It is written, too, where ``output`` says.

    Raises
    ------
    click.UsageError
        If an option was typed that says nothing of it, or the widths do not make up the devices.
    InvalidProblem
        If nobody measured the widths of the plan, or it does not fit the devices.
    """
    from nest.costing import recipe_named
    from nest.layer_tables import GivenTable, TableRun, is_layer_table, table_estimate
    from nest.report.table_estimate import table_estimate_document, table_estimate_text

    table = table_at(path, options)
    if table is None:
        return None
    refuse_others(OF_PLANS if is_layer_table(path) else OF_PLANS | OF_PROFILES.keys(), "a table of layers")
    point = _point(table, options)
    asked = AskedPlan({**options, **point._asdict()}, None, hardware)
    layout, recipe = asked.layout(), options["recipe"]
    run = TableRun(
        table,
        hardware,
        layout.global_batch,
        recipe_named(recipe) if recipe else None,
        asked.framework,
        layout.reserve,
    )
    given = GivenTable(run, point, layout)
    estimate = table_estimate(given)
    document = table_estimate_document(given, estimate)
    give(document, lambda: table_estimate_text(given, estimate, screen()), output, as_json=as_json)
    return ExitCode.OK if document["fits"] else ExitCode.INFEASIBLE


def _point(table: LayerTable, options: Mapping[str, Any]) -> Point:
    """Return the widths of the plan: as typed, else the only ones that were measured, else 1."""
    from nest.layer_tables import Point

    names = ("tensor", "microbatch")
    measured = {name: {getattr(point, name) for point in table.complete} for name in names}
    only = {name: found.pop() if len(found) == 1 else 1 for name, found in measured.items()}
    return Point(*(options[name] or only[name] for name in names))


def table_at(path: Path, options: Mapping[str, Any]) -> LayerTable | None:
    """Return the table of layers that a file or a folder is, None where it is none.

    Raises
    ------
    InvalidProblem
        Naming the file, if something in it is wrong.
    """
    from nest.layer_tables import Said, is_layer_table, is_profiled, read_layer_table, read_profiled

    if is_layer_table(path):
        return read_layer_table(path)
    if not is_profiled(path):
        refuse_as_model(path)
        return None
    return read_profiled(path, Said(**{name: options[option] for option, name in OF_PROFILES.items()}))


OF_PROFILES = {
    "layers": "layers",
    "hidden": "hidden",
    "seq": "sequence",
    "dtype": "dtype",
    "tensor": "tensor",
    "microbatch": "microbatch",
}
"""Options that say what a profile of another planner leaves open, and what they say."""


def _check(path: Path, options: Mapping[str, Any]) -> None:
    for name, option in (("cluster_source", "--cluster"), ("global_batch", "--global-batch")):
        if options[name] is None:
            raise click.UsageError(f"{option} is missing: a table of layers, {path}, does not say it")
    from nest.layer_tables import is_layer_table

    taken = TAKEN if is_layer_table(path) else TAKEN | OF_PROFILES.keys()
    for name, value in options.items():
        if value is not None and name not in taken:
            spelt = {"profile_path": "profile"}.get(name, name).replace("_", "-")
            what = f"--{spelt}: {path} is a table of layers, which says what they take"
            raise click.UsageError(f"{what}; leave it out, or measure again")


def show_table(path: Path, others: Mapping[str, object], output: Path | None, *, as_json: bool) -> bool:
    """Print a table of layers; False where the file is none.

    Parameters
    ----------
    others
        Options that say nothing of such tables, with what was typed.
    output
        Where to write it in CSV, too.

    Raises
    ------
    click.UsageError
        If one of the others was typed.
    InvalidProblem
        Naming the file, if a value is missing or wrong.
    """
    from nest.layer_tables import is_layer_table, is_profiled, read_layer_table, read_profiled, write_layer_table
    from nest.report.layer_table import table_facts, table_text

    if is_layer_table(path):
        table = read_layer_table(path)
    elif path.is_dir() and is_profiled(path):
        table = read_profiled(path)
    else:
        return False
    for option, value in others.items():
        if value:
            raise click.UsageError(f"'{option}' says nothing of a table of layers, which this is.")
    if output is not None:
        write_layer_table(table, writable(output, path))
    if as_json:
        print_json(table_facts(table))
    else:
        click.echo(table_text(table, screen()))
    return True
