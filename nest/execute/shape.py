"""What of a plan is executed: its cuts, widths, replicas, ZeRO types and recomputation, on numbered processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import gcd
from typing import Any

from nest.errors import InvalidPlan
from nest.evaluate import sharing_replicas
from nest.execute.tiny import ENDS
from nest.plan import Plan
from nest.presets import ScheduleName
from nest.problem import Problem, Recompute

FEWEST = 2
"""Replicas, or ranks of a width, that still exchange anything."""


@dataclass(frozen=True, slots=True)
class StageShape:
    """One stage.

    Parameters
    ----------
    first, end
        Its layers, ``[first, end)``; the embedding is layer 0.
    zero
        ZeRO type.
    together
        Neighbouring replicas over whose ranks it spreads; all of them where it spreads nothing.
    again
        What each of its layers computes again.
    """

    first: int
    end: int
    zero: int
    together: int
    again: tuple[Recompute, ...]


@dataclass(frozen=True, slots=True)
class Seat:
    """What a process is: its stage, its place among the ranks with copies of the stage's weights, and its tensor rank.

    Parameters
    ----------
    stage, copy, tensor
        From 0; copies count up first in context, then in expert ranks, then in replicas.
    """

    stage: int
    copy: int
    tensor: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a plan.

    Parameters
    ----------
    stages
        From the first of the pipeline on.
    replicas, tensor, context, expert
        Of the pipeline, and widths of each stage.
    sequence
        Whether the tensor ranks share the sequence between the matrices.
    microbatch
        Sequences that a rank takes at a time.
    schedule
        Order of the passes.
    """

    stages: tuple[StageShape, ...]
    replicas: int
    tensor: int
    context: int
    expert: int
    sequence: bool
    microbatch: int
    schedule: ScheduleName

    @property
    def copies(self) -> int:
        """Ranks that hold copies of each dense weight; of an expert's there are replicas x context."""
        return self.replicas * self.expert * self.context

    def sharing(self, stage: int) -> tuple[int, int]:
        """Return how many ranks share each dense weight of a stage between them, and each expert's."""
        together = self.stages[stage].together
        return together * self.expert * self.context, together * self.context

    @property
    def processes(self) -> int:
        """Processes that it takes."""
        return self.copies * self.tensor * len(self.stages)

    @property
    def layers(self) -> int:
        """Layers of all stages."""
        return self.stages[-1].end

    def seat(self, rank: int) -> Seat:
        """Return what a process is; they count up first in tensor, then in context, expert, replicas and stages."""
        place, tensor = divmod(rank, self.tensor)
        stage, copy = divmod(place, self.copies)
        return Seat(stage, copy, tensor)

    def span(self, seat: Seat, tokens: int) -> tuple[int, int]:
        """Return the first token of a sequence that a process has, and how many it has."""
        share = tokens // self.context
        return seat.copy % self.context * share, share


def shape_of(problem: Problem, plan: Plan, blocks: int | None = None) -> Shape:
    """Return the shape of a plan of a problem, its layers scaled to so many blocks between embedding and head.

    Raises
    ------
    InvalidPlan
        If stages differ in tensor width, or the plan shards inside stages or over groups that are no whole replicas,
        has both tensor and expert ranks, or more stages than the model layers.
    """
    _check(problem, plan)
    ends = list(accumulate(len(stage.layers) for stage in plan.stages))
    if blocks is not None:
        ends = _scaled(ends, blocks + ENDS)
    variant = plan.variant
    return Shape(
        tuple(_stage(problem, plan, at, *reach) for at, reach in enumerate(pairwise([0, *ends]))),
        plan.replicas,
        variant.tensor,
        variant.context,
        variant.expert,
        variant.sequence and variant.tensor > 1,
        variant.microbatch,
        plan.schedule,
    )


def _stage(problem: Problem, plan: Plan, at: int, first: int, end: int) -> StageShape:
    again = computed_again(problem, plan, at)
    kinds = (again[layer * len(again) // (end - first)] for layer in range(end - first))
    together = sharing_replicas(problem, plan, at)
    return StageShape(first, end, plan.stages[at].sharding.zero, together, tuple(kinds))


def computed_again(problem: Problem, plan: Plan, at: int) -> tuple[Recompute, ...]:
    """Return what each layer of a stage computes again: as many as the plan says of those that can."""
    graph, stage = problem.graphs[plan.variant], plan.stages[at]
    layers = [graph.layers[graph.index[name]] for name in stage.layers]
    again = stage.repeats(layers, last=problem.training.recomputes_last)
    return tuple("none" if each is None else each.kind for each in again)


def scaled_down(shape: Shape, processes: int) -> tuple[Shape, tuple[str, ...]]:
    """Return a shape of at most so many processes where that is possible, and what was made smaller, for people.

    Replicas go down to 2 first, then widths to 2, then widths and replicas to 1; stages stay, since they are the cut.
    """
    names = ("replicas", "tensor", "context", "expert")
    small = shape
    for name, least in (*((name, FEWEST) for name in names), *((name, 1) for name in reversed(names))):
        if getattr(small, name) > least and (small.processes > processes or (name == "replicas" and least == FEWEST)):
            change: dict[str, Any] = {name: least}
            small = replace(small, **change)
    sizes = ((name, getattr(shape, name), getattr(small, name)) for name in names)
    said = [f"{name} {before} -> {after}" for name, before, after in sizes if before != after]
    if small.replicas < shape.replicas:
        small, more = _regrouped(small, shape.replicas)
        said += more
    if shape.sequence and small.tensor == 1:
        small = replace(small, sequence=False)
        said.append("no sequence parallel, which takes tensor ranks")
    return small, tuple(said)


def _regrouped(small: Shape, replicas: int) -> tuple[Shape, list[str]]:
    """Return a shape with fewer replicas whose groups, too, divide them, and what became of groups."""
    stages = tuple(replace(stage, together=gcd(stage.together, small.replicas)) for stage in small.stages)
    sizes = dict.fromkeys(stage.together for stage in small.stages if stage.together < replicas)
    said = [f"ZeRO over groups of replicas, {size} -> {gcd(size, small.replicas)}" for size in sizes]
    return replace(small, stages=stages), said


def _check(problem: Problem, plan: Plan) -> None:
    if plan.uneven:
        widths = ", ".join(str(variant.tensor) for variant in plan.stage_variants)
        what = f"stages have tensor widths {widths}"
        raise InvalidPlan("tensor", what, "nest run takes stages of one width: solve without choices.stage_tensor")
    each = problem.copy_ranks(plan.variant, 1)[0]
    for at, stage in enumerate(plan.stages):
        if stage.sharding.kind == "replicas" and sharing_replicas(problem, plan, at) * each != stage.sharding.degree:
            what = f"{stage.sharding.degree} ranks, of {plan.replicas} replicas with {each} each"
            raise InvalidPlan(f"stages[{at}].sharding", what, "`nest evaluate` says which rule the plan breaks")
        if stage.sharding.kind == "stage":
            what = f"{stage.sharding.degree} groups of devices inside a stage"
            remedy = "nest run shards over replicas only: solve under preset 'default', with --set shard_inside=none"
            raise InvalidPlan(f"stages[{at}].sharding", what, remedy)
    if plan.variant.expert > 1 and plan.variant.tensor > 1:
        what = f"{plan.variant.expert} expert ranks with {plan.variant.tensor} tensor ranks"
        raise InvalidPlan("expert", what, "nest run takes one of the two above 1")


def _scaled(ends: list[int], layers: int) -> list[int]:
    """Return ends of stages for another number of layers, as near to proportional as leaves each stage a layer."""
    stages, before = len(ends), ends[-1]
    if layers < stages:
        what = f"{layers} layers, embedding and head among them, for {stages} stages"
        raise InvalidPlan("stages", what, f"give at least --layers {max(1, stages - ENDS)}")
    cuts: list[int] = []
    for at, end in enumerate(ends):
        least = (cuts[-1] if cuts else 0) + 1
        cuts.append(max(least, min(round(end * layers / before), layers - (stages - 1 - at))))
    return cuts
