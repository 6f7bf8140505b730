"""Published times and bus bandwidths of collectives, beside those of `nest.cost`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from nest.cluster import Cluster, Level
from nest.cost.algorithms import Kind
from nest.cost.alpha_beta import Collective, bus_bandwidth, collective
from nest.cost.groups import Group
from nest.cost.links import NVLINK, NVLINK5, PCIE, RDMA, TCP, XGMI, LevelTraits, Network
from nest.hardware.systems import NETWORK_S, NVLINK_S, PCIE_S
from nest.validation.fact import Fact, left_out
from nest.validation.figures import read_figures

LINKS = {kind.name: kind for kind in (NVLINK, NVLINK5, XGMI, PCIE, RDMA, TCP)}

LATENCIES_S = {NVLINK: NVLINK_S, NVLINK5: NVLINK_S, XGMI: NVLINK_S, PCIE: PCIE_S, RDMA: NETWORK_S, TCP: NETWORK_S}

MEMORY_BYTES = 80e9

LARGE = 16 * 2.0**30
"""Bytes at which only bandwidth counts."""

GB = 1e9


def nccl_sweep() -> tuple[Fact, ...]:
    """Return NCCL's all-reduce of all sizes on one node."""
    run = _collective("all-reduce", 8, "8:450:nvlink:+")
    return tuple(
        Fact(
            f"{int(row['bytes']):,} bytes",
            "up to 1 MiB" if int(row["bytes"]) <= 2**20 else "above 1 MiB",
            "time",
            "s",
            float(row["time_us"]) * 1e-6,
            run.seconds(float(row["bytes"])),
            row["fitted"] == "1",
        )
        for row in read_figures("nccl_sweep")[1]
    )


def nodes_sweep() -> tuple[Fact, ...]:
    """Return all-reduces of all sizes that are published as bus bandwidths."""
    return tuple(_rated(row) for row in read_figures("nodes_sweep")[1])


def bus_bandwidths() -> tuple[Fact, ...]:
    """Return bus bandwidths of large messages."""
    return tuple(_limit(row) for row in read_figures("bus_bandwidth")[1])


def _rated(row: Mapping[str, str]) -> Fact:
    devices, size = int(row["devices"]), float(row["kib"]) * 1024
    seconds = bus_bandwidth(Kind.ALL_REDUCE, devices, size, float(row["gb_per_s"]) * GB)
    predicted = _collective("all-reduce", devices, row["tiers"]).seconds(size)
    return Fact(f"{int(row['kib']):,} KiB", row["section"], "time", "s", seconds, predicted, row["fitted"] == "1")


def _limit(row: Mapping[str, str]) -> Fact:
    if not row["tiers"]:
        return left_out(row["what"], "the group is not stated", float(row["gb_per_s"]) * GB, "B/s")
    devices, kind = int(row["devices"]), Kind(row["kind"])
    seconds = _collective(row["kind"], devices, row["tiers"]).seconds(LARGE)
    reached = bus_bandwidth(kind, devices, LARGE, seconds)
    published = float(row["gb_per_s"]) * GB
    return Fact(row["what"], row["section"], "rate", "B/s", published, reached, row["fitted"] == "1")


@lru_cache
def _collective(kind: str, devices: int, tiers: str) -> Collective:
    """Return the ways to run a collective among the first devices of a network.

    Parameters
    ----------
    tiers
        Groups from the smallest on, as in ``8:450:nvlink:+ 32:50:rdma``: devices, GB/s of each, links; ``+`` where the
        switches add, or the GB/s between a pair.
    """
    levels, traits, size = [], [], 1
    for text in tiers.split():
        group, rate, link, *more = text.split(":")
        levels.append(Level(int(group) // size, float(rate) * GB, LATENCIES_S[LINKS[link]]))
        pair = next((float(each) * GB for each in more if each != "+"), float("inf"))
        traits.append(LevelTraits(LINKS[link], pair, in_network_reduction="+" in more))
        size = int(group)
    network = Network(Cluster(size, MEMORY_BYTES, tuple(levels)), tuple(traits))
    return collective(network, Kind(kind), Group(0, 1, devices))
