"""Seconds of a collective: latency of its steps, and bytes over the bandwidth that they get.

Every algorithm under every protocol is a curve, ``fixed + bytes * per byte + sqrt(bytes) * per root``; the lowest one
counts. The root is there for what flows in pieces: a path of latency ``A`` that takes ``x`` for all bytes takes
``A + x + 2 sqrt(A x)`` with pieces of the best size (Sanders, Speck, Traeff 2009). Seconds are not rounded here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from nest.cost.algorithms import RUNS, Kind, Load, Phase
from nest.cost.groups import Group, Spread, spread
from nest.cost.links import SIMPLE, Network, Use
from nest.errors import InvalidProblem
from nest.units import Floats, Ints

Bytes = TypeVar("Bytes", float, Floats)

AT_ONCE = 2048
"""Sizes of which all curves are worked out together: as many as processors keep near."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One way to run a collective.

    Parameters
    ----------
    algorithm, protocol
        Their names.
    fixed_s
        Launch and latencies.
    s_per_byte
        What each byte adds.
    s_per_root
        What the square root of the bytes adds.
    sent
        Bytes that all members together send over each level or one outside it, for each byte of the collective.
    """

    algorithm: str
    protocol: str
    fixed_s: float
    s_per_byte: float
    s_per_root: float
    sent: tuple[float, ...] = ()

    def seconds(self, size: Bytes) -> Bytes:
        """Return the time for so many bytes."""
        root: Bytes = np.sqrt(size)  # a power of 1/2 may differ in its last bit between numbers and arrays
        return size * self.s_per_byte + root * self.s_per_root + self.fixed_s


@dataclass(frozen=True)
class Collective:
    """A collective of one group: all ways to run it.

    Parameters
    ----------
    curves
        None where the group has a single member, which has nothing to do.
    """

    curves: tuple[Curve, ...]

    def seconds(self, size: Bytes) -> Bytes:
        """Return the time of the fastest way, 0 for no bytes.

        Parameters
        ----------
        size
            Bytes, a number or an array, as `nest.cost.algorithms` counts them.
        """
        if not isinstance(size, np.ndarray):
            return float(self._fastest_s(np.array([float(size)]))[0])
        flat = size.ravel()
        if len(flat) <= AT_ONCE:
            return self._fastest_s(flat).reshape(size.shape)
        pieces = [self._fastest_s(flat[at : at + AT_ONCE]) for at in range(0, len(flat), AT_ONCE)]
        return np.concatenate(pieces).reshape(size.shape)

    def _fastest_s(self, sizes: Floats) -> Floats:
        fixed, per_byte, per_root = self._lowest
        if not len(fixed):
            return np.zeros_like(sizes)
        ways = np.multiply.outer(per_byte, sizes) + np.multiply.outer(per_root, np.sqrt(sizes))
        ways += fixed[:, None]
        fastest: Floats = np.where(sizes > 0, ways.min(axis=0), 0.0)
        return fastest

    @cached_property
    def _lowest(self) -> tuple[Floats, Floats, Floats]:
        """What is fixed, for a byte, and for a root of bytes, of the curves of which none is above another anywhere."""
        parts = np.array([(each.fixed_s, each.s_per_byte, each.s_per_root) for each in self.curves]).reshape(-1, 3)
        above = [any((each >= other).all() and (each > other).any() for other in parts) for each in parts]
        fixed, per_byte, per_root = parts[[not each for each in above]].T.copy()
        return fixed, per_byte, per_root

    def fastest(self, size: float) -> Curve:
        """Return the way that is taken for so many bytes.

        Raises
        ------
        InvalidProblem
            If the group has a single member.
        """
        if not self.curves:
            raise InvalidProblem("group", "a single member", "ask for groups of two or more")
        return min(self.curves, key=lambda curve: curve.seconds(size))

    def sent_over(self, level: int, sizes: Floats) -> Floats:
        """Return the bytes that all members together send over a level or one outside it, in the fastest way."""
        if not self.curves:
            return np.zeros_like(sizes)
        shares = np.array([curve.sent[level] for curve in self.curves])
        sent: Floats = sizes * shares[self.choices(sizes)]
        return sent

    def choices(self, sizes: Floats) -> Ints:
        """Return for each size the number of the curve that is taken."""
        chosen: Ints = np.argmin(np.stack([curve.seconds(sizes) for curve in self.curves]), axis=0)
        return chosen


def collective(network: Network, kind: Kind, members: Group | Spread | Sequence[int]) -> Collective:
    """Return the ways to run a collective of a group.

    Parameters
    ----------
    members
        Where they are, or already how they are spread.

    Raises
    ------
    InvalidProblem
        If a member is not in the cluster, if a point-to-point transfer has more than two, or if the library has no way
        to run such a collective.
    """
    where = members if isinstance(members, Spread) else spread(network.cluster, members)
    if kind is Kind.POINT_TO_POINT and where.count > 2:
        raise InvalidProblem("group", f"a transfer between {where.count} devices", "give two")
    curves = tuple(_curves(network, kind, where)) if where.count > 1 else ()
    if where.count > 1 and not curves:
        remedy = "give the library an algorithm that does"
        raise InvalidProblem(f"library {network.library.name!r}", f"nothing runs {kind.value}", remedy)
    return Collective(curves)


def bus_bandwidth(kind: Kind, count: int, size: float, seconds: float) -> float:
    """Return the bus bandwidth of NCCL's tests, bytes/s: what a link would carry if the ring ran (``PERFORMANCE.md``).

    ``size / seconds`` times ``2 (N - 1) / N`` for an all-reduce, ``(N - 1) / N`` for a reduce-scatter, all-gather and
    all-to-all, 1 for the others.
    """
    alone = kind in (Kind.BROADCAST, Kind.POINT_TO_POINT)
    rounds = 2 if kind is Kind.ALL_REDUCE else 1
    return size / seconds * (1.0 if alone else rounds * (count - 1) / count)


def _curves(network: Network, kind: Kind, where: Spread) -> Iterator[Curve]:
    for algorithm in network.library.algorithms:
        run = RUNS[algorithm](kind, network, where)
        sent = tuple(sum(phase.sent_over(level) for phase in run) for level in range(len(where.parts)))
        for protocol in _protocols(network, where, run):
            phases = [_curve(network, phase, protocol) for phase in run]
            fixed, per_byte, per_root = (sum(part) for part in zip(*phases, strict=True))
            yield Curve(algorithm, protocol, network.library.launch_s + fixed, per_byte, per_root, sent)


def _curve(network: Network, phase: Phase, protocol: str) -> tuple[float, float, float]:
    """Return what a phase takes: fixed, for each byte, and for the root of the bytes."""
    latency, per_byte = _latency_s(network, phase, protocol), _s_per_byte(network, phase, protocol)
    adding = [network.traits[load.level].kind.reduction_s for load in phase.loads if load.use is Use.REDUCE]
    return latency + sum(adding), per_byte, 2 * (latency * per_byte) ** 0.5 if phase.pieces else 0.0


def _protocols(network: Network, where: Spread, run: Sequence[Phase]) -> list[str]:
    """Return the protocols that all levels on the way have; switches add under the simple one only."""
    if not run:
        return []
    if any(load.use is Use.REDUCE for phase in run for load in phase.loads):
        return [SIMPLE]
    kinds = [network.traits[level].kind for level in where.levels]
    return [each.name for each in kinds[0].protocols if all(kind.protocol(each.name) for kind in kinds)]


def _latency_s(network: Network, phase: Phase, protocol: str) -> float:
    """Return the latencies of the steps of a phase."""
    waits = {at: network.cluster.levels[at].latency_s * _shares(network, at, protocol)[0] for at in phase.steps}
    quickest = min(waits, key=lambda at: waits[at])
    return sum([(n - phase.spared * (at == quickest)) * waits[at] for at, n in phase.steps.items()])


def _s_per_byte(network: Network, phase: Phase, protocol: str) -> float:
    """Return what a byte of the collective takes on the level that is busiest in a phase."""
    return max(load.share / _bandwidth(network, load, protocol) for load in phase.loads)


def _bandwidth(network: Network, load: Load, protocol: str) -> float:
    """Return what a child of a level gets out of its links, bytes/s in one direction."""
    traits = network.traits[load.level]
    each = min(network.group_bandwidths[load.level], traits.pair_bytes_per_s * load.peers)
    return load.width * each * traits.kind.efficiency(load.use) * _shares(network, load.level, protocol)[1]


def _shares(network: Network, level: int, protocol: str) -> tuple[float, float]:
    """Return latency and bandwidth of a protocol on a level, as parts of those of the simple one."""
    found = network.traits[level].kind.protocol(protocol)
    return (1.0, 1.0) if found is None else (found.latency_share, found.bandwidth_share)
