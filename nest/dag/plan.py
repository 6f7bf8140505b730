"""A plan on a graph with branches, and its price from the definition alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nest.dag.load import Load
from nest.dag.problem import DagEdge, DagProblem, DeviceClass, Option
from nest.errors import InvalidPlan
from nest.graph import LayerId


@dataclass(frozen=True, slots=True)
class DagStage:
    """Layers that share devices.

    Parameters
    ----------
    layers
        Ids.
    kind
        Class of devices.
    options
        Name of the option of each layer, in the order of ``layers``.
    width, replicas
        Devices of a replica, and how many replicas there are.

    Raises
    ------
    InvalidPlan
        If it has no layer, no device, or not one option for each layer.
    """

    layers: tuple[LayerId, ...]
    kind: str
    options: tuple[str, ...]
    width: int = 1
    replicas: int = 1

    def __post_init__(self) -> None:
        if not self.layers or len(self.options) != len(self.layers):
            what = f"{len(self.layers)} layers with {len(self.options)} options"
            raise InvalidPlan("stages", what, "give at least one layer, and an option for each")
        if self.width < 1 or self.replicas < 1:
            raise InvalidPlan("stages", f"{self.replicas} replicas of width {self.width}", "give whole numbers from 1")

    @property
    def devices(self) -> int:
        """How many devices it takes."""
        return self.width * self.replicas


@dataclass(frozen=True, slots=True)
class Price:
    """What a stage costs: its load in parts of a tick, and memory on each device in quanta."""

    load: int
    memory: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge says about a plan.

    Parameters
    ----------
    prices
        Of each stage.
    violations
        A line for each rule that the plan breaks: none where it is legal.
    """

    prices: tuple[Price, ...]
    violations: tuple[str, ...]

    @property
    def objective(self) -> int:
        """The largest load, in parts of a tick."""
        return max((price.load for price in self.prices), default=0)


def judge(problem: DagProblem, stages: tuple[DagStage, ...]) -> Verdict:
    """Price a plan by walking its stages, and name what is illegal about it.

    Raises
    ------
    InvalidPlan
        If it names a layer, a class of devices or an option that is not there.
    """
    load = Load(problem)
    kinds = {kind.name: kind for kind in problem.classes}
    chosen = [_chosen(problem, stage, kinds) for stage in stages]
    prices = []
    for at, stage in enumerate(stages):
        in_flight = _in_flight(stages, at)
        busy = _load(load, stage, chosen[at], kinds[stage.kind])
        prices.append(Price(busy, sum(load.memory(option, in_flight) for option in chosen[at].values())))
    return Verdict(tuple(prices), tuple(_violations(load, stages, kinds, prices)))


def _chosen(problem: DagProblem, stage: DagStage, kinds: Mapping[str, DeviceClass]) -> dict[LayerId, Option]:
    if stage.kind not in kinds:
        raise InvalidPlan("stages", f"{stage.kind!r} is no class of devices", f"name one of {', '.join(kinds)}")
    chosen = {}
    for layer, name in zip(stage.layers, stage.options, strict=True):
        if layer not in problem.index:
            raise InvalidPlan("stages", f"there is no layer {layer!r}", "name layers of the problem")
        options = problem.layers[problem.index[layer]].options.get((stage.kind, stage.width), ())
        found = [option for option in options if option.name == name]
        if not found:
            what = f"layer {layer!r} has no option {name!r} at width {stage.width} on {stage.kind}"
            raise InvalidPlan("stages", what, "choose one of its options")
        chosen[layer] = found[0]
    return chosen


def _in_flight(stages: tuple[DagStage, ...], at: int) -> int:
    """Return the microbatches that a replica keeps: those of all replicas from here on, spread over its own."""
    return -(-sum(stage.replicas for stage in stages[at:]) // stages[at].replicas)


def _load(load: Load, stage: DagStage, chosen: Mapping[LayerId, Option], kind: DeviceClass) -> int:
    ticks = sum(load.option_ticks(option) for option in chosen.values())
    if kind.pays_transfers:
        ticks += sum(_transfers(load, chosen))
    resync = sum(load.resync_parts(option, stage.replicas) for option in chosen.values())
    return load.parts // stage.replicas * ticks + resync


def _transfers(load: Load, chosen: Mapping[LayerId, Option]) -> Iterator[int]:
    """Yield the time of everything that crosses the border of a stage."""
    problem = load.problem
    if problem.preset.transfers == "each edge":
        for edge in problem.edges:
            if edge.target in chosen and edge.source not in chosen:
                yield load.edge_ticks(edge, chosen[edge.target].sync_in.get(edge.source, 0))
            elif edge.source in chosen and edge.target not in chosen:
                yield load.edge_ticks(edge, chosen[edge.source].sync_out.get(edge.target, 0))
        return
    reached: dict[LayerId, set[LayerId]] = defaultdict(set)
    first: dict[LayerId, DagEdge] = {}
    for edge in problem.edges:
        reached[edge.source] |= {edge.source, edge.target}
        first.setdefault(edge.source, edge)
    for source, layers in reached.items():
        if 0 < sum(layer in chosen for layer in layers) < len(layers):
            yield load.edge_ticks(first[source])


def _violations(
    load: Load, stages: tuple[DagStage, ...], kinds: Mapping[str, DeviceClass], prices: list[Price]
) -> Iterator[str]:
    problem = load.problem
    stage_of = {layer: at for at, stage in enumerate(stages) for layer in stage.layers}
    held = Counter(layer for stage in stages for layer in stage.layers)
    yield from (f"layer {layer.id!r} is in {held[layer.id]} stages" for layer in problem.layers if held[layer.id] != 1)
    by_colour = defaultdict(set)
    for at, layer in enumerate(problem.layers):
        by_colour[problem.colour(at)].add(stage_of.get(layer.id))
    yield from (
        f"colour {colour[1]!r} is in stages {sorted(map(str, at))}" for colour, at in by_colour.items() if len(at) > 1
    )
    for before, after in problem.arcs:
        first, second = problem.layers[before].id, problem.layers[after].id
        if stage_of.get(first, -1) > stage_of.get(second, len(stages)):
            yield f"layer {first!r} is in a later stage than {second!r}"
    for kind in kinds.values():
        used = sum(stage.devices for stage in stages if stage.kind == kind.name)
        if used > kind.count:
            yield f"{used} devices of class {kind.name}, of which there are {kind.count}"
    for at, (stage, price) in enumerate(zip(stages, prices, strict=True)):
        most = kinds[stage.kind].memory_bytes
        if most is not None and price.memory > load.capacity(most):
            yield f"stage {at} needs {price.memory / load.bytes_scale:.0f} bytes, a device has {most}"
        if stage.replicas not in load.degrees or (stage.width > 1 and not problem.preset.replicas):
            yield f"stage {at} has {stage.replicas} replicas of width {stage.width}"
    if problem.preset.replicas and sum(stage.replicas for stage in stages) > problem.microbatches:
        yield f"more replicas in all than the {problem.microbatches} microbatches"
