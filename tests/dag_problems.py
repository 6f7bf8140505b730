"""Random small graphs with branches, and the best of all ways to cut them, by trying each.

The oracle shares nothing with the solver or the judge but the data classes: it walks subsets of layers, and prices them
from `docs/dags.md` in exact fractions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import TypeAlias

from nest.dag import DNN_PARTITIONING, PIPER, DagEdge, DagLayer, DagProblem, DeviceClass, Option
from nest.graph import LayerId
from nest.units import Number

Exchanged: TypeAlias = dict[LayerId, Number]


def random_split(seed: int) -> DagProblem:
    """Return a problem with stages of one device: two classes of devices, colours, a backward pass, tight memory."""
    draw = random.Random(seed)
    forward = draw.randint(1, 6)
    layers = [_split_layer(draw, at, backward=False, colour=None) for at in range(forward)]
    if draw.random() < 0.3 and forward > 1:
        one, other = draw.sample(range(forward), 2)
        layers[one], layers[other] = (_coloured(layers[at], "shared") for at in (one, other))
    ends = _random_ends(draw, range(forward))
    if draw.random() < 0.5:
        ends += _backward_pass(draw, layers)
    costs = {layer.id: draw.choice([0, 1, 2, 5]) for layer in layers}
    edges = [DagEdge(source, target, costs[source]) for source, target in ends]
    total = sum(max(option[0].fixed_bytes for option in layer.options.values()) for layer in layers if layer.options)
    memory = draw.choice([None, max(1, total), max(1, int(total) // 2), max(1, int(total) // 3)])
    processors = draw.choice([0, 1, 1, 2])
    accelerators = draw.randint(0 if processors else 1, 4 - processors)
    classes = (DeviceClass("accelerator", accelerators, memory), DeviceClass("cpu", processors, None, False))
    return DagProblem(f"split {seed}", DNN_PARTITIONING, tuple(layers), tuple(edges), classes)


def random_chain_of_towers(seed: int) -> DagProblem:
    """Return a problem of two towers between a first and a last layer, with three or four equal devices."""
    draw = random.Random(seed)
    count = draw.randint(6, 8)
    layers = tuple(DagLayer(at, {("device", 1): (Option("only", draw.randint(1, 9), 1),)}) for at in range(count))
    ends = [
        (0, 1),
        (0, 2),
        *((at, at + 2) for at in range(1, count - 3)),
        (count - 3, count - 1),
        (count - 2, count - 1),
    ]
    costs = [draw.choice([0, 1, 2]) for _ in layers]
    edges = tuple(DagEdge(source, target, costs[source]) for source, target in ends)
    device = DeviceClass("device", draw.randint(3, 4), draw.choice([None, 3]))
    return DagProblem(f"towers {seed}", DNN_PARTITIONING, layers, edges, (device,))


def _split_layer(draw: random.Random, name: int, *, backward: bool, colour: int | None) -> DagLayer:
    light, size = draw.random() < 0.3, draw.choice([0, 1, 3])
    times = {"accelerator": 0 if light else draw.randint(0, 6), "cpu": 0 if light else draw.randint(0, 20)}
    options = {(kind, 1): (Option(kind, time, size),) for kind, time in times.items()}
    if draw.random() < 0.1:
        del options["accelerator", 1]
    return DagLayer(name, options, colour, backward)


def _coloured(layer: DagLayer, colour: str) -> DagLayer:
    return replace(layer, colour=colour)


def _random_ends(draw: random.Random, places: range) -> list[tuple[int, int]]:
    return [pair for pair in combinations(places, 2) if draw.random() < 0.45]


def _backward_pass(draw: random.Random, layers: list[DagLayer]) -> list[tuple[int, int]]:
    """Add a few backward layers, some without a forward layer of their colour, and edges to them."""
    forward = len(layers)
    for at in range(draw.randint(1, 2)):
        host = draw.randrange(forward)
        colour = layers[host].colour
        if colour is None and draw.random() < 0.6:
            colour = f"of {host}"
            layers[host] = _coloured(layers[host], colour)
        elif draw.random() < 0.5:
            colour = None
        layers.append(_split_layer(draw, forward + at, backward=True, colour=None))
        layers[-1] = layers[-1] if colour is None else _coloured(layers[-1], str(colour))
    ends = [(draw.randrange(forward), at) for at in range(forward, len(layers)) if draw.random() < 0.7]
    return ends + [pair for pair in combinations(range(forward, len(layers)), 2) if draw.random() < 0.4]


def random_replicated(seed: int, *, options: int = 2) -> DagProblem:
    """Return a problem whose stages have replicas and widths; exchanges differ between options in some."""
    draw = random.Random(seed)
    count = draw.randint(1, 6)
    ends = _random_ends(draw, range(count))
    own = draw.random() < 0.4
    layers = []
    for at in range(count):
        given = {}
        for width in [1, 2] if draw.random() < 0.6 else [1]:
            shared = _exchanges(draw, ends, at)
            given["device", width] = tuple(
                Option(
                    f"option {number}",
                    draw.randint(0, 9),
                    draw.randint(0, 5),
                    draw.randint(0, 4),
                    draw.choice([0, 6, 12]) if own else 6,
                    *(_exchanges(draw, ends, at) if own else shared),
                )
                for number in range(draw.randint(1, options))
            )
        layers.append(DagLayer(at, given, draw.choice([None, None, "shared"]), backward=False))
    if draw.random() < 0.3:
        first = draw.randrange(count)
        layers[first:] = [replace(layer, backward=True) for layer in layers[first:]]
    edges = [DagEdge(source, target, draw.choice([0, 2, 4])) for source, target in ends]
    memory = draw.choice([None, 12, 20, 40])
    device = DeviceClass("device", draw.randint(1, 4), memory)
    microbatches = draw.choice([1, 2, 4, 6])
    return DagProblem(
        f"replicated {seed}", PIPER, tuple(layers), tuple(edges), (device,), draw.choice([1.0, 2.0]), microbatches
    )


def random_tight(seed: int) -> DagProblem:
    """Return a problem of two devices, on which most layers have to take smaller and slower options."""
    draw = random.Random(seed)
    count = draw.randint(4, 6)
    layers = []
    for at in range(count):
        sizes = sorted((draw.randint(0, 30) for _ in range(draw.randint(2, 3))), reverse=True)
        times = sorted(draw.randint(0, 30) for _ in sizes)
        pairs = enumerate(zip(times, sizes, strict=True))
        options = tuple(Option(f"option {number}", time, size) for number, (time, size) in pairs)
        layers.append(DagLayer(at, {("device", 1): options}))
    edges = tuple(DagEdge(*ends, draw.choice([0, 3])) for ends in _random_ends(draw, range(count)))
    memory = draw.randint(10, 12 * count)
    return DagProblem(f"tight {seed}", PIPER, tuple(layers), edges, (DeviceClass("device", 2, memory),), 1.0, 2)


def random_wide(seed: int) -> DagProblem:
    """Return a problem of up to eight devices, where fewer replicas may be worth more devices."""
    draw = random.Random(seed)
    count = draw.randint(2, 4)
    layers = []
    for at in range(count):
        given = {
            ("device", width): (
                Option("only", draw.randint(4, 30) / draw.choice([1, 2]), draw.randint(0, 3), draw.randint(1, 8)),
            )
            for width in (1, 4)
        }
        layers.append(DagLayer(at, given))
    edges = tuple(DagEdge(*ends, 1) for ends in _random_ends(draw, range(count)))
    device = DeviceClass("device", draw.randint(5, 8), draw.randint(6, 30))
    return DagProblem(f"wide {seed}", PIPER, tuple(layers), edges, (device,), 4.0, 8)


def _exchanges(draw: random.Random, ends: list[tuple[int, int]], at: int) -> tuple[Exchanged, Exchanged]:
    into: Exchanged = {source: draw.choice([0, 2]) for source, target in ends if target == at}
    out: Exchanged = {target: draw.choice([0, 2]) for source, target in ends if source == at}
    return into, out


def oracle(problem: DagProblem) -> Fraction | None:
    """Return the least largest load of all plans, None where there is none."""
    return _best_replicated(problem) if problem.preset is PIPER else _best_split(problem)


def _best_split(problem: DagProblem) -> Fraction | None:
    everything = frozenset(layer.id for layer in problem.layers)

    @cache
    def best(done: frozenset[object], left: tuple[int, ...]) -> Fraction | None:
        if done == everything:
            return Fraction(0)
        values = []
        for stage in _next_stages(problem, done):
            for number, kind in enumerate(problem.classes):
                load = _split_load(problem, stage, kind) if left[number] else None
                if load is not None:
                    fewer = tuple(count - (at == number) for at, count in enumerate(left))
                    rest = best(done | stage, fewer)
                    values += [] if rest is None else [max(load, rest)]
        return min(values, default=None)

    return best(frozenset(), tuple(kind.count for kind in problem.classes))


def _next_stages(problem: DagProblem, done: frozenset[object]) -> Iterator[frozenset[object]]:
    """Yield every set of layers that may be the next stage."""
    left = [layer.id for layer in problem.layers if layer.id not in done]
    for size in range(1, len(left) + 1):
        yield from filter(lambda stage: _may_follow(problem, done, stage), map(frozenset, combinations(left, size)))


def _may_follow(problem: DagProblem, done: frozenset[object], stage: frozenset[object]) -> bool:
    """Whether a stage holds whole colours, and nothing before its layers is left after it."""
    forward: dict[object, bool] = {layer.id: not layer.backward for layer in problem.layers}
    colour: dict[object, object] = {
        layer.id: layer.id if layer.colour is None else ("colour", layer.colour) for layer in problem.layers
    }
    anchored = {colour[name] for name in forward if forward[name]}
    held = done | stage
    if any(colour[one] == colour[other] for one in stage for other in forward if other not in stage):
        return False
    for edge in problem.edges:
        first, second = edge.source, edge.target
        if forward[first] != forward[second]:
            continue
        if not forward[first]:
            if {colour[first], colour[second]} <= anchored:
                continue
            first, second = second, first
        if second in held and first not in held:
            return False
    return True


def _split_load(problem: DagProblem, stage: frozenset[object], kind: DeviceClass) -> Fraction | None:
    layers = [layer for layer in problem.layers if layer.id in stage]
    if any((kind.name, 1) not in layer.options for layer in layers):
        return None
    options = [layer.options[kind.name, 1][0] for layer in layers]
    if kind.memory_bytes is not None and sum(option.fixed_bytes for option in options) > kind.memory_bytes:
        return None
    load = Fraction(sum(Fraction(option.time) for option in options))
    if not kind.pays_transfers:
        return load
    for layer in problem.layers:
        reach = {layer.id} | {edge.target for edge in problem.edges if edge.source == layer.id}
        cost = next((edge.cost for edge in problem.edges if edge.source == layer.id), 0)
        if reach & stage and reach - stage:
            load += Fraction(cost)
    return load


def _best_replicated(problem: DagProblem) -> Fraction | None:
    everything = frozenset(layer.id for layer in problem.layers)
    devices, most = problem.classes[0].count, min(problem.classes[0].count, problem.microbatches)

    @cache
    def best(left: frozenset[object], used: int, replicas: int) -> Fraction | None:
        """Place what is left, in front of stages that have so many devices and replicas."""
        if not left:
            return Fraction(0)
        values = []
        for size in range(1, len(left) + 1):
            for chosen in combinations(sorted(left, key=str), size):
                stage = frozenset(chosen)
                if not _may_follow(problem, left - stage, stage):
                    continue
                for width, degree in product((1, 2, 4), range(1, most + 1)):
                    if problem.microbatches % degree or used + width * degree > devices or replicas + degree > most:
                        continue
                    in_flight = -(-(replicas + degree) // degree)
                    load = _replicated_load(problem, stage, width, degree, in_flight)
                    if load is not None:
                        rest = best(left - stage, used + width * degree, replicas + degree)
                        values += [] if rest is None else [max(load, rest)]
        return min(values, default=None)

    return best(everything, 0, 0)


def _replicated_load(
    problem: DagProblem, stage: frozenset[object], width: int, degree: int, in_flight: int
) -> Fraction | None:
    layers = [layer for layer in problem.layers if layer.id in stage]
    loads = []
    for chosen in product(*(layer.options.get(("device", width), ()) for layer in layers)):
        memory = sum(option.in_flight_bytes * in_flight + option.fixed_bytes for option in chosen)
        most = problem.classes[0].memory_bytes
        if most is not None and memory > most:
            continue
        option_of = {layer.id: option for layer, option in zip(layers, chosen, strict=True)}
        cut = Fraction(0)
        for edge in problem.edges:
            if edge.target in stage and edge.source not in stage:
                cut += Fraction(edge.cost) + Fraction(option_of[edge.target].sync_in.get(edge.source, 0))
            if edge.source in stage and edge.target not in stage:
                cut += Fraction(edge.cost) + Fraction(option_of[edge.source].sync_out.get(edge.target, 0))
        bandwidth = Fraction(problem.bandwidth)
        load = (sum(Fraction(option.time) for option in chosen) + 2 * cut / bandwidth) / degree
        weights = sum(Fraction(option.parameter_bytes) for option in chosen)
        loads.append(load + 4 * (degree - 1) * weights / (degree * problem.microbatches * bandwidth))
    return min(loads, default=None)
