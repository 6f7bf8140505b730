"""How long kernels take on a device: the longer of computing and moving bytes, by the shape of the work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from nest.costing.efficiency import ALIGNMENT, RAMP, TILE_RATES, TILES, UNALIGNED, Efficiency, efficiency_of
from nest.costing.framework import Framework
from nest.hardware import Device


@dataclass(frozen=True)
class Kernels:
    """Times on one device.

    Parameters
    ----------
    device, efficiency
        The device, and which share of its peaks it reaches.
    host_s
        Time that the host needs to issue a kernel; no kernel comes sooner after the one before.
    attention
        Rate of the framework's fused attention over the best that is known for the device.
    """

    device: Device
    efficiency: Efficiency
    host_s: float = 0.0
    attention: float = 1.0

    @classmethod
    def of(cls, device: Device, framework: Framework) -> Kernels:
        """Return them with the constants of the device's generation and of the framework."""
        return cls(device, efficiency_of(device), framework.host_s, framework.attention)

    def product(
        self,
        rows: int,
        inner: int,
        columns: int,
        dtype: str,
        *,
        batch: int = 1,
        moved: float | None = None,
        widths: tuple[int, int] | None = None,
    ) -> float:
        """Return the seconds of ``batch`` products of (rows x inner) by (inner x columns).

        Tiles of the result are dealt out to the processors in waves; the last wave takes as long as a full one. Each
        tile computes ``inner + RAMP`` steps. Rows in memory whose length is no multiple of `ALIGNMENT` starve the
        matrix units.

        Parameters
        ----------
        moved
            Bytes read and written; by default both factors and the result once, in 2 bytes (1 for fp8 factors).
        widths
            Lengths of rows in memory; by default ``inner`` and ``columns``.
        """
        if not (rows and inner and columns and batch):
            return 0.0
        width = {"fp8": 1, "fp32": 4, "tf32": 4}.get(dtype, 2)
        if moved is None:
            moved = batch * (width * (rows * inner + inner * columns) + max(width, 2) * rows * columns)
        busy = self._computing(rows, inner, columns, dtype, batch)
        if dtype != "fp32" and any(width % ALIGNMENT for width in widths or (inner, columns)):
            busy /= UNALIGNED
        return self.issued(max(busy, self._moving(moved)))

    def moved(self, size: float, kernels: int = 1) -> float:
        """Return the seconds of kernels that read and write so many bytes together; 0 for part of a kernel."""
        if not kernels:
            return self._moving(size)
        return kernels * self.issued(self._moving(size / kernels))

    def fused_attention(self, flops: float, width: int, blocks: int, dtype: str, *, backward: bool = False) -> float:
        """Return the seconds of fused attention.

        Parameters
        ----------
        flops
            Operations that count: of a causal mask, its lower half.
        width
            Of a head; narrow heads do less per number loaded.
        blocks
            Blocks of 128 queries, all heads and sequences together: fewer than processors leave some idle.
        """
        share = self.efficiency.flash_backward if backward else self.efficiency.flash_forward
        narrow = min(1.0, (width + 192) / 320)
        processors = self.efficiency.processors
        filled = blocks / (-(-blocks // processors) * processors) if blocks else 1.0
        peak = self.device.peak("bf16" if dtype == "fp8" else dtype)
        kernels = 2 if backward else 1
        return self.issued(flops / (peak * share * self.attention * narrow * max(filled, 0.05)), kernels)

    def issued(self, seconds: float, kernels: int = 1) -> float:
        """Return the time from issue to issue: at least what the host needs, and a gap behind each kernel."""
        return max(seconds + kernels * self.efficiency.launch_s, kernels * self.host_s)

    def _moving(self, size: float) -> float:
        return size / (self.device.hbm_bytes_per_s * self.efficiency.memory)

    def _computing(self, rows: int, inner: int, columns: int, dtype: str, batch: int) -> float:
        efficiency = self.efficiency
        share = (efficiency.fp8 if dtype == "fp8" else 0.0) or efficiency.sustained
        rate = self.device.peak(dtype) * share / efficiency.processors
        steps = inner + RAMP
        return _waves(rows, columns, batch, efficiency.processors) * 2 * steps / rate


@lru_cache(maxsize=65536)
def _waves(rows: int, columns: int, batch: int, processors: int) -> float:
    """Return the elements of the result that one processor makes, at the rate of the largest tile."""
    best = float("inf")
    for height, width in TILES:
        tiles = batch * -(-rows // height) * -(-columns // width)
        best = min(best, -(-tiles // processors) * height * width / TILE_RATES[height * width])
    return best
