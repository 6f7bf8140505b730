"""The network of `nest.cost` under the groups of a plan: which devices share an axis, and what they pay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nest.cost.algorithms import Kind
from nest.cost.alpha_beta import Collective, collective
from nest.cost.links import Network
from nest.costing.layout import Layout
from nest.costing.setting import Setting
from nest.hardware import Hardware


def network_of(hardware: Hardware) -> Network:
    """Return the network as collectives see it."""
    return Network.of(hardware.cluster)


@dataclass(frozen=True)
class PlacedNetwork:
    """Prices the collectives of a plan on its devices.

    Parameters
    ----------
    network
        The levels.
    groups
        Places of the devices that share each axis; the pair ``pipeline`` is a boundary between stages.
    """

    network: Network
    groups: Mapping[str, tuple[int, ...]]
    _made: dict[tuple[Kind, str], Collective] = field(default_factory=dict, init=False, compare=False, repr=False)

    def seconds(self, kind: str, size: float, axis: str) -> float:
        """Return the time of a collective among the devices that share an axis."""
        members = self.groups[axis]
        if kind == "ring":  # each passes what it has on to the next, as often as there are others
            pair = self._collective(Kind.POINT_TO_POINT, axis, members[:2])
            return (len(members) - 1) * pair.seconds(float(size))
        return self._collective(Kind(kind), axis, members).seconds(float(size))

    def transfer(self, size: float) -> float:
        """Return the time to send so many bytes from a stage to the next."""
        return self._collective(Kind.POINT_TO_POINT, "pipeline", self.groups["pipeline"]).seconds(float(size))

    def _collective(self, kind: Kind, axis: str, members: tuple[int, ...]) -> Collective:
        if (kind, axis) not in self._made:
            self._made[kind, axis] = collective(self.network, kind, members)
        return self._made[kind, axis]


def placed(network: Network, setting: Setting, layout: Layout, *, replica_major: bool = False) -> PlacedNetwork:
    """Return the network under a plan whose devices are numbered as Megatron-LM does.

    Inside a stage tensor parallel comes first, then context, then expert; a stage's replicas follow each other, and the
    stages each other (or, ``replica_major``, the stages of a replica, and the replicas each other).

    Raises
    ------
    InvalidProblem
        If the cluster has too few devices.
    """
    t, c, e = setting.tensor, setting.context, setting.expert
    width = t * c * e
    replica, stage = (width * layout.stages, width) if replica_major else (width, width * layout.data)
    starts = [at * replica for at in range(layout.data)]
    groups = {
        "tensor": tuple(range(t)),
        "context": tuple(range(0, t * c, t)),
        "expert": tuple(range(0, width, t * c)),
        "data": tuple(start + at for start in starts for at in range(0, width, t)),
        "expert_data": tuple(start + at for start in starts for at in range(0, t * c, t)),
        "ends": (0, stage * (layout.stages - 1)) if layout.stages > 1 else (0,),
        "pipeline": (0, stage) if layout.stages > 1 else (0,),
    }
    return PlacedNetwork(network, groups)
