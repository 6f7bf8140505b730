"""Our problem format -> `nest.problem.Problem`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET

from nest.cluster import Cluster, Level
from nest.cost.links import Network
from nest.errors import InvalidProblem
from nest.files.allowed import ADVICE, EVERY_ZERO, parse_allowed, parse_recompute
from nest.files.constraint_rows import with_constraints
from nest.files.document import Document
from nest.files.faults import key
from nest.files.model_read import graphs_of
from nest.files.schema import ChoicesTable, ClusterTable, LevelTable, ProblemFile, TrainingTable
from nest.files.words import meant, show
from nest.presets import PRESETS, Preset
from nest.problem import Allowed, Choices, Copies, Problem, Recompute, Training


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
        training=_training(tables.training),
        choices=_choices(tables.choices),
        preset=_preset(tables.preset),
        time_unit_s=tables.time_unit_s,
        source=tables.source,
    )


def _training(table: TrainingTable) -> Training:
    if table.microbatches is UNSET and table.global_batch is UNSET:
        raise InvalidProblem("training.microbatches", "missing", "give it, or global_batch")
    return Training(
        microbatches=0 if table.microbatches is UNSET else table.microbatches,
        optimizer=table.optimizer,
        global_batch=0 if table.global_batch is UNSET else table.global_batch,
        copies=None if table.copies is UNSET else Copies(table.copies.optimizer, table.copies.gradients),
        sync_overlap=table.sync_overlap,
        overlap_tax=table.overlap_tax,
        overhead_bytes=table.overhead_bytes,
    )


def _cluster(table: ClusterTable) -> Cluster:
    levels = tuple(map(_level, table.levels))
    cluster = Cluster(table.devices, table.hbm_bytes, levels, table.name, table.partial, table.library)
    return Network.of(cluster).cluster  # refuses names of links and libraries that there are not


def _level(table: LevelTable) -> Level:
    return Level(
        table.fanout,
        table.bandwidth_bytes_per_s,
        table.latency_s,
        table.name,
        table.link,
        None if table.pair_bytes_per_s is UNSET else table.pair_bytes_per_s,
        table.in_network_reduction,
    )


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
        stage_recompute=_kinds(_renamed(table)),
        schedules=frozenset([table.schedules] if isinstance(table.schedules, str) else table.schedules),
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


def _renamed(table: ChoicesTable) -> str | Sequence[str]:
    """Return what stages may recompute, by the name of today or the one before."""
    if table.variant_recompute is UNSET:
        return table.stage_recompute
    if table.stage_recompute != "any":
        raise InvalidProblem("choices.variant_recompute", "stage_recompute is given as well", "give the latter only")
    return table.variant_recompute


def _kinds(value: str | Sequence[str]) -> frozenset[Recompute] | None:
    return parse_recompute(value if isinstance(value, str) else ",".join(value))


def _preset(name: str) -> Preset:
    if name in PRESETS:
        return PRESETS[name]
    raise InvalidProblem(
        "preset", f"{show(name)} is no preset", meant(name, PRESETS, f"choose one of {', '.join(PRESETS)}")
    )
