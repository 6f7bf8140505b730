"""What the passes of layers take in ticks, with the collectives that their blocks run in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from nest.cost.exchanges import axis_group
from nest.cost.scale import Scale
from nest.graph import Collective, LayerGraph
from nest.problem import Variant
from nest.tables.shares import Sharing
from nest.units import Ints


class Passes:
    """Times of a variant's layers, the same in every block.

    Parameters
    ----------
    scale, variant
        What they are for.
    sharing
        The network times of the problem.
    """

    def __init__(self, scale: Scale, variant: Variant, sharing: Sharing) -> None:
        self.scale, self.variant, self.sharing = scale, variant, sharing

    def both(self, graph: LayerGraph) -> Ints:
        """Return what both passes of each layer take."""
        return self.of(graph, "forward") + self.of(graph, "backward")

    def of(self, graph: LayerGraph, when: Literal["forward", "backward"]) -> Ints:
        """Return what one pass of each layer takes."""
        layers = graph.layers
        own = self.ticks([layer.forward_s if when == "forward" else layer.backward_s for layer in layers])
        return own + self.collectives([layer.collectives for layer in layers], when)

    def ticks(self, seconds: list[float]) -> Ints:
        """Return times in ticks."""
        return self.scale.time.ticks_array(np.array(seconds))

    def collectives(
        self, sets: Sequence[tuple[Collective, ...]], when: Literal["forward", "backward"] | None = None
    ) -> Ints:
        """Return what sets of collectives take, of one pass or of either; the same objects are looked at once."""
        known = {id(each): each for each in sets}
        taken = {key: self._sum(each for each in some if when in (None, each.when)) for key, some in known.items()}
        return np.array([taken[id(each)] for each in sets], dtype=np.int64)

    def _sum(self, collectives: Iterable[Collective]) -> int:
        ticks, sharing, variant = self.scale.time.ticks, self.sharing, self.variant
        return sum(ticks(sharing.exposed_s(each, *axis_group(variant, each.axis))) for each in collectives)
