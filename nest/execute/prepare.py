"""From a plan to a job: what is executed of it, what is made smaller, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nest.errors import InvalidPlan
from nest.execute.job import Job
from nest.execute.shape import Shape, scaled_down, shape_of
from nest.execute.tiny import ENDS, Tiny
from nest.plan import Plan
from nest.presets import ScheduleName
from nest.problem import Problem

EXECUTED: tuple[ScheduleName, ...] = ("1f1b", "gpipe")
"""Schedules that PyTorch is asked for."""

EXPERTS_EACH = 2
"""Experts of the tiny model for each expert rank."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What may be asked for besides the plan.

    Parameters
    ----------
    blocks
        Layers of the tiny model between embedding and head; None for as many as the plan has.
    steps, seed
        As in `Job`.
    microbatches
        Of each replica; None for twice as many as stages, but no more than the plan has.
    schedule
        None for the plan's own.
    processes
        The most that are started.
    scale_down
        Whether replicas and widths are made smaller.
    """

    blocks: int | None = None
    steps: int = 3
    seed: int = 0
    microbatches: int | None = None
    schedule: ScheduleName | None = None
    processes: int = 8
    scale_down: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job, and in what it differs from the plan, for people."""

    job: Job
    notes: tuple[str, ...]


def prepare(problem: Problem, plan: Plan, asked: Asked) -> Prepared:
    """Return what is executed of a plan.

    Raises
    ------
    InvalidPlan
        If the plan is none of the problem, has parts that are not executed, or takes too many processes.
    InvalidProblem
        If the tiny model cannot be cut as the plan cuts its own.
    """
    if plan.chunks > 1:
        raise InvalidPlan("schedule", f"{plan.chunks} chunks on each stage are not executed", "give a plan without")
    _check_layers(problem, plan)
    shape = shape_of(problem, plan, asked.blocks)
    if asked.schedule is not None:
        shape = replace(shape, schedule=asked.schedule)
    if shape.schedule not in EXECUTED:
        raise InvalidPlan("schedule", f"{shape.schedule!r} is not executed", f"give --schedule {' or '.join(EXECUTED)}")
    smaller: tuple[str, ...] = ()
    if asked.scale_down:
        shape, smaller = scaled_down(shape, asked.processes)
    _check_processes(shape, asked)
    count = -(-problem.microbatches(plan.variant) // plan.replicas)
    microbatches = asked.microbatches or _usual_microbatches(shape, count)
    experts = EXPERTS_EACH * shape.expert if plan.variant.expert > 1 else 0
    job = Job(shape, Tiny(shape.layers - ENDS, experts=experts), microbatches, asked.steps, asked.seed)
    return Prepared(job, (*smaller, *_notes(problem, plan, job, count)))


def _usual_microbatches(shape: Shape, count: int) -> int:
    """Return enough for every stage to keep as many as it ever does, and to go on for a while."""
    stages = len(shape.stages)
    return max(stages, min(count, 2 * stages))


def _check_layers(problem: Problem, plan: Plan) -> None:
    graph = problem.graphs.get(plan.variant)
    if graph is None:
        raise InvalidPlan("variant", f"{plan.variant}: the problem has no such variant", "give the plan's own problem")
    if pair := graph.unordered_pair:
        what = f"the model branches: nothing orders layers {pair[0]!r} and {pair[1]!r}"
        raise InvalidPlan("problem", what, "plans of chains can run")
    named = [layer for stage in plan.stages for layer in stage.layers]
    if named != [layer.id for layer in graph.layers]:
        what = f"{len(named)} layers, which are not the {len(graph)} of the problem in order"
        raise InvalidPlan("stages", what, "`nest evaluate` says which rule the plan breaks")


def _check_processes(shape: Shape, asked: Asked) -> None:
    if shape.processes <= asked.processes:
        return
    sizes = {"replicas": shape.replicas, "stages": len(shape.stages)}
    sizes |= {name: getattr(shape, name) for name in ("tensor", "context", "expert")}
    product = " x ".join(f"{size} {name}" for name, size in sizes.items() if size > 1)
    down = "" if asked.scale_down else "--scale-down, which leaves at most 2 replicas and narrower stages, or "
    what = f"{product} = {shape.processes}, more than {asked.processes}"
    raise InvalidPlan("processes", what, f"give {down}--processes {shape.processes}")


def _notes(problem: Problem, plan: Plan, job: Job, microbatches: int) -> Iterator[str]:
    graph, shape = problem.graphs[plan.variant], job.shape
    if len(graph) != shape.layers:
        yield f"layers {len(graph)} -> {shape.layers}"
    if job.microbatches != microbatches:
        yield f"microbatches of a replica {microbatches} -> {job.microbatches}"
    if plan.line.left_out or plan.used_devices > plan.replicas * sum(stage.devices for stage in plan.stages):
        yield "devices that the plan leaves out, or idle, have no process: where ranks stand plays no part here"
    skips = sum(target > source + 1 for source, target in graph.places)
    if skips:
        yield f"the model has {skips} edges over layers; the tiny one is a chain"
    if plan.variant.expert == 1 and any(layer.expert_parameter_bytes for layer in graph.layers):
        yield "the model has experts; the tiny one has none, since no ranks share them"
    if shape.expert > 1:
        yield "kept bytes are predicted for experts of equal load; the router sends what it likes"
    if any(stage.zero and max(shape.sharing(at)) == 1 for at, stage in enumerate(shape.stages)):
        yield "no copies are left over which ZeRO could spread anything"
