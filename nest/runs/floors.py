"""What all plans of a shape take at least, whatever its microbatch, found from two of its microbatches.

A *shape* is a variant but for its microbatch. What a kernel takes for ``k`` times as many sequences is at most ``k``
times as long: this holds for products in tiles, for what the host waits, for collectives, and for sums and maxima of
them. So in a pass of ``B`` sequences at once each costs no more than in passes of ``b``, which divides ``B``, and the
figures of the whole batch at once bound those of every microbatch that divides it. Only what computation hides counts
the other way: of that the smallest microbatch has the most for each sequence. `docs/algorithm.md` has the proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nest.classes import fastest
from nest.cost.extremes import Reach
from nest.graph import Collective, Layer, LayerGraph
from nest.problem import Problem, Variant
from nest.tables.speeds import shared_work
from nest.units import Floats

SURE = 1 - 1e-6
"""What a floor is multiplied with: rounding to ticks and in floating point is far less than the rest."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What plans of one shape take at least.

    Attributes
    ----------
    shared_s
        Seconds in which all devices together do the work of an iteration, whatever the microbatch.
    once_s
        Seconds for each sequence of a microbatch, which has both passes of every layer one after the other.
    """

    shared_s: float
    once_s: float

    def of(self, microbatch: int) -> float:
        """Return the seconds that every plan takes with microbatches of so many sequences."""
        return max(self.shared_s, microbatch * self.once_s)


class Floors:
    """Floors of the shapes of a run.

    Parameters
    ----------
    problem
        Any problem of the run, for its cluster and training.
    graph
        Returns the layers of a variant, on each class of devices.
    most, least
        Microbatches: one that all divide which are asked about, and one that divides all these.
    """

    def __init__(self, problem: Problem, graph: Callable[[Variant], LayerGraph], most: int, least: int) -> None:
        self.problem, self.graph, self.most, self.least = problem, graph, most, least
        self._at_once: dict[Variant, LayerGraph] = {}

    def without_exchanges(self, shape: Variant) -> Floor:
        """Return the floor of passes alone: lower, and found in half the time."""
        return self._floor(shape, self._whole(shape), lambda _: 0.0)

    def of(self, shape: Variant) -> Floor:
        """Return the floor with what is left of the collectives of layers once computation hides what it can.

        Slow devices are less behind where collectives count, so that of several classes passes alone may say more.
        """

        def taken_s(collective: Collective) -> float:
            """Return what is left of a collective at least."""
            return self._reach.shortest_s(shape, collective)

        alone = self.without_exchanges(shape)
        floor = self._floor(shape, self._least_exposed(shape), taken_s)
        return Floor(max(alone.shared_s, floor.shared_s), max(alone.once_s, floor.once_s))

    @cached_property
    def _reach(self) -> Reach:
        return Reach(self.problem)

    def _whole(self, shape: Variant) -> LayerGraph:
        """Return the layers as they are with all sequences in one microbatch."""
        if shape not in self._at_once:
            self._at_once[shape] = self.graph(replace(shape, microbatch=self.most))
        return self._at_once[shape]

    def _least_exposed(self, shape: Variant) -> LayerGraph:
        """Return the same layers, beside whose collectives there is as much computation as for single microbatches."""
        whole, part = (
            self._at_once.pop(shape, None) or self._whole(shape),
            self.graph(replace(shape, microbatch=self.least)),
        )
        hiding, times = dict[int, tuple[Collective, ...]](), self.most // self.least

        def hidden(own: Layer, other: Layer) -> Layer:
            """Return a layer beside whose collectives there is what another has, for each of its microbatches."""
            if id(own.collectives) not in hiding:
                pairs = zip(own.collectives, other.collectives, strict=True)
                hiding[id(own.collectives)] = tuple(replace(a, hidden_s=times * b.hidden_s) for a, b in pairs)
            return replace(own, collectives=hiding[id(own.collectives)])

        def layers(some: tuple[Layer, ...], others: tuple[Layer, ...]) -> tuple[Layer, ...]:
            """Return all layers so."""
            return tuple(map(hidden, some, others))

        classes = zip(whole.others, part.others, strict=True)
        others = tuple((name, layers(some, few)) for (name, some), (_, few) in classes)
        return replace(whole, layers=layers(whole.layers, part.layers), others=others)

    def _floor(self, shape: Variant, graph: LayerGraph, taken_s: Callable[[Collective], float]) -> Floor:
        """Return the floor from what layers take with all sequences at once."""

        def work(some: LayerGraph) -> Floats:
            """Return what each layer takes, both passes, seconds."""
            sets = {id(layer.collectives): layer.collectives for layer in some.layers}
            taken = {key: sum(map(taken_s, each)) for key, each in sets.items()}
            return np.array([each.forward_s + each.backward_s + taken[id(each.collectives)] for each in some.layers])

        cluster, batch = self.problem.cluster, self.problem.training.global_batch
        together = shared_work(cluster, graph, shape.width, cluster.devices // shape.width, work)
        passes = batch / shape.expert / self.most  # of all sequences that a device has at once
        return Floor(together * passes * SURE, float(work(fastest(graph)).sum()) / self.most * SURE)
