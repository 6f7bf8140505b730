"""The problem of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from nest.costing import LayerCost, layer_costs
from nest.costing.pricing import Known
from nest.files.left_out import LeftOut
from nest.graph import Again, Layer, LayerGraph, Recomputed
from nest.hardware import Device
from nest.presets import DEFAULT, SIMULATED, Preset
from nest.problem import Choices, Problem, Variant
from nest.runs.chain import Chain
from nest.runs.graphs import GraphMaker, of_whole_tensors
from nest.runs.run import Run
from nest.runs.training import stepping, training_of
from nest.runs.tried import Tried
from nest.runs.variants import Widths

LISTED = 4
"""Of many groups that are left out for the same reason so many are named."""


@dataclass(frozen=True)
class Posed:
    """A run as a problem.

    Parameters
    ----------
    run, problem
        What was asked, and what it comes to.
    left_out
        Variants that are not among those of the problem.
    """

    run: Run
    problem: Problem
    left_out: tuple[LeftOut, ...]

    @property
    def tried(self) -> Tried:
        """How much of the space an answer to the problem is about."""
        return Tried(self.left_out, self.run.reserve)


def problem_of(run: Run, *, every: bool = False, also: Variant | None = None) -> Posed:
    """Return the problem of a run under preset ``default``, with the costs of every variant that is tried.

    Parameters
    ----------
    every
        Whether all context widths and microbatches are tried, not the usual ones alone: there may be ten times as many.
    also
        A variant that is tried besides the usual ones, such as that of a plan which is to be judged.

    Raises
    ------
    InvalidProblem
        If the stacks of the model are not in one piece, no variant is possible, the recipe has no whole copies, or
        a measurement is of nothing that is priced.
    """
    return Maker(run, every=every, also=also).posed()


def preset_of(choices: Choices) -> Preset:
    """Return the preset under which choices are posed: `default`, or `simulated` where that alone has a schedule."""
    return DEFAULT if choices.schedules <= set(DEFAULT.schedules) else SIMULATED


class Maker:
    """Makes the problem of a run; parameters are those of `problem_of`."""

    def __init__(self, run: Run, *, every: bool = False, also: Variant | None = None) -> None:
        self.run, self.chain = run, Chain.of(run.model)
        self.widths = Widths(run, self.chain.stacks, every, also)
        kinds: tuple[Again, ...] = tuple(kind for kind in self.widths.recompute[0] if kind != "none")
        self.graphs = GraphMaker(run, self.chain, kinds)
        self.cluster, self.training = stepping(run), training_of(run)
        self._left: list[LeftOut] = []
        self._known: dict[str, Known] = {}
        self._too_large: list[int] = []  # the first microbatch that no device can hold, for each shape that has one

    def posed(self) -> Posed:
        """Return the run as a problem, with the choices that were left out."""
        return self.of({variant: graph for shape in self.shapes() for variant, graph in self.sizes(shape)})

    def of(self, graphs: dict[Variant, LayerGraph], *left_out: LeftOut) -> Posed:
        """Return the run with the problem that has these variants, and what was left out of them besides."""
        self.widths.check_routing(self.run)
        run = self.run
        if run.profile is not None:
            run.profile.require_used(run.setting(variant) for variant in graphs)
        problem = self.problem(graphs)
        left = (*self.widths.left_out, *self._left, *self._microbatches(), *left_out, *_not_asked_for(problem))
        return Posed(run, problem, left)

    def problem(self, graphs: Mapping[Variant, LayerGraph]) -> Problem:
        """Return the problem with these variants."""
        run = self.run
        name = run.name or f"{run.model.name or run.model.family} on {run.hardware.cluster.name}"
        preset = preset_of(run.choices)
        return Problem(name, graphs, self.cluster, self.training, run.choices, preset, source=run.source)

    def shapes(self) -> list[Variant]:
        """Return the shapes that nest with the network; all of them if none does, so that a solver says why."""
        shapes = list(self.widths.shapes())
        if not shapes:
            raise self.widths.none_left()
        none = (Layer(0, 0.0, 0.0, 0, 0),)
        others = tuple((each.name, none) for each in self.cluster.classes)
        empty = {shape: LayerGraph(none, (), others=others) for shape in shapes}
        probe = Problem("", empty, self.cluster, self.training, preset=DEFAULT)
        apart = {shape: pair for shape in shapes if (pair := probe.unnested(shape)) is not None}
        if len(apart) == len(shapes):
            return shapes
        for size in sorted({size for _, size in apart.values()}):
            units = sorted({unit for unit, other in apart.values() if other == size})
            listed = ", ".join(map(str, units[:LISTED])) + (", ..." if len(units) > LISTED else "")
            self._left.append(LeftOut(f"groups of {listed} devices", f"they do not nest with the network's of {size}"))
        return [shape for shape in shapes if shape not in apart]

    def sizes(
        self, shape: Variant, wanted: Callable[[Variant], bool] = lambda _: True
    ) -> Iterator[tuple[Variant, LayerGraph]]:
        """Yield the variants of a shape, up to the microbatch of which no device can hold a layer, or a part of it.

        Parameters
        ----------
        wanted
            Says which of them are; of the others there are no costs.
        """
        limit, parts = 0, max(self.run.choices.splits)
        for at, microbatch in enumerate(self.widths.microbatch[0]):
            variant = replace(shape, microbatch=microbatch)
            if not wanted(variant):
                continue
            graph = self.graph(variant)
            if at and not limit and not self._fits(graph):
                limit = microbatch * parts
            if limit and microbatch >= limit:
                self._too_large.append(microbatch)
                return
            yield variant, graph

    def _microbatches(self) -> Iterator[LeftOut]:
        """Yield that microbatches are too large, from one size to another on, by widths."""
        if self._too_large:
            first, last = min(self._too_large), max(self._too_large)
            which = f"microbatches from {first}" + (f" to {last} on, by widths" if last > first else " on")
            yield LeftOut(which, "no device can hold what a single layer keeps and needs of one")

    def _fits(self, graph: LayerGraph) -> bool:
        """Whether a device can hold the tensors of every layer, weights apart, whatever of it recomputes."""
        sizes = [self.cluster.hbm_bytes, *(each.hbm_bytes for each in self.cluster.classes)]
        room = max(sizes) - self.training.overhead_bytes
        ways: Iterator[list[Layer | Recomputed]] = ([layer, *layer.recomputed] for layer in graph.layers)
        return all(min(each.activation_bytes + each.working_bytes for each in way) <= room for way in ways)

    def graph(self, variant: Variant) -> LayerGraph:
        """Return the layers of a variant, on each class of devices."""
        hardware = self.run.hardware
        graph = self.graphs.graph(self._costs_of(variant, hardware.device))
        if not hardware.others:
            return graph
        named = zip(hardware.cluster.classes, hardware.others, strict=True)
        others = ((each.name, self.graphs.graph(self._costs_of(variant, device)).layers) for each, device in named)
        return replace(graph, others=tuple(others))

    def _costs_of(self, variant: Variant, device: Device) -> list[LayerCost]:
        run = self.run
        setting, known = of_whole_tensors(run.setting(variant)), self._known.setdefault(device.name, {})
        return self.chain.flattened(layer_costs(run.model, device, setting, run.profile, known))


def _not_asked_for(problem: Problem) -> Iterator[LeftOut]:
    """Yield the choices that are off unless they are asked for, as far as the problem could have them."""
    choices, branches = problem.choices, any(each.unordered_pair is not None for each in problem.graphs.values())
    if problem.cluster.classes or branches or "1f1b" not in choices.schedules:
        return
    if "interleaved" not in choices.schedules and not choices.uneven:
        yield LeftOut("schedule interleaved", "--set schedules=1f1b,interleaved tries it")
    if "interleaved" in choices.schedules:
        return
    if choices.stage_tensor is None:
        yield LeftOut("tensor width of single stages", "--set stage_tensor=1,2,4,8 tries it")
    if choices.shard_inside is None:
        yield LeftOut("sharding inside stages", "--set shard_inside=1,2 tries it")
