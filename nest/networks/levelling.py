"""From a network to levels: which device is where on the line, and how far levels are from what pairs really cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem
from nest.hardware import Pairs
from nest.networks.grouping import Nesting, nest_groups
from nest.networks.network import Network
from nest.networks.pairwise import Pairwise, pairwise
from nest.units import Floats, Ints, Number

MESSAGE_BYTES = 2**24
"""Size of the message for which levelled and exact costs are compared, if nothing else is asked for."""

EQUAL = 0.01
"""Levels whose figures differ by less than this part of themselves are one level."""


@dataclass(frozen=True, slots=True)
class ClassGap:
    """How the levelled cost of the pairs that share a level, and no lower one, compares with the exact cost.

    Parameters
    ----------
    level
        Counted from the innermost.
    pairs
        How many pairs of devices there are.
    least, mean, greatest
        Levelled over exact time of one message; above 1 the levels are pessimistic, below 1 optimistic.
    """

    level: int
    pairs: int
    least: float
    mean: float
    greatest: float


@dataclass(frozen=True)
class Levelling:
    """A network as levels.

    Parameters
    ----------
    cluster
        The levels.
    order
        Name of the device at each place on the line.
    gaps
        One for each level that has pairs.
    conservative
        Whether every level takes the worst pair in it; otherwise it takes their mean.
    message_bytes
        Size of the message for which the gaps hold.
    notes
        What was decided on the way, for people to read.
    pairs
        What every pair of places costs; None where that was never worked out pair by pair.
    """

    cluster: Cluster
    order: tuple[str, ...]
    gaps: tuple[ClassGap, ...]
    conservative: bool
    message_bytes: int
    notes: tuple[str, ...] = ()
    pairs: Pairs | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.order) != self.cluster.devices:
            raise InvalidProblem("levelling", f"{len(self.order)} names", f"give {self.cluster.devices}, one a device")

    @cached_property
    def places(self) -> dict[str, int]:
        """Place on the line of each device."""
        return {name: place for place, name in enumerate(self.order)}

    @property
    def optimistic(self) -> bool:
        """Whether some pair costs more than its level says, when it is alone on the network."""
        return any(gap.least < 1 - 1e-9 for gap in self.gaps)


def level_network(
    network: Network,
    hbm_bytes: Number,
    *,
    conservative: bool = True,
    shared: bool = True,
    message_bytes: int = MESSAGE_BYTES,
) -> Levelling:
    """Return the levels of a network.

    Parameters
    ----------
    hbm_bytes
        Memory of each device.
    conservative
        As in `Levelling`.
    shared
        Whether a level gives no device more than its part of what leaves its group when all of the group send at
        once. Without it every transfer is alone on the network, and oversubscription does not show.
    message_bytes
        As in `Levelling`. Levels whose messages of this size take the same time are one.

    Raises
    ------
    InvalidProblem
        If the network is too large to compare every pair.
    """
    pairs = pairwise(network)
    nesting = nest_groups(_apart(network))
    shares = _shares(network, nesting) if shared else [inf] * len(nesting.sizes)
    return _Figures(pairs, nesting, shares, conservative, message_bytes).levelling(hbm_bytes, network.name)


def level_pairs(
    pairs: Pairwise, hbm_bytes: Number, *, conservative: bool = True, message_bytes: int = MESSAGE_BYTES, name: str = ""
) -> Levelling:
    """Return the levels of a table of pairs, as `level_network` does; what transfers share is not known."""
    nesting = nest_groups(pairs.seconds(message_bytes))
    unlimited = [inf] * len(nesting.sizes)
    return _Figures(pairs, nesting, unlimited, conservative, message_bytes).levelling(hbm_bytes, name)


@dataclass(frozen=True)
class _Figures:
    """Pairs in groups, before they become levels; ``shares`` limit the bandwidth of each level."""

    pairs: Pairwise
    nesting: Nesting
    shares: list[float]
    conservative: bool
    message_bytes: int

    def levelling(self, hbm_bytes: Number, name: str) -> Levelling:
        """Return levels whose figures stand for the pairs of devices at each span, and how far these are from them."""
        order, sizes = self.nesting.order, self.nesting.sizes
        bandwidth = self.pairs.bandwidth_bytes_per_s[np.ix_(order, order)]
        latency_s = self.pairs.latency_s[np.ix_(order, order)]
        spans = _spans(len(order), sizes)
        figures = []
        for level, share in enumerate(self.shares):
            width, delay = _figures(bandwidth[spans == level], latency_s[spans == level], self.conservative)
            figures.append((min(width, share), delay))
        cluster = _cluster(len(order), *_merged(sizes, figures, self.message_bytes), hbm_bytes, name)
        gaps = gaps_of(cluster, bandwidth, latency_s, self.message_bytes)
        names = tuple(self.pairs.names[at] for at in order)
        exact = Pairs(bandwidth, latency_s)
        return Levelling(cluster, names, gaps, self.conservative, self.message_bytes, pairs=exact)


def gaps_of(cluster: Cluster, bandwidth: Floats, latency_s: Floats, message_bytes: int) -> tuple[ClassGap, ...]:
    """Return how levels compare with exact figures of every pair, given in the order of the line."""
    places = np.arange(cluster.devices)
    spans = cluster.spans(places[:, None], places[None, :])
    gaps = []
    for at, (level, path) in enumerate(zip(cluster.levels, cluster.path_bandwidths, strict=True)):
        pairs = (spans == at) & (places[:, None] < places[None, :])
        if pairs.any():
            exact = latency_s[pairs] + message_bytes / bandwidth[pairs]
            ratio = (level.latency_s + message_bytes / path) / exact
            gaps.append(ClassGap(at, ratio.size, float(ratio.min()), float(ratio.mean()), float(ratio.max())))
    return tuple(gaps)


def _apart(network: Network) -> Floats:
    """Return how far apart devices are, for grouping: by links crossed as much as by bandwidth.

    A message that is large makes all pairs alike where every cable is equally fast; but those that share a switch do
    not share the way up with others.
    """
    hop_s = min((link.latency_s for link in network.links if link.latency_s), default=1e-6)
    links = tuple(replace(link, latency_s=link.latency_s + hop_s) for link in network.links)
    pairs = pairwise(replace(network, links=links))
    widest = pairs.bandwidth_bytes_per_s[np.isfinite(pairs.bandwidth_bytes_per_s)].max(initial=0.0)
    return pairs.seconds(hop_s * widest)


def _spans(devices: int, sizes: list[int]) -> Ints:
    """Return the level at which places share a group; -1 on the diagonal."""
    places = np.arange(devices)
    spans = np.where(places[:, None] == places[None, :], -1, 0)
    for size in sizes[:-1]:
        spans += places[:, None] // size != places[None, :] // size
    return spans


def _figures(bandwidth: Floats, latency_s: Floats, conservative: bool) -> tuple[float, float]:
    """Return bandwidth and latency of a level: the worst of each, or what gives the mean time."""
    if not bandwidth.size:
        return inf, 0.0
    if conservative:
        return float(bandwidth.min()), float(latency_s.max())
    return float(1 / np.mean(1 / bandwidth)), float(latency_s.mean())


def _merged(
    sizes: list[int], figures: list[tuple[float, float]], message_bytes: int
) -> tuple[list[int], list[tuple[float, float]]]:
    """Return the levels without those across which a message takes as long as across the next one."""
    seconds = [latency_s + message_bytes / bandwidth for bandwidth, latency_s in figures]
    kept = [at for at in range(len(sizes) - 1) if abs(seconds[at] - seconds[at + 1]) > EQUAL * seconds[at + 1]]
    kept.append(len(sizes) - 1)
    starts = [0, *(at + 1 for at in kept[:-1])]
    worst = [
        (min(bandwidth for bandwidth, _ in run), max(latency_s for _, latency_s in run))
        for run in (figures[start : at + 1] for start, at in zip(starts, kept, strict=True))
    ]
    return [sizes[at] for at in kept], worst


def _cluster(
    devices: int, sizes: list[int], figures: list[tuple[float, float]], hbm_bytes: Number, name: str
) -> Cluster:
    levels, inner = [], 1
    for at, (size, (bandwidth, latency_s)) in enumerate(zip(sizes, figures, strict=True)):
        fanout = -(-size // inner)
        levels.append(Level(fanout, bandwidth if np.isfinite(bandwidth) else 1.0, latency_s, f"level {at}"))
        inner *= fanout
    return Cluster(devices, hbm_bytes, tuple(levels), name, partial=inner != devices)


def _shares(network: Network, nesting: Nesting) -> list[float]:
    """Return, for each level, the bandwidth of a device when all of its group below send to the rest of its group.

    The worst group counts. A single device sends at least what its worst pair does, so that there is no limit of this
    kind where a level joins single devices; but groups that belong together and are no level of their own limit the
    level at which their devices first meet others.
    """
    order, inner, shares = nesting.order, 1, []
    for size in nesting.sizes:
        rates = [inf]
        for start in range(0, len(order) if inner > 1 else 0, size):
            outer = order[start : start + size]
            for at in range(0, len(outer), inner):
                rates.append(_rate(network, outer[at : at + inner], outer[:at] + outer[at + inner :]))
        shares.append(min(rates))
        inner = size
    places = {device: place for place, device in enumerate(order)}
    for clique in nesting.cliques:
        level = _meeting([places[device] for device in clique], nesting.sizes, len(order))
        rest = [device for device in order if device not in set(clique)]
        shares[level] = min(shares[level], _rate(network, clique, rest))
    return shares


def _meeting(places: list[int], sizes: list[int], devices: int) -> int:
    """Return the first level with a group that holds some of these places and some other place."""
    for level, size in enumerate(sizes):
        for group, inside in Counter(place // size for place in places).items():
            if inside < min(size, devices - group * size):
                return level
    return len(sizes) - 1


def _rate(network: Network, sources: list[int], targets: list[int]) -> float:
    """Return what a device can send when as many as possible send, each to another one; no limit without others."""
    return _sent(network, sources, targets) / min(len(sources), len(targets)) if targets else inf


def _sent(network: Network, sources: list[int], targets: list[int]) -> float:
    """Return what some devices can send to others at once, bytes/s.

    Where devices pass on for others, only the cables that join the two directly count, which is less than the most
    that can flow; otherwise it is the maximum flow. Where no cable joins them, each message takes several, and so do
    those of all others: of the most that can flow each then has its part.
    """
    if not network.forwarding:
        between = set(range(len(network.devices))) - set(sources) - set(targets)
        return _flow(network, sources, targets, between)
    ours, theirs = set(sources), set(targets)
    direct = sum(
        link.bandwidth_bytes_per_s
        for (low, high), link in network.cables.items()
        if (low in ours and high in theirs) or (high in ours and low in theirs)
    )
    return direct or _flow(network, sources, targets, set()) / _steps(network, ours, theirs)


def _steps(network: Network, ours: set[int], theirs: set[int]) -> int:
    """Return how many cables the nearest of our and their devices are apart."""
    reached, steps = set(ours), 0
    while not reached & theirs:
        reached |= {end for cable in network.cables if reached.intersection(cable) for end in cable}
        steps += 1
    return steps


def _flow(network: Network, sources: list[int], targets: list[int], closed: set[int]) -> float:
    """Return the maximum flow from some devices to others, none of it through ``closed`` ones, bytes/s."""
    import networkx  # noqa: PLC0415  (only networks without a tree need it)

    graph = networkx.DiGraph()
    for (low, high), link in network.cables.items():
        for one, other in ((low, high), (high, low)):
            graph.add_edge(one, other, capacity=link.bandwidth_bytes_per_s)
    graph.add_edges_from(("source", node) for node in sources)  # no capacity: unlimited
    graph.add_edges_from((node, "target") for node in targets)
    graph.remove_nodes_from(closed)
    return float(networkx.maximum_flow_value(graph, "source", "target"))
