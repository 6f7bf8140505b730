"""Our problem format -> `nest.problem.Problem`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET

from nest.cluster import Cluster, DeviceClass, Level, Technology
from nest.cost.links import Network
from nest.errors import InvalidProblem
from nest.files.allowed import ADVICE, EVERY_ZERO, WIDTHS_ADVICE, parse_allowed, parse_recompute, parse_widths
from nest.files.constraint_rows import with_constraints
from nest.files.document import Document
from nest.files.faults import key
from nest.files.model_read import graphs_of
from nest.files.schema import (
    ChoicesTable,
    ClassTable,
    ClusterTable,
    CopiesTable,
    LevelTable,
    LinksTable,
    ProblemFile,
    TechnologyTable,
    TrainingTable,
)
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
        copies=None if table.copies is UNSET else _copies(table.copies),
        hides_gradients=table.hides_gradients,
        holds_gathered=table.holds_gathered,
        sums_whole=table.sums_whole,
        splits_transfers=table.splits_transfers,
        blocking_sends=table.blocking_sends,
        recomputes_last=table.recomputes_last,
        buffers_boundaries=table.buffers_boundaries,
        whole_experts=table.whole_experts,
        overlap_tax=table.overlap_tax,
        step_s_per_byte=table.step_s_per_byte,
        overhead_bytes=table.overhead_bytes,
    )


def _copies(table: CopiesTable) -> Copies:
    reduced = None if table.reduced is UNSET else table.reduced
    return Copies(table.optimizer, table.gradients, table.gathered, reduced, table.stepped)


def _cluster(table: ClusterTable) -> Cluster:
    levels = tuple(_level(row, f"cluster.levels[{at}]") for at, row in enumerate(table.levels))
    cluster = Cluster(
        table.devices,
        table.hbm_bytes,
        levels,
        table.name,
        table.partial,
        table.library,
        own_class=table.own_class,
        classes=tuple(map(_class, table.classes)),
    )
    for each in (cluster, *cluster.corners(slow=True)):
        Network.of(each)  # refuses names of links and libraries that there are not
    if not table.technologies:
        return cluster
    chosen = cluster.named(table.technologies)
    if chosen is None:
        menus = "; ".join(" or ".join(each.name for each in level.alternatives) for level in cluster.menus)
        remedy = f"name one of each menu: {menus}" if menus else "leave it out: no level has a menu"
        raise InvalidProblem("cluster.technologies", ", ".join(map(show, table.technologies)), remedy)
    return cluster.built(chosen)


def _class(table: ClassTable) -> DeviceClass:
    ranges = tuple((first, last + 1) for first, last in table.devices)
    step = None if table.step_s_per_byte is UNSET else table.step_s_per_byte
    return DeviceClass(table.name, ranges, table.hbm_bytes, step)


def _level(table: LevelTable, where: str) -> Level:
    for name in ("bandwidth_bytes_per_s", "latency_s"):
        if (getattr(table, name) is UNSET) != bool(table.alternatives):
            remedy = "give it in each of the alternatives only" if table.alternatives else "give it, or alternatives"
            raise InvalidProblem(key(where, name), "given" if table.alternatives else "missing", remedy)
    if table.alternatives:
        return Level.menu(table.fanout, [_technology(each) for each in table.alternatives], table.name)
    assert table.bandwidth_bytes_per_s is not UNSET
    assert table.latency_s is not UNSET
    return Level(table.fanout, table.bandwidth_bytes_per_s, table.latency_s, table.name, table.link, *_links(table))


def _technology(table: TechnologyTable) -> Technology:
    return Technology(
        table.name,
        table.bandwidth_bytes_per_s,
        table.latency_s,
        table.price_per_device,
        table.link,
        *_links(table),
    )


def _links(table: LinksTable) -> tuple[float | None, bool]:
    return None if table.pair_bytes_per_s is UNSET else table.pair_bytes_per_s, table.in_network_reduction


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
        price_at_most=None if table.price_at_most == "any" else table.price_at_most,
        stage_recompute=_kinds(_renamed(table)),
        recomputed=_allowed(table.recomputed, "recomputed"),
        hybrid=table.hybrid,
        chunks=_allowed(table.chunks, "chunks"),
        stage_tensor=_widths(table.stage_tensor, "stage_tensor"),
        shard_inside=_widths(table.shard_inside, "shard_inside"),
        splits_batch=None if table.splits_batch == "any" else table.splits_batch,
        schedules=frozenset([table.schedules] if isinstance(table.schedules, str) else table.schedules),
    )


def _allowed(value: int | list[int] | str, name: str) -> Allowed:
    if not isinstance(value, str):
        return frozenset([value] if isinstance(value, int) else value)
    try:
        return parse_allowed(value)
    except ValueError as fault:
        raise InvalidProblem(key("choices", name), str(fault), f"give {ADVICE}") from None


def _widths(value: int | list[int] | str, name: str) -> Allowed:
    if not isinstance(value, str):
        return _allowed(value, name)
    try:
        return parse_widths(value)
    except ValueError as fault:
        raise InvalidProblem(key("choices", name), str(fault), f"give {WIDTHS_ADVICE}") from None


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
