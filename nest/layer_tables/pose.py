"""The problem of a table of layers on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil

from nest.costing import FRAMEWORKS, Framework, Recipe, recipe_named
from nest.errors import InvalidProblem
from nest.graph import Collective, Edge, Layer, LayerGraph, Pass, Recomputed
from nest.hardware import Hardware
from nest.layer_tables.table import LayerTable, Point, TableRow
from nest.presets import DEFAULT
from nest.problem import Choices, Problem, Training, Variant
from nest.runs import LeftOut, Tried
from nest.runs.pose import preset_of
from nest.runs.reserve import Reserving
from nest.runs.training import training_of

MEGATRON = FRAMEWORKS[0]


@dataclass(frozen=True)
class TableRun(Reserving):
    """Measured layers that are to be trained.

    Parameters
    ----------
    table, hardware
        What is trained, and on what.
    global_batch
        Sequences of an iteration, of the kind that the microbatches of the table count.
    recipe
        Bytes of a parameter; None for what goes with the table.
    framework
        When gradients are summed, and how stages send.
    reserve_bytes
        What framework and communication take of every device; None: `nest.runs.default_reserve_bytes`.
    choices
        What a plan may choose.

    Raises
    ------
    InvalidProblem
        If the table lacks something that a plan needs, the batch or the reserve is out of range, or the devices are of
        several classes.
    """

    table: LayerTable
    hardware: Hardware
    global_batch: int
    recipe: Recipe | None = None
    framework: Framework = MEGATRON
    reserve_bytes: int | None = None
    choices: Choices = field(default_factory=Choices)

    def __post_init__(self) -> None:
        self.table.require_whole()
        self.hardware.require_one_class("a table of layers")
        if self.global_batch < 1:
            raise InvalidProblem("global_batch", f"{self.global_batch}", "give a whole number from 1")
        self.require_reserve()

    @property
    def paid(self) -> Recipe:
        """The recipe that counts."""
        return recipe_named(self.table.recipe) if self.recipe is None else self.recipe

    @property
    def training(self) -> Training:
        """What an iteration takes besides the layers.

        Passes that were timed together hide no gradients: how long the backward pass is, nobody says.
        """
        found = training_of(_Trained(self.hardware, self.paid, self.framework, self.global_batch, self.reserved_bytes))
        return found if self.table.apart else replace(found, hides_gradients=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is assumed besides what the table's file was read as."""
        return (*self.table.notes, *self._assumed(), *self.table.warnings)

    def _assumed(self) -> Iterator[str]:
        devices = self.hardware.device.name
        if self.table.device and self.table.device.lower() not in devices.lower():
            yield f"measured on {self.table.device}; the devices of the cluster are {devices}"
        figures = [row.figures for row in self.table.rows]
        if any(each.weight_bytes is not None for each in figures):
            yield f"weights in bytes are taken as the recipe's, {self.paid.weights:g} bytes of a parameter (--recipe)"
        if any(each.memory_bytes is not None for each in figures):
            what = f"what a layer keeps is its memory less {self.paid.total:g} bytes of a parameter"
            yield f"{what}, the state under recipe {self.paid.name}; that counts as kept what is in use for a moment"
        if not self.table.apart:
            yield (
                "both passes are timed together: gradients are taken to hide behind neither, nothing is computed again"
            )
        if any(row.point.tensor > 1 and row.figures.exchanged_bytes is None for row in self.table.rows):
            yield "times at tensor widths above 1 are taken to contain what the ranks exchange, wherever they stand"


@dataclass(frozen=True, slots=True)
class _Trained:
    """What decides about an iteration besides the layers, as `nest.runs.training.Trained` asks for it."""

    hardware: Hardware
    recipe: Recipe
    framework: Framework
    global_batch: int
    reserved_bytes: int
    cut_experts: bool = True


@dataclass(frozen=True)
class PosedTable:
    """A table of layers as a problem.

    Parameters
    ----------
    run, problem
        What was asked, and what it comes to.
    tried
        How much of the space an answer to the problem is about: what was not measured is not tried.
    """

    run: TableRun
    problem: Problem
    tried: Tried


def table_problem(run: TableRun) -> PosedTable:
    """Return the problem of measured layers under preset ``default``, a variant for each point of the table.

    Layers may compute all again, for which they keep their input alone. A point that was measured in part only is left
    out, and so is one whose microbatch does not divide the batch, or whose groups do not nest with the network.

    Raises
    ------
    InvalidProblem
        If no point is left, or the recipe holds more than the memory of a layer.
    """
    left = [LeftOut(str(point), why, possible=True) for point, why in run.table.missing.items()]
    graphs: dict[Variant, LayerGraph] = {}
    for point in run.table.complete:
        why = _unfit(point, run)
        if why:
            left.append(LeftOut(str(point), why))
        else:
            graphs[Variant(point.tensor, microbatch=point.microbatch)] = table_graph(run, point)
    if not graphs:
        what, remedy = (
            f"no row can be planned with; {left[-1]}",
            "measure others, or change --cluster or --global-batch",
        )
        raise InvalidProblem("", what, remedy, run.table.source)
    _check_choices(run, graphs)
    return PosedTable(run, _problem(run, graphs), Tried((*left, *_once(run)), run.reserve))


def _check_choices(run: TableRun, graphs: Mapping[Variant, LayerGraph]) -> None:
    """Refuse choices that leave nothing of the table: widths that were not measured, or a recomputation of no layer."""
    choices, source = run.choices, run.table.source
    allowed = [variant for variant in graphs if choices.admits(variant)]
    if not allowed:
        missing = "; ".join(f"{point}: {why}" for point, why in run.table.missing.items())
        what = "none of the measured widths and microbatches is allowed" + (f" ({missing})" if missing else "")
        raise InvalidProblem("choices", what, f"measured are {'; '.join(map(str, run.table.complete))}", source)
    again = choices.stage_recompute
    if again is not None and not any({"none", *graphs[variant].recomputes} & again for variant in allowed):
        what = f"{' or '.join(sorted(again))}: no layer of the table can; they compute all again, or none"
        raise InvalidProblem("recompute", what, "leave it out", source)


def _problem(run: TableRun, graphs: Mapping[Variant, LayerGraph]) -> Problem:
    preset = preset_of(run.choices)
    name = f"{run.table.name} on {run.hardware.cluster.name}"
    source = run.table.source
    made = Problem(name, graphs, run.hardware.cluster, run.training, run.choices, preset, source=source)
    if preset is not DEFAULT:
        require_apart(run.table, preset.name)
    return made


def require_apart(table: LayerTable, preset: str) -> None:
    """Refuse a table under a preset that plays both passes where it times them together; raises `InvalidProblem`."""
    if not table.apart:
        what = f"forward and backward passes are timed together, and preset {preset!r} plays them apart"
        raise InvalidProblem("", what, "give forward_ms and backward_ms, or take preset 'default'", table.source)


def _once(run: TableRun) -> Iterator[LeftOut]:
    """Yield what no table says."""
    if not run.table.apart and run.choices.stage_recompute != frozenset({"none"}):
        yield LeftOut("recompute full", "forward passes are not timed by themselves")


def _unfit(point: Point, run: TableRun) -> str:
    """Return why the layers of a point make no variant."""
    devices = run.hardware.cluster.devices
    if point.tensor > devices:
        return f"the cluster has {devices} devices"
    if run.global_batch % point.microbatch:
        return f"it does not divide the batch of {run.global_batch}"
    layer = LayerGraph((Layer(0, 0.0, 0.0, 0, 0),), ())
    variant = Variant(point.tensor, microbatch=point.microbatch)
    pair = Problem("", {variant: layer}, run.hardware.cluster, run.training, preset=DEFAULT).unnested(variant)
    return "" if pair is None else f"groups of {pair[0]} devices do not nest with the network's of {pair[1]}"


def table_graph(run: TableRun, point: Point) -> LayerGraph:
    """Return the layers of a point, each as often as it follows itself."""
    rows = run.table.at(point)
    names = _ids(rows)
    inputs = _inputs(run.table, rows)
    layers: list[Layer] = []
    for row, entering, own in zip(rows, inputs, names, strict=True):
        layer = _layer(run, row, entering)
        layers += [layer.named(name) for name in own]
    last = rows[-1].figures.output_bytes
    if run.framework.buffers_boundaries and last:
        layers[-1] = replace(layers[-1], result_bytes=last)
    return LayerGraph.sort(layers, _edges(run, rows, names))


def _layer(run: TableRun, row: TableRow, entering: int | None) -> Layer:
    figures, weights = row.figures, _weights(run, row)
    kept, working = _kept(run, row, weights), figures.working_bytes or 0
    if figures.together_s is not None:
        return Layer(row.name, 0.0, figures.together_s, weights, kept, row.kind, working_bytes=working)
    assert figures.forward_s is not None, "the table is whole"
    assert figures.backward_s is not None, "the table is whole"
    again: tuple[Recomputed, ...] = ()
    if row.repeats and entering is not None and entering < kept:
        repeated = _exchanged(row, "recompute")
        again = (Recomputed("full", figures.forward_s, entering, working + kept - entering, repeated),)
    return Layer(
        row.name,
        figures.forward_s,
        figures.backward_s,
        weights,
        kept,
        row.kind,
        working_bytes=working,
        collectives=(*_exchanged(row, "forward"), *_exchanged(row, "backward")),
        recomputed=again,
    )


def _weights(run: TableRun, row: TableRow) -> int:
    if row.figures.weight_bytes is not None:
        return row.figures.weight_bytes
    assert row.figures.parameters is not None, "the table is whole"
    return ceil(run.paid.weights * row.figures.parameters)


def _kept(run: TableRun, row: TableRow, weights: int) -> int:
    """Return what a layer keeps: what was measured, or what the state leaves of all its memory."""
    if row.figures.kept_bytes is not None:
        return row.figures.kept_bytes
    assert row.figures.memory_bytes is not None, "the table is whole"
    state = ceil(weights * run.paid.total / run.paid.weights)
    if state > row.figures.memory_bytes:
        what = f"layer {row.name!r} at {row.point} has {row.figures.memory_bytes} bytes of memory in all"
        what = f"{what}, and its state under recipe {run.paid.name} takes {state}"
        remedy = "give another --recipe, or the weights of one device where these are of whole layers"
        raise InvalidProblem(row.where, what, remedy, run.table.source)
    return row.figures.memory_bytes - state


def _exchanged(row: TableRow, when: Pass) -> tuple[Collective, ...]:
    """Return what the tensor ranks all-reduce in a pass."""
    if row.point.tensor == 1 or not row.figures.exchanged_bytes:
        return ()
    return (Collective("all-reduce", row.figures.exchanged_bytes, "tensor", when),)


def _inputs(table: LayerTable, rows: Sequence[TableRow]) -> list[int | None]:
    """Return what each layer is given: as measured, else what the layers before it send; None where nobody says."""
    sent: list[list[int | None]] = [[] for _ in rows]
    for source, target in _pairs(table, rows):
        sent[target].append(rows[source].figures.output_bytes)
    return [
        row.figures.input_bytes if row.figures.input_bytes is not None else _sum(sent[at])
        for at, row in enumerate(rows)
    ]


def _sum(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _pairs(table: LayerTable, rows: Sequence[TableRow]) -> Sequence[tuple[int, int]]:
    return [(at, at + 1) for at in range(len(rows) - 1)] if table.edges is None else table.edges


def _ids(rows: Sequence[TableRow]) -> list[list[str]]:
    """Return the names of the layers of each row, with a number where a row is of several, or a name comes again."""
    taken: set[str] = set()
    found = []
    for row in rows:
        own: list[str] = []
        for at in range(row.count):
            name, again = row.name if row.count == 1 else f"{row.name}.{at + 1}", 1
            while name in taken:
                again += 1
                name = f"{row.name}@{again}"
            taken.add(name)
            own.append(name)
        found.append(own)
    return found


def _edges(run: TableRun, rows: Sequence[TableRow], names: Sequence[Sequence[str]]) -> Iterator[Edge]:
    """Yield what goes from layer to layer; nothing is sent where the framework hides it behind computation."""
    for row, own in zip(rows, names, strict=True):
        size = _sent(run, row)
        yield from (Edge(*pair, size) for pair in pairwise(own))
    for source, target in _pairs(run.table, rows):
        yield Edge(names[source][-1], names[target][0], _sent(run, rows[source]))


def _sent(run: TableRun, row: TableRow) -> int:
    return 0 if run.framework.hides_transfers else row.figures.output_bytes or 0
