"""A network, or a graph with branches, in the place of a problem: ``nest show topology.conf``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest.cli.asked import network_text
from nest.cli.output import print_json, screen

if TYPE_CHECKING:
    from nest.dag import DagProblem
    from nest.hardware import Hardware


def show_network(path: Path, others: Mapping[str, object], options: Mapping[str, Any], *, as_json: bool) -> bool:
    """Print a network, or a cluster of ours, as levels; False where the file is neither.

    Parameters
    ----------
    others
        Options that say nothing of networks, with what was typed.
    options
        What a file of a network may leave open, by name.

    Raises
    ------
    click.UsageError
        If one of the others was typed, nothing says what the devices are, or what goes with a network was typed beside
        something else.
    InvalidProblem
        Naming the file, if it is wrong or does not say everything.
    """
    from nest.report.network import network_facts, network_table_text

    hardware = _hardware(path, options)
    if hardware is None:
        return False
    _refuse(others, "a network")
    if as_json:
        print_json(network_facts(hardware))
    else:
        click.echo(network_table_text(hardware, screen()))
    return True


def _hardware(path: Path, options: Mapping[str, Any]) -> Hardware | None:
    """Return what a file describes: a network, a system, or a cluster of ours; None where it describes none."""
    from nest.files.cluster_file import cluster_of, is_cluster, read_cluster

    if is_cluster(path):
        _refuse({f"--{name.replace('_', '-')}": value for name, value in options.items()}, "a cluster file of ours")
        return read_cluster(path)
    if not any(options.values()) and not _is_network(path):
        return None
    given = network_text(str(path), options)
    return None if given is None else cluster_of(given)


def _is_network(path: Path) -> bool:
    """Whether a file describes a network or a system, by its content.

    Lists of hosts have no mark of their own: where no option says that it is one, a file is none.
    """
    from nest.errors import InvalidProblem
    from nest.files.cluster_systems import system_kind
    from nest.files.disk import read_text
    from nest.networks import kind_of

    name, _, digits = str(path).rpartition(":")
    if not path.is_file() and digits.isdecimal():
        path = Path(name)  # of a system of another planner, which does not say how many devices there are
    if not path.is_file():
        return False
    try:
        text = read_text(path, InvalidProblem)
        if _is_problem(path):
            return False
        return bool(system_kind(text)) or kind_of(text) != "hostfile"
    except InvalidProblem:
        return False


def _is_problem(path: Path) -> bool:
    """Whether a file is a problem, whose graphs have edges as networks have: of ours, or of the artifact."""
    from nest.files.document import Document

    keys = Document.read(path)
    return keys.is_json and not keys.keys.isdisjoint({"schema", "devices_per_level"})


def show_dag(path: Path, others: Mapping[str, object], *, as_json: bool) -> bool:
    """Print a graph with branches, an input of dnn-partitioning or Piper; False where the file is none.

    Raises
    ------
    click.UsageError
        If one of the others was typed, options that say nothing of such a graph.
    InvalidProblem
        Naming the file, if it is wrong.
    """
    from nest.report.dag_problem import dag_problem_facts, dag_problem_text

    problem = dag_at(path)
    if problem is None:
        return False
    _refuse(others, f"an input of {problem.preset.name}")
    if as_json:
        print_json(dag_problem_facts(problem))
    else:
        click.echo(dag_problem_text(problem, screen()))
    return True


def dag_at(path: Path) -> DagProblem | None:
    """Return the graph with branches that a file is, None where it is none; raises `InvalidProblem`."""
    if not path.is_file():
        return None
    from nest.files.ancestors import dag_problem
    from nest.files.document import Document

    return dag_problem(Document.read(path))


def _refuse(others: Mapping[str, object], what: str) -> None:
    for option, value in others.items():
        if value:
            raise click.UsageError(f"'{option}' says nothing of {what}, which this is.")
