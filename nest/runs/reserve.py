"""What is kept free of every device where nobody says how much."""

from __future__ import annotations

from dataclasses import dataclass

from nest.cluster import Cluster
from nest.errors import InvalidProblem
from nest.hardware import Hardware

PERCENT, UNIT = 5, 2**20
"""Of the memory of a device, in whole MiB; ``docs/costs.md`` has the published rows that it is taken from."""

OTHERS = "frameworks and communication take 2 to 14 GiB besides (docs/costs.md)"
"""What an estimate does not count where nothing is kept in reserve, in words."""


def default_reserve_bytes(cluster: Cluster) -> int:
    """Return 5 % of the memory of a device, rounded down to whole MiB: what runs keep in reserve unless they say.

    Plans know one reserve for all devices. Where these are of several classes it is 5 % of the most, so that no class
    keeps less than its own.
    """
    most = max(cluster.hbm_bytes_of({name}) for name in cluster.class_names or (cluster.own_class,))
    return int(most) * PERCENT // 100 // UNIT * UNIT


@dataclass(frozen=True, slots=True)
class Reserve:
    """What plans keep free of every device.

    Parameters
    ----------
    size_bytes
        How much.
    is_default
        Whether that is because nobody said how much.
    """

    size_bytes: int
    is_default: bool

    @classmethod
    def of(cls, given_bytes: int | None, cluster: Cluster) -> Reserve:
        """Return what was given; on None the default of a cluster."""
        return cls(default_reserve_bytes(cluster), True) if given_bytes is None else cls(given_bytes, False)

    @property
    def aside(self) -> str:
        """What is said behind the amount where it is the default: that it is, and what takes it away."""
        return f" (default {PERCENT} %); --reserve 0 or reserve_gib = 0 for none" if self.is_default else ""

    def document(self) -> dict[str, object]:
        """Return what documents of a run say of it."""
        return {"reserve_bytes": self.size_bytes, "reserve_is_default": self.is_default}


class Reserving:
    """What keeps a reserve of every device: runs, tables of layers and captured modules.

    Attributes
    ----------
    hardware
        Whose devices.
    reserve_bytes
        What framework and communication take of each; None: `default_reserve_bytes`.
    """

    hardware: Hardware
    reserve_bytes: int | None

    @property
    def reserve(self) -> Reserve:
        """What framework and communication take of every device: what was given, else the default."""
        return Reserve.of(self.reserve_bytes, self.hardware.cluster)

    @property
    def reserved_bytes(self) -> int:
        """The same in bytes."""
        return self.reserve.size_bytes

    def require_reserve(self) -> None:
        """Refuse a reserve that no device has.

        Raises
        ------
        InvalidProblem
            Naming it, and what the smallest device has.
        """
        cluster = self.hardware.cluster
        room = cluster.hbm_bytes_of(cluster.class_names)
        if not 0 <= self.reserved_bytes < room:
            what = f"{self.reserved_bytes} bytes"
            raise InvalidProblem("reserve", what, f"give less than the {room} bytes of a device")
