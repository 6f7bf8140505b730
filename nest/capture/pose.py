"""The problem of a captured module on a cluster, its layers timed by their kernels or by measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from nest.capture.captured import Captured, CapturedLayer, Kernel
from nest.costing import FRAMEWORKS, Framework, LayerProfile, Measurement, Recipe, recipe_named
from nest.costing.kernels import Kernels
from nest.errors import InvalidProblem
from nest.graph import Edge, Layer, LayerGraph, Recomputed
from nest.hardware import Hardware
from nest.problem import Choices, Problem, Variant
from nest.runs.pose import preset_of
from nest.runs.reserve import Reserving
from nest.runs.training import training_of

EAGER = next(each for each in FRAMEWORKS if each.name == "torchtitan")
"""What runs a captured module if nobody says: kernel by kernel, as it was captured."""


def usual_recipe(captured: Captured) -> Recipe:
    """Return bytes per parameter that go with the data type of a module."""
    return recipe_named("fp32" if captured.dtype == "fp32" else "mixed")


@dataclass(frozen=True)
class Wanted(Reserving):
    """How a captured module is to be trained.

    Parameters
    ----------
    hardware
        On what.
    global_batch
        Sequences of an iteration.
    recipe, framework
        Bytes of a parameter; what runs the kernels, and when gradients are summed.
    reserve_bytes
        What framework and communication take of every device; None: `nest.runs.reserve.default_reserve_bytes`.
    choices
        What a plan may choose.
    profile
        Measured times of kinds of layers, in the place of modelled ones.
    """

    hardware: Hardware
    global_batch: int
    recipe: Recipe
    framework: Framework = EAGER
    reserve_bytes: int | None = None
    choices: Choices = field(default_factory=Choices)
    profile: LayerProfile | None = None

    @property
    def cut_experts(self) -> bool:
        """Whether tensor parallel cuts routed experts: there is none of either."""
        return True


def captured_problem(captured: Captured, wanted: Wanted) -> Problem:
    """Return the problem, as runs are posed: tensor width 1, microbatches, recomputation, replicas, stages, ZeRO.

    Blocks may compute everything again; which operators an attention core has, a captured module does not say.

    Raises
    ------
    InvalidProblem
        If no variant is left, the device does not compute in the module's data type, the recipe has no whole copies, or
        a measurement is of no layer.
    """
    wanted.hardware.require_one_class("a captured module")
    poser = _Poser(captured, wanted)
    if wanted.profile is not None:
        _check_profile(captured, wanted.profile)
    graphs = dict(poser.graphs())
    if wanted.profile is not None and not any(_is_used(row, graphs) for row in wanted.profile.rows):
        what = (
            f"no row has tensor and context width 1 and a microbatch of {sorted({each.microbatch for each in graphs})}"
        )
        raise InvalidProblem("rows", what, "measure the microbatches that are planned", wanted.profile.source)
    name = f"{captured.name} on {wanted.hardware.cluster.name}"
    source = f"captured by nest with torch {captured.torch}, {', '.join(captured.inputs)}"
    return Problem(
        name,
        graphs,
        wanted.hardware.cluster,
        training_of(wanted),
        wanted.choices,
        preset_of(wanted.choices),
        source=source,
    )


def _check_profile(captured: Captured, profile: LayerProfile) -> None:
    """Refuse measurements that are of no kind of layer, of another run, or of one thing twice."""
    seen: set[tuple[object, ...]] = set()
    for row in profile.rows:
        key = (row.kind, row.microbatch, row.tensor, row.context)
        if row.kind not in captured.figures:
            remedy = f"one of {', '.join(captured.figures)}"
            raise InvalidProblem(row.where, f"the module has no layer {row.kind!r}", remedy, profile.source)
        for name in ("sequence", "dtype"):
            there, here = getattr(row, name), getattr(captured, name)
            if there is not None and here and there != here:
                what = f"measured with {name} {there}, and the module was captured with {here}"
                raise InvalidProblem(row.where, what, "take the row out", profile.source)
        if key in seen:
            what = f"{row.kind!r} again, with the same microbatch and widths"
            raise InvalidProblem(row.where, what, "give one row for each", profile.source)
        seen.add(key)


def _is_used(row: Measurement, graphs: Mapping[Variant, LayerGraph]) -> bool:
    alone = row.tensor == row.context == 1
    return alone and any(row.microbatch == variant.microbatch for variant in graphs)


class _Poser:
    def __init__(self, captured: Captured, wanted: Wanted) -> None:
        self.captured, self.wanted = captured, wanted
        self.kernels = Kernels.of(wanted.hardware.device, wanted.framework)
        self.ids = _ids(captured.layers)

    def graphs(self) -> Iterator[tuple[Variant, LayerGraph]]:
        """Yield the variants, up to the microbatch of which no device can hold a layer, or a part of it."""
        limit = 0
        for at, microbatch in enumerate(self._microbatches()):
            graph = self._graph(microbatch)
            if at and not limit and not self._fits(graph):
                limit = microbatch * max(self.wanted.choices.splits)
            if limit and microbatch >= limit:
                return
            yield Variant(1, microbatch=microbatch), graph

    def _microbatches(self) -> Sequence[int]:
        captured, choices = self.captured, self.wanted.choices
        if not captured.linear:
            return [captured.batch]
        most = self.wanted.global_batch
        if choices.microbatch is not None:
            return sorted(choices.with_parts(choices.microbatch))
        return [2**power for power in range(most.bit_length())]

    def _fits(self, graph: LayerGraph) -> bool:
        room = self.wanted.hardware.cluster.hbm_bytes - self.wanted.reserved_bytes
        for layer in graph.layers:
            ways: list[Layer | Recomputed] = [layer, *layer.recomputed]
            if min(each.activation_bytes + each.working_bytes for each in ways) > room:
                return False
        return True

    def _graph(self, microbatch: int) -> LayerGraph:
        times = {kind: self._times(kind, microbatch) for kind in self.captured.figures}
        layers = (
            self._layer(name, layer, times[layer.kind], microbatch)
            for name, layer in zip(self.ids, self.captured.layers, strict=True)
        )
        edges = (
            Edge(self.ids[edge.source], self.ids[edge.target], edge.bytes.at(microbatch))
            for edge in self.captured.edges
        )
        return LayerGraph(tuple(layers), tuple(edges))

    def _layer(self, name: str, layer: CapturedLayer, times: tuple[float, float], microbatch: int) -> Layer:
        kept = self._kept(layer, microbatch)
        tied = 0 if self.wanted.choices.stages == frozenset({1}) else layer.tied
        working = self.captured.figures[layer.kind].working_bytes.at(microbatch)
        held = min(kept, layer.entering.at(microbatch))
        return Layer(
            name,
            times[0],
            times[1] + self._accumulated_s(layer),
            ceil(self.wanted.recipe.weights * (layer.parameters + tied)),
            kept,
            layer.kind,
            working_bytes=working,
            recomputed=(Recomputed("full", times[0], held, working + kept - held),) if layer.repeats else (),
        )

    def _kept(self, layer: CapturedLayer, microbatch: int) -> int:
        row = self._measurement(layer.kind, microbatch)
        return layer.kept.at(microbatch) if row is None or row.kept_bytes is None else row.kept_bytes

    def _accumulated_s(self, layer: CapturedLayer) -> float:
        """Return the time to add a microbatch's gradients to those of earlier ones, in kernels of their own."""
        each = self.wanted.recipe.weights + 2 * self.wanted.framework.gradient_bytes
        return self.kernels.moved(each * (layer.parameters + layer.tied), 0)

    def _times(self, kind: str, microbatch: int) -> tuple[float, float]:
        row = self._measurement(kind, microbatch)
        if row is not None:
            return row.forward_s, row.backward_s
        figures = self.captured.figures[kind]
        forward = sum(self._kernel_s(each, microbatch, backward=False) for each in figures.forward)
        return forward, sum(self._kernel_s(each, microbatch, backward=True) for each in figures.backward)

    def _measurement(self, kind: str, microbatch: int) -> Measurement | None:
        rows = self.wanted.profile.rows if self.wanted.profile else ()
        alike = (row for row in rows if row.kind == kind and (row.tensor, row.context) == (1, 1))
        return next((row for row in alike if row.microbatch == microbatch), None)

    def _kernel_s(self, kernel: Kernel, microbatch: int, *, backward: bool) -> float:
        """Return the seconds of kernels, each the longer of computing and moving its bytes."""
        size = kernel.bytes.at(microbatch)
        lengths = [length.at(microbatch) for length in kernel.shape]
        dtype = self.captured.dtype
        if kernel.work == "product":
            batch, rows, inner, columns = lengths
            one = self.kernels.product(rows, inner, columns, dtype, batch=batch, moved=size)
        elif kernel.work == "attention":
            flops, width, blocks = lengths
            one = self.kernels.fused_attention(flops, width, blocks, dtype, backward=backward)
        else:
            one = self.kernels.moved(size)
        return kernel.count * one


def _ids(layers: Sequence[CapturedLayer]) -> list[str]:
    """Return the layers' names, with a number behind those of submodules that run several times."""
    seen: Counter[str] = Counter()
    ids = []
    for layer in layers:
        seen[layer.name] += 1
        ids.append(layer.name if seen[layer.name] == 1 else f"{layer.name}@{seen[layer.name]}")
    return ids
