"""What is lost by planning on levels: the plan that is best on them, priced on the network as it is wired.

On at most 16 devices every plan with equal stages is tried: replicas x stages x tensor width, on levels in the order of
the line, and on the exact pairs in every order of the devices. Up to `EVERY_ORDER` devices all orders are tried; above,
the optimum lies between a bound (every transfer takes the cheapest pair) and the best order that a local search finds.

The model: equal layers; each sums its activations over the tensor width twice a pass (rings), hands them to the next
stage, and sums its gradients over the replicas once. An iteration takes (microbatches of a replica + stages - 1) x the
slowest stage + the slowest synchronisation, as in the preset `paper`; transfers do not disturb each other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from nest.hardware import Torus
from nest.networks import Levelling, Network, Pairwise, fat_tree, grid, level_network, pairwise, ring
from nest.units import Floats, Ints

EVERY_ORDER = 9
SWEEPS = 6
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
    """A plan without its devices."""

    replicas: int
    stages: int
    width: int

    @property
    def blocks(self) -> Ints:
        """Places on the line by replica, stage, and place in the block."""
        count = self.replicas * self.stages * self.width
        return np.arange(count).reshape(self.replicas, self.stages, self.width)


@dataclass(frozen=True, slots=True)
class Row:
    """One network under one load; times in seconds, shares above 0."""

    network: str
    load: str
    devices: int
    shape: str
    repriced_s: float
    best_s: float
    bound_s: float
    worst_shape: float

    @property
    def gap(self) -> float:
        """By how much the levelled optimum exceeds the best that was found."""
        return self.repriced_s / self.best_s - 1

    @property
    def most(self) -> float:
        """By how much it exceeds the bound."""
        return self.repriced_s / self.bound_s - 1


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
        Shape(replicas, stages, width)
        for replicas in counts
        for stages in counts
        for width in counts
        if replicas * stages * width <= devices and replicas <= load.microbatches and load.layers % stages == 0
    ]


def price(shape: Shape, load: Load, pairs: Pairwise, orders: Ints) -> Floats:
    """Return the time of a plan in seconds, for each order of the devices (one row each)."""
    blocks = shape.blocks
    depth = load.layers // shape.stages
    compute = depth * load.layer_s / shape.width
    part = load.activation_bytes / shape.width
    ring_s = _slowest(pairs, orders, blocks, np.roll(blocks, -1, axis=2), part) if shape.width > 1 else 0.0
    hop_s = _slowest(pairs, orders, blocks[:, :-1], blocks[:, 1:], part) if shape.stages > 1 else 0.0
    gradients = depth * load.gradient_bytes / shape.width / shape.replicas
    sync_s = _slowest(pairs, orders, blocks, np.roll(blocks, -1, axis=0), gradients) if shape.replicas > 1 else 0.0
    rounds = -(-load.microbatches // shape.replicas) + shape.stages - 1
    busy = compute + depth * 4 * 2 * (shape.width - 1) * ring_s + 2 * hop_s
    return np.broadcast_to(rounds * busy + 2 * (shape.replicas - 1) * sync_s, len(orders))


def measure(network: Network, load: Load) -> Row:
    """Return the row of a network under a load."""
    exact = pairwise(network)
    levelling = level_network(network, 1, shared=False, message_bytes=int(load.activation_bytes))
    plans = shapes(len(network.devices), load)
    line = np.array([[exact.names.index(name) for name in levelling.order]])
    levels, own = levelled(levelling), np.arange(len(network.devices))[None, :]
    chosen = min(plans, key=lambda plan: float(price(plan, load, levels, own)[0]))
    repriced = {plan: float(price(plan, load, exact, line)[0]) for plan in plans}
    best = {plan: _best(plan, load, exact, line) for plan in plans}
    cheapest = _cheapest(exact)
    bound = min(float(price(plan, load, cheapest, own)[0]) for plan in plans)
    found = min(best.values())
    small = len(network.devices) <= EVERY_ORDER
    return Row(
        network.name,
        load.name,
        len(network.devices),
        f"{chosen.replicas} x {chosen.stages} x {chosen.width}",
        repriced[chosen],
        found,
        found if small else bound,
        max(repriced[plan] / best[plan] for plan in plans) - 1,
    )


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
        "| Network | Load | Best plan on levels | Priced exactly | True optimum | Gap | Worst shape |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        true = f"{row.best_s:.4g} s" if row.bound_s == row.best_s else f"{row.bound_s:.4g} to {row.best_s:.4g} s"
        gap = f"{row.gap:.1%}" if row.bound_s == row.best_s else f"{row.gap:.1%} to {row.most:.1%}"
        cells = (row.network, row.load, row.shape, f"{row.repriced_s:.4g} s", true, gap, f"{row.worst_shape:.1%}")
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
    print(table(rows))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def _slowest(pairs: Pairwise, orders: Ints, ones: Ints, others: Ints, size_bytes: float) -> Floats:
    """Return the time of the slowest of some transfers, given by places on the line, for each order."""
    seconds = pairs.seconds(size_bytes)
    slowest = np.zeros(len(orders))
    for one, other in zip(ones.ravel(), others.ravel(), strict=True):
        np.maximum(slowest, seconds[orders[:, one], orders[:, other]], out=slowest)
    return slowest


def _best(shape: Shape, load: Load, exact: Pairwise, line: Ints) -> float:
    """Return the least price of a plan over the orders of the devices: all of them, or by a local search."""
    if len(exact.names) <= EVERY_ORDER:
        return float(price(shape, load, exact, _orders(len(exact.names))).min())
    order, least = line[0], float(price(shape, load, exact, line)[0])
    for _ in range(SWEEPS):
        tried = _swaps(order)
        prices = price(shape, load, exact, tried)
        at = int(prices.argmin())
        if prices[at] >= least:
            break
        order, least = tried[at], float(prices[at])
    rows = np.arange(len(order))
    return min(least, *(float(price(shape, load, exact, start)[0]) for start in (rows[None, :], _snake(rows)[None, :])))


def _orders(devices: int) -> Ints:
    return np.array(list(permutations(range(devices))))


def _swaps(order: Ints) -> Ints:
    """Return all orders that differ by an exchange of two devices."""
    low, high = np.triu_indices(len(order), 1)
    tried = np.repeat(order[None, :], len(low), axis=0)
    row = np.arange(len(low))
    tried[row, low], tried[row, high] = order[high], order[low]
    return tried


def _snake(rows: Ints) -> Ints:
    """Return a square grid row by row, every second row backwards."""
    grid_rows = rows.reshape(4, -1).copy()
    grid_rows[1::2] = grid_rows[1::2, ::-1]
    return grid_rows.ravel()


def _cheapest(exact: Pairwise) -> Pairwise:
    """Return a network on which every pair is as good as the best one."""
    apart = ~np.eye(len(exact.names), dtype=bool)
    bandwidth = np.full_like(exact.bandwidth_bytes_per_s, exact.bandwidth_bytes_per_s[apart].max())
    return Pairwise(exact.names, bandwidth, np.full_like(bandwidth, exact.latency_s[apart].min()))


if __name__ == "__main__":
    main()
