"""The systems we know: which device, and which links join how many of them.

Bandwidth is that of a device in one direction, as the links are rated: NVLink 4 of an H100 is 900 GB/s in both
directions together, so 450e9; one NIC of 400 Gb/s for each device is 50e9. Nothing is taken off for protocols; what
collectives reach of it is the cost model's business.

Latency is that of a message of the size that training sends, from NCCL's own model (`src/graph/tuning.cc`, `hwLat`,
ring with the simple protocol): 3.4 us across NVLink, 5.7 us across PCIe, 14 us across a network. A further tier of
switches adds `SWITCH_S`: two more switches and longer cables.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from nest.errors import InvalidProblem
from nest.hardware.setup import Tier
from nest.hardware.torus import Torus

NVLINK_S = 3.4e-6
PCIE_S = 5.7e-6
NETWORK_S = 14e-6
SWITCH_S = 1e-6
ICI_S = 1e-6
"""A hop on the interconnect of a TPU: "How to scale your model" (Google, 2025), about 1 us a hop."""

EDR, HDR, NDR = 12.5e9, 25e9, 50e9
"""InfiniBand at 100, 200 and 400 Gb/s, bytes/s in one direction."""

MESH_SOURCE = "one link to each other device of the node, all of them together"


@dataclass(frozen=True, slots=True)
class System:
    """Devices with a switched network.

    Parameters
    ----------
    name
        As given before the colon, as in ``dgx-h100:512``.
    device
        Its name in the catalogue of devices.
    tiers
        Innermost first; the last holds all devices there may be.
    what
        The system in a few words, with the source of its network.
    software
        Framework of the runs of GPTs that were measured on it, by its name in `nest.costing`; empty where that is usual
        for its devices, or there are none.
    """

    name: str
    device: str
    tiers: tuple[Tier, ...]
    what: str
    software: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """Devices on a torus.

    Parameters
    ----------
    name, device, what
        As in `System`.
    axes
        Of the torus.
    most
        Devices of a whole pod.
    unit
        Extents have to be multiples of it for an axis to close to a ring.
    rings_from
        Devices of the smallest torus that has rings; smaller slices are meshes.
    """

    name: str
    device: str
    axes: int
    most: int
    unit: int
    rings_from: int
    what: str

    def torus(self, shape: tuple[int, ...], link_bytes_per_s: float) -> Torus:
        """Return a slice of this shape, with the rings that it has.

        Raises
        ------
        InvalidProblem
            If it has other axes, or more devices than a pod.
        """
        if len(shape) != self.axes:
            raise InvalidProblem("shape", f"{len(shape)} axes", f"a {self.name} has {self.axes}")
        if prod(shape) > self.most:
            raise InvalidProblem("shape", f"{prod(shape)} devices", f"a whole {self.name} pod has {self.most}")
        whole = prod(shape) >= self.rings_from
        return Torus(shape, tuple(whole and not extent % self.unit for extent in shape), link_bytes_per_s, ICI_S)


def _node(name: str, links: int, link: float, *, sharp: bool = False) -> Tier:
    """Return a node of eight devices behind NVSwitch."""
    return Tier(name, 8, links * link, NVLINK_S, in_network_reduction=sharp)


def _fabric(nic: float, *groups: int, sharp: bool = False) -> tuple[Tier, ...]:
    """Return a full-bisection tree of switches with this bandwidth for each device and these groups, and one above."""
    names = ("leaf", "spine", "core")[: len(groups) + 1] if groups else ("fabric",)
    return tuple(
        Tier(name, group, nic, NETWORK_S + turn * SWITCH_S, in_network_reduction=sharp)
        for turn, (name, group) in enumerate(zip(names, (*groups, 0), strict=True))
    )


CUBE_MESH = (  # hybrid cube mesh: 4 of 6 NVLinks stay in a quad, 2 cross; most pairs of different quads share none
    Tier("quad", 4, 100e9, NVLINK_S, pair_bytes_per_s=25e9, source="NVIDIA DGX-1 with V100 white paper, 2017"),
    Tier("node", 8, 50e9, PCIE_S, pair_bytes_per_s=10e9, source="two NVLinks cross; other pairs go through the CPUs"),
)

SYSTEMS = (
    System("dgx-1v", "v100-32gb", (*CUBE_MESH, *_fabric(EDR / 2)), "DGX-1 with V100, 4 x EDR for 8 devices"),
    System(
        "dgx-a100",
        "a100-80gb",
        (_node("nvswitch", 12, 25e9), *_fabric(HDR, 160, sharp=True)),
        "DGX SuperPOD with A100, scalable units of 20 nodes, 8 x HDR",
    ),
    System(
        "dgx-a100-40gb",
        "a100-40gb",
        (_node("nvswitch", 12, 25e9), *_fabric(HDR, 160, sharp=True)),
        "the same with 40 GB devices",
    ),
    System(
        "selene",
        "a100-80gb",
        (_node("nvswitch", 12, 25e9), *_fabric(HDR, 160, 1120, sharp=True)),
        "Selene: SuperPOD of A100, 8 x HDR, three tiers of switches (arXiv 2104.04473, section 5)",
    ),
    System(
        "jean-zay",
        "a100-80gb",
        (_node("nvswitch", 12, 25e9), Tier("fabric", 0, EDR / 2, NETWORK_S, link="omni-path")),
        "Jean Zay: nodes of 8 A100 with 4 x Omni-Path 100 (BigScience, training of BLOOM)",
        "megatron-deepspeed",
    ),
    System(
        "dgx-h100",
        "h100-sxm",
        (_node("nvswitch", 18, 25e9, sharp=True), *_fabric(NDR, 256, 2048, sharp=True)),
        "DGX SuperPOD with H100, scalable units of 32 nodes, 8 x NDR",
    ),
    System(
        "grand-teton",
        "h100-96gb-500w",
        (_node("nvswitch", 18, 25e9), *_fabric(NDR)),
        "Grand Teton: nodes of 8 H100 at 500 W, 400 Gb/s of RoCE each (torchtitan, benchmarks of December 2024)",
    ),
    System(
        "dgx-h200",
        "h200",
        (_node("nvswitch", 18, 25e9, sharp=True), *_fabric(NDR, 256, 2048, sharp=True)),
        "the same with H200",
    ),
    System(
        "h800",
        "h800",
        (_node("nvswitch", 8, 25e9, sharp=True), *_fabric(NDR, 256, 2048)),
        "nodes of 8 H800 with 8 x NDR (DeepSeek-V3 report, arXiv 2412.19437, section 3.1)",
    ),
    System(
        "dgx-b200",
        "b200",
        (_node("nvswitch", 18, 50e9, sharp=True), *_fabric(NDR, 256, 2048, sharp=True)),
        "DGX SuperPOD with B200, scalable units of 32 nodes, 8 x NDR",
    ),
    System(
        "gb200-nvl72",
        "gb200",
        (Tier("nvl72", 72, 900e9, NVLINK_S, in_network_reduction=True), *_fabric(NDR, 576, sharp=True)),
        "racks of 18 nodes with 4 GB200 in one NVLink domain, one NDR NIC each; scalable units of 8 racks",
    ),
    System(
        "aws-p4d",
        "a100-40gb",
        (_node("nvswitch", 12, 25e9), *_fabric(EDR / 2)),
        "p4d.24xlarge: 4 x 100 Gb/s EFA for 8 devices",
    ),
    System(
        "aws-p4de",
        "a100-80gb",
        (_node("nvswitch", 12, 25e9), *_fabric(EDR / 2)),
        "p4de.24xlarge: 4 x 100 Gb/s EFA for 8 devices",
    ),
    System(
        "aws-p5",
        "h100-sxm",
        (_node("nvswitch", 18, 25e9, sharp=True), *_fabric(NDR)),
        "p5.48xlarge: 3,200 Gb/s EFA for 8 devices",
    ),
    System(
        "gcp-a3-high",
        "h100-sxm",
        (_node("nvswitch", 18, 25e9, sharp=True), *_fabric(EDR)),
        "a3-highgpu-8g: 4 x 200 Gb/s for 8 devices",
    ),
    System(
        "gcp-a3-mega",
        "h100-sxm",
        (_node("nvswitch", 18, 25e9, sharp=True), *_fabric(HDR)),
        "a3-megagpu-8g: 8 x 200 Gb/s for 8 devices",
    ),
    System(
        "azure-ndv4",
        "a100-40gb",
        (_node("nvswitch", 12, 25e9), *_fabric(HDR)),
        "ND A100 v4: one HDR NIC a device, fat tree",
    ),
    System(
        "azure-nd-h100-v5",
        "h100-sxm",
        (_node("nvswitch", 18, 25e9, sharp=True), *_fabric(NDR)),
        "ND H100 v5: one NDR NIC a device, fat tree",
    ),
    System(
        "mi300x",
        "mi300x",
        (Tier("xgmi", 8, 448e9, NVLINK_S, pair_bytes_per_s=64e9, source=MESH_SOURCE), *_fabric(NDR)),
        "nodes of 8 MI300X, fully linked, one 400 Gb/s NIC a device",
    ),
    System(
        "l4",
        "l4",
        (Tier("pcie", 8, 32e9, PCIE_S, pair_bytes_per_s=16e9), *_fabric(EDR / 8)),
        "g2-standard-96: 8 L4 on PCIe 4, 100 Gb/s for 8 devices",
    ),
)
"""The catalogue of switched systems."""

PODS = (
    Pod("tpu-v4", "tpu-v4", 3, 4096, 4, 64, "TPU v4 pod: 3-D torus of cubes of 64 chips (arXiv 2304.01433)"),
    Pod("tpu-v5p", "tpu-v5p", 3, 8960, 4, 64, "TPU v5p pod: 3-D torus of cubes of 64 chips"),
    Pod("tpu-v5e", "tpu-v5e", 2, 256, 16, 256, "TPU v5e pod: 2-D torus of 16 x 16 chips; slices are meshes"),
)
"""The catalogue of pods."""

SYSTEM_ALIASES = {
    "dgx-1": "dgx-1v",
    "dgx-v100": "dgx-1v",
    "dgx-a100-80gb": "dgx-a100",
    "a100": "dgx-a100",
    "h100": "dgx-h100",
    "h200": "dgx-h200",
    "b200": "dgx-b200",
    "gb200": "gb200-nvl72",
    "nvl72": "gb200-nvl72",
    "dgx-h800": "h800",
    "p4d": "aws-p4d",
    "p4de": "aws-p4de",
    "p5": "aws-p5",
    "gcp-a3": "gcp-a3-high",
    "ndv4": "azure-ndv4",
    "azure-nd-a100-v4": "azure-ndv4",
    "nd-h100-v5": "azure-nd-h100-v5",
    "azure-ndv5": "azure-nd-h100-v5",
}
"""Other names of systems."""
