"""Layers on devices of several classes together, which wait for the slowest of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from nest.graph import Collective, Layer, LayerGraph, Recomputed

Exchanging: TypeAlias = tuple[tuple[Collective, ...], tuple[Recomputed, ...]]
"""Collectives of a layer, and what it may compute again."""


def across(graph: LayerGraph, classes: Collection[str]) -> LayerGraph:
    """Return the layers as devices of some classes together have them: of each time the longest.

    What a collective can hide beside is no time that anybody waits for: of that it is the shortest.

    Parameters
    ----------
    classes
        Names; one that the graph does not know is that of the layers of the graph itself, and so is none at all.
    """
    further = [layers for name, layers in graph.others if name in classes]
    return _blended(graph, [graph.layers, *further] if len(further) < len(classes) or not further else further)


def slowest(graph: LayerGraph) -> LayerGraph:
    """Return the layers with the longest of each of their times on any class of devices."""
    return _blended(graph, [graph.layers, *(layers for _, layers in graph.others)])


def fastest(graph: LayerGraph) -> LayerGraph:
    """Return the layers with the shortest of each of their times on any class of devices."""
    return _blended(graph, [graph.layers, *(layers for _, layers in graph.others)], slow=False)


def _blended(graph: LayerGraph, ways: Sequence[tuple[Layer, ...]], *, slow: bool = True) -> LayerGraph:
    if not graph.others:
        return graph
    key = tuple(map(id, ways)), slow
    if key not in graph.blends:
        blend = _Blend(slow)
        layers = ways[0] if len(ways) == 1 else tuple(blend.layer(each) for each in zip(*ways, strict=True))
        graph.blends[key] = LayerGraph(layers, graph.edges, graph.table)
    return graph.blends[key]


@dataclass(frozen=True)
class _Blend:
    """The longest times of layers alike, or the shortest; what they exchange is worked out once for equal objects."""

    slow: bool
    known: dict[tuple[int, ...], Exchanging] = field(default_factory=dict)

    def most(self, seconds: Sequence[float]) -> float:
        """Return the time that counts of one for each class."""
        return max(seconds) if self.slow else min(seconds)

    def layer(self, ways: Sequence[Layer]) -> Layer:
        """Return a layer of which every class has one way."""
        key = tuple(id(each) for layer in ways for each in (layer.collectives, layer.recomputed))
        if key not in self.known:
            again = zip(*(layer.recomputed for layer in ways), strict=True)
            collectives = self.collectives([layer.collectives for layer in ways])
            self.known[key] = collectives, tuple(map(self.recomputed, again))
        collectives, recomputed = self.known[key]
        return replace(
            ways[0],
            forward_s=self.most([layer.forward_s for layer in ways]),
            backward_s=self.most([layer.backward_s for layer in ways]),
            collectives=collectives,
            recomputed=recomputed,
        )

    def recomputed(self, ways: Sequence[Recomputed]) -> Recomputed:
        """Return what a layer computes again, of which every class has one way."""
        collectives = self.collectives([each.collectives for each in ways])
        return replace(ways[0], repeated_s=self.most([each.repeated_s for each in ways]), collectives=collectives)

    def collectives(self, ways: Sequence[tuple[Collective, ...]]) -> tuple[Collective, ...]:
        """Return collectives beside the shortest computation of any class, or the longest."""
        least = min if self.slow else max
        return tuple(replace(each[0], hidden_s=least(one.hidden_s for one in each)) for each in zip(*ways, strict=True))
