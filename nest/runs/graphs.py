"""The layer graph of a variant, from the costs of its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from nest.costing import LayerCost, Recompute, Setting
from nest.graph import Again, Collective, Edge, Layer, LayerGraph, Recomputed
from nest.runs.chain import Chain
from nest.runs.training import Trained


def of_whole_tensors(setting: Setting) -> Setting:
    """Return the setting under which whole tensors leave a layer.

    Whether the tensor ranks send a part of them each is the training's: it counts where stages are cut.
    """
    return replace(setting, framework=replace(setting.framework, scatter_gather=False))


@dataclass(frozen=True)
class GraphMaker:
    """Makes layer graphs.

    Parameters
    ----------
    run, chain
        What is trained.
    kinds
        What stages may recompute.
    """

    run: Trained
    chain: Chain
    kinds: tuple[Again, ...]

    def graph(self, costs: Sequence[LayerCost]) -> LayerGraph:
        """Return the graph of blocks with these costs; equal ones are worked out once."""
        spare = self._spare(costs)
        made: dict[tuple[int, str], Layer] = {}
        layers = []
        for place, (cost, kind) in enumerate(zip(costs, self.chain.kinds, strict=True)):
            like = made.get((id(cost), kind))
            if like is None:
                like = made[id(cost), kind] = self._layer(place, kind, cost, spare)
            layers.append(like if like.id == place else like.named(place))
        if self.run.framework.buffers_boundaries:
            layers[-1] = replace(layers[-1], result_bytes=costs[-1].output_bytes)
        return LayerGraph(tuple(layers), tuple(self._edges(costs)), _table(costs))

    def _layer(self, place: int, kind: str, cost: LayerCost, spare: int) -> Layer:
        recipe, tied = self.run.recipe, ceil(self.run.recipe.weights * cost.tied)
        return Layer(
            place,
            cost.forward_s,
            cost.backward_s,
            ceil(recipe.weights * cost.parameters.total) + tied,
            cost.kept.none,
            kind,
            ceil(recipe.weights * cost.parameters.expert),
            self._working(cost, "none") + spare,
            _collectives(cost),
            tuple(self._recomputed(cost, again, spare) for again in self.kinds if cost.repeats),
            tied,
        )

    def _recomputed(self, cost: LayerCost, again: Again, spare: int) -> Recomputed:
        repeated = cost.collectives(again)[len(cost.exchanged) :]
        collectives = tuple(
            Collective(each.kind, each.size, each.axis, "recompute", each.hidden_s) for each in repeated
        )
        working = self._working(cost, again) + spare
        return Recomputed(again, cost.repeated_s(again), cost.kept.of(again), working, collectives)

    def _working(self, cost: LayerCost, again: Recompute) -> int:
        """Return what a block needs for a moment: gradients, what is computed again, gradients in a tensor's place."""
        own = 0 if cost.repeats else ceil(self.run.recipe.gathered * sum(cost.spare))
        return cost.kept.none - cost.kept.of(again) + cost.working_bytes + own

    def _spare(self, costs: Sequence[LayerCost]) -> int:
        """Return the bytes of the tensors that stand for gradients already added, one for each shape of the layers."""
        sizes = {size for cost in {id(cost): cost for cost in costs}.values() if cost.repeats for size in cost.spare}
        return ceil(self.run.recipe.gathered * sum(sizes))

    def _edges(self, costs: Sequence[LayerCost]) -> list[Edge]:
        hidden = self.run.framework.hides_transfers
        return [
            Edge(step.source, step.target, 0 if hidden else ceil(costs[step.source].output_bytes * step.share))
            for step in self.chain.steps
        ]


def _table(costs: Sequence[LayerCost]) -> int | None:
    """Return the place of the embedding that later blocks use again, None where none does."""
    tied = next((place for place, cost in enumerate(costs) if cost.tied), 0)
    owners = (place for place in range(tied) if costs[place].kind == "embedding" and costs[place].parameters.sharded)
    return max(owners, default=None)


def _collectives(cost: LayerCost) -> tuple[Collective, ...]:
    """Return the collectives of the two passes of a block."""
    return tuple(Collective(each.kind, each.size, each.axis, each.phase, each.hidden_s) for each in cost.exchanged)
