"""Side constraints on how many devices a plan takes, and how much of their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nextafter
from typing import ClassVar

from nest.constraints.base import LocalConstraint
from nest.constraints.checks import as_number, as_some, as_whole, counted, exact, listed, require_device, written
from nest.errors import InvalidProblem
from nest.problem import Problem
from nest.units import Number


@dataclass(frozen=True)
class MaxDevices(LocalConstraint):
    """No more than ``devices`` devices, all replicas together."""

    devices: int

    kind: ClassVar[str] = "max_devices"

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", as_whole(f"{self.kind}.devices", self.devices, 1))

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"at most {counted(self.devices, 'device')}"

    def device_limit(self, problem: Problem) -> int:
        """Return how many devices there may be."""
        return self.devices


@dataclass(frozen=True)
class ReservedDevices(LocalConstraint):
    """Devices that a plan leaves alone: they are down, or somebody else's.

    Where a preset lets plans leave devices idle, they stand around reserved ones (rule C9). Other plans take the
    devices from 0 on without a gap, so that one which spares a device takes no device beyond it either: what may be
    used are the devices before the first reserved one.

    Parameters
    ----------
    devices
        Their numbers.
    """

    devices: Sequence[int]

    kind: ClassVar[str] = "reserved_devices"

    def __post_init__(self) -> None:
        where = f"{self.kind}.devices"
        devices = sorted(as_whole(where, device, 0) for device in as_some(where, self.devices, "[6, 7]"))
        object.__setattr__(self, "devices", tuple(devices))

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"no plan takes device{'' if len(self.devices) == 1 else 's'} {listed(self.devices)}"

    def check(self, problem: Problem) -> None:
        """Refuse devices beyond the cluster."""
        require_device(f"{self.kind}.devices", problem, self.devices[-1])

    def device_limit(self, problem: Problem) -> int:
        """Return the number of the first reserved device, so many are before it, where plans have no gaps."""
        return problem.cluster.devices if problem.preset.idles else self.devices[0]

    def reserves(self, problem: Problem) -> Sequence[int]:
        """Return the devices, where plans stand around them."""
        return self.devices if problem.preset.idles else ()


@dataclass(frozen=True)
class MemoryHeadroom(LocalConstraint):
    """Memory of each device that no stage takes.

    Parameters
    ----------
    fraction
        Part of the memory, from 0 to below 1.
    bytes
        Or how many bytes.
    """

    fraction: float | None = None
    bytes: Number | None = None

    kind: ClassVar[str] = "memory_headroom"

    def __post_init__(self) -> None:
        if (self.fraction is None) == (self.bytes is None):
            what = "neither fraction nor bytes is" if self.fraction is None else "fraction and bytes are both"
            raise InvalidProblem(self.kind, f"{what} given", "give one of them")
        if self.fraction is not None:
            object.__setattr__(self, "fraction", as_number(f"{self.kind}.fraction", self.fraction, below=1))
        if self.bytes is not None:
            object.__setattr__(self, "bytes", as_number(f"{self.kind}.bytes", self.bytes))

    @property
    def text(self) -> str:
        """What it asks for."""
        free = f"{float(100 * exact(self.fraction or 0)):g} %" if self.bytes is None else f"{written(self.bytes)} bytes"
        return f"{free} of the memory of each device stay free"

    def check(self, problem: Problem) -> None:
        """Refuse headroom that leaves nothing."""
        have = problem.cluster.hbm_bytes_of(problem.cluster.class_names)
        if self.bytes is not None and self.bytes >= have:
            raise InvalidProblem(f"{self.kind}.bytes", f"{self.bytes!r}", f"a device has {have} bytes, give fewer")

    def memory_limit(self, problem: Problem) -> Number:
        """Return what is left, rounded down to a number that a float holds where it is not whole."""
        have = exact(problem.cluster.hbm_bytes)
        left = have - exact(self.bytes or 0) if self.fraction is None else have * (1 - exact(self.fraction))
        if left.denominator == 1:
            return int(left)
        nearest = float(left)
        return nearest if exact(nearest) <= left else nextafter(nearest, 0.0)
