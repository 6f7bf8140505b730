"""Networks to levels: exact pairs, groups that nest, honest bandwidths."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import pairwise as neighbours
from itertools import permutations
from math import inf
from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.errors import InvalidProblem
from nest.hardware import Tier, Torus
from nest.networks import (
    Group,
    Levelling,
    Link,
    Network,
    Pairwise,
    dragonfly,
    fat_tree,
    grid,
    level_host_torus,
    level_network,
    level_pairs,
    level_torus,
    level_tree,
    one_root,
    pairwise,
    ring,
)
from nest.networks.grouping import nest_groups

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import levelled_gap

TIERS = (Tier("node", 0, 400.0, 1.0), Tier("leaf", 0, 100.0, 2.0), Tier("spine", 0, 50.0, 4.0))


def fanouts(levelling: Levelling) -> list[int]:
    """Return the fan-outs of the levels."""
    return [level.fanout for level in levelling.cluster.levels]


def speeds(levelling: Levelling) -> list[float]:
    """Return the bandwidths of the levels."""
    return [level.bandwidth_bytes_per_s for level in levelling.cluster.levels]


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Draw a small connected network with or without switches."""
    devices, switches = draw(st.integers(2, 7)), draw(st.integers(0, 3))
    names = [*(f"d{at}" for at in range(devices)), *(f"s{at}" for at in range(switches))]
    figure = st.sampled_from([10.0, 50.0, 100.0])
    delay = st.sampled_from([0.0, 1.0, 3.0])
    core = names[devices:] or names[:1]
    ends = [(name, draw(st.sampled_from(core))) for name in names[:devices] if name not in core]
    ends += list(neighbours(core))
    ends += draw(
        st.lists(st.sampled_from([(one, other) for one in names for other in names if one < other]), max_size=6)
    )
    links = tuple(Link(one, other, draw(figure), draw(delay)) for one, other in ends)
    return Network(tuple(names[:devices]), tuple(names[devices:]), links, forwarding=not switches)


def best_path(network: Network, one: str, other: str) -> tuple[float, float]:
    """Return bandwidth and latency of the best of all simple paths, one by one."""
    graph = networkx.Graph([(link.source, link.target) for link in network.cables.values()])
    names = {network.index[name]: name for name in network.index}
    figures = {frozenset((names[low], names[high])): link for (low, high), link in network.cables.items()}
    best = (0.0, inf)
    for path in networkx.all_simple_paths(graph, one, other):
        if network.forwarding or not set(path[1:-1]) & set(network.devices):
            links = [figures[frozenset(pair)] for pair in neighbours(path)]
            found = min(link.bandwidth_bytes_per_s for link in links), sum(link.latency_s for link in links)
            best = max(best, found, key=lambda each: (each[0], -each[1]))
    return best


@settings(max_examples=60, deadline=None)
@given(networks())
def test_pairs_are_the_best_paths(network: Network) -> None:
    """The widest path counts, of these the quickest, as trying every path finds it."""
    exact = pairwise(network)
    for at, one in enumerate(network.devices):
        for to, other in enumerate(network.devices[:at]):
            expected = best_path(network, one, other)
            assert (exact.bandwidth_bytes_per_s[at, to], exact.latency_s[at, to]) == pytest.approx(expected)


@settings(max_examples=80, deadline=None)
@given(networks(), st.booleans())
def test_never_optimistic(network: Network, shared: bool) -> None:
    """No pair of any network costs more than its level says, at any size of message; every device has one place."""
    levelling = level_network(network, 1, shared=shared)
    exact = pairwise(network)
    assert sorted(levelling.order) == sorted(network.devices)
    assert not levelling.optimistic
    at = [exact.names.index(name) for name in levelling.order]
    cluster = levelling.cluster
    for low in range(len(at)):
        for high in range(low + 1, len(at)):
            level = cluster.span(low, high)
            assert cluster.path_bandwidths[level] <= exact.bandwidth_bytes_per_s[at[low], at[high]] * (1 + 1e-9)
            assert cluster.levels[level].latency_s >= exact.latency_s[at[low], at[high]] * (1 - 1e-9)


def test_mean_says_that_it_is_optimistic() -> None:
    """Means instead of the worst pair are nearer on average, and admit that some pairs cost more."""
    network = ring(8, 100.0, 1.0)
    worst, mean = (level_network(network, 1, conservative=way, message_bytes=100) for way in (True, False))
    assert not worst.optimistic
    assert mean.optimistic
    assert mean.gaps[-1].mean < worst.gaps[-1].mean


def test_fat_tree_nests_exactly() -> None:
    """A tree of switches gives its own groups, and without sharing the exact cost of every pair."""
    levelling = level_network(fat_tree((4, 2, 2), (100.0, 200.0, 100.0), (1.0, 2.0, 3.0)), 1, shared=False)
    assert fanouts(levelling) == [16]  # a large message takes as long everywhere
    levelling = level_network(
        fat_tree((4, 2, 2), (100.0, 200.0, 100.0), (1.0, 2.0, 3.0)), 1, message_bytes=100, shared=False
    )
    assert fanouts(levelling) == [4, 2, 2]
    assert [(gap.least, gap.greatest) for gap in levelling.gaps] == [(1.0, 1.0)] * 3


def test_oversubscription_shows() -> None:
    """Four devices behind a trunk of 200, eight behind one of 100: 50 and 12.5 for each."""
    levelling = level_network(fat_tree((4, 2, 2), (100.0, 200.0, 100.0), (1.0, 2.0, 3.0)), 1)
    assert (fanouts(levelling), speeds(levelling)) == ([4, 2, 2], [100.0, 50.0, 12.5])


def test_oversubscription_of_uneven_leaves_shows() -> None:
    """Leaves of 2, 3 and 4 devices are no level, but the one that shares its trunk by 4 still limits them all."""
    links = [Link("l0", "r", 40.0), Link("l1", "r", 60.0), Link("l2", "r", 100.0)]
    devices = []
    for leaf, count in enumerate((4, 3, 2)):
        devices += [f"d{leaf}{at}" for at in range(count)]
        links += [Link(f"d{leaf}{at}", f"l{leaf}", 100.0) for at in range(count)]
    levelling = level_network(Network(tuple(devices), ("l0", "l1", "l2", "r"), tuple(links)), 1)
    assert levelling.cluster.path_bandwidths[-1] == 10.0


def test_zero_latency_groups() -> None:
    """Without latencies, devices behind one switch still belong together."""
    levelling = level_network(fat_tree((2, 2), (100.0, 100.0), (0.0, 0.0)), 1)
    assert (fanouts(levelling), speeds(levelling)) == ([2, 2], [100.0, 50.0])


def test_ring_and_prime() -> None:
    """A ring of 8 halves three times; 7 devices have no equal groups and are one level."""
    eight, seven = (level_network(ring(count, 100.0, 1.0), 1, message_bytes=100) for count in (8, 7))
    assert fanouts(eight) == [2, 2, 2]
    assert fanouts(seven) == [7]
    assert seven.gaps[0].greatest == 2.0  # neighbours pay for 3 hops


def test_torus_both_ways() -> None:
    """Levels of a torus in closed form cost what those from its links do where both have a box."""
    torus = Torus((4, 4, 4), (True,) * 3, 100.0, 1.0)
    closed, counted = level_torus(torus, 1, shared=False), level_network(grid(torus), 1, shared=False)
    assert closed.cluster.levels[-1].latency_s == counted.cluster.levels[-1].latency_s == 6.0
    assert sum(gap.pairs for gap in closed.gaps) == sum(gap.pairs for gap in counted.gaps) == 64 * 63 // 2


def test_torus_gap_is_exact() -> None:
    """The gap of a torus, from counts of distances, is the one that every pair gives."""
    torus = Torus((4, 3, 2), (True, True, False), 100.0, 1.0)
    levelling = level_torus(torus, 1, message_bytes=1000)
    exact = pairwise(grid(torus))
    at = [exact.names.index(name) for name in levelling.order]
    for gap in levelling.gaps:
        level, path = levelling.cluster.levels[gap.level], levelling.cluster.path_bandwidths[gap.level]
        ratios = [
            (level.latency_s + 1000 / path) / (exact.latency_s[at[low], at[high]] + 10)
            for high in range(len(at))
            for low in range(high)
            if levelling.cluster.span(low, high) == gap.level
        ]
        assert gap.pairs == len(ratios)
        assert (gap.least, gap.mean, gap.greatest) == pytest.approx((min(ratios), np.mean(ratios), max(ratios)))


def test_large_torus_is_quick() -> None:
    """A whole pod has its exact gap although it has eight million pairs."""
    levelling = level_torus(Torus((16, 16, 16), (True,) * 3, 45e9, 1e-6), 1)
    assert fanouts(levelling) == [8, 8, 8, 8]
    assert sum(gap.pairs for gap in levelling.gaps) == 4096 * 4095 // 2


def test_dragonfly() -> None:
    """Devices of a router, routers of a group, groups; the one link between two groups is shared."""
    network = dragonfly(3, 2, 2, (100.0, 50.0, 25.0), (1.0, 1.0, 5.0))
    levelling = level_network(network, 1, message_bytes=100)
    assert fanouts(levelling) == [2, 2, 3]
    assert speeds(levelling) == [100.0, 37.5, 12.5]


def test_large_network_is_refused() -> None:
    """Pairs of a network that is too large are not compared one by one."""
    with pytest.raises(InvalidProblem, match="describe it as a tree or torus"):
        level_network(ring(5000, 1.0, 1.0), 1)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ((), "no path joins 'a' and 'b'"),
        ((Link("a", "x", 1.0),), "'x' is neither device nor switch"),
        ((Link("a", "a", 1.0),), "linked to itself"),
        ((Link("a", "b", 0.0),), "bytes/s above 0"),
        ((Link("a", "b", 1.0, -1.0),), "seconds from 0"),
    ],
)
def test_wrong_networks(links: tuple[Link, ...], message: str) -> None:
    """A network that makes no sense is refused with the reason."""
    with pytest.raises(InvalidProblem, match=message):
        Network(("a", "b"), (), links)


def test_devices_do_not_forward_past_switches() -> None:
    """Two devices that only a third one joins are apart where devices do not pass on."""
    links = (Link("a", "b", 1.0), Link("b", "c", 1.0))
    assert pairwise(Network(("a", "b", "c"), (), links, forwarding=True)).bandwidth_bytes_per_s[0, 2] == 1.0
    with pytest.raises(InvalidProblem, match="no path joins 'a'"):
        Network(("a", "b", "c"), (), links)


def test_parallel_links_add_up() -> None:
    """Two cables side by side carry twice as much."""
    network = Network(("a", "b"), (), (Link("a", "b", 1.0, 1.0), Link("b", "a", 2.0, 3.0)), forwarding=True)
    exact = pairwise(network)
    assert (exact.bandwidth_bytes_per_s[0, 1], exact.latency_s[0, 1]) == (3.0, 3.0)


def test_groups_of_cliques() -> None:
    """A pair and a lone device: the incomplete group comes last."""
    cost = np.array([[0, 1, 9], [1, 0, 9], [9, 9, 0.0]])
    nesting = nest_groups(cost[::-1, ::-1])
    assert nesting.sizes == [2, 3]
    assert nesting.order[-1] == 0


@st.composite
def tables(draw: st.DrawFn) -> Pairwise:
    """Draw a table of pairs: any, or such of a tree with uneven branches."""
    count = draw(st.integers(1, 14))
    bandwidth = np.full((count, count), 1.0)
    latency_s = np.array(draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=count**2, max_size=count**2)))
    path = np.zeros(count, dtype=int)
    for level in range(draw(st.integers(1, 4))):
        path = path * 4 + np.array(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
        bandwidth[path[:, None] == path[None, :]] = 2.0 ** (level + 1)
    if draw(st.booleans()):
        noise = np.array(draw(st.lists(st.sampled_from([0.5, 1.0]), min_size=count**2, max_size=count**2)))
        bandwidth *= np.minimum(noise.reshape(count, count), noise.reshape(count, count).T)
    latency_s = np.maximum(latency_s.reshape(count, count), latency_s.reshape(count, count).T)
    np.fill_diagonal(bandwidth, inf)
    np.fill_diagonal(latency_s, 0.0)
    return Pairwise(tuple(map(str, range(count))), bandwidth, latency_s)


@settings(max_examples=150, deadline=None)
@given(tables(), st.sampled_from([1, 10, 1000]))
def test_tables_are_never_optimistic(pairs: Pairwise, message_bytes: int) -> None:
    """Whatever pairs cost, also where groups stay incomplete, levels nest and no pair costs more than its level."""
    levelling = level_pairs(pairs, 1, message_bytes=message_bytes)
    assert sorted(levelling.order) == sorted(pairs.names)
    assert sum(gap.pairs for gap in levelling.gaps) == len(pairs.names) * (len(pairs.names) - 1) // 2
    assert not levelling.optimistic


def test_neighbours_on_the_line_are_near() -> None:
    """Groups are turned so that the line runs on: on a ring of 8 no step between neighbours is longer than 2 hops."""
    network = ring(8, 100.0, 1.0)
    exact = pairwise(network)
    at = [exact.names.index(name) for name in level_network(network, 1).order]
    assert max(exact.latency_s[one, other] for one, other in neighbours(at)) <= 2


def test_one_device() -> None:
    """A single device is a level of one."""
    levelling = level_pairs(Pairwise(("a",), np.full((1, 1), inf), np.zeros((1, 1))), 1)
    assert fanouts(levelling) == [1]
    assert levelling.places == {"a": 0}


# Trees of hosts


def leaf(name: str, count: int) -> Group:
    """Return a switch with so many hosts."""
    return Group(name, tuple(f"{name}{at}" for at in range(count)))


def test_tree_with_equal_groups() -> None:
    """Hosts, leaves and the root become levels with the exact cost."""
    levelling = level_tree(Group("r", (leaf("a", 4), leaf("b", 4))), 8, TIERS, 1, message_bytes=1000)
    assert fanouts(levelling) == [8, 4, 2]
    assert [(gap.level, gap.mean) for gap in levelling.gaps] == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert levelling.order[7:9] == ("a0/7", "a1/0")


def test_tree_with_uneven_groups() -> None:
    """Leaves of 6, 4 and 3 hosts share groups of 2; who is cut apart pays the next tier, and the report says so."""
    levelling = level_tree(Group("r", (leaf("a", 4), leaf("b", 6), leaf("c", 3))), 1, TIERS, 1, message_bytes=1000)
    assert fanouts(levelling) == [2, 7]
    assert levelling.cluster.partial
    assert levelling.order[0] == "b0/0"
    assert levelling.order[-1] == "c2/0"
    assert not levelling.optimistic
    assert levelling.gaps[1].greatest == pytest.approx(24 / 12)  # same leaf, priced as the spine
    assert "hold 3 to 6 devices; the level has groups of 2" in levelling.notes[0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(1, 3))
def test_trees_are_never_optimistic(counts: list[list[int]], slots: int) -> None:
    """On any tree of hosts, devices of one group never pay less than what they share, counted pair by pair."""
    spines = tuple(
        Group(f"s{at}", tuple(leaf(f"s{at}l{to}n", count) for to, count in enumerate(found)))
        for at, found in enumerate(counts)
    )
    root = Group("r", spines)
    levelling = level_tree(root, slots, TIERS, 1, message_bytes=1000)
    cluster = levelling.cluster
    path = {host: (spine.name, under.name) for spine in spines for under in spine.members for host in under.hosts}  # type: ignore[union-attr]
    exact = [1 + 1000 / 400, 2 + 1000 / 100, 4 + 1000 / 50, 4 + 1000 / 50]
    ratios: dict[int, list[float]] = {}
    for high in range(cluster.devices):
        for low in range(high):
            one, other = (levelling.order[at].split("/")[0] for at in (low, high))
            tier = 0 if one == other else 1 if path[one] == path[other] else 2 if path[one][0] == path[other][0] else 3
            level = cluster.span(low, high)
            price = cluster.levels[level].latency_s + 1000 / cluster.path_bandwidths[level]
            ratios.setdefault(level, []).append(price / exact[tier])
    assert all(min(found) >= 1 - 1e-9 for found in ratios.values())
    assert {gap.level: gap.pairs for gap in levelling.gaps} == {level: len(found) for level, found in ratios.items()}
    for gap in levelling.gaps:
        assert gap.mean == pytest.approx(np.mean(ratios[gap.level]))
        assert gap.greatest == pytest.approx(max(ratios[gap.level]))


def test_tree_of_unequal_hosts() -> None:
    """Hosts with 8, 8 and 4 devices: the last one is incomplete."""
    levelling = level_tree(Group("r", ("a", "b", "c")), {"a": 4, "b": 8, "c": 8}, TIERS, 1)
    assert (fanouts(levelling), levelling.cluster.partial) == ([8, 3], True)
    assert levelling.order[-1] == "a/3"


def test_choose_a_root() -> None:
    """Of several trees one has to be chosen."""
    roots = (leaf("a", 2), leaf("b", 3))
    assert one_root(roots, "b").name == "b"
    with pytest.raises(InvalidProblem, match=r"2 trees that nothing joins; choose one of a \(2 nodes\), b"):
        one_root(roots, "")
    with pytest.raises(InvalidProblem, match="'c' is no root"):
        one_root(roots, "c")


def test_hosts_on_a_torus() -> None:
    """Devices of a host share its links; every device has one place."""
    torus = Torus((2, 3), (False, True), 80.0, 1.0)
    levelling = level_host_torus(torus, [f"h{at}" for at in range(6)], 4, TIERS[0], 1)
    assert fanouts(levelling)[0] == 4
    assert len(set(levelling.order)) == levelling.cluster.devices == 24
    assert max(speeds(levelling)[1:]) == 20.0


def test_levelled_gap() -> None:
    """On a tree with one order that matters, levels find the best plan; a price by hand."""
    network = fat_tree((2, 2), (25e9, 25e9), (5e-6, 1e-5))
    load = levelled_gap.Load("test", 1e-3, 1e6, 1e7, layers=4, microbatches=4)
    row = levelled_gap.measure(network, load)
    assert 0 <= row.gap < 1e-9
    assert row.shape in levelled_gap.table([row])
    shape = levelled_gap.Shape(replicas=2, stages=2, width=1)
    near, far = 1e-5 + 1e6 / 25e9, 3e-5 + 1e6 / 25e9
    sync = 2e7 / 2 / 25e9
    exact, orders = pairwise(network), ((0, 1, 2, 3), (0, 2, 1, 3))
    price = [levelled_gap.price(shape, load, exact, np.array(order)) for order in orders]
    assert price[0] == pytest.approx(3 * (2e-3 + 2 * near) + 2 * (3e-5 + sync))
    assert price[1] == pytest.approx(3 * (2e-3 + 2 * far) + 2 * (1e-5 + sync))
    major = levelled_gap.price(replace(shape, stage_major=True), load, exact, np.arange(4))
    assert major == pytest.approx(price[1])


@pytest.mark.parametrize("seed", range(6))
def test_pairwise_optimum_by_brute_force(seed: int) -> None:
    """The search for the best places of a plan finds what trying every order of the devices finds."""
    rng = random.Random(seed)
    shapes = (
        grid(Torus((2, 3), (False, True), 25e9, 5e-6)),
        ring(6, 25e9, 5e-6),
        fat_tree((3, 2), (25e9, rng.choice([1e9, 25e9])), (5e-6, 2e-5)),
    )
    exact = pairwise(shapes[seed % 3])
    load = levelled_gap.Load("test", 1e-4, rng.choice([1e4, 1e7]), rng.choice([1e5, 1e8]), layers=5, microbatches=4)
    orders = [np.array(order) for order in permutations(range(6))]
    for shape in levelled_gap.shapes(6, load):
        least = min(levelled_gap.price(shape, load, exact, order) for order in orders)
        assert levelled_gap.optimum(shape, load, exact) == pytest.approx(least, rel=1e-12)
        assert levelled_gap.optimum(shape, load, exact, least) == inf
