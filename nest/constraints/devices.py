"""Side constraints on how many devices a plan takes, and how much of their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nextafter
from typing import ClassVar

from nest.constraints.base import LocalConstraint
from nest.constraints.checks import exact, listed, require_device, require_number, require_some, require_whole
from nest.errors import InvalidProblem
from nest.problem import Problem
from nest.units import Number


@dataclass(frozen=True)
class MaxDevices(LocalConstraint):
    """No more than ``devices`` devices, all replicas together."""

    devices: int

    kind: ClassVar[str] = "max_devices"

    def __post_init__(self) -> None:
        require_whole(f"{self.kind}.devices", self.devices, 1)

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"at most {self.devices} devices"

    def device_limit(self, problem: Problem) -> int:
        """Return how many devices there may be."""
        return self.devices


@dataclass(frozen=True)
class ReservedDevices(LocalConstraint):
    """Devices that a plan leaves alone: they are down, or somebody else's.

    Plans of today's space take the devices from 0 on without a gap, so that one which spares a device takes no device
    beyond it either: what may be used are the devices before the first reserved one.

    Parameters
    ----------
    devices
        Their numbers.
    """

    devices: Sequence[int]

    kind: ClassVar[str] = "reserved_devices"

    def __post_init__(self) -> None:
        require_some(f"{self.kind}.devices", self.devices)
        for device in self.devices:
            require_whole(f"{self.kind}.devices", device, 0)
        object.__setattr__(self, "devices", tuple(sorted(self.devices)))

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"no plan takes devices {listed(self.devices)}"

    def check(self, problem: Problem) -> None:
        """Refuse devices beyond the cluster."""
        require_device(f"{self.kind}.devices", problem, self.devices[-1])

    def device_limit(self, problem: Problem) -> int:
        """Return the number of the first reserved device: so many are before it."""
        return self.devices[0]


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
        if self.fraction is not None and not 0 <= self.fraction < 1:
            raise InvalidProblem(f"{self.kind}.fraction", f"{self.fraction!r}", "give a number from 0 to below 1")
        if self.bytes is not None:
            require_number(f"{self.kind}.bytes", self.bytes)

    @property
    def text(self) -> str:
        """What it asks for."""
        free = f"{self.bytes} bytes" if self.fraction is None else f"{float(100 * exact(self.fraction)):g} %"
        return f"{free} of the memory of each device stay free"

    def check(self, problem: Problem) -> None:
        """Refuse headroom that leaves nothing."""
        if self.bytes is not None and self.bytes >= problem.cluster.hbm_bytes:
            have = problem.cluster.hbm_bytes
            raise InvalidProblem(f"{self.kind}.bytes", f"{self.bytes!r}", f"a device has {have} bytes, give fewer")

    def memory_limit(self, problem: Problem) -> Number:
        """Return what is left, rounded down to a number that a float holds where it is not whole."""
        have = exact(problem.cluster.hbm_bytes)
        left = have - exact(self.bytes or 0) if self.fraction is None else have * (1 - exact(self.fraction))
        if left.denominator == 1:
            return int(left)
        nearest = float(left)
        return nearest if exact(nearest) <= left else nextafter(nearest, 0.0)
