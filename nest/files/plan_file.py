"""Plans and results as files: JSON under the schemas ``nest.plan/1`` and ``nest.result/1``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from nest.errors import InvalidPlan
from nest.explain import Explanation
from nest.files.disk import write_text
from nest.files.document import Document, names_schema
from nest.files.faults import item, key
from nest.files.graphs_apart import refuse_dag
from nest.files.limits import Bytes, Count, Ends, LayerName, Place, Switch, Table, Text
from nest.files.origin import Origin, OriginTable, Provenance, origin_document, origin_from, seen_from
from nest.files.schema import RecomputeKind
from nest.files.words import show
from nest.line import Line, Ranges
from nest.plan import Plan, Sharding, ShardingKind, Stage
from nest.presets import SCHEDULES, Arrangement, ScheduleName
from nest.problem import Variant
from nest.result import Result

PLAN_SCHEMA = "nest.plan/1"
RESULT_SCHEMA = "nest.result/1"

Load: TypeAlias = Annotated[float, Meta(ge=0, le=1e18, description="seconds, a number from 0 on, or null")]


class ShardingTable(Table):
    """What a stage shards."""

    kind: Annotated[ShardingKind, Meta(description='"none", "replicas" or "stage"')]
    zero: Annotated[int, Meta(ge=0, le=3, description="a ZeRO type, 0 to 3")]
    degree: Count
    splits_batch: Switch = False


class StageTable(Table):
    """One stage; the judge's figures may be null or left out, ``recomputed`` where all layers recompute that can.

    ``tensor`` is left out where the stage is as wide as the plan's variant.
    """

    layers: Annotated[list[LayerName], Meta(description="a list of layer ids")]
    first_device: Place
    devices: Count
    recompute: RecomputeKind
    sharding: Annotated[ShardingTable, Meta(description="an object with kind, zero and degree")]
    load_s: Load | None = None
    memory_bytes: Bytes | None = None
    recomputed: Count | None = None
    tensor: Count | None = None


class PlanFile(Table):
    """A plan; what all of it recomputes, ``recompute``, is from before stages chose for themselves."""

    schema: Annotated[Literal["nest.plan/1"], Meta(description='"nest.plan/1", the version read here')]
    microbatch: Count
    tensor: Count
    sequence: Switch
    expert: Count
    context: Count
    replicas: Count
    replica_stride: Count
    arrangement: Annotated[Arrangement, Meta(description='"replica-major", "replica-major-reversed" or "stage-major"')]
    schedule: Annotated[ScheduleName, Meta(description=f"one of {', '.join(SCHEDULES)}")]
    stages: Annotated[list[StageTable], Meta(min_length=1, description="a list of stages, at least one")]
    recompute: RecomputeKind = "none"
    chunks: Count = 1
    left_out: Annotated[list[Ends], Meta(description="a list of ranges of devices")] | UnsetType = UNSET
    order: Annotated[list[Ends], Meta(description="a list of ranges of devices")] | UnsetType = UNSET
    technologies: Annotated[list[Text], Meta(description="a list of names of technologies")] = field(
        default_factory=list
    )
    problem: Annotated[OriginTable, Meta(description="a table with a run, or the file of a problem")] | UnsetType = (
        UNSET
    )
    provenance: Provenance | UnsetType = UNSET


class ClaimedPlan(NamedTuple):
    """A plan, and what its file says about it.

    Parameters
    ----------
    objective
        In the problem's own unit of time; None where the file gives no number: a plan alone never does.
    origin
        The problem that it is a plan of; None where the file does not say.
    provenance
        Versions of what computed it, by name, and when; empty where the file does not say.
    """

    plan: Plan
    objective: float | None
    origin: Origin | None = None
    provenance: Mapping[str, str] = MappingProxyType({})


def is_plan(path: Path) -> bool:
    """Whether a file is a plan or a result, by the schema that it names."""
    return names_schema(path, PLAN_SCHEMA, RESULT_SCHEMA)


def read_plan(path: str | Path) -> Plan:
    """Read a plan, or the plan of a whole result; raises `InvalidPlan` as `read_claimed_plan` does."""
    return read_claimed_plan(path).plan


def read_claimed_plan(path: str | Path) -> ClaimedPlan:
    """Read a plan, or the plan of a whole result with its objective.

    Raises
    ------
    InvalidPlan
        Naming file, key, value and remedy; also when the result holds no plan.
    """
    document = Document.read(path, InvalidPlan)
    refuse_dag(document)
    document.require_schema(PLAN_SCHEMA, f", or give a whole result ({show(RESULT_SCHEMA)})", RESULT_SCHEMA)
    tree = document.tree
    if tree["schema"] != RESULT_SCHEMA:
        return _claimed(document, tree, "", None)
    if tree.get("plan") is None:
        status, reason = tree.get("status"), tree.get("reason")
        document.fail("plan", f"the result holds none (status {show(status)}, reason {show(reason)})", "give another")
    return _claimed(document, tree["plan"], "plan", _number(tree.get("objective")))


def write_plan(
    plan: Plan, path: str | Path, origin: Origin | None = None, provenance: Mapping[str, str] | None = None
) -> None:
    """Write a plan, whole or not at all; raises `OSError` if the file cannot be written.

    Parameters
    ----------
    origin, provenance
        What it is a plan of, and what computed it, where that is known.
    """
    known = None if origin is None else seen_from(origin, Path(path))
    write_text(path, _text(plan_document(plan, known, provenance)))


def write_result(result: Result, path: str | Path) -> None:
    """Write a result, whole or not at all; raises `OSError` if the file cannot be written."""
    write_text(path, _text(result_document(result)))


def plan_document(
    plan: Plan, origin: Origin | None = None, provenance: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a plan as plain objects under ``nest.plan/1``: seconds, bytes, layer ids as in the problem."""
    variant = plan.variant
    known = {} if origin is None else {"problem": origin_document(origin)}
    return {
        "schema": PLAN_SCHEMA,
        "microbatch": variant.microbatch,
        "tensor": variant.tensor,
        "sequence": variant.sequence,
        "expert": variant.expert,
        "context": variant.context,
        "replicas": plan.replicas,
        "replica_stride": plan.replica_stride,
        "arrangement": plan.arrangement,
        "schedule": plan.schedule,
        **({"chunks": plan.chunks} if plan.chunks > 1 else {}),
        **{name: _ends(ranges) for name, ranges in zip(("left_out", "order"), plan.line, strict=True) if ranges},
        **({"technologies": list(plan.technologies)} if plan.technologies else {}),
        "stages": [_stage_document(stage) for stage in plan.stages],
        **known,
        **({"provenance": dict(provenance)} if provenance else {}),
    }


def result_document(
    result: Result, certificate: Mapping[str, Any] | None = None, explanation: Explanation | None = None
) -> dict[str, Any]:
    """Return a result as plain objects under ``nest.result/1``.

    ``objective`` is in the problem's own unit, ``objective_ticks`` and ``bound_ticks`` count ticks of ``tick_s``
    seconds; what is not known is None.

    Parameters
    ----------
    certificate
        What provers found about it (`proof_document`), where they were asked.
    explanation
        Why there is no plan, where there is none.
    """
    return {
        "schema": RESULT_SCHEMA,
        "status": result.status.value,
        "objective": result.objective,
        "objective_ticks": result.objective_ticks,
        "bound_ticks": result.bound_ticks,
        "tick_s": result.time.tick_s,
        "backend": result.backend,
        "choice": result.choice or None,
        "wall_s": result.wall_s,
        "reason": result.reason,
        "explanation": None if explanation is None else _explanation_document(explanation),
        "certificate": None if certificate is None else dict(certificate),
        "plan": None if result.plan is None else plan_document(result.plan),
    }


def _explanation_document(explanation: Explanation) -> dict[str, Any]:
    relaxations = [{"kind": each.kind, "text": each.text} for each in explanation.relaxations]
    return {
        "conflict": list(explanation.conflict),
        "relaxations": relaxations,
        "complete": explanation.complete,
    }


def _stage_document(stage: Stage) -> dict[str, Any]:
    sharding = stage.sharding
    return {
        "layers": list(stage.layers),
        "first_device": stage.first_device,
        "devices": stage.devices,
        "recompute": stage.recompute,
        **({} if stage.tensor is None else {"tensor": stage.tensor}),
        **({} if stage.recomputed is None else {"recomputed": stage.recomputed}),
        "sharding": {
            "kind": sharding.kind,
            "zero": sharding.zero,
            "degree": sharding.degree,
            **({"splits_batch": True} if sharding.splits_batch else {}),
        },
        "load_s": stage.load_s,
        "memory_bytes": stage.memory_bytes,
    }


def _number(claim: object) -> float | None:
    """Return a claimed figure, or None if it is no number to compare with."""
    if isinstance(claim, int | float) and abs(claim) <= sys.float_info.max:
        return float(claim)
    return None


def _claimed(document: Document, tree: object, where: str, objective: float | None) -> ClaimedPlan:
    table = document.convert(tree, PlanFile, where)
    origin = origin_from(table.problem, document, where)
    provenance = {} if table.provenance is UNSET else table.provenance
    return ClaimedPlan(_plan(document, table, where), objective, origin, provenance)


def _plan(document: Document, table: PlanFile, where: str) -> Plan:
    try:
        stages = [_stage(stage, item(key(where, "stages"), at)) for at, stage in enumerate(table.stages)]
        _check_recompute(table, where)
        line = Line(*(_ranges(getattr(table, name), key(where, name)) for name in ("left_out", "order")))
    except InvalidPlan as fault:
        raise fault.at(document.source) from None
    return Plan(
        variant=Variant(table.tensor, table.expert, table.context, table.sequence, table.microbatch),
        replicas=table.replicas,
        replica_stride=table.replica_stride,
        stages=tuple(stages),
        arrangement=table.arrangement,
        schedule=table.schedule,
        line=line,
        chunks=table.chunks,
        technologies=tuple(table.technologies),
    )


def _ranges(ends: list[Ends] | UnsetType, where: str) -> Ranges:
    """Return ranges of devices, which files give by their first and their last."""
    for first, last in ends or ():
        if first > last:
            raise InvalidPlan(where, f"{first} to {last}", "give the first device of a range, and then the last")
    return tuple((first, last + 1) for first, last in ends or ())


def _ends(ranges: Ranges) -> list[list[int]]:
    return [[first, end - 1] for first, end in ranges]


def _check_recompute(table: PlanFile, where: str) -> None:
    others = [stage.recompute for stage in table.stages if stage.recompute != table.recompute]
    if table.recompute != "none" and others:
        what = f"{show(table.recompute)}, and a stage says {show(others[0])}"
        raise InvalidPlan(key(where, "recompute"), what, "leave it out: each stage says what it recomputes")


def _stage(table: StageTable, where: str) -> Stage:
    try:
        given = table.sharding
        sharding = Sharding(given.kind, given.zero, given.degree, given.splits_batch)
    except InvalidPlan as fault:
        raise InvalidPlan(key(where, "sharding"), fault.problem, fault.remedy) from None
    try:
        return Stage(
            layers=tuple(table.layers),
            first_device=table.first_device,
            devices=table.devices,
            recompute=table.recompute,
            sharding=sharding,
            load_s=table.load_s,
            memory_bytes=table.memory_bytes,
            recomputed=table.recomputed,
            tensor=table.tensor,
        )
    except InvalidPlan as fault:
        raise InvalidPlan(key(where, "recomputed"), fault.problem, fault.remedy) from None


def _text(document: Mapping[str, Any]) -> str:
    return f"{_json(document)}\n"


def _json(value: Any, indent: str = "") -> str:
    """Return JSON with one line for each key of a document, and one for each stage."""
    inside = f"{indent}  "
    if isinstance(value, dict) and "schema" in value:
        rows = [f"{json.dumps(name)}: {_json(entry, inside)}" for name, entry in value.items()]
    elif isinstance(value, list):
        rows = [json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in value]
    else:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    opening, closing = "[]" if isinstance(value, list) else "{}"
    return "\n".join([opening, ",\n".join(f"{inside}{row}" for row in rows), f"{indent}{closing}"])
