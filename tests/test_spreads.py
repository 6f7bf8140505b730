"""Groups counted without a look at their devices against the same groups device by device."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nest.cluster import Cluster, Level
from nest.cost.groups import spread
from nest.tables.spreads import Members, spreads


def random_cluster(rng: random.Random) -> Cluster:
    """Return a cluster of up to five levels, whose last groups may be incomplete."""
    fanouts = [rng.choice([1, 2, 2, 3, 4, 5, 6, 8]) for _ in range(rng.randint(1, 5))]
    places, partial = int(np.prod(fanouts)), rng.random() < 0.3
    devices = rng.randint(1, places) if partial else places
    return Cluster(devices, 1, tuple(Level(fanout, 1.0, 0.0) for fanout in fanouts), partial=partial)


def random_members(rng: random.Random, cluster: Cluster) -> Members:
    """Return members of a block that nest with the levels (rule C13)."""
    sizes = [size for size in cluster.group_sizes if size < cluster.devices]
    while True:
        ranks = rng.choice([1, 1, 2, 3, 4])
        members = Members(ranks, rng.choice([1, 2, 3, 4]) if ranks > 1 else 1)
        units = members.apart, members.reach
        if members.reach <= cluster.devices and all(not max(s, u) % min(s, u) for s in sizes for u in units):
            return members


@pytest.mark.parametrize("seed", range(20))
def test_spreads_count_what_devices_show(seed: int) -> None:
    """A group whose blocks are miscounted at some level, or a start wrongly taken for another."""
    rng = random.Random(seed)
    for _ in range(100):
        cluster = random_cluster(rng)
        if cluster.devices > 2000:
            continue
        members = random_members(rng, cluster)
        blocks = cluster.devices // members.reach
        step = rng.randint(1, rng.choice([blocks, 9]))
        count = rng.randint(1, (blocks - 1) // step + 1)
        room = blocks - 1 - step * (count - 1)
        starts = [members.reach * rng.randint(0, room) for _ in range(rng.randint(1, 30))]
        step *= members.reach
        inside = members.apart * np.arange(members.ranks)
        every = [start + step * np.arange(count)[:, None] + inside for start in starts]
        expected = {spread(cluster, group.ravel()) for group in every}
        assert set(spreads(cluster, members, np.array(starts), step, count)) == expected
