"""A plan of measured layers that somebody already has, as a problem of its one variant and a plan of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from nest.costing import Layout, split_parts
from nest.errors import InvalidProblem
from nest.graph import LayerGraph
from nest.hardware import Hardware
from nest.layer_tables.pose import TableRun, require_apart, table_graph
from nest.layer_tables.table import Point
from nest.plan import Plan
from nest.presets import DEFAULT
from nest.problem import Choices, Problem, Variant
from nest.runs.estimate import priced
from nest.runs.figures import Estimate
from nest.runs.given import laid_out, require_batch, require_devices
from nest.runs.pose import preset_of


@dataclass(frozen=True)
class GivenTable:
    """A plan, and the measured layers that it trains.

    Parameters
    ----------
    run
        Layers, devices, recipe and software.
    point
        Tensor width and microbatch, which have to be measured.
    layout
        Replicas, stages, ZeRO type and recomputation.
    """

    run: TableRun
    point: Point
    layout: Layout

    @property
    def hardware(self) -> Hardware:
        """On what."""
        return self.run.hardware

    @property
    def variant(self) -> Variant:
        """Widths and microbatch."""
        return Variant(self.point.tensor, microbatch=self.point.microbatch)

    @property
    def devices(self) -> int:
        """How many work."""
        return self.point.tensor * self.layout.stages * self.layout.data

    @property
    def microbatches(self) -> int:
        """Microbatches that each replica takes; the last may be cut short."""
        return -(-self.layout.global_batch // (self.layout.data * self.point.microbatch))

    @cached_property
    def graph(self) -> LayerGraph:
        """The layers, computing again what the layout says.

        Raises
        ------
        InvalidProblem
            If nobody measured them, or they cannot compute that again.
        """
        table = self.run.table
        if self.point not in table.complete:
            why = table.missing.get(self.point, "not measured")
            measured = "; ".join(map(str, table.complete))
            raise InvalidProblem("", f"{self.point}: {why}", f"measured are {measured}", table.source)
        graph, kind = table_graph(self.run, self.point), self.layout.recompute
        if kind != "none" and kind not in graph.recomputes:
            what = f"{kind!r}: no layer of the table can" + (
                "" if kind == "full" else "; they compute all again or none"
            )
            raise InvalidProblem("recompute", what, "leave it out")
        return graph

    @cached_property
    def problem(self) -> Problem:
        """The problem whose one variant is that of the plan.

        Raises
        ------
        InvalidProblem
            As `graph`; for few devices or sequences; if a schedule plays passes that were timed together.
        """
        require_devices(self.devices, self.hardware)
        require_batch(self.layout, self.point.microbatch)
        self.hardware.require_one_class("a table of layers")
        name = f"{self.run.table.name} on {self.hardware.cluster.name}"
        choices = Choices(schedules=frozenset({self.layout.passes}))
        graphs, preset = {self.variant: self.graph}, preset_of(choices)
        if preset is not DEFAULT:
            require_apart(self.run.table, preset.name)
        return Problem(name, graphs, self.hardware.cluster, self.run.training, choices, preset)

    @cached_property
    def plan(self) -> Plan:
        """The plan, its ranks numbered as Megatron-LM does, its stages as equal as it goes unless the layout says."""
        parts = split_parts(_blocks(self.graph, self.layout.layers), self.layout)
        ends = pairwise([0, *accumulate(map(len, parts))])
        return laid_out(self.problem, self.variant, self.layout, tuple(ends))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is assumed, and how a batch is counted that replicas do not share evenly."""
        once = self.layout.data * self.point.microbatch
        if self.layout.global_batch % once == 0:
            return self.run.notes
        counted = self.microbatches * once
        what = f"{self.layout.data} replicas with microbatches of {self.point.microbatch} do not divide a batch of"
        return (f"{what} {self.layout.global_batch}: its time is that of {counted} sequences", *self.run.notes)


def table_estimate(given: GivenTable) -> Estimate:
    """Return time and memory of an iteration; model FLOPs are 0, since a table says nothing of them.

    Raises
    ------
    InvalidProblem
        If nobody measured the widths of the plan, or the plan takes more devices than there are.
    """
    return priced(given, 0)


class _Block(NamedTuple):
    repeats: bool


def _blocks(graph: LayerGraph, counts: Sequence[int]) -> list[_Block]:
    """Return which layers count: all but a first and a last of its own kind, unless given numbers are of all."""
    first, last = graph.riding if sum(counts) != len(graph) else (False, False)
    inner = len(graph) - first - last
    return [*[_Block(False)] * first, *[_Block(True)] * inner, *[_Block(False)] * last]
