"""What a group of devices takes, written out again from D9 of `docs/formulation.md` in exact fractions.

Of `nest` it takes the figures of kinds of links and libraries, which are data, and no formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise
from math import isqrt

from nest.cluster import Cluster
from nest.cost.links import LIBRARIES, LINK_KINDS, Library, LinkKind

DIGITS = 10**30

Rate = Callable[[int, int, int], Fraction]
"""Bytes/s of a level for a width and so many peers."""

Timed = tuple[str, Fraction]
"""An algorithm, and the seconds that it takes."""


@lru_cache(maxsize=100_000)
def decimal(value: float) -> Fraction:
    """Read a figure as it is written, so that 0.1 is a tenth."""
    return Fraction(repr(value))


def root(value: Fraction) -> Fraction:
    """Return a square root, to thirty digits after the point and more."""
    scaled = value * DIGITS**2
    return Fraction(isqrt(scaled.numerator // scaled.denominator), DIGITS)


def _rounded(sent: Fraction) -> tuple[int, bool]:
    """Return a number of bytes to the byte, halves to even, and whether floating point may round it otherwise."""
    away = abs(sent - (sent.numerator // sent.denominator) - Fraction(1, 2))
    return round(sent), away <= 32 * sent / 2**53


def is_power(number: int) -> bool:
    """Whether a number is a power of two."""
    return number & (number - 1) == 0


class Group:
    """Devices that run a collective together."""

    def __init__(self, cluster: Cluster, members: list[int]) -> None:
        self.cluster, self.count = cluster, len(members)
        self.library: Library = {each.name: each for each in LIBRARIES}[cluster.library]
        self.kinds: list[LinkKind] = [{each.name: each for each in LINK_KINDS}[level.link] for level in cluster.levels]
        self.launch = decimal(self.library.launch_s)
        self.latency = [decimal(level.latency_s) for level in cluster.levels]
        speeds = [decimal(level.bandwidth_bytes_per_s) for level in cluster.levels]
        self.speed = [min(speeds[: at + 1]) for at in range(len(speeds))]
        self.parts: list[int] = []
        self.held: list[list[int]] = []
        self.steps: list[int] = []
        inner = 1
        for level in cluster.levels:
            outer = inner * level.fanout
            children = {member // inner for member in members}
            parents = [child * inner // outer for child in children]
            self.parts.append(max(parents.count(parent) for parent in parents))
            self.held.append([sum(member // inner == child for member in members) for child in children])
            ring = [*pairwise(members), (members[-1], members[0])] if len(members) > 1 else []
            self.steps.append(sum(a // inner != b // inner and a // outer == b // outer for a, b in ring))
            inner = outer
        self.used = [at for at, parts in enumerate(self.parts) if parts > 1]
        self.fewest = [min(held) for held in self.held]
        self.alike = all(min(held) == max(held) for held in self.held)
        self.adding = [at for at in self.used if cluster.levels[at].in_network_reduction]
        self.seconds, self.rate, self.protocol = cache(self._seconds), cache(self._rate), cache(self._protocol)

    def has(self, algorithm: str) -> bool:
        """Whether the library has an algorithm."""
        return algorithm in self.library.algorithms

    def _rate(self, at: int, share: float, width: int, peers: int) -> Fraction:
        """Return what a child of a level sends by so many members to so many peers of each, in bytes/s."""
        pair = self.cluster.levels[at].pair_bytes_per_s
        each = self.speed[at] if pair is None else min(self.speed[at], decimal(pair) * peers)
        return width * each * decimal(share)

    def _protocol(self, name: str) -> tuple[dict[int, Fraction], dict[int, Fraction]]:
        """Return the latency of each level in use under a protocol, and what of its bandwidth is left."""
        found = {at: next(each for each in self.kinds[at].protocols if each.name == name) for at in self.used}
        wait = {at: self.latency[at] * decimal(each.latency_share) for at, each in found.items()}
        return wait, {at: decimal(each.bandwidth_share) for at, each in found.items()}

    def hop(self, size: Fraction, at: int | None = None) -> Fraction:
        """Return the time of a transfer between two devices that a level joins, by default the one of this pair."""
        level = self.used[-1] if at is None else at
        kind = self.kinds[level]
        return self.launch + min(
            self.latency[level] * decimal(each.latency_share)
            + size / (self.rate(level, kind.single or kind.stream, 1, 1) * decimal(each.bandwidth_share))
            for each in kind.protocols
        )

    def _seconds(self, kind: str, size: Fraction) -> Fraction:
        """Return the fastest way to run it."""
        if self.count == 1 or size == 0:
            return Fraction(0)
        if kind == "ring":
            return (self.count - 1) * max(self.hop(size, at) for at in self.used)
        return self.launch + min(seconds for _, seconds in self._ways(kind, size))

    def _ways(self, kind: str, size: Fraction) -> list[Timed]:
        """Return all ways to run it, without the time to launch."""
        names = [{each.name for each in self.kinds[at].protocols} for at in self.used]
        ways = [_Way(self, name, size) for name in set.intersection(*names)]
        if kind == "all-to-all":
            return [found for way in ways for found in way.all_to_all()]
        found = [each for way in ways for each in way.sums(2 if kind == "all-reduce" else 1)]
        if kind == "all-reduce":
            found += [each for way in ways for each in way.tree()]
            found += [each for way in ways if way.name == "simple" for each in way.switched()]
        return found

    def sent_over(self, level: int, kind: str, size: Fraction) -> tuple[int, bool]:
        """Return the bytes that all members send over a level or one outside it (D16), and whether that is in doubt.

        It is where another algorithm is as fast to twelve digits and sends something else, and where half a byte is
        to be rounded.
        """
        if self.count == 1 or size == 0:
            return 0, False
        beyond = sum(self.steps[level:])
        if kind == "ring":
            return _rounded((self.count - 1) * beyond * size)
        ways = sorted(self._ways(kind, size), key=lambda way: way[1])
        least = self.launch + ways[0][1]
        near = {name for name, seconds in ways if (self.launch + seconds - least) * 10**12 <= least}
        sent = {name: self._sent(name, level, kind, size) for name in near}
        found, doubtful = _rounded(sent[ways[0][0]])
        return found, doubtful or len(set(sent.values())) > 1

    def _sent(self, algorithm: str, level: int, kind: str, size: Fraction) -> Fraction:
        """Return what an algorithm has all members send over a level or one outside it."""
        used = [at for at in self.used if at >= level]
        if not used:
            return Fraction(0)
        rounds, inner, top = 2 if kind == "all-reduce" else 1, used[0], self.used[-1]
        branching = len(self.held[inner]) * size * (2 if self.parts[inner] > 2 else 1)
        shared = sum(
            (self.count * size * Fraction(self.parts[at] - 1, self.parts[at]) / self.fewest[at] for at in used),
            Fraction(0),
        )
        over_top = self.count * size * Fraction(self.parts[top] - 1, self.parts[top]) / self.fewest[top]
        mixed = rounds * (shared - over_top) + self.count * size / self.fewest[top]
        each = sum((self.count * size * Fraction(self.parts[at] - 1, self.parts[at]) for at in used), Fraction(0))
        return {
            "ring": rounds * sum(self.steps[level:]) * size * Fraction(self.count - 1, self.count),
            "tree": branching,
            "in-network": len(self.held[inner]) * size if inner in self.adding else branching,
            "hierarchical-in-network": mixed,
            "direct": size * (self.count - self.fewest[inner]),
            "hierarchical": each if kind == "all-to-all" else rounds * shared,
            "halving-doubling": rounds * shared,
        }[algorithm]


class _Way:
    """A group under one protocol that all links on its way have."""

    def __init__(self, group: Group, name: str, size: Fraction) -> None:
        self.group, self.name, self.size, self.used = group, name, size, group.used
        self.parts, self.fewest, self.alike = group.parts, group.fewest, group.alike
        self.wait, self.part = group.protocol(name)

    def stream(self, at: int, width: int, peers: int) -> Fraction:
        return self.group.rate(at, self.group.kinds[at].stream, width, peers) * self.part[at]

    def scatter(self, at: int, peers: int) -> Fraction:
        return self.group.rate(at, self.group.kinds[at].scatter, 1, peers) * self.part[at]

    def reduce(self, at: int, width: int, peers: int) -> Fraction:
        return self.group.rate(at, self.group.kinds[at].reduce, width, peers)

    def across(self, at: int) -> int:
        """Return the members in the other children of a level."""
        return self.fewest[at] * (self.parts[at] - 1)

    def crossing(self, at: int) -> Fraction:
        """Return the bytes/s of a child all of whose members send."""
        return self.stream(at, self.fewest[at], self.across(at))

    def exchange(self, at: int, peers: int) -> Fraction:
        """Return the time in which the members in one place of all children share out their bytes."""
        moved = self.size * Fraction(self.parts[at] - 1, self.parts[at]) / self.fewest[at]
        return moved / self.stream(at, 1, peers)

    def sums(self, rounds: int) -> Iterator[Timed]:
        """Yield the ways to sum, or gather, or both."""
        if self.group.has("ring"):
            waits = sum(self.group.steps[at] * self.wait[at] for at in self.used)
            moved = self.size * Fraction(self.group.count - 1, self.group.count)
            slowest = max(moved / self.crossing(at) for at in self.used)
            yield "ring", rounds * (waits - min(self.wait.values()) + slowest)
        if not self.alike:
            return
        if len(self.used) > 1 and self.group.has("hierarchical"):
            yield "hierarchical", rounds * sum((self.level_by_level(at) for at in self.used), Fraction(0))
        if all(is_power(parts) for parts in self.parts) and self.group.has("halving-doubling"):
            steps = {at: self.parts[at].bit_length() - 1 for at in self.used}
            halved = sum((steps[at] * self.wait[at] + self.exchange(at, 1) for at in self.used), Fraction(0))
            yield "halving-doubling", rounds * halved

    def level_by_level(self, at: int) -> Fraction:
        peers = self.parts[at] - 1
        return peers * self.wait[at] + self.exchange(at, peers)

    def depth(self, at: int) -> int:
        """Return the steps from a leaf of a tree to its root, with the library's chains at the innermost level."""
        chain = min(self.parts[at], self.group.library.chain) if at == 0 else 1
        leaves = -(-self.parts[at] // chain)
        return chain - 1 + (leaves - 1).bit_length()

    def branching(self, at: int) -> Fraction:
        return self.size * (2 if self.parts[at] > 2 else 1) / self.crossing(at)

    def tree(self) -> Iterator[Timed]:
        """Yield the two trees."""
        if self.group.has("tree"):
            path = 2 * sum((self.depth(at) * self.wait[at] for at in self.used), Fraction(0))
            busy = max(self.branching(at) for at in self.used)
            yield "tree", path + busy + 2 * root(path * busy)

    def switched(self) -> Iterator[Timed]:
        """Yield the ways in which switches add, at all levels that can or at the topmost."""
        adding, top, group = self.group.adding, self.used[-1], self.group
        if adding and group.has("in-network"):
            extra = sum((decimal(group.kinds[at].reduction_s) for at in adding), Fraction(0))
            path = sum((2 * (1 if at in adding else self.depth(at)) * self.wait[at] for at in self.used), Fraction(0))
            busy = max(
                self.size / self.reduce(at, self.fewest[at], self.across(at)) if at in adding else self.branching(at)
                for at in self.used
            )
            pieces = 2 * root(path * busy) if len(adding) < len(self.used) else 0
            yield "in-network", extra + path + busy + pieces
        if top in adding and self.alike and len(self.used) > 1 and group.has("hierarchical-in-network"):
            below = 2 * sum((self.level_by_level(at) for at in self.used[:-1]), Fraction(0))
            up = 2 * self.wait[top] + decimal(group.kinds[top].reduction_s)
            yield "hierarchical-in-network", below + up + self.size / self.fewest[top] / self.reduce(top, 1, 1)

    def all_to_all(self) -> Iterator[Timed]:
        """Yield the ways in which each sends to each."""
        count, least = self.group.count, self.fewest
        beyond = [*least[1:], count]
        peers = {at: beyond[at] - least[at] for at in self.used}
        if self.group.has("direct"):
            waits = sum((peers[at] * self.wait[at] for at in self.used), Fraction(0))
            leaving = {at: self.size * Fraction(count - least[at], count) for at in self.used}
            slowest = max(leaving[at] / self.scatter(at, max(1, peers[at])) for at in self.used)
            yield "direct", waits + slowest
        if self.alike and len(self.used) > 1 and self.group.has("hierarchical"):
            total = Fraction(0)
            for at in self.used:
                others = self.parts[at] - 1
                moved_there = self.size * Fraction(others, self.parts[at])
                total += others * self.wait[at] + moved_there / self.scatter(at, others)
            yield "hierarchical", total
