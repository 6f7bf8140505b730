"""How each algorithm runs a collective: its steps at each level, and the bytes that it puts on each level's links.

A run is a list of phases, one after the other. Sizes are those of NCCL's tests: for an all-reduce, a reduce-scatter and
a broadcast the bytes that each member has at first, for an all-gather those that each has in the end, for an all-to-all
those that each sends, its own part included. `N` is the number of members, `k` that of children that take part.

Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (IJHPCA 2005), for
ring, recursive halving and doubling, and pairwise exchange; Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms
for clusters of workstations" (JPDC 2009), for the bound ``2 (N - 1) / N`` and rings on trees; Sanders, Speck, Traeff,
"Two-tree algorithms for full bandwidth broadcast, reduction and scan" (Parallel Computing 2009); Graham et al.,
"Scalable Hierarchical Aggregation Protocol" (COMHPC 2016), for reduction in switches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nest.cost.groups import Spread
from nest.cost.links import Network, Use


class Kind(StrEnum):
    """What a collective does."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    POINT_TO_POINT = "p2p"


SUMS = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER)
"""Collectives that a ring runs in one or two rounds of equal pieces."""


@dataclass(frozen=True, slots=True)
class Load:
    """Bytes on the links of a level.

    Parameters
    ----------
    level
        Which.
    share
        Bytes that leave (and enter) a child of the level, for each byte of the collective.
    width
        Members of the child that send them at once, each over its own link.
    peers
        Devices that each of these sends to, where every pair has a link of its own.
    use
        In which manner.
    senders
        Children of the level, or members, that send so much.
    """

    level: int
    share: float
    width: int = 1
    peers: int = 1
    use: Use = Use.STREAM
    senders: int = 1


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps whose latencies add, while bytes flow through all levels at once.

    Parameters
    ----------
    steps
        Latencies on the longest path, at each level that has any.
    loads
        What the links carry; the one that takes longest counts.
    pieces
        Whether all bytes go the whole path, in pieces of the best size, instead of each step having its own part.
        Smaller pieces fill the path sooner, and pay latencies more often.
    spared
        Steps of the quickest level that are not on the path after all.
    """

    steps: dict[int, int]
    loads: tuple[Load, ...]
    pieces: bool = False
    spared: int = 0

    def sent_over(self, level: int) -> float:
        """Return the bytes that all members send over a level or one outside it, for each byte of the collective.

        What leaves a child of the innermost of the levels in question that is used counts: it may go further.
        """
        beyond = (load.share * load.senders for load in self.loads if load.level >= level)
        return next(beyond, 0.0)


Run = Sequence[Phase]
"""Phases one after the other; of groups of two members or more."""


def ring(kind: Kind, _network: Network, spread: Spread) -> Run:
    """All pass pieces to the next: ``N - 1`` steps of ``1 / N`` each, twice for an all-reduce.

    As many rings as a child has members run at once, each entering and leaving it at another one. A broadcast passes
    everything on in small pieces. The last step of each round, which would close the ring, is the quickest of all.
    """
    if kind not in (*SUMS, Kind.BROADCAST):
        return ()
    rounds = _rounds(kind)
    share = 1.0 if kind is Kind.BROADCAST else rounds * (spread.count - 1) / spread.count
    steps = {level: rounds * spread.hops[level] for level in spread.levels}
    loads = tuple(_crossing(spread, level, share) for level in spread.levels)
    return (Phase(steps, loads, kind is Kind.BROADCAST, rounds),)


def tree(kind: Kind, network: Network, spread: Spread) -> Run:
    """Two binary trees, each for half of the bytes: what is an inner node in one is a leaf of the other.

    For an all-reduce, up and down again, a child puts its bytes on its link twice, or once where there are only two.
    """
    if kind not in (Kind.ALL_REDUCE, Kind.BROADCAST):
        return ()
    ways = _rounds(kind)
    steps = {level: ways * _depth(network, spread, level) for level in spread.levels}
    return (Phase(steps, tuple(_branching(kind, spread, level) for level in spread.levels), pieces=True),)


def halving_doubling(kind: Kind, _network: Network, spread: Spread) -> Run:
    """Exchange halves of what is left with members 1, 2, 4, .. places away: nearest first, so that most stays below.

    ``log2 N`` steps and ``(N - 1) / N`` of the bytes, twice for an all-reduce; for powers of two.
    """
    if kind not in SUMS or not spread.symmetric or any(parts & (parts - 1) for parts in spread.parts):
        return ()
    return [_exchange(kind, spread, level, spread.parts[level].bit_length() - 1, 1) for level in spread.levels]


def hierarchical(kind: Kind, _network: Network, spread: Spread) -> Run:
    """One level after the other: each member exchanges with those in its place in the other children.

    Inner levels leave ``1 / k`` of the bytes to the outer ones. An all-reduce scatters on the way up and gathers on the
    way down.
    """
    if not spread.symmetric or len(spread.levels) < 2:
        return ()
    if kind is Kind.ALL_TO_ALL:
        return [_scattering(spread, level) for level in spread.levels]
    if kind not in SUMS:
        return ()
    return [_exchange(kind, spread, level, spread.parts[level] - 1, spread.parts[level] - 1) for level in spread.levels]


def hierarchical_in_network(kind: Kind, network: Network, spread: Spread) -> Run:
    """Scatter on the way up and gather on the way down, with the topmost level adding in its switches."""
    top = spread.levels[-1]
    if kind is not Kind.ALL_REDUCE or not network.traits[top].in_network_reduction:
        return ()
    below = hierarchical(kind, network, spread)[:-1]
    return [*below, _added_at(spread, top)] if below else ()


def in_network(kind: Kind, network: Network, spread: Spread) -> Run:
    """Switches add: each child sends its bytes up once and gets the sum once; levels that cannot add use trees.

    Switches add in a stream; only where trees take part are there pieces.
    """
    adding = [level for level in spread.levels if network.traits[level].in_network_reduction]
    if kind is not Kind.ALL_REDUCE or not adding:
        return ()
    steps = {level: 2 if level in adding else 2 * _depth(network, spread, level) for level in spread.levels}
    loads = [
        Load(level, 1.0, spread.least[level], _across(spread, level), Use.REDUCE, spread.children(level))
        if level in adding
        else _branching(kind, spread, level)
        for level in spread.levels
    ]
    return (Phase(steps, tuple(loads), pieces=len(adding) < len(loads)),)


def direct(kind: Kind, _network: Network, spread: Spread) -> Run:
    """Each sends to each: ``N - 1`` messages of ``1 / N``; those for other children share the way out of its own.

    Whoever is alone in its group of a level has no peer there; then the link to a single one counts.
    """
    if kind is Kind.POINT_TO_POINT:
        level = spread.levels[-1]
        return (Phase({level: 1}, (Load(level, 1.0, use=Use.SINGLE),)),)
    if kind is not Kind.ALL_TO_ALL:
        return ()
    steps = {level: spread.peers(level) for level in spread.levels}
    loads = [
        Load(
            level,
            (spread.count - spread.least[level]) / spread.count,
            peers=max(1, steps[level]),
            use=Use.SCATTER,
            senders=spread.count,
        )
        for level in spread.levels
    ]
    return (Phase(steps, tuple(loads)),)


RUNS: dict[str, Callable[[Kind, Network, Spread], Run]] = {
    "ring": ring,
    "tree": tree,
    "halving-doubling": halving_doubling,
    "hierarchical": hierarchical,
    "hierarchical-in-network": hierarchical_in_network,
    "in-network": in_network,
    "direct": direct,
}
"""Each algorithm by its name; an empty run where it does not do a kind, or not for such a group."""


def _rounds(kind: Kind) -> int:
    return 2 if kind is Kind.ALL_REDUCE else 1


def _across(spread: Spread, level: int) -> int:
    """Return the members that a member finds in the other children of a level."""
    return spread.least[level] * (spread.parts[level] - 1)


def _crossing(spread: Spread, level: int, share: float) -> Load:
    """Return a load that all members of a child carry together."""
    return Load(level, share, spread.least[level], _across(spread, level), senders=spread.children(level))


def _depth(network: Network, spread: Spread, level: int) -> int:
    """Return the steps from a leaf to the root of a tree over the children of a level, chains included."""
    chain = min(spread.parts[level], network.library.chain) if level == 0 else 1
    return chain - 1 + (-(-spread.parts[level] // chain) - 1).bit_length()


def _branching(kind: Kind, spread: Spread, level: int) -> Load:
    twice = kind is Kind.ALL_REDUCE and spread.parts[level] > 2
    return _crossing(spread, level, 2.0 if twice else 1.0)


def _exchange(kind: Kind, spread: Spread, level: int, steps: int, peers: int) -> Phase:
    """Return the phase in which members in the same place of ``k`` children share their bytes out, or gather them."""
    parts = spread.parts[level]
    share = _rounds(kind) * (parts - 1) / parts / spread.least[level]
    return Phase({level: _rounds(kind) * steps}, (Load(level, share, peers=peers, senders=spread.count),))


def _scattering(spread: Spread, level: int) -> Phase:
    parts = spread.parts[level]
    load = Load(level, (parts - 1) / parts, peers=parts - 1, use=Use.SCATTER, senders=spread.count)
    return Phase({level: parts - 1}, (load,))


def _added_at(spread: Spread, top: int) -> Phase:
    """Return the phase in which the switches of the topmost level add what each member has left."""
    return Phase({top: 2}, (Load(top, 1 / spread.least[top], use=Use.REDUCE, senders=spread.count),))
