"""Devices under levels: groups, spans, paths, and figures that make no sense."""

from __future__ import annotations

import re
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem


def cluster_of(*fanouts: int, devices: int = 0) -> Cluster:
    """Return a cluster with these fan-outs, as large as they allow unless said otherwise."""
    levels = tuple(Level(fanout, 100.0 / (at + 1), 0.0) for at, fanout in enumerate(fanouts))
    places = int(np.prod(fanouts))
    return Cluster(devices or places, 1000, levels, partial=0 < devices < places)


def test_group_sizes() -> None:
    """Products of the fan-outs from the innermost on."""
    assert cluster_of(4, 3, 1, 2).group_sizes == (4, 12, 12, 24)


def test_path_bandwidths() -> None:
    """A path is as fast as the slowest level it crosses."""
    speeds = [100.0, 400.0, 50.0, 80.0]
    cluster = Cluster(16, 1, tuple(Level(2, speed, 0.0) for speed in speeds))
    assert cluster.path_bandwidths == (100.0, 100.0, 50.0, 50.0)


@pytest.mark.parametrize(
    ("low", "high", "level"),
    [
        (0, 0, 0),  # a device and itself
        (0, 2, 0),  # groups of 3: 0..2
        (2, 3, 1),  # neighbours across a boundary; groups of 6: 0..5
        (0, 5, 1),
        (5, 6, 2),
        (0, 11, 2),
    ],
)
def test_span(low: int, high: int, level: int) -> None:
    """The smallest level at which two devices share a group, either way round."""
    cluster = cluster_of(3, 2, 2)
    assert cluster.span(low, high) == level
    assert cluster.span(high, low) == level


def test_span_with_a_level_of_one() -> None:
    """A level that joins one group does not bring devices together: 0 and 1 meet at level 1 here."""
    assert cluster_of(1, 2, 1).span(0, 1) == 1
    assert cluster_of(2, 1, 2).span(1, 2) == 2


def test_span_beyond_the_cluster() -> None:
    """A device that does not exist is named."""
    with pytest.raises(InvalidProblem, match="device 12 is not in a cluster of 12"):
        cluster_of(3, 2, 2).span(0, 12)


@given(
    fanouts=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    data=st.data(),
)
def test_spans_of_arrays(fanouts: list[int], data: st.DataObject) -> None:
    """Arrays of devices have the spans that the devices have one by one."""
    cluster = cluster_of(*fanouts)
    device = st.integers(0, cluster.devices - 1)
    pairs = data.draw(st.lists(st.tuples(device, device), min_size=1, max_size=20))
    low, high = np.array(pairs).T
    assert cluster.spans(low, high).tolist() == [cluster.span(a, b) for a, b in pairs]


def test_last_groups_may_be_incomplete() -> None:
    """Six devices under places for eight: the second group of four holds two."""
    cluster = cluster_of(4, 2, devices=6)
    assert cluster.group_sizes == (4, 8)
    assert cluster.span(3, 5) == 1


@pytest.mark.parametrize(("devices", "partial"), [(8, False), (8, True), (7, True), (1, True)])
def test_places_for_all_devices(devices: int, partial: bool) -> None:
    """Fan-outs multiply to the devices; where the cluster is partial there may be more places."""
    levels = (Level(4, 1.0, 0.0), Level(2, 1.0, 0.0))
    assert Cluster(devices, 1, levels, partial=partial).devices == devices


@pytest.mark.parametrize(
    ("devices", "partial", "message"),
    [
        (7, False, "make their product the number of devices, or give partial = true if the last groups"),
        (9, False, "fan-outs 4 x 2 make 8 places for 9 devices; make their product the number of devices"),
        (9, True, "fan-outs 4 x 2 make 8 places for 9 devices; make their product at least the number of devices"),
    ],
)
def test_places_that_do_not_match(devices: int, partial: bool, message: str) -> None:
    """Other numbers of places are an error that says what would be right."""
    with pytest.raises(InvalidProblem, match=re.escape(message)):
        Cluster(devices, 1, (Level(4, 1.0, 0.0), Level(2, 1.0, 0.0)), partial=partial)


@pytest.mark.parametrize(
    ("devices", "hbm", "levels", "where"),
    [
        (0, 1, (Level(1, 1.0, 0.0),), "cluster.devices"),
        (2, 1, (), "cluster.levels"),
        (9, 1, (Level(4, 1.0, 0.0), Level(2, 1.0, 0.0)), "cluster.levels"),
        (2, 0, (Level(2, 1.0, 0.0),), "cluster.hbm_bytes"),
        (2, 1, (Level(2, 0.0, 0.0),), "cluster.levels[0].bandwidth_bytes_per_s"),
        (2, 1, (Level(2, inf, 0.0),), "cluster.levels[0].bandwidth_bytes_per_s"),
        (4, 1, (Level(2, 1.0, 0.0), Level(2, 1.0, -1.0)), "cluster.levels[1].latency_s"),
        (4, 1, (Level(2, 1.0, 0.0), Level(2, 1.0, nan)), "cluster.levels[1].latency_s"),
        (4, 1, (Level(-2, 1.0, 0.0), Level(-2, 1.0, 0.0)), "cluster.levels[0].fanout"),
    ],
)
def test_figures_out_of_range(devices: int, hbm: int, levels: tuple[Level, ...], where: str) -> None:
    """The error names the figure."""
    with pytest.raises(InvalidProblem) as caught:
        Cluster(devices, hbm, levels)
    assert caught.value.where == where
