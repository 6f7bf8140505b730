"""Collectives by where the group sits: spreads, bounds, what networks have, published tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt
from statistics import mean

import numpy as np
import pytest
from group_networks import CLOSE, cluster_of, dgx, network_of, only, placed, symmetric
from hypothesis import given
from hypothesis import strategies as st

from nest.cluster import Cluster
from nest.cost.algorithms import RUNS, Kind
from nest.cost.alpha_beta import Curve, bus_bandwidth, collective
from nest.cost.groups import Group, Spread, instances, spread
from nest.cost.links import (
    ALGORITHMS,
    ANY,
    IDEAL,
    LINK_KINDS,
    NCCL,
    NVLINK,
    PCIE,
    RDMA,
    SIMPLE,
    TCP,
    LevelTraits,
    Library,
    LinkKind,
    Network,
    Protocol,
)
from nest.errors import InvalidProblem
from nest.validation.collectives import bus_bandwidths, nccl_sweep, nodes_sweep
from nest.validation.fact import Fact

GIB = 2.0**30


# --- where a group sits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (Group(8, 1, 8), Spread(8, (8, 1), (1, 8), (1, 8), (8, 0), True)),
        (Group(0, 4, 4), Spread(4, (2, 2), (1, 2), (1, 2), (2, 2), True)),
        (Group(3, 8, 4), Spread(4, (1, 4), (1, 1), (1, 1), (0, 4), True)),
        (Group(0, 1, 12), Spread(12, (8, 2), (1, 4), (1, 8), (10, 2), False)),
    ],
)
def test_spread_by_hand(group: Group, expected: Spread) -> None:
    """Tensor, context and data parallel groups, and one that fills a node and a half."""
    assert spread(dgx(4).cluster, group) == expected


@given(placed())
def test_spread_by_pairs(case: tuple[Cluster, list[int]]) -> None:
    """Every figure is what comes out when one looks at the members one by one."""
    cluster, members = case
    found = spread(cluster, members)
    sizes = (1, *cluster.group_sizes)
    for level in range(len(cluster.levels)):
        held = Counter(place // sizes[level] for place in members)
        parents = Counter(child * sizes[level] // sizes[level + 1] for child in held)
        assert found.parts[level] == max(parents.values())
        assert (found.least[level], found.most[level]) == (min(held.values()), max(held.values()))
        following = [*members[1:], members[0]]
        hops = [cluster.span(low, high) for low, high in zip(members, following, strict=True) if low != high]
        assert found.hops[level] == hops.count(level)
    assert sum(found.peers(level) for level in range(len(cluster.levels))) == len(members) - 1


@given(symmetric(), st.randoms())
def test_relabelling_changes_nothing(case: tuple[Cluster, list[int]], random: object) -> None:
    """Groups of a level may change places with their neighbours, whatever is in them."""
    cluster, members = case
    sizes = (1, *cluster.group_sizes)
    moved = members
    for level, each in enumerate(cluster.levels):
        order = list(range(each.fanout))
        random.shuffle(order)  # type: ignore[attr-defined]
        low, high = sizes[level], sizes[level + 1]
        moved = [place // high * high + order[place % high // low] * low + place % low for place in moved]
    assert spread(cluster, moved) == spread(cluster, members)


def test_instances() -> None:
    """Eight data parallel groups leave a node side by side, one all-device group alone, four pairs by twos."""
    cluster = dgx(4).cluster
    groups = (Group(0, 8, 4), Group(0, 1, 32), Group(0, 4, 8))
    assert [instances(cluster, spread(cluster, group), 1) for group in groups] == [8, 1, 4]


# --- what must hold for any formula ---------------------------------------------------------------------------------


@given(placed(), st.floats(1, 1e10))
def test_all_reduce_is_two_halves(case: tuple[Cluster, list[int]], size: float) -> None:
    """Under a ring an all-reduce is a reduce-scatter and an all-gather."""
    cluster, members = case
    network = only(network_of(cluster, kind=NVLINK), "ring")
    both, *halves = (
        collective(network, kind, members).seconds(size)
        for kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER)
    )
    assert both == pytest.approx(sum(halves))


@given(placed(), st.sampled_from(Kind), st.sampled_from([ANY, NCCL]), st.floats(1, 1e10), st.data())
def test_better_network_is_never_slower(
    case: tuple[Cluster, list[int]], kind: Kind, library: Library, size: float, data: st.DataObject
) -> None:
    """More bandwidth or less latency on one level makes nothing slower, and reduction in switches does not either."""
    cluster, members = case
    members = members[:2] if kind is Kind.POINT_TO_POINT else members
    at = data.draw(st.integers(0, len(cluster.levels) - 1))
    before = collective(network_of(cluster, library, RDMA), kind, members).seconds(size)
    level = cluster.levels[at]
    for better in (
        replace(level, bandwidth_bytes_per_s=level.bandwidth_bytes_per_s * data.draw(st.floats(1, 100))),
        replace(level, latency_s=level.latency_s * data.draw(st.floats(0, 1))),
    ):
        changed = replace(cluster, levels=(*cluster.levels[:at], better, *cluster.levels[at + 1 :]))
        for adds in (False, True):
            after = collective(network_of(changed, library, RDMA, adds=adds), kind, members).seconds(size)
            assert after <= before * (1 + CLOSE)


@given(st.integers(1, 8), st.integers(2, 7), st.sampled_from([ANY, NCCL]), st.floats(1, 1e9))
def test_wider_all_gather_is_never_faster(inner: int, nodes: int, library: Library, shard: float) -> None:
    """With a shard of the same size for each, another node of members takes longer (under one algorithm)."""
    network = dgx(8, library, NVLINK)
    if library is ANY:
        network = only(network, "hierarchical" if inner > 1 else "ring")
    places = [[8 * node + place for node in range(count) for place in range(inner)] for count in (nodes, nodes + 1)]
    narrow, wide = (collective(network, Kind.ALL_GATHER, each).seconds(shard * len(each)) for each in places)
    assert narrow <= wide * (1 + CLOSE)


@given(symmetric(), st.sampled_from(["ring", "tree", "halving-doubling", "hierarchical"]), st.floats(1, 1e10))
def test_all_reduce_is_above_its_bound(case: tuple[Cluster, list[int]], algorithm: str, size: float) -> None:
    """Each child of a level has to send ``2 (k - 1) / k`` of the bytes over the links of its members."""
    cluster, members = case
    where, network = spread(cluster, members), network_of(cluster)
    if where.count < 2 or not RUNS[algorithm](Kind.ALL_REDUCE, network, where):
        return
    found = collective(only(network, algorithm), Kind.ALL_REDUCE, where).seconds(size)
    for level in where.levels:
        parts, width = where.parts[level], where.least[level]
        bound = 2 * (parts - 1) / parts * size / width / cluster.path_bandwidths[level]
        assert found >= bound * (1 - CLOSE)


@given(placed(), st.sampled_from(Kind), st.floats(1, 1e10))
def test_cheapest_is_taken(case: tuple[Cluster, list[int]], kind: Kind, size: float) -> None:
    """No algorithm and no protocol is faster than what is answered, and what is named is as fast."""
    cluster, members = case
    members = members[:2] if kind is Kind.POINT_TO_POINT else members
    whole = collective(network_of(cluster, kind=NVLINK, adds=True), kind, members)
    if not whole.curves:
        assert whole.seconds(size) == 0
        return
    times = [curve.seconds(size) for curve in whole.curves]
    assert whole.seconds(size) == min(times) == whole.fastest(size).seconds(size)
    assert times[int(whole.choices(np.array([size]))[0])] == min(times)


@given(placed(), st.lists(st.floats(0, 1e12), min_size=1, max_size=5))
def test_arrays_and_numbers_agree(case: tuple[Cluster, list[int]], sizes: list[float]) -> None:
    """A table and a judge get the same float, bit by bit."""
    cluster, members = case
    found = collective(network_of(cluster, NCCL, NVLINK, adds=True), Kind.ALL_REDUCE, members)
    assert found.seconds(np.array(sizes)).tolist() == [found.seconds(size) for size in sizes]


# --- what the network has -------------------------------------------------------------------------------------------


def per_byte(network: Network, kind: Kind, members: Group | Sequence[int]) -> float:
    """Return the seconds that a byte of the fastest large collective takes."""
    return collective(network, kind, members).fastest(1e15).s_per_byte


def test_members_share_the_way_out() -> None:
    """Eight members of a node leave it over eight links, one member over its own: the worst child decides."""
    ring = only(dgx(4), "ring")
    assert per_byte(ring, Kind.ALL_GATHER, Group(0, 1, 32)) == pytest.approx(31 / 32 / 80)
    assert per_byte(ring, Kind.ALL_GATHER, Group(0, 8, 4)) == pytest.approx(3 / 4 / 10)
    assert per_byte(ring, Kind.ALL_GATHER, [*range(8), 8]) == pytest.approx(8 / 9 / 10)


def test_inside_one_level_only_that_level_counts() -> None:
    """The network above a group does not matter to it."""
    fast = replace(dgx(4), cluster=cluster_of((8, 100.0, 1.0), (4, 1e9, 0.0)))
    for kind in Kind:
        members = Group(8, 1, 2 if kind is Kind.POINT_TO_POINT else 8)
        assert collective(dgx(4), kind, members) == collective(fast, kind, members)


def test_pairs_with_links_of_their_own() -> None:
    """Two devices of a full mesh have one link, eight have seven each; a single transfer has one."""
    mesh = Network(cluster_of((8, 448.0, 0.0)), (LevelTraits(IDEAL, pair_bytes_per_s=64.0),), ANY)
    assert 1 / per_byte(mesh, Kind.POINT_TO_POINT, [0, 5]) == 64
    assert 1 / per_byte(mesh, Kind.ALL_TO_ALL, Group(0, 1, 8)) == pytest.approx(448 / (7 / 8))
    assert 1 / per_byte(only(mesh, "ring"), Kind.ALL_GATHER, Group(0, 1, 2)) == pytest.approx(64 / (1 / 2))
    assert 1 / per_byte(only(mesh, "ring"), Kind.ALL_GATHER, Group(0, 1, 4)) == pytest.approx(3 * 64 / (3 / 4))
    assert 1 / per_byte(only(mesh, "halving-doubling"), Kind.ALL_GATHER, Group(0, 1, 8)) == pytest.approx(64 / (7 / 8))


def test_pairs_with_links_between_children() -> None:
    """In a cube mesh each of four devices has a link to each of four others: 4 x 10 of its 50 bytes/s."""
    traits = (LevelTraits(IDEAL, 25.0), LevelTraits(IDEAL, 10.0))
    mesh = Network(cluster_of((4, 100.0, 0.0), (2, 50.0, 0.0)), traits, ANY)
    assert 1 / per_byte(only(mesh, "ring"), Kind.ALL_REDUCE, Group(0, 1, 8)) == pytest.approx(75 / (7 / 4))
    assert 1 / per_byte(only(mesh, "ring"), Kind.ALL_REDUCE, Group(0, 4, 2)) == pytest.approx(10)
    assert 1 / per_byte(only(mesh, "tree"), Kind.ALL_REDUCE, Group(0, 1, 8)) == pytest.approx(75 / 2)
    alone = replace(mesh, traits=(LevelTraits(IDEAL), LevelTraits(IDEAL, 1.0)))
    assert 1 / per_byte(only(alone, "ring"), Kind.ALL_REDUCE, Group(0, 1, 8)) == pytest.approx(4 * 4 * 1 / (7 / 4))


def test_algorithms_that_need_equal_parts() -> None:
    """Halving needs powers of two at every level, and so do levels one after the other need equally full children."""
    network = dgx(4)
    offered = {
        name: {curve.algorithm for curve in collective(network, Kind.ALL_REDUCE, members).curves}
        for name, members in (("full", Group(0, 1, 32)), ("three nodes", Group(0, 1, 24)), ("ragged", Group(0, 1, 12)))
    }
    assert offered["full"] == {"ring", "tree", "halving-doubling", "hierarchical"}
    assert offered["three nodes"] == {"ring", "tree", "hierarchical"}
    assert offered["ragged"] == {"ring", "tree"}


def test_all_links_of_a_torus() -> None:
    """A ring on one axis uses both directions: ``V / W`` with W of both, as Google's book on scaling has it."""
    link = 45e9
    axis = Network(cluster_of((16, link, 1e-6)), (LevelTraits(IDEAL, link, 2 * link),), ANY)
    assert per_byte(axis, Kind.ALL_GATHER, Group(0, 1, 16)) == pytest.approx(15 / 16 / (2 * link))
    assert per_byte(axis, Kind.POINT_TO_POINT, [0, 1]) == pytest.approx(1 / link)


def test_reduction_in_switches() -> None:
    """Only levels that can add do; the sum then crosses each link once."""
    cluster = cluster_of((8, 100.0, 1.0), (4, 10.0, 5.0))
    traits = (LevelTraits(IDEAL), LevelTraits(IDEAL, in_network_reduction=True))
    network = Network(cluster, traits, Library("x", ("in-network",)))
    (across,) = collective(network, Kind.ALL_REDUCE, Group(0, 8, 4)).curves
    assert (across.protocol, across.fixed_s, across.s_per_byte) == (SIMPLE, 10, 1 / 10)
    (both,) = collective(network, Kind.ALL_REDUCE, Group(0, 1, 32)).curves
    assert (both.fixed_s, both.s_per_byte) == (10 + 2 * 3, 2 / 100)
    with pytest.raises(InvalidProblem, match="nothing runs all-reduce"):
        collective(network, Kind.ALL_REDUCE, Group(0, 1, 8))
    assert both.s_per_root == pytest.approx(2 * sqrt((10 + 2 * 3) * 2 / 100))
    assert across.s_per_root == 0
    hierarchy = collective(only(network, "hierarchical-in-network"), Kind.ALL_REDUCE, Group(0, 1, 32)).fastest(1.0)
    assert hierarchy.s_per_byte == pytest.approx(2 * 7 / 8 / 100 + 1 / 8 / 10)


def test_trees() -> None:
    """Depth of trees over nodes and chains within them; two nodes exchange once what more put on the wire twice."""
    chained = only(dgx(4, replace(ANY, chain=8)), "tree")
    assert collective(chained, Kind.ALL_REDUCE, Group(0, 1, 32)).curves[0].fixed_s == 2 * (7 * 1 + 2 * 5)
    assert collective(only(dgx(4), "tree"), Kind.ALL_REDUCE, Group(0, 1, 32)).curves[0].fixed_s == 2 * (3 * 1 + 2 * 5)
    assert per_byte(chained, Kind.ALL_REDUCE, Group(0, 8, 2)) == 1 / 10
    assert per_byte(chained, Kind.ALL_REDUCE, Group(0, 8, 4)) == 2 / 10
    assert per_byte(chained, Kind.BROADCAST, Group(0, 8, 4)) == 1 / 10


def test_two_levels_of_all_to_all() -> None:
    """Inside first: fewer and larger messages across, and all bytes on both levels."""
    (curve,) = collective(only(dgx(4), "hierarchical"), Kind.ALL_TO_ALL, Group(0, 1, 32)).curves
    assert curve.fixed_s == 7 * 1 + 3 * 5
    assert curve.s_per_byte == pytest.approx(7 / 8 / 100 + 3 / 4 / 10)


def test_protocols() -> None:
    """A path has the protocols that all its levels have."""
    cluster = cluster_of((8, 100.0, 1.0), (4, 10.0, 5.0))
    cases = ((NVLINK, RDMA, {"ll", "ll128", SIMPLE}), (PCIE, RDMA, {"ll", SIMPLE}), (NVLINK, TCP, {SIMPLE}))
    for inner, outer, names in cases:
        network = Network(cluster, (LevelTraits(inner), LevelTraits(outer)), NCCL)
        assert {each.protocol for each in collective(network, Kind.ALL_GATHER, Group(0, 1, 32)).curves} == names


def test_nothing_to_do() -> None:
    """One member needs no time, and neither do no bytes."""
    assert collective(dgx(2, NCCL), Kind.ALL_REDUCE, [3]).seconds(GIB) == 0
    found = collective(dgx(2, NCCL), Kind.ALL_REDUCE, Group(0, 1, 8))
    assert found.seconds(0.0) == 0 < found.seconds(1.0)
    assert found.seconds(np.array([0.0, 1.0])).tolist() == [0, found.seconds(1.0)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Group(0, 0, 4), "stride"),
        (lambda: spread(dgx(1).cluster, Group(0, 4, 4)), "devices 0 to 7"),
        (lambda: spread(dgx(1).cluster, [1, 1]), "each device once"),
        (lambda: spread(dgx(1).cluster, []), "devices 0 to 7"),
        (lambda: Library("x", ("star",)), "'star'"),
        (lambda: Library("x", chain=0), "chains of 1"),
        (lambda: LinkKind("x", 1.5), "at most 1"),
        (lambda: LinkKind("x", reduction_s=-1), "negative time"),
        (lambda: LevelTraits(IDEAL, pair_bytes_per_s=0), "pair"),
        (lambda: Network(dgx(1).cluster, ()), "give 2, one a level"),
        (lambda: network_of(dgx(1).cluster, kind=LinkKind("x", protocols=(Protocol("ll"),))), "simple"),
        (lambda: collective(dgx(1), Kind.POINT_TO_POINT, [0, 1, 2]), "give two"),
        (lambda: collective(only(dgx(1), "tree"), Kind.ALL_TO_ALL, [0, 1]), "nothing runs all-to-all"),
        (lambda: collective(dgx(1), Kind.ALL_REDUCE, [0]).fastest(1.0), "two or more"),
    ],
)
def test_refusals(build: Callable[[], object], message: str) -> None:
    """Each wrong input says what would be right."""
    with pytest.raises(InvalidProblem, match=message):
        build()


def test_names() -> None:
    """Every algorithm that a library may have is one, kinds of links differ by name, and NCCL runs every collective."""
    assert tuple(RUNS) == ALGORITHMS
    assert len({kind.name for kind in LINK_KINDS}) == len(LINK_KINDS)
    for kind in Kind:
        assert collective(dgx(4, NCCL, NVLINK), kind, [0, 9]).curves


# --- published tables -----------------------------------------------------------------------------------------------


def test_bus_bandwidth() -> None:
    """As NCCL's tests define it."""
    assert bus_bandwidth(Kind.ALL_REDUCE, 8, 8.0, 1.0) == 14
    assert bus_bandwidth(Kind.ALL_GATHER, 8, 8.0, 1.0) == bus_bandwidth(Kind.ALL_TO_ALL, 8, 8.0, 1.0) == 7
    assert bus_bandwidth(Kind.BROADCAST, 8, 8.0, 1.0) == bus_bandwidth(Kind.POINT_TO_POINT, 2, 8.0, 1.0) == 8


def errors(rows: Sequence[Fact]) -> list[float]:
    """Return the sizes of the errors of the rows that can be compared."""
    return [abs(row.error) for row in rows if row.error is not None]


def test_nccl_sweep() -> None:
    """All sizes of the sweep; above 1 MiB each, below on average but for the row that is an outlier in the data."""
    rows = nccl_sweep()
    assert len(rows) == 32
    large = errors([row for row in rows if row.section == "above 1 MiB"])
    assert len(large) == 14
    assert max(large) < 0.08
    assert mean(large) < 0.025
    assert mean(errors(rows)) < 0.1
    assert mean(errors([row for row in rows if row.name != "32 bytes"])) < 0.075


def test_bandwidth_tables() -> None:
    """Every bus bandwidth of NVIDIA's tables within 10 %, and of pairs of a full mesh within 4 %."""
    rows = [row for row in bus_bandwidths() if row.error is not None]
    mesh = [row for row in rows if "MI300X" in row.name]
    assert (len(rows), len(mesh)) == (36, 2)
    assert max(errors(mesh)) < 0.04
    large = errors([row for row in rows if row not in mesh])
    assert max(large) < 0.09
    assert mean(large) < 0.02


def test_sweeps_over_nodes() -> None:
    """The limit of large messages; the middle, whose hardware is not known, within a factor."""
    rows = nodes_sweep()
    sweeps = {name: [row for row in rows if row.section == name] for name in {row.section for row in rows}}
    assumed = errors(sweeps["4 nodes (hardware assumed)"])
    assert max(assumed[-8:]) < 0.05
    assert max(assumed) < 0.6
    one = errors(sweeps["8 H200"])
    assert max(one) < 0.16
    assert max(one[7:]) < 0.055
    four = errors(sweeps["4 nodes of 8 B200"])
    assert max(four[-5:]) < 0.02
    assert max(four) < 0.55


def test_curve_by_hand() -> None:
    """Fixed, per byte, and per root of the bytes, the same for numbers and arrays."""
    assert Curve("ring", SIMPLE, 1.0, 2.0, 3.0).seconds(4.0) == 1 + 8 + 6
    root = Curve("ring", SIMPLE, 0.0, 0.0, 1.0)
    sizes = np.random.default_rng(0).uniform(1, 1e12, 20_000)
    assert root.seconds(sizes).tolist() == [root.seconds(size) for size in sizes.tolist()]
