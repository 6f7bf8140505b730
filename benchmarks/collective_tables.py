"""Predicted against published times and bus bandwidths of collectives.

    python benchmarks/collective_tables.py [--tables FOLDER]

The folder holds the published tables (`nccl_allreduce_8xh100_single_node.json`, `collective_busbw_nvidia_gtc.json`,
`mleng_allreduce_table.json`). Three more measurements are in this file, with their source. Errors are of time in
sweeps, of bandwidth in the tables of limits.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nest.cluster import Cluster, Level
from nest.cost.algorithms import Kind
from nest.cost.alpha_beta import Collective, bus_bandwidth, collective
from nest.cost.groups import Group
from nest.cost.links import NVLINK, NVLINK5, PCIE, RDMA, TCP, XGMI, LevelTraits, LinkKind, Network
from nest.hardware.systems import NETWORK_S, NVLINK_S, PCIE_S

PLACES = [above / "shared" / "validation" for above in Path(__file__).resolve().parents]
TABLES = next((place for place in PLACES if place.is_dir()), PLACES[0])

LATENCIES_S = {NVLINK: NVLINK_S, NVLINK5: NVLINK_S, XGMI: NVLINK_S, PCIE: PCIE_S, RDMA: NETWORK_S, TCP: NETWORK_S}
MEMORY_BYTES = 80e9
LARGE = 16 * 2.0**30
"""Bytes at which only bandwidth counts."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Groups of a level: how many devices, what each sends, over which links, and whether switches add."""

    group: int
    bytes_per_s: float
    kind: LinkKind
    adds: bool = False
    pair_bytes_per_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class Limit:
    """A published bus bandwidth of large messages: keys of its table, and what it was measured on."""

    keys: tuple[str, ...]
    devices: int
    tiers: tuple[Tier, ...]
    kind: Kind = Kind.ALL_REDUCE


@dataclass(frozen=True, slots=True)
class Compared:
    """Published and predicted, of the same unit, with what was compared, and the way that is fastest."""

    what: str
    published: float
    predicted: float
    way: str

    @property
    def error(self) -> float:
        """By which part of the published figure the prediction is off."""
        return self.predicted / self.published - 1


V100, A100, H100, B200 = (
    Tier(8, 150e9, NVLINK),
    Tier(8, 300e9, NVLINK),
    Tier(8, 450e9, NVLINK),
    Tier(8, 900e9, NVLINK5),
)
NVL72 = Tier(72, 900e9, NVLINK5)
H100_SHARP, B200_SHARP, NVL72_SHARP = (
    Tier(8, 450e9, NVLINK, adds=True),
    Tier(8, 900e9, NVLINK5, adds=True),
    Tier(72, 900e9, NVLINK5, adds=True),
)


def net(rate_of_node: float, kind: LinkKind = RDMA, *, adds: bool = False) -> Tier:
    """Return 4 nodes of 8 devices, with this bandwidth for each node."""
    return Tier(32, rate_of_node / 8, kind, adds)


def pcie(rate: float) -> tuple[Tier, ...]:
    """Return 8 devices under one switch."""
    return (Tier(8, rate, PCIE),)


def pcie_halves(rate: float) -> tuple[Tier, ...]:
    """Return two switches with 4 devices and one slot's width to the other each."""
    return (Tier(4, rate, PCIE), Tier(8, rate / 4, PCIE))


REDUCE24, REDUCE25, ALL25 = "allreduce_GTC24", "allreduce_GTC25", "alltoall_GTC25"
A2A = Kind.ALL_TO_ALL

LIMITS = (
    Limit((REDUCE24, "multi_gpu", "PCI Gen4"), 8, pcie(32e9)),
    Limit((REDUCE24, "multi_gpu", "PCI Gen5"), 8, pcie(64e9)),
    Limit((REDUCE24, "multi_gpu", "NVLink2 (V100)"), 8, (V100,)),
    Limit((REDUCE24, "multi_gpu", "NVLink3 (A100)"), 8, (A100,)),
    Limit((REDUCE24, "multi_gpu", "NVLink4 (H100)"), 8, (H100,)),
    Limit((REDUCE24, "multi_gpu", "NVLink4 SHARP (H100)"), 8, (H100_SHARP,)),
    Limit((REDUCE24, "multi_node", "100GbE TCP/IP"), 32, (A100, net(12.5e9, TCP))),
    Limit((REDUCE24, "multi_node", "200Gb RDMA"), 32, (A100, net(25e9))),
    Limit((REDUCE24, "multi_node", "400Gb RDMA"), 32, (A100, net(50e9))),
    Limit((REDUCE24, "multi_node", "NVL3 + 8x200Gb (DGX A100)"), 32, (A100, net(200e9))),
    Limit((REDUCE24, "multi_node", "NVL4 + 8x400Gb (DGX H100)"), 32, (H100, net(400e9))),
    Limit((REDUCE24, "multi_node", "SHARP 8x400Gb (DGX H100)"), 32, (H100_SHARP, net(400e9, adds=True))),
    Limit((REDUCE25, "8_gpus", "PCI Gen6"), 8, pcie(128e9)),
    Limit((REDUCE25, "8_gpus", "NVLink3 (A100)"), 8, (A100,)),
    Limit((REDUCE25, "8_gpus", "NVLink4 (H100)"), 8, (H100,)),
    Limit((REDUCE25, "8_gpus", "NVLink4 SHARP (H100)"), 8, (H100_SHARP,)),
    Limit((REDUCE25, "8_gpus", "NVLink5 (B200)"), 8, (B200,)),
    Limit((REDUCE25, "8_gpus", "NVLink5 SHARP (B200)"), 8, (B200_SHARP,)),
    Limit((REDUCE25, "32_gpus", "2x200Gb RDMA"), 32, (A100, net(50e9))),
    Limit((REDUCE25, "32_gpus", "NVL3 + 8x200Gb (DGX A100)"), 32, (A100, net(200e9))),
    Limit((REDUCE25, "32_gpus", "NVL4 + 8x400Gb (DGX H100)"), 32, (H100, net(400e9))),
    Limit((REDUCE25, "32_gpus", "SHARP 8x400Gb (DGX H100)"), 32, (H100_SHARP, net(400e9, adds=True))),
    Limit((REDUCE25, "32_gpus", "NVLink (GB200 NVL72)"), 32, (NVL72,)),
    Limit((REDUCE25, "32_gpus", "NVLink5 SHARP (GB200 NVL72)"), 32, (NVL72_SHARP,)),
    Limit((ALL25, "8_gpus", "PCI Gen5 2x4"), 8, pcie_halves(64e9), A2A),
    Limit((ALL25, "8_gpus", "PCI Gen6 2x4"), 8, pcie_halves(128e9), A2A),
    Limit((ALL25, "8_gpus", "NVLink3 (A100)"), 8, (A100,), A2A),
    Limit((ALL25, "8_gpus", "NVLink4 (H100)"), 8, (H100,), A2A),
    Limit((ALL25, "8_gpus", "NVLink5 (B200)"), 8, (B200,), A2A),
    Limit((ALL25, "32_gpus", "2x200Gb RDMA"), 32, (A100, net(50e9)), A2A),
    Limit((ALL25, "32_gpus", "2x400Gb RDMA"), 32, (A100, net(100e9)), A2A),
    Limit((ALL25, "32_gpus", "8x200Gb (DGX A100)"), 32, (A100, net(200e9)), A2A),
    Limit((ALL25, "32_gpus", "8x400Gb (DGX H100)"), 32, (H100, net(400e9)), A2A),
    Limit((ALL25, "32_gpus", "NVLink5 (GB200 NVL72)"), 32, (NVL72,), A2A),
)
"""All rows of NVIDIA's tables."""

KIB = {"KiB": 1, "MiB": 2**10, "GiB": 2**20}

MLENG = (32, (H100, net(100e9)))
"""Its hardware is not stated: 32 devices in 4 nodes follow from the table, 100 GB/s for each node are assumed."""

H200_GB_PER_S = dict(
    zip(
        [32 * 2**power for power in range(20)],
        (
            *(3.20, 6.26, 12.40, 24.63, 48.30, 72.45, 91.48, 139.97, 182.03, 242.45),
            *(298.44, 369.82, 411.21, 442.27, 455.82, 464.00, 468.31, 473.10, 475.16, 480.70),
        ),
        strict=True,
    )
)
"""Held out: nccl-tests on 8 H200, by KiB (github.com/stas00/ml-engineering, network/benchmarks/README.md)."""

B200_GB_PER_S = dict(
    zip(
        [32 * 2**power for power in range(20)],
        (
            *(0.65, 1.27, 2.35, 4.06, 6.99, 12.47, 20.79, 31.63, 50.61, 71.80),
            *(142.90, 197.77, 260.50, 283.23, 309.91, 365.99, 371.26, 374.66, 376.14, 376.71),
        ),
        strict=True,
    )
)
"""4 nodes of 8 B200 with 8 x 400 Gb/s, the same page; no constant depends on it."""

MI300X_GB_PER_S = {2: 47.671, 8: 312.912}
"""By the number of devices, 4 GiB (the same repository, network/README.md); the constant of xGMI is from here."""


def main() -> None:
    """Print all tables."""
    folder = parser().parse_args().tables
    if not folder.is_dir():
        sys.exit(f"{folder} is no folder; give that of the published tables with --tables")
    show("NCCL all-reduce, 8 H100, us", sweep(folder))
    show("Bus bandwidth of large messages, GB/s", limits(folder))
    show("PyTorch all-reduce, 4 nodes (hardware assumed), us", mleng(folder))
    show("Held out: NCCL all-reduce, 8 H200, us", rated(H200_GB_PER_S, 8, (H100_SHARP,)))
    show("Not calibrated on: all-reduce, 4 nodes of 8 B200, us", rated(B200_GB_PER_S, 32, (B200_SHARP, net(400e9))))
    show("All-reduce of 4 GiB on MI300X, GB/s", mi300x())


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--tables", type=Path, default=TABLES, help="folder of the published tables")
    return made


def sweep(folder: Path) -> list[Compared]:
    """Return the sweep of NCCL's tests over all sizes, in us."""
    rows = _read(folder, "nccl_allreduce_8xh100_single_node.json")["rows"]
    run = collective_of(8, (H100_SHARP,))
    return [timed(run, f"{row['bytes']}", float(row["bytes"]), row["time_us"]) for row in rows]


def limits(folder: Path) -> list[Compared]:
    """Return NVIDIA's bus bandwidths of large messages, in GB/s."""
    tables = _read(folder, "collective_busbw_nvidia_gtc.json")
    return [limit(each, tables[each.keys[0]][each.keys[1]][each.keys[2]]) for each in LIMITS]


def mleng(folder: Path) -> list[Compared]:
    """Return the sweep over 4 nodes, in us; its times are those that its bus bandwidths stand for."""
    rows = _read(folder, "mleng_allreduce_table.json")["tables"][0]["rows"]
    figures = {
        int(row["payload"][:-3]) * KIB[row["payload"][-3:]]: float(row["busbw"].removesuffix("GBps")) for row in rows
    }
    return rated(figures, *MLENG)


def rated(busbw: dict[int, float], devices: int, tiers: Sequence[Tier]) -> list[Compared]:
    """Return a sweep that is given by bus bandwidths in GB/s for sizes in KiB, in us."""
    run = collective_of(devices, tiers)
    seconds = {kib: bus_bandwidth(Kind.ALL_REDUCE, devices, kib * 1024.0, 1e9 * rate) for kib, rate in busbw.items()}
    return [timed(run, f"{kib} KiB", kib * 1024.0, us * 1e6) for kib, us in seconds.items()]


def mi300x() -> list[Compared]:
    """Return bus bandwidths where each pair of devices has a link of its own, in GB/s."""
    tier = Tier(8, 448e9, XGMI, pair_bytes_per_s=64e9)
    cases = [Limit((f"{devices} of 8",), devices, (tier,)) for devices in MI300X_GB_PER_S]
    return [limit(case, MI300X_GB_PER_S[case.devices]) for case in cases]


def timed(run: Collective, what: str, size: float, published_us: float) -> Compared:
    """Return the comparison of a time."""
    way = run.fastest(size)
    return Compared(what, published_us, run.seconds(size) * 1e6, f"{way.algorithm} {way.protocol}")


def limit(case: Limit, published: float) -> Compared:
    """Return the comparison of a bus bandwidth."""
    run = collective_of(case.devices, case.tiers, case.kind)
    way = run.fastest(LARGE)
    reached = bus_bandwidth(case.kind, case.devices, LARGE, run.seconds(LARGE)) / 1e9
    return Compared(", ".join(case.keys), published, reached, f"{way.algorithm} {way.protocol}")


def collective_of(devices: int, tiers: Sequence[Tier], kind: Kind = Kind.ALL_REDUCE) -> Collective:
    """Return the ways to run a collective of the first devices of such a network."""
    return collective(network_of(tiers), kind, Group(0, 1, devices))


def network_of(tiers: Sequence[Tier]) -> Network:
    """Return the network that the tiers make, with as many devices as the last of them joins."""
    below = [1, *(tier.group for tier in tiers)]
    levels = tuple(
        Level(tier.group // size, tier.bytes_per_s, LATENCIES_S[tier.kind])
        for tier, size in zip(tiers, below, strict=False)
    )
    traits = tuple(LevelTraits(tier.kind, tier.pair_bytes_per_s, in_network_reduction=tier.adds) for tier in tiers)
    return Network(Cluster(tiers[-1].group, MEMORY_BYTES, levels), traits)


def show(title: str, rows: Sequence[Compared]) -> None:
    """Print a table, with average and worst error."""
    print(f"\n{title}")
    for row in rows:
        print(f"  {row.what:58s} {row.published:11.2f} {row.predicted:11.2f} {row.error:+7.1%}  {row.way}")
    print(f"  mean error {mean(rows):.1%}, worst {worst(rows):.1%}")


def mean(rows: Sequence[Compared]) -> float:
    """Return the average size of the errors."""
    return sum(_sizes(rows)) / len(rows)


def worst(rows: Sequence[Compared]) -> float:
    """Return the largest size of an error."""
    return max(_sizes(rows))


def _sizes(rows: Sequence[Compared]) -> Iterator[float]:
    return (abs(row.error) for row in rows)


def _read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
