"""Our problem format -> `nest.problem.Problem`."""

from __future__ import annotations

from pathlib import Path

from msgspec import UNSET

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem
from nest.files.allowed import ADVICE, EVERY_ZERO, parse_allowed
from nest.files.constraint_rows import with_constraints
from nest.files.document import Document
from nest.files.faults import key
from nest.files.model_read import graphs_of
from nest.files.schema import ChoicesTable, ClusterTable, ProblemFile
from nest.files.words import meant, show
from nest.presets import PRESETS, Preset
from nest.problem import Allowed, Choices, Problem, Training


def problem_of(document: Document) -> Problem:
    """Return the problem that a document in our format holds.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy.
    """
    tables = document.decode(ProblemFile)
    try:
        return with_constraints(_problem(tables, Path(document.source).stem), tables.constraints)
    except InvalidProblem as fault:
        raise fault.at(document.source) from None


def _problem(tables: ProblemFile, stem: str) -> Problem:
    return Problem(
        name=stem if tables.name is UNSET else tables.name,
        graphs=graphs_of(tables.model),
        cluster=_cluster(tables.cluster),
        training=Training(tables.training.microbatches, tables.training.optimizer),
        choices=_choices(tables.choices),
        preset=_preset(tables.preset),
        time_unit_s=tables.time_unit_s,
        source=tables.source,
    )


def _cluster(table: ClusterTable) -> Cluster:
    levels = (Level(level.fanout, level.bandwidth_bytes_per_s, level.latency_s, level.name) for level in table.levels)
    return Cluster(table.devices, table.hbm_bytes, tuple(levels), table.name, table.partial)


def _choices(table: ChoicesTable) -> Choices:
    return Choices(
        tensor=_allowed(table.tensor, "tensor"),
        expert=_allowed(table.expert, "expert"),
        context=_allowed(table.context, "context"),
        microbatch=_allowed(table.microbatch, "microbatch"),
        sequence=None if table.sequence == "any" else table.sequence,
        replicas=_allowed(table.replicas, "replicas"),
        stages=_allowed(table.stages, "stages"),
        zero=_zero(table.zero),
        zero_degree=_allowed(table.zero_degree, "zero_degree"),
        recompute=table.recompute,
    )


def _allowed(value: int | list[int] | str, name: str) -> Allowed:
    if not isinstance(value, str):
        return frozenset([value] if isinstance(value, int) else value)
    try:
        return parse_allowed(value)
    except ValueError as fault:
        raise InvalidProblem(key("choices", name), str(fault), f"give {ADVICE}") from None


def _zero(value: int | list[int] | str) -> frozenset[int]:
    if isinstance(value, str):
        return EVERY_ZERO if value == "any" else frozenset({0})
    return frozenset([value] if isinstance(value, int) else value)


def _preset(name: str) -> Preset:
    if name in PRESETS:
        return PRESETS[name]
    problem = '"default" is not available yet' if name == "default" else f"{show(name)} is no preset"
    raise InvalidProblem("preset", problem, meant(name, PRESETS, f"choose one of {', '.join(PRESETS)}"))
