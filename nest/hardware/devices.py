"""The devices we know, with the source of each figure.

Rates are dense: data sheets of NVIDIA from the A100 on print twice as much, "with sparsity". Memory is what a process
sees (`total_memory` of CUDA and HIP, as out-of-memory messages report it); the vendors' "GB" are GiB, less ECC and what
the driver keeps.
"""

from __future__ import annotations

from nest.hardware.device import Device, Peaks

GIB = 2**30
PCIE3, PCIE4, PCIE5 = 16e9, 32e9, 64e9  # x16, one direction, as data sheets round it


def _seen(gib: float) -> int:
    """Return so many GiB in whole MiB, as drivers count."""
    return int(gib * 1024) * 2**20


P100 = Peaks(fp32=10.6e12, fp16=21.2e12)  # no matrix units
T4 = Peaks(fp32=8.1e12, fp16=65e12)
V100 = Peaks(fp32=15.7e12, fp16=125e12)  # neither TF32 nor BF16 nor FP8 units
A100 = Peaks(fp32=19.5e12, tf32=156e12, bf16=312e12, fp16=312e12)
H100 = Peaks(fp32=67e12, tf32=494.7e12, bf16=989.4e12, fp16=989.4e12, fp8=1978.9e12)
H100_PCIE = Peaks(fp32=51e12, tf32=378e12, bf16=756e12, fp16=756e12, fp8=1513e12)
B200 = Peaks(fp32=75e12, tf32=1.125e15, bf16=2.25e15, fp16=2.25e15, fp8=4.5e15)
GB200 = Peaks(fp32=80e12, tf32=1.25e15, bf16=2.5e15, fp16=2.5e15, fp8=5e15)
MI300X = Peaks(fp32=163.4e12, tf32=653.7e12, bf16=1307.4e12, fp16=1307.4e12, fp8=2614.9e12)
L4 = Peaks(fp32=30.3e12, tf32=60e12, bf16=121e12, fp16=121e12, fp8=242.5e12)

DEVICES = (
    # NVLink 1: 4 links of 20 GB/s a direction.
    Device("p100-16gb", P100, _seen(15.9), 732e9, "NVIDIA P100 data sheet (SXM2), 2016", 16 * GIB, 20e9, 4, PCIE3),
    Device("t4", T4, _seen(14.74), 300e9, "NVIDIA T4 data sheet, 2018", 16 * GIB, 0, 0, PCIE3),
    # NVLink 2: 6 links of 25 GB/s a direction, 300 GB/s in both directions together.
    Device("v100-16gb", V100, _seen(15.77), 900e9, "NVIDIA V100 data sheet (SXM2), 2018", 16 * GIB, 25e9, 6, PCIE3),
    Device("v100-32gb", V100, _seen(31.74), 900e9, "NVIDIA V100 data sheet (SXM2), 2018", 32 * GIB, 25e9, 6, PCIE3),
    # NVLink 3: 12 links of 25 GB/s a direction, 600 GB/s in both.
    Device("a100-40gb", A100, _seen(39.39), 1.555e12, "NVIDIA A100 data sheet (SXM), 2021", 40 * GIB, 25e9, 12, PCIE4),
    Device("a100-80gb", A100, _seen(79.14), 2.039e12, "NVIDIA A100 data sheet (SXM), 2021", 80 * GIB, 25e9, 12, PCIE4),
    # NVLink 4: 18 links of 25 GB/s a direction, 900 GB/s in both; H800: 8 links, 400 GB/s.
    Device("h100-sxm", H100, _seen(79.1), 3.35e12, "NVIDIA H100 data sheet (SXM5), 2023", 80 * GIB, 25e9, 18, PCIE5),
    Device("h100-pcie", H100_PCIE, _seen(79.1), 2e12, "NVIDIA H100 data sheet (PCIe), 2022", 80 * GIB, 0, 0, PCIE5),
    Device(
        "h100-96gb-500w",
        H100,
        _seen(95.0),
        2.4e12,
        "H100 with 96 GB of HBM2e at 500 W (torchtitan, benchmarks of December 2024)",
        96 * GIB,
        25e9,
        18,
        PCIE5,
    ),
    Device("h200", H100, _seen(139.72), 4.8e12, "NVIDIA H200 data sheet (SXM5), 2023", 141 * GIB, 25e9, 18, PCIE5),
    Device("h800", H100, _seen(79.1), 3.35e12, "NVIDIA H800 (H100 with 400 GB/s of NVLink)", 80 * GIB, 25e9, 8, PCIE5),
    # NVLink 5: 18 links of 50 GB/s a direction, 1.8 TB/s in both.
    Device("b200", B200, _seen(178.35), 8e12, "NVIDIA HGX/DGX B200 data sheet, 2024", 180 * GIB, 50e9, 18, PCIE5),
    Device("gb200", GB200, _seen(184.31), 8e12, "NVIDIA GB200 NVL72 data sheet, 2024", 186 * GIB, 50e9, 18, PCIE5),
    # 7 xGMI links of 64 GB/s a direction, one to each other device of the node.
    Device("mi300x", MI300X, _seen(191.69), 5.3e12, "AMD MI300X data sheet, 2023", 192 * GIB, 64e9, 7, PCIE5),
    Device("l4", L4, _seen(22.03), 300e9, "NVIDIA L4 data sheet, 2023", 24 * GIB, 0, 0, PCIE4),
    # ICI, one direction of one link: "How to scale your model" (Google, 2025), table of interconnects.
    Device(
        "tpu-v4", Peaks(bf16=275e12), 32 * GIB, 1.2e12, "Google Cloud TPU v4 documentation", 32 * GIB, 45e9, 6, PCIE3
    ),
    Device(
        "tpu-v5p",
        Peaks(bf16=459e12),
        95 * GIB,
        2.765e12,
        "Google Cloud TPU v5p documentation",
        95 * GIB,
        90e9,
        6,
        PCIE4,
    ),
    Device(
        "tpu-v5e", Peaks(bf16=197e12), 16 * GIB, 819e9, "Google Cloud TPU v5e documentation", 16 * GIB, 45e9, 4, PCIE4
    ),
)
"""The catalogue."""

ALIASES = {
    "p100": "p100-16gb",
    "v100": "v100-32gb",
    "a100": "a100-80gb",
    "a100-40": "a100-40gb",
    "a100-80": "a100-80gb",
    "a100-sxm-40gb": "a100-40gb",
    "a100-sxm-80gb": "a100-80gb",
    "h100": "h100-sxm",
    "h100-80gb": "h100-sxm",
    "h200-sxm": "h200",
    "h800-sxm": "h800",
}
"""Other names of them."""
