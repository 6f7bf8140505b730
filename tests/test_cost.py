"""Every cost formula, against cases worked by hand in the comments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.cluster import Cluster, Level
from nest.cost.collectives import shard_s, sync_height, sync_heights, sync_s, transfer_s
from nest.cost.compute import walk
from nest.cost.memory import needed, resident
from nest.cost.schedule import iteration, rounds
from nest.presets import ARTIFACT, PAPER

# Groups of 4, 8 and 16 devices. The outermost level is faster than the middle one, so that a path to it still has the
# middle one's 50 bytes/s.
CLUSTER = Cluster(16, 1000, (Level(4, 100.0, 1.0), Level(2, 50.0, 2.0), Level(2, 80.0, 3.0)))
SGD, ADAM = 0, 6


@pytest.mark.parametrize(
    ("level", "seconds"),
    [
        (0, 3.0),  # 200 / 100 + 1
        (1, 12.0),  # 2 (200 / 50 + 2)
        (2, 14.0),  # 2 (200 / min(100, 50, 80) + 3)
    ],
)
def test_transfer(level: int, seconds: float) -> None:
    """D1: latency plus bytes over the slowest level of the path, twice above the innermost."""
    assert transfer_s(CLUSTER, PAPER, level, 200.0) == pytest.approx(seconds, rel=1e-15)
    assert transfer_s(CLUSTER, ARTIFACT, level, 200.0) == pytest.approx(seconds / 1000, rel=1e-15)


def test_transfer_of_nothing() -> None:
    """An edge without bytes still pays the latency, as every message does."""
    assert transfer_s(CLUSTER, PAPER, 1, 0.0) == 4.0  # 2 (0 + 2)


@pytest.mark.parametrize(
    ("level", "degree", "size", "seconds"),
    [
        (0, 2, 120.0, 1.6),  # 1 (1 + 60 / 100)
        (1, 3, 120.0, 5.6),  # 2 (2 + 40 / 50)
        (2, 8, 120.0, 23.1),  # 7 (3 + 15 / 50)
        (2, 1, 120.0, 0.0),  # nobody to talk to
        (1, 4, 0.0, 6.0),  # 3 (2 + 0)
    ],
)
def test_sharding_ring(level: int, degree: int, size: float, seconds: float) -> None:
    """D4: a ring's steps, each a latency and a share of the bytes."""
    assert shard_s(CLUSTER, PAPER, level, degree, size) == pytest.approx(seconds, rel=1e-15)
    assert shard_s(CLUSTER, ARTIFACT, level, degree, size) == pytest.approx(seconds / 1000, rel=1e-15)


@pytest.mark.parametrize(
    ("replicas", "height", "seconds"),
    [
        (1, 1, 0.0),
        (2, 1, 5.0),  # 1 + 400 / 100
        (3, 1, 5.0),  # floor(log2 3) = 1 halving, as for 2
        (8, 1, 10.0),  # (1 + 4) + (1 + 2) + (1 + 1)
        (2, 2, 25.0),  # 5, then 5 + 2 (2 + 400 / 50) + 0
        (3, 2, 25.0),
        (8, 2, 30.0),  # 10 + 20
        (2, 3, 66.0),  # 25, then low = 25: 25 + 2 (3 + 400 / 80) + 25
        (3, 3, 66.0),
        (8, 3, 76.0),  # 30, then low = 30: 30 + 16 + 30
    ],
)
def test_synchronisation(replicas: int, height: int, seconds: float) -> None:
    """D6: halving within the innermost level, then each level up to the one that all replicas share."""
    assert sync_s(CLUSTER, PAPER, replicas, height, 400.0) == pytest.approx(seconds, rel=1e-15)
    assert sync_s(CLUSTER, ARTIFACT, replicas, height, 400.0) == pytest.approx(seconds / 1000, rel=1e-15)


def test_synchronisation_over_four_levels() -> None:
    """D6: the carried part of a level is all that came before it.

    Bytes 10, every level 10 bytes/s and 0 s: total 1; level 1: 1 + 2 + 0 = 3, low 3; level 2: 3 + 2 + 3 = 8, low 11;
    level 3: 8 + 2 + 11 = 21.
    """
    cluster = Cluster(16, 1, (Level(2, 10.0, 0.0),) * 4)
    assert [sync_s(cluster, PAPER, 2, height, 10.0) for height in (1, 2, 3, 4)] == [1.0, 3.0, 8.0, 21.0]


@pytest.mark.parametrize(
    ("replicas", "stride", "height"),
    [
        (1, 4, 1),  # alone
        (2, 2, 1),  # 0 and 2, of 0..3
        (2, 4, 2),  # 0 and 4, of 0..7
        (3, 3, 2),  # 0, 3 and 6
        (3, 4, 3),  # 0, 4 and 8, of 0..15
    ],
)
def test_height_of_the_replicas(replicas: int, stride: int, height: int) -> None:
    """D6: levels that the starts of all replicas need to share a group."""
    assert sync_height(CLUSTER, replicas, stride) == height
    assert sync_heights(CLUSTER, np.array([replicas]), np.array([stride])).tolist() == [height]


@pytest.mark.parametrize(
    ("copies", "zero", "degree", "quanta"),
    [
        (SGD, 0, 1, 23),  # 2 * 10 + 3
        (SGD, 1, 4, 23),  # no optimizer state to share
        (SGD, 2, 4, 16),  # 10 + ceil(10 / 4) + 3
        (SGD, 3, 4, 8),  # ceil(20 / 4) + 3
        (ADAM, 0, 1, 83),  # 8 * 10 + 3
        (ADAM, 1, 4, 38),  # 20 + 60 / 4 + 3
        (ADAM, 2, 4, 31),  # 10 + ceil(70 / 4) + 3
        (ADAM, 3, 4, 23),  # 80 / 4 + 3
        (ADAM, 3, 3, 30),  # ceil(80 / 3) + 3, once for all that is shared
        (ADAM, 2, 3, 37),  # 10 + ceil(70 / 3) + 3
    ],
)
def test_memory(copies: int, zero: int, degree: int, quanta: int) -> None:
    """C11: 10 quanta of parameters and 3 of activations, under each type of ZeRO and both optimizers."""
    assert resident(10, 3, copies, zero, degree) == quanta
    assert resident(np.array([10]), np.array([3]), copies, zero, degree).tolist() == [quanta]


def test_memory_of_microbatches_in_flight() -> None:
    """C11: every microbatch in flight but the one at work keeps a stash."""
    assert needed(83, 5, 1) == 83
    assert needed(83, 5, 4) == 98  # 83 + 3 * 5


@pytest.mark.parametrize(
    ("start", "times", "arrivals", "finish"),
    [
        (0, [2, 3, 4], [0, 0, 0], 9),
        (0, [2, 3, 4], [5, 0, 0], 14),  # a chain: transfer, then the layers
        (0, [2, 3, 4], [5, 6, 0], 14),  # at 6 the first layer still runs (until 7)
        (0, [2, 3, 4], [5, 9, 0], 16),  # 7, waits until 9, 12, 16
        (0, [2, 3, 4], [0, 0, 20], 24),
        (7, [2, 3, 4], [5, 0, 0], 16),  # the repeated pass hides the transfer
        (7, [2, 3, 4], [8, 0, 0], 17),
        (0, [0, 0], [3, 4], 4),
    ],
)
def test_walk(start: int, times: list[int], arrivals: list[int], finish: int) -> None:
    """D2, D3: each layer starts when the one before is done and all that it reads has arrived."""
    assert walk(start, times, arrivals) == finish


@pytest.mark.parametrize(
    ("microbatches", "replicas", "stages", "count"),
    [
        (7, 1, 1, 7),
        (7, 2, 3, 6),  # ceil(7 / 2) + 2
        (8, 2, 3, 6),
        (1, 1, 4, 4),
    ],
)
def test_iteration(microbatches: int, replicas: int, stages: int, count: int) -> None:
    """D7: a load of 10 in every round, and a synchronisation of 3."""
    assert rounds(microbatches, replicas, stages) == count
    assert iteration(10, microbatches, replicas, stages, 3) == 10 * count + 3


@given(
    sizes=st.lists(st.floats(0, 1e15), min_size=1, max_size=8),
    level=st.integers(0, 2),
    degree=st.integers(2, 64),
    preset=st.sampled_from([PAPER, ARTIFACT]),
)
def test_arrays_give_the_same_floats(sizes: list[float], level: int, degree: int, preset: object) -> None:
    """A formula has one value, bit by bit, whether it is asked for one size or for many."""
    known = PAPER if preset is PAPER else ARTIFACT
    array = np.array(sizes)
    assert transfer_s(CLUSTER, known, level, array).tolist() == [transfer_s(CLUSTER, known, level, x) for x in sizes]
    rings = [shard_s(CLUSTER, known, level, degree, x) for x in sizes]
    assert shard_s(CLUSTER, known, level, degree, array).tolist() == rings
    syncs = [sync_s(CLUSTER, known, degree, level + 1, x) for x in sizes]
    assert sync_s(CLUSTER, known, degree, level + 1, array).tolist() == syncs
