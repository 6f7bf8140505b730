"""Formulas of collectives against the messages of which they consist, on a levelled network."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from math import sqrt

import pytest
from group_networks import CLOSE, cluster_of, dgx, network_of, only, placed
from hypothesis import given

from nest.cluster import Cluster
from nest.cost.algorithms import Kind
from nest.cost.alpha_beta import collective
from nest.cost.groups import Group


class Wires:
    """Devices that send one message at a time at each level, at the level's bandwidth; latency is on the way."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.free = cluster, Counter[tuple[int, int]]()

    def send(self, ready: float, source: int, target: int, size: float) -> float:
        """Return when a message arrives."""
        level = self.cluster.span(source, target)
        sent = max(ready, self.free[source, level]) + size / self.cluster.path_bandwidths[level]
        self.free[source, level] = sent  # type: ignore[assignment]
        return sent + self.cluster.levels[level].latency_s


def rings(wires: Wires, orders: Sequence[Sequence[int]], piece: float, steps: int, start: float = 0.0) -> float:
    """Return when rings end in which all pass a piece to the next, as soon as they have the one before."""
    waiting = [(start, 0, ring, at) for ring, order in enumerate(orders) for at in range(len(order))]
    end = start
    while waiting:
        ready, step, ring, at = heapq.heappop(waiting)
        following = (at + 1) % len(orders[ring])
        arrived = wires.send(ready, orders[ring][at], orders[ring][following], piece)
        end = max(end, arrived)
        if step + 1 < steps:
            heapq.heappush(waiting, (arrived, step + 1, ring, following))
    return end


@pytest.mark.parametrize(("members", "level"), [(Group(0, 1, 5), 0), (Group(2, 8, 3), 1), (Group(0, 1, 2), 0)])
@pytest.mark.parametrize(("kind", "rounds"), [(Kind.ALL_REDUCE, 2), (Kind.ALL_GATHER, 1), (Kind.REDUCE_SCATTER, 1)])
def test_ring_by_messages(members: Group, level: int, kind: Kind, rounds: int) -> None:
    """On one level a ring takes exactly what its messages take."""
    network, size, count = dgx(4), 600.0, members.count
    found = collective(only(network, "ring"), kind, members).seconds(size)
    order = members.places.tolist()
    assert found == pytest.approx(rings(Wires(network.cluster), [order], size / count, rounds * (count - 1)))
    each = network.cluster.levels[level]
    assert found == pytest.approx(rounds * (count - 1) * (each.latency_s + size / count / each.bandwidth_bytes_per_s))


@pytest.mark.parametrize("shape", [(2, 2), (4, 2), (2, 4), (3, 3), (4, 4)])
@pytest.mark.parametrize("latency", [0.0, 0.5])
def test_rings_across_levels_by_messages(shape: tuple[int, int], latency: float) -> None:
    """One ring for each member of a child: never faster than messages, slower by latencies at most."""
    inner, outer = shape
    cluster = cluster_of((inner, 1000.0, latency / 10), (outer, 10.0, latency))
    count, size = inner * outer, 9000.0
    turned = [
        [child * inner + (place + turn) % inner for child in range(outer) for place in range(inner)]
        for turn in range(inner)
    ]
    simulated = rings(Wires(cluster), turned, size / inner / count, 2 * (count - 1))
    (curve,) = collective(only(network_of(cluster), "ring"), Kind.ALL_REDUCE, Group(0, 1, count)).curves
    assert curve.s_per_byte == pytest.approx(2 * (count - 1) / count / (inner * 10))
    assert simulated <= curve.seconds(size) * (1 + CLOSE)
    assert curve.seconds(size) <= (simulated + curve.fixed_s) * (1 + CLOSE)


def doubling(wires: Wires, members: Sequence[int], size: float, *, both: bool) -> float:
    """Return when halving, and doubling if both, end: partners exchange as soon as both have what they need."""
    bits = len(members).bit_length() - 1
    halves = [(1 << turn, size / 2 ** (turn + 1)) for turn in range(bits)]
    ready = [0.0] * len(members)
    for distance, piece in [*halves, *(reversed(halves) if both else ())]:
        sent = [wires.send(ready[at], each, members[at ^ distance], piece) for at, each in enumerate(members)]
        ready = [sent[at ^ distance] for at in range(len(members))]
    return max(ready)


@pytest.mark.parametrize("members", [Group(0, 1, 8), Group(0, 1, 32), Group(1, 2, 8), Group(3, 8, 4), Group(0, 4, 8)])
@pytest.mark.parametrize(("kind", "both"), [(Kind.ALL_REDUCE, True), (Kind.REDUCE_SCATTER, False)])
def test_halving_doubling_by_messages(members: Group, kind: Kind, both: bool) -> None:
    """Over all levels it takes exactly what its messages take."""
    network, size = dgx(4), 640.0
    found = collective(only(network, "halving-doubling"), kind, members).seconds(size)
    assert found == pytest.approx(doubling(Wires(network.cluster), members.places.tolist(), size, both=both))


def test_hierarchical_by_messages() -> None:
    """Rings inside, rings across for what is left, rings inside again."""
    cluster = cluster_of((4, 100.0, 1.0), (3, 10.0, 5.0))
    wires, size = Wires(cluster), 600.0
    nodes = [[4 * node + place for place in range(4)] for node in range(3)]
    planes = [[4 * node + place for node in range(3)] for place in range(4)]
    scattered = rings(wires, nodes, size / 4, 3)
    summed = rings(wires, planes, size / 4 / 3, 4, scattered)
    gathered = rings(wires, nodes, size / 4, 3, summed)
    found = collective(only(network_of(cluster), "hierarchical"), Kind.ALL_REDUCE, Group(0, 1, 12)).seconds(size)
    assert found == pytest.approx(gathered)


@given(placed())
def test_all_to_all_by_pairs(case: tuple[Cluster, list[int]]) -> None:
    """Whatever leaves a child leaves it over its members' links, pair by pair; the fullest link decides."""
    cluster, members = case
    if len(members) < 2:
        return
    slowest, sizes = 0.0, (1, *cluster.group_sizes)
    for level, bandwidth in enumerate(cluster.path_bandwidths):
        held = Counter(place // sizes[level] for place in members)
        for child, inside in held.items():
            pairs = sum(
                place // sizes[level] == child != other // sizes[level] for place in members for other in members
            )
            slowest = max(slowest, pairs / len(members) / inside / bandwidth)
    (curve,) = collective(only(network_of(cluster), "direct"), Kind.ALL_TO_ALL, members).curves
    assert curve.s_per_byte == pytest.approx(slowest)


@pytest.mark.parametrize("steps", [1, 4, 14])
@pytest.mark.parametrize("size", [0.1, 50.0, 4000.0])
def test_pieces(steps: int, size: float) -> None:
    """A path of equal steps takes no more than the formula with some whole number of pieces, and hardly less."""
    latency, bandwidth = 1.0, 10.0
    best = min((steps + pieces - 1) * (latency + size / pieces / bandwidth) for pieces in range(1, 1000))
    cluster = cluster_of((steps + 1, bandwidth, latency))
    found = collective(only(network_of(cluster), "ring"), Kind.BROADCAST, Group(0, 1, steps + 1)).seconds(size)
    assert best <= found <= best + latency + 2 * sqrt(latency * size / bandwidth / steps)
