"""What is kept free of every device where nobody says how much."""

from __future__ import annotations

from dataclasses import dataclass

from nest.cluster import Cluster

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
