"""The few constants that say how much of its peak a device reaches: all are here, each for a physical reason."""

from __future__ import annotations

from dataclasses import dataclass

from nest.errors import InvalidProblem
from nest.hardware import Device

TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
"""Rows and columns of the result that one processor makes at a time; libraries choose the best of such a set."""

TILE_RATES = {256 * 128: 1.0, 128 * 128: 0.92, 128 * 64: 0.76, 64 * 64: 0.56}
"""Rate of a tile over that of the largest, by its area: a tile of r x c loads (r + c) / (r c) numbers per operation."""

RAMP = 320
"""Steps by which the inner length of a product is longer in effect: a tile's pipeline fills, and is written out."""

ALIGNMENT = 8
"""Elements of 16 bits that the matrix units want lengths to be multiples of (16 bytes)."""

UNALIGNED = 0.10
"""Rate where a length is odd: loads of 2 to 4 bytes instead of 16 starve the matrix units."""

OVERLAP_TAX = 0.1
"""Share of a hidden collective's time that computation loses: its kernels take processors and memory bandwidth."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What a device reaches.

    Parameters
    ----------
    processors
        Streaming multiprocessors, for waves of tiles.
    sustained
        Large products: share of the peak that is left at the clock that the power limit allows.
    memory
        Share of the memory's peak bandwidth that streaming kernels see.
    flash_forward, flash_backward
        Fused attention: share of the peak, over the operations that count.
    launch_s
        From the end of one kernel to the start of the next on a busy queue.
    fp8
        As `sustained`, of products in fp8: they draw more power, so that the clock is lower; 0 for the same.

    Raises
    ------
    InvalidProblem
        If a share is not in (0, 1].
    """

    processors: int
    sustained: float
    memory: float
    flash_forward: float
    flash_backward: float
    launch_s: float = 3e-6
    fp8: float = 0.0

    def __post_init__(self) -> None:
        for name in ("sustained", "memory", "flash_forward", "flash_backward"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidProblem(f"efficiency.{name}", f"{getattr(self, name)!r}", "give a share above 0, up to 1")


KNOWN = {
    # Fitted on five rows of arXiv 2104.04473 and 2205.05198; attention as FlashAttention-2 publishes it (2307.08691).
    "a100": Efficiency(108, 0.82, 0.75, 0.68, 0.56),
    # Fitted on three rows of torchtitan, at 500 W; attention of FlashAttention-3 (arXiv 2407.08608) at that clock.
    "h100-96gb-500w": Efficiency(132, 0.56, 0.75, 0.50, 0.40, fp8=0.50),
    # The same at 700 W: 1.25 times the clock.
    "h100": Efficiency(132, 0.70, 0.75, 0.60, 0.48, fp8=0.60),
    "h200": Efficiency(132, 0.70, 0.75, 0.60, 0.48, fp8=0.60),
    "h800": Efficiency(132, 0.70, 0.75, 0.60, 0.48, fp8=0.60),
    # Fitted on five rows of SimuMax's measurements at 1000 W; a GB200 has 1200 W.
    "b200": Efficiency(148, 0.46, 0.50, 0.52, 0.41),
    "gb200": Efficiency(148, 0.50, 0.50, 0.55, 0.43),
    # Fitted on three rows of Mist: 72 W leave half of the clock.
    "l4": Efficiency(58, 0.47, 0.90, 0.45, 0.38),
    # Fitted on nothing: what large products and streaming kernels are known to reach on their generation.
    "v100": Efficiency(80, 0.80, 0.75, 0.35, 0.30),
    "mi300x": Efficiency(304, 0.50, 0.75, 0.35, 0.28),
    "tpu": Efficiency(1, 0.80, 0.85, 0.60, 0.50),
}
"""By the whole name of a device, or by its first part; `docs/costs.md` says more on what was fitted how."""

DEFAULT = Efficiency(128, 0.70, 0.80, 0.50, 0.40)
"""For devices that nobody calibrated: about what the known ones have in common."""


def efficiency_of(device: Device) -> Efficiency:
    """Return the constants of a device; those of its generation, by the first part of its name."""
    return KNOWN.get(device.name) or KNOWN.get(device.name.partition("-")[0], DEFAULT)
