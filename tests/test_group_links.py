"""Links and libraries that a cluster names: what groups take, against D9 written out again, and bad names."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest
from oracle_groups import Group, decimal
from random_default import linked
from seeds import seeds

from nest.cluster import Cluster, Level
from nest.cost.algorithms import Kind
from nest.cost.alpha_beta import collective
from nest.cost.exchanges import Exchanges
from nest.cost.groups import spread
from nest.cost.links import LIBRARIES, LINK_KINDS, Network
from nest.errors import InvalidProblem
from nest.graph import CollectiveKind, Layer, LayerGraph
from nest.hardware import SYSTEMS, cluster_named
from nest.presets import DEFAULT
from nest.problem import Problem, Training, Variant

KINDS: tuple[CollectiveKind, ...] = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring")
SEEDS = 500
ONE = LayerGraph((Layer("a", 1.0, 2.0, 10, 1),), ())


def exchanges_on(cluster: Cluster) -> Exchanges:
    """Return network times of any problem on a cluster."""
    return Exchanges(Problem("", {Variant(1): ONE}, cluster, Training(1), preset=DEFAULT))


def random_cluster(rng: random.Random) -> Cluster:
    """Return a cluster with links of all kinds, at sizes and speeds of real ones."""
    fanouts = [rng.choice([1, 2, 2, 3, 4, 9]) for _ in range(rng.randint(1, 3))]
    levels = tuple(
        Level(each, rng.choice([1e9, 2e10, 4e11]), rng.choice([0.0, 3.4e-6, 14e-6, 1e-3])) for each in fanouts
    )
    return linked(rng, Cluster(prod(fanouts), 1, levels))


@pytest.mark.parametrize("seed", seeds(100, SEEDS))
def test_groups_take_what_the_definition_says(seed: int) -> None:
    """Every kind of collective of any devices, from few bytes (launch and protocols count) to many."""
    rng = random.Random(seed)
    cluster = random_cluster(rng)
    exchanges = exchanges_on(cluster)
    for _ in range(4):
        members = sorted(rng.sample(range(cluster.devices), rng.randint(1, min(cluster.devices, 24))))
        group, where = Group(cluster, members), exchanges.spread(members)
        for kind in KINDS:
            size = rng.choice([0, 1, 5e3, 3e5, 2e7, 1e9])
            taken = float(exchanges.seconds(kind, where, np.array([float(size)]))[0])
            assert taken == pytest.approx(float(group.seconds(kind, decimal(size))), rel=1e-12)
            assert taken <= exchanges.longest_s(kind, len(members), size) * (1 + 1e-12)
            if kind in KINDS[:3]:
                apart = np.array([np.diff(members).min(initial=cluster.devices)])
                least = exchanges.least_s(kind, np.array([len(members)]), apart, size)[0]
                assert least <= taken * (1 + 1e-12)
        if len(members) > 1:
            pair = Group(cluster, members[:2])
            hop = exchanges.hop_s(cluster.span(*members[:2]), np.array([3e5]))
            assert float(hop[0]) == pytest.approx(float(pair.hop(decimal(3e5))), rel=1e-12)


def test_alone_in_a_mesh() -> None:
    """A member that is alone in its group has no peer there; the whole group still exchanges in finite time."""
    cluster = Cluster(6, 1, (Level(3, 100.0, 0.0, pair_bytes_per_s=10.0), Level(2, 1000.0, 0.0)))
    exchanges = exchanges_on(cluster)
    taken = exchanges.seconds("all-to-all", exchanges.spread([0, 1, 3]), np.array([30.0]))
    assert taken.tolist() == [2.0]  # two thirds of the bytes over the link of a pair


def test_all_ways_are_fastest_somewhere() -> None:
    """Clusters of this kind are such that every algorithm and protocol of D9 counts for some group."""
    seen = set()
    for seed in range(4 * SEEDS):
        rng = random.Random(seed)
        cluster = random_cluster(rng)
        network = Network.of(cluster)
        members = sorted(rng.sample(range(cluster.devices), rng.randint(1, min(cluster.devices, 24))))
        where = spread(cluster, members)
        for kind in KINDS[:4]:
            for size in (1.0, 5e3, 3e5, 2e7, 1e9) if len(members) > 1 else ():
                way = collective(network, Kind(kind), where).fastest(size)
                seen |= {way.algorithm, way.protocol}
    algorithms = {each for library in LIBRARIES for each in library.algorithms}
    assert seen == algorithms | {each.name for kind in LINK_KINDS for each in kind.protocols}


def test_plain_clusters_are_ideal() -> None:
    """A cluster that names nothing has ideal links and every algorithm, free of overhead."""
    network = Network.of(Cluster(8, 1, (Level(8, 1e9, 0.0),)))
    assert network.traits[0].kind.name == "ideal"
    assert (network.library.name, network.library.launch_s) == ("any", 0.0)


@pytest.mark.parametrize(
    ("cluster", "where"),
    [
        (Cluster(8, 1, (Level(2, 1e9, 0.0), Level(4, 1e9, 0.0, link="nvlnk"))), "cluster.levels[1].link"),
        (Cluster(8, 1, (Level(8, 1e9, 0.0),), library="NCCL"), "cluster.library"),
    ],
)
def test_unknown_names(cluster: Cluster, where: str) -> None:
    """A name that no kind of link has is refused in a line that lists those there are."""
    with pytest.raises(InvalidProblem, match="choose one of") as fault:
        exchanges_on(cluster)
    assert fault.value.where == where


@pytest.mark.parametrize("pair", [0.0, -1.0, float("inf"), float("nan")])
def test_pairs_out_of_range(pair: float) -> None:
    """A pair has some bandwidth, or the whole of it."""
    with pytest.raises(InvalidProblem, match="pair_bytes_per_s"):
        Cluster(8, 1, (Level(8, 1e9, 0.0, pair_bytes_per_s=pair),))


@pytest.mark.parametrize("system", [each.name for each in SYSTEMS])
def test_catalogue_names_links(system: str) -> None:
    """Every level of the catalogue has links that are known and not ideal; those of a host are not its network's."""
    cluster = cluster_named(f"{system}:1024").cluster
    kinds = [traits.kind.name for traits in Network.of(cluster).traits]
    assert "ideal" not in kinds
    between = {"rdma", "omni-path"}
    assert kinds[0] not in between
    assert kinds[-1] in between
    assert cluster.library == "nccl"


def test_links_of_special_systems() -> None:
    """Device decides on NVLink's generation, meshes limit pairs, tori have their own links, switches add in hosts."""
    b200, mi300x, h100 = (cluster_named(f"{name}:64").cluster.levels for name in ("dgx-b200", "mi300x", "dgx-h100"))
    assert [level.link for level in b200] == ["nvlink5", "rdma"]
    assert (mi300x[0].link, mi300x[0].pair_bytes_per_s, mi300x[1].pair_bytes_per_s) == ("xgmi", 64e9, None)
    assert {level.link for level in cluster_named("tpu-v4:4x4x8").cluster.levels} == {"ici"}
    assert [level.in_network_reduction for level in h100] == [True, False]
