"""What is lost by planning on levels: the plan that is best on them, priced on the network as it is wired.

On at most 16 devices every plan with equally wide stages is tried: replicas x stages x tensor width, on levels in both
arrangements on the line, and on the exact pairs with every rank on any device. The exact optimum is proven: prices grow
with the slowest transfer of each kind, so combinations of slowest transfers are tried from the cheapest on, until one
can be laid onto the network (`embedding`); none that is cheaper can.

The model: equal layers; each sums its activations over the tensor width twice a pass (rings), hands them to the next
stage, and sums its gradients over the replicas once. An iteration takes (microbatches of a replica + stages - 1) x the
slowest stage + the slowest synchronisation, as in the preset `paper`; transfers do not disturb each other. Stages have
as equal numbers of layers as can be, which is best where the largest stage decides.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import inf
from pathlib import Path

import numpy as np
from embedding import Pattern, fits, orbits, within

from nest.hardware import Torus
from nest.networks import Levelling, Network, Pairwise, fat_tree, grid, level_network, pairwise, ring
from nest.units import Floats, Ints

EVERY_SHAPE = 9
"""With more devices only plans are looked at that could be the best."""

LINK_BYTES_PER_S, HOP_S = 25e9, 5e-6


@dataclass(frozen=True, slots=True)
class Load:
    """A model of equal layers: time and bytes of one on one device, and microbatches of an iteration."""

    name: str
    layer_s: float
    activation_bytes: float
    gradient_bytes: float
    layers: int = 16
    microbatches: int = 16


LOADS = (
    Load("large messages", 4e-3, 64e6, 400e6),
    Load("small messages", 1e-4, 64e3, 400e3),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A plan without its devices; ``stage_major`` says whether the replicas of a stage are neighbours on the line."""

    replicas: int
    stages: int
    width: int
    stage_major: bool = False

    @property
    def blocks(self) -> Ints:
        """Places on the line by replica, stage, and place in the block."""
        places = np.arange(self.replicas * self.stages * self.width)
        if self.stage_major:
            return places.reshape(self.stages, self.replicas, self.width).transpose(1, 0, 2)
        return places.reshape(self.replicas, self.stages, self.width)

    @property
    def pattern(self) -> Pattern:
        """Its transfers: rings of tensor parallel, between stages, rings of replicas."""
        blocks = self.blocks
        kinds = (
            (blocks, np.roll(blocks, -1, axis=2)) if self.width > 1 else None,
            (blocks[:, :-1], blocks[:, 1:]) if self.stages > 1 else None,
            (blocks, np.roll(blocks, -1, axis=0)) if self.replicas > 1 else None,
        )
        none = np.zeros((0, 2), dtype=int)
        pairs = tuple(none if ends is None else np.stack([end.ravel() for end in ends], axis=1) for ends in kinds)
        return Pattern(blocks.size, pairs)


@dataclass(frozen=True, slots=True)
class Row:
    """One network under one load; times in seconds, shares above 0."""

    network: str
    load: str
    devices: int
    shape: str
    repriced_s: float
    best_s: float
    best_shape: str
    worst_shape: float | None

    @property
    def gap(self) -> float:
        """By how much the levelled optimum exceeds the true one."""
        return self.repriced_s / self.best_s - 1


def networks() -> Iterator[Network]:
    """Yield the networks of the table."""
    figures = LINK_BYTES_PER_S, HOP_S
    trunk = (LINK_BYTES_PER_S, LINK_BYTES_PER_S / 2), (HOP_S, 3 * HOP_S)
    for name, network in (
        ("ring of 8", ring(8, *figures)),
        ("mesh 2x4", grid(Torus((2, 4), (False, False), *figures))),
        ("torus 3x3", grid(Torus((3, 3), (True, True), *figures))),
        ("fat tree 4x2", fat_tree((4, 2), *trunk)),
        ("ring of 16", ring(16, *figures)),
        ("mesh 4x4", grid(Torus((4, 4), (False, False), *figures))),
        ("torus 4x4", grid(Torus((4, 4), (True, True), *figures))),
        ("fat tree 4x4", fat_tree((4, 4), *trunk)),
    ):
        yield Network(network.devices, network.switches, network.links, network.forwarding, name)


def shapes(devices: int, load: Load) -> list[Shape]:
    """Return the plans that fit on so many devices; idle ones are allowed."""
    counts = range(1, devices + 1)
    return [
        Shape(replicas, stages, width, stage_major)
        for replicas, stages, width in product(counts, counts, counts)
        for stage_major in (False, True)[: 1 + (replicas > 1 and stages > 1)]
        if replicas * stages * width <= devices and replicas <= load.microbatches and stages <= load.layers
    ]


def sizes(shape: Shape, load: Load) -> tuple[float, float, float]:
    """Return the bytes of a transfer of each kind."""
    part = load.activation_bytes / shape.width
    return part, part, depth(shape, load) * load.gradient_bytes / shape.width / shape.replicas


def depth(shape: Shape, load: Load) -> int:
    """Return the layers of the largest stage."""
    return -(-load.layers // shape.stages)


def priced(shape: Shape, load: Load, slowest: Sequence[Floats | float]) -> Floats:
    """Return the time of a plan in seconds, given the slowest transfer of each kind."""
    ring_s, hop_s, sync_s = slowest
    layers = depth(shape, load)
    rounds = -(-load.microbatches // shape.replicas) + shape.stages - 1
    busy = layers * load.layer_s / shape.width + layers * 4 * 2 * (shape.width - 1) * ring_s + 2 * hop_s
    return np.asarray(rounds * busy + 2 * (shape.replicas - 1) * sync_s)


def price(shape: Shape, load: Load, pairs: Pairwise, order: Ints) -> float:
    """Return the time of a plan in seconds, whose places on the line are devices in that order."""
    slowest = []
    for ends, size_bytes in zip(shape.pattern.kinds, sizes(shape, load), strict=True):
        seconds = pairs.seconds(size_bytes)[order[ends[:, 0]], order[ends[:, 1]]]
        slowest.append(float(seconds.max(initial=0.0)))
    return float(priced(shape, load, slowest))


def optimum(shape: Shape, load: Load, pairs: Pairwise, below: float = inf) -> float:
    """Return the least time of a plan over all ways to give its ranks devices, or infinity if none is below a value."""
    pattern, seconds = shape.pattern, [pairs.seconds(size_bytes) for size_bytes in sizes(shape, load)]
    apart = ~np.eye(len(pairs.names), dtype=bool)
    steps = [
        np.unique(each[apart]) if len(ends) else np.zeros(1) for each, ends in zip(seconds, pattern.kinds, strict=True)
    ]
    prices = priced(shape, load, np.meshgrid(*steps, indexing="ij")).ravel()
    failed: list[tuple[int, ...]] = []
    starts = orbits(pairs.seconds(1.0))
    for at in np.argsort(prices, kind="stable"):
        if prices[at] >= below:
            break
        chosen = tuple(int(each) for each in np.unravel_index(at, [len(each) for each in steps]))
        if any(all(mine <= other for mine, other in zip(chosen, each, strict=True)) for each in failed):
            continue
        limits = [each[step] for each, step in zip(steps, chosen, strict=True)]
        if fits(pattern, [within(each, limit) for each, limit in zip(seconds, limits, strict=True)], starts):
            return float(prices[at])
        failed.append(chosen)
    return inf


def measure(network: Network, load: Load) -> Row:
    """Return the row of a network under a load."""
    exact = pairwise(network)
    levelling = level_network(network, 1, shared=False, message_bytes=int(load.activation_bytes))
    plans = shapes(len(network.devices), load)
    line = np.array([exact.names.index(name) for name in levelling.order])
    levels, own = levelled(levelling), np.arange(len(network.devices))
    chosen = min(plans, key=lambda plan: price(plan, load, levels, own))
    repriced = {plan: price(plan, load, exact, line) for plan in plans}
    free = [plan for plan in plans if not plan.stage_major]  # where ranks may be anywhere, arrangements are one
    found, best = chosen, repriced[chosen]
    for plan in sorted(free, key=lambda plan: repriced[plan]):
        least = optimum(plan, load, exact, best)
        found, best = (found, best) if least == inf else (plan, least)
    return Row(
        network.name,
        load.name,
        len(network.devices),
        spelt(chosen),
        repriced[chosen],
        best,
        spelt(found),
        _worst(free, load, exact, repriced) if len(network.devices) <= EVERY_SHAPE else None,
    )


def _worst(plans: Sequence[Shape], load: Load, exact: Pairwise, repriced: Mapping[Shape, float]) -> float:
    """Return by how much the better arrangement on the line exceeds the best places, where that is most."""
    lost = []
    for plan in plans:
        other = replace(plan, stage_major=True)
        lost.append(min(repriced[plan], repriced.get(other, inf)) / optimum(plan, load, exact))
    return max(lost) - 1


def spelt(shape: Shape) -> str:
    """Return a shape for people."""
    return f"{shape.replicas} x {shape.stages} x {shape.width}"


def levelled(levelling: Levelling) -> Pairwise:
    """Return what levels say that each pair costs, in the order of the line."""
    cluster = levelling.cluster
    places = np.arange(cluster.devices)
    spans = cluster.spans(places[:, None], places[None, :])
    bandwidth = np.array(cluster.path_bandwidths)[spans]
    latency_s = np.array([level.latency_s for level in cluster.levels])[spans]
    return Pairwise(levelling.order, bandwidth, latency_s)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [
        "| Network | Load | Best plan on levels | Priced exactly | True optimum | Its plan | Gap | Worst shape |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        worst = "-" if row.worst_shape is None else f"{row.worst_shape:.1%}"
        times = (f"{row.repriced_s:.4g} s", f"{row.best_s:.4g} s")
        cells = (row.network, row.load, row.shape, *times, row.best_shape, f"{row.gap:.1%}", worst)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """Return the options of the script."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--devices", type=int, default=16, help="leave out networks with more devices")
    options.add_argument("--json", type=Path, help="write the rows here, too")
    return options


def main() -> None:
    """Print the table."""
    asked = parser().parse_args()
    rows = [measure(network, load) for network in networks() for load in LOADS if len(network.devices) <= asked.devices]
    print(table(rows), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
