"""The load of each stage by what takes the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from nest.classes import across
from nest.cost.exchanges import Exchanges, axis_group, axis_starts
from nest.errors import NestError
from nest.evaluate import Evaluation
from nest.graph import Axis, Collective, Layer, Recomputed
from nest.plan import Plan
from nest.problem import Form, Problem
from nest.simulate import StageTimes, pipeline_of


@dataclass(frozen=True, slots=True)
class LoadParts:
    """Ticks for which one microbatch keeps a stage busy, by what it does, in the replica that the judge looks at.

    Parameters
    ----------
    compute
        Forward and backward passes of the layers. Under presets whose layers bring no collectives of their own, these
        times hold what layers exchange.
    recompute
        What is computed again before the backward pass.
    tensor, context, expert
        Collectives of layers that no computation hides.
    transfer
        Activations from the stage before, and gradients from the stage after; and what is sent, where that blocks.
    sharding
        What the holders of weights exchange for each microbatch.
    """

    compute: int = 0
    recompute: int = 0
    tensor: int = 0
    context: int = 0
    expert: int = 0
    transfer: int = 0
    sharding: int = 0

    @property
    def total(self) -> int:
        """The load."""
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, int]:
        """Return the parts by name."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}


class Unexplained(NestError):
    """The parts of a load do not make the judge's: a fault of ours, never of the problem."""


def load_parts(problem: Problem, plan: Plan, evaluation: Evaluation) -> tuple[LoadParts, ...]:
    """Return the parts of each stage's load.

    Parameters
    ----------
    evaluation
        The judge's, of this plan.

    Raises
    ------
    InvalidPlan
        If the plan is so broken that it has no price.
    Unexplained
        If they do not add up to it.
    """
    stages = _Stages(problem, plan, evaluation)
    return tuple(stages.parts(at, times) for at, times in enumerate(pipeline_of(problem, plan, evaluation).stages))


class _Stages:
    """The stages of a plan, and what collectives in the same place take."""

    def __init__(self, problem: Problem, plan: Plan, evaluation: Evaluation) -> None:
        self.problem, self.plan, self.evaluation = problem, plan, evaluation
        self.exchanges = Exchanges(problem)
        self._known: dict[tuple[Form, Collective, int], int] = {}

    def parts(self, at: int, times: StageTimes) -> LoadParts:
        """Return the parts of a stage's load, whose transfers and repeated passes are known."""
        judged, layers = self.evaluation.stages[at], self._layers(at)
        ticks = self.evaluation.scale.time.ticks
        compute = sum(ticks(layer.forward_s) + ticks(layer.backward_s) for layer in layers)
        transfer = judged.transfer if self.plan.chunks > 1 else times.transfers
        apart = compute + times.recompute + transfer + judged.sharding
        axes = self._axes(at, layers, judged.load - apart)
        return LoadParts(compute, times.recompute, **axes, transfer=transfer, sharding=judged.sharding)

    def _layers(self, at: int) -> tuple[Layer, ...]:
        graph = across(self.problem.graphs[self.plan.stage_variants[at]], self.evaluation.stages[at].classes)
        return graph.named(self.plan.stages[at].layers)

    def _axes(self, at: int, layers: Sequence[Layer], left: int) -> dict[Axis, int]:
        """Return the collectives of some layers by axis, in a block in which they take what the judge found."""
        if self.problem.preset.collectives != "groups":
            return self._checked(at, {}, left)
        again = self.plan.stages[at].repeats(layers, last=self.problem.training.recomputes_last)
        repeated = [each for each in again if each is not None]
        form = self.plan.stage_forms[at]
        known = [self._by_axis(form, [*layers, *repeated], block) for block in self._blocks(at)]
        return self._checked(at, next((axes for axes in known if sum(axes.values()) == left), known[0]), left)

    def _checked(self, at: int, axes: dict[Axis, int], left: int) -> dict[Axis, int]:
        if sum(axes.values()) != left:
            what = f"stage {at} has {left} ticks of collectives, its layers have {sum(axes.values())}"
            raise Unexplained(f"the load does not consist of what it should: {what}")
        return axes

    def _blocks(self, at: int) -> Iterator[int]:
        """Yield where blocks of a stage stand within the largest group of the network, once for each such place."""
        yield from dict.fromkeys((self.plan.starts(at) % self.problem.cluster.period).tolist())

    def _by_axis(self, form: Form, layers: Iterable[Layer | Recomputed], block: int) -> dict[Axis, int]:
        sums: Counter[Axis] = Counter()
        for layer in layers:
            for collective in layer.collectives:
                sums[collective.axis] += self._ticks(form, collective, block)
        return dict(sums)

    def _ticks(self, form: Form, collective: Collective, block: int) -> int:
        """Return what a collective takes in a block, in the slowest of its groups."""
        key = form, collective, block
        if key not in self._known:
            step, count = axis_group(form.variant, collective.axis)
            members = step * np.arange(count, dtype=np.int64)
            starts = block + axis_starts(form, collective.axis)
            groups = {self.exchanges.spread(start + members) for start in starts}
            slowest = max(self.exchanges.exposed_s(collective, group) for group in groups)
            self._known[key] = self.evaluation.scale.time.ticks(slowest)
        return self._known[key]
