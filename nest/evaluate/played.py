"""A plan as a pipeline to be played, with the loads and transfers that the judge found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nest.classes import across
from nest.cost.collectives import transfer_s
from nest.cost.exchanges import Exchanges
from nest.cost.scale import Scale
from nest.errors import InvalidPlan, InvalidProblem
from nest.evaluate.verdict import Evaluation, StageFigures
from nest.graph import Layer, LayerGraph
from nest.pipeline import Pipeline, StageTimes
from nest.plan import Plan
from nest.problem import Problem
from nest.units import Number


def pipeline_of(
    problem: Problem,
    plan: Plan,
    evaluation: Evaluation,
    *,
    weight_share: float | None = None,
    overlapped: bool = False,
) -> Pipeline:
    """Return the pipeline of one replica, whose stages take what they take in the slowest replica.

    The loads are exactly those of the judge. How they divide into transfers, passes and recomputation follows from the
    layers. Where the preset prices single edges, a transfer is what the judge adds to the layers for it: nothing where
    a recomputation hides it. Exchanges of sharding are part of the passes that they serve, and of the stages of an
    interleaved plan transfers, too; what is between its chunks is with these.

    Parameters
    ----------
    evaluation
        The judge's, of this plan.
    weight_share
        Part of the backward pass of each layer that takes gradients of weights, instead of what the layers say; only
        ZB-H1 sees it.
    overlapped
        See `Pipeline`.

    Raises
    ------
    InvalidPlan
        If the plan is so broken that it has no price.
    InvalidProblem
        If ``weight_share`` is no part.
    """
    if not 0 <= (weight_share or 0) <= 1:
        raise InvalidProblem("weight share", f"{weight_share}", "give a number from 0 to 1")
    if not evaluation.stages:
        broken = ", ".join(sorted({violation.rule for violation in evaluation.violations}))
        raise InvalidPlan("plan", f"has no price, it breaks {broken}", "repair it as 'nest evaluate' says")
    problem = problem.built(problem.cluster.named(plan.technologies) or ())
    stages = stage_times(problem, plan, evaluation.scale, evaluation.stages, weight_share)
    microbatches = -(-problem.microbatches(plan.variant) // plan.replicas)
    apart = len(stages) > 1 and plan.chunks == 1
    wrap, wrap_send = _wrap(problem, plan, evaluation.scale) if apart else (0, 0)
    return Pipeline(stages, microbatches, wrap, overlapped, wrap_send, chunk_times(evaluation.stages))


def stage_times(
    problem: Problem, plan: Plan, scale: Scale, figures: Sequence[StageFigures], weight_share: float | None = None
) -> tuple[StageTimes, ...]:
    """Return what each stage takes, from the judge's figures; see `pipeline_of`."""
    return tuple(_Judged(problem, plan, scale, each, at).times(weight_share) for at, each in enumerate(figures))


def chunk_times(figures: Sequence[StageFigures]) -> tuple[tuple[StageTimes, ...], ...]:
    """Return what each chunk of each stage takes, by the judge's figures; nothing where stages have no chunks."""
    return tuple(each.chunks for each in figures if each.chunks)


def sync_of(problem: Problem, evaluation: Evaluation) -> int:
    """Return the ticks of gradient synchronisation that follow the pipeline, once per iteration."""
    counted = evaluation.stages if problem.preset.sync_all_stages else evaluation.stages[:1]
    return max(stage.sync for stage in counted)


@dataclass(frozen=True)
class _Judged:
    """A stage by its number, and how its judged figures divide."""

    problem: Problem
    plan: Plan
    scale: Scale
    figures: StageFigures
    at: int

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Of the stage, each as the slowest class of devices under it has it."""
        graph = across(_graph(self.problem, self.plan, self.at), self.figures.classes)
        return graph.named(self.plan.stages[self.at].layers)

    def times(self, weight_share: float | None) -> StageTimes:
        """Return its figures as passes and transfers; see `pipeline_of`."""
        gathered, scattered = self._exchanged()
        recompute = self._recompute()
        if self.plan.chunks > 1:  # transfers of chunks are parts of their passes
            backward = self.figures.backward + self.figures.sharding - gathered - recompute
            return StageTimes(self.figures.forward + gathered, backward, recompute=recompute)
        receive, gradient = self._transfers(recompute)
        send, sent_gradient = self._sends()
        layers = self.figures.backward - gradient - sent_gradient - recompute
        return StageTimes(
            forward=self.figures.forward - receive - send + gathered,
            backward=layers + self.figures.sharding - gathered,
            weight=self._weight(weight_share) + scattered,
            recompute=recompute,
            receive=receive,
            receive_gradient=gradient,
            send=send,
            send_gradient=sent_gradient,
        )

    def _weight(self, share: float | None) -> int:
        given = self.layers if share is None else [replace(layer, weight_share=share) for layer in self.layers]
        return sum(map(self.scale.weight_ticks, given))

    def _ticks(self, name: str) -> int:
        return sum(self.scale.time.ticks(getattr(layer, name)) for layer in self.layers)

    def _recompute(self) -> int:
        """Return the passes of layers that are repeated; collectives in them are left with the backward pass."""
        if self.problem.preset.recompute == "stage":
            last = self.problem.training.recomputes_last
            again = self.plan.stages[self.at].repeats(self.layers, last=last)
            return sum(self.scale.time.ticks(each.repeated_s) for each in again if each)
        return self._ticks(f"{self.problem.preset.repeated_pass}_s") if self._stage_recomputes else 0

    @property
    def _stage_recomputes(self) -> bool:
        return self.plan.stages[self.at].recompute == "full"

    def _transfers(self, recompute: int) -> tuple[int, int]:
        """Return what the stage receives forward and backward."""
        if self.problem.preset.transfers == "edges":
            waits = self.figures.forward - self._ticks("forward_s")
            return waits, self.figures.backward - recompute - self._ticks("backward_s")
        return self._before[0], self._behind[0]

    def _sends(self) -> tuple[int, int]:
        """Return for how long the stage is busy with what it sends, forward and backward."""
        return (0, 0) if self.problem.preset.transfers == "edges" else (self._behind[1], self._before[1])

    @cached_property
    def _before(self) -> tuple[int, int]:
        """What the stage receives from the one before it, and sends to it."""
        return self._hop(self.figures.levels.entry, self.at - 1) if self.at > 0 else (0, 0)

    @cached_property
    def _behind(self) -> tuple[int, int]:
        """What the stage receives from the one after it, and sends to it."""
        last = self.at + 1 == len(self.plan.stages)
        return (0, 0) if last else self._hop(self.figures.levels.exit, self.at)

    def _hop(self, level: int, boundary: int) -> tuple[int, int]:
        return _hop(self.problem, self.plan, self.scale, level, _Transfer((boundary, boundary + 1), boundary))

    def _exchanged(self) -> tuple[int, int]:
        """Return what sharding adds to the forward pass, and what it adds to the gradients of weights.

        Type 2 scatters gradients; type 3 also gathers weights for the forward pass. Where the preset gathers them for
        the backward pass, too, what goes with that and with the gradients has a part by its bytes each, unless the
        plan's schedule tells them apart.
        """
        sharding, zero = self.figures.sharding, self.plan.stages[self.at].sharding.zero
        if zero < 3:
            return 0, sharding
        if self.problem.preset.sharding == "stage":
            return sharding // 2, sharding - sharding // 2
        gathered = self.figures.gathered
        if self.plan.schedule == "zb-h1":
            return gathered, self.figures.scattered
        copies = self.problem.training.held
        sent = copies.gathered + copies.summed
        return gathered, int((sharding - gathered) * Fraction(copies.summed) / Fraction(sent)) if sent else 0


def _graph(problem: Problem, plan: Plan, at: int) -> LayerGraph:
    """Return the layers as a stage has them."""
    return problem.graphs[plan.stage_variants[at]]


def _alive(graph: LayerGraph, plan: Plan, boundary: int) -> Iterator[Number]:
    """Yield the bytes of each tensor alive behind a stage."""
    largest: dict[int, Number] = {}
    stages = plan.stages_of(graph)
    for (source, target), edge in zip(graph.places, graph.edges, strict=True):
        if stages[source] <= boundary < stages[target]:
            largest[source] = max(largest.get(source, 0), edge.bytes)
    yield from largest.values()


class _Transfer(NamedTuple):
    """Between which two stages, of what is alive behind which one."""

    stages: tuple[int, int]
    boundary: int


def _hop(problem: Problem, plan: Plan, scale: Scale, level: int, sent: _Transfer) -> tuple[int, int]:
    """Return for how long a stage is busy with receiving what crosses a boundary, and with sending as much."""
    stages, boundary = sent
    ends = plan.stage_variants[stages[0]], plan.stage_variants[stages[1]]
    sizes = [np.array([float(sum(_alive(_graph(problem, plan, at), plan, boundary)))]) for at in stages]
    times = Exchanges(problem).resharding_s(ends, level, (sizes[0], sizes[1]))
    received, gathered, back = (scale.time.ticks(float(seconds[0])) for seconds in times)
    return received + gathered, back


def _wrap(problem: Problem, plan: Plan, scale: Scale) -> tuple[int, int]:
    """Return a transfer from the last stage to the first: the most bytes between two stages, in the slowest replica."""
    boundaries, graph = range(len(plan.stages) - 1), _graph(problem, plan, 0)
    levels = set(problem.cluster.spans(plan.starts(0), plan.starts(-1)).tolist())
    if problem.preset.transfers == "cut":
        most = max(boundaries, key=lambda boundary: sum(_alive(graph, plan, boundary)))
        sent = _Transfer((len(plan.stages) - 1, 0), most)
        return max(_hop(problem, plan, scale, level, sent) for level in levels)
    size = max((float(each) for boundary in boundaries for each in _alive(graph, plan, boundary)), default=0.0)
    ticks = scale.time.ticks
    return max(ticks(transfer_s(problem.cluster, problem.preset, level, size)) for level in levels), 0
