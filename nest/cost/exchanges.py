"""Network times by the places of the members: transfers between stages, collectives of layers, weights and gradients.

What a group takes is `nest.cost.alpha_beta`'s; here is which devices form a group, and which collectives there are.
Sizes are arrays, also where there is one, so that all callers get the same floating-point value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from nest.cost import alpha_beta
from nest.cost.algorithms import Kind
from nest.cost.groups import Spread, spread
from nest.cost.links import Network, Use
from nest.forms import Form
from nest.graph import Axis, Collective, CollectiveKind
from nest.problem import HELD, Problem, Training, Variant
from nest.units import Floats, Ints

Part: TypeAlias = Literal["weights", "gradients"]
"""What is exchanged of a weight: itself, or its gradient."""

Exchange: TypeAlias = tuple[CollectiveKind, Part]

ZeroExchanges: TypeAlias = Mapping[int, tuple[Exchange, ...]]
"""What is exchanged, by ZeRO type."""

FORWARD: ZeroExchanges = {0: (), 1: (), 2: (), 3: (("all-gather", "weights"),), HELD: ()}
"""What a layer exchanges for the forward pass of each microbatch."""

SCATTERS: ZeroExchanges = {
    0: (),
    1: (),
    2: (("reduce-scatter", "gradients"),),
    3: (("reduce-scatter", "gradients"),),
    HELD: (),
}
"""What it exchanges of the gradients of its weights for each microbatch.

Nobody keeps gradients that are sharded, so that each microbatch scatters them (types 2 and 3); weights that are sharded
are gathered for each pass (type 3). Rajbhandari et al., "ZeRO" (arXiv 1910.02054), sections 5 and 7.
"""

BACKWARD: ZeroExchanges = {zero: FORWARD[zero] + SCATTERS[zero] for zero in FORWARD}
"""What it exchanges for the backward pass of each microbatch: what it gathers for the other pass, it gathers again."""

EACH_MICROBATCH: ZeroExchanges = {zero: FORWARD[zero] + BACKWARD[zero] for zero in FORWARD}
"""What it exchanges for each microbatch."""

GATHERS: ZeroExchanges = {
    0: (),
    1: (("all-gather", "weights"),),
    2: (("all-gather", "weights"),),
    3: (),
    HELD: (("all-gather", "weights"),),
}
"""What a stage gathers once per iteration, behind the optimizer's step."""


def sums(training: Training) -> ZeroExchanges:
    """Return how a stage sums its gradients once per iteration."""
    reduced: tuple[Exchange, ...] = (("all-reduce", "gradients"),)
    scattered: tuple[Exchange, ...] = (("reduce-scatter", "gradients"),)
    return {0: reduced, 1: reduced if training.sums_whole else scattered, 2: (), 3: (), HELD: scattered}


def each_iteration(training: Training) -> ZeroExchanges:
    """Return what a stage exchanges once per iteration."""
    return {zero: each + GATHERS[zero] for zero, each in sums(training).items()}


def axis_group(variant: Variant, axis: Axis) -> tuple[int, int]:
    """Return the distance between members of a group inside a block, and how many there are.

    Ranks of a block count up first in tensor, then in context, then in expert parallel.
    """
    through = variant.tensor * variant.context
    return {
        "tensor": (1, variant.tensor),
        "context": (variant.tensor, variant.context),
        "expert": (through, variant.expert),
    }[axis]


def axis_starts(form: Form, axis: Axis) -> Ints:
    """Return the first devices of all groups of an axis inside a block that starts at device 0."""
    step, count = axis_group(form.variant, axis)
    places = np.arange(form.computing, dtype=np.int64)
    starts: Ints = places[places // step % count == 0]
    return starts


def copies_of(copies: tuple[int, int], form: Form, blocks: Ints) -> Ints:
    """Return the devices that hold copies of what the first device of a block holds.

    Parameters
    ----------
    copies
        Of each part of a block, and how far each is from the next, as `Problem.copies` has them.
    form
        Of the stage: what is sharded inside it is held by the devices for that as well.
    blocks
        First devices of the same stage in all replicas.
    """
    ranks, apart = copies
    parts = blocks[:, None] + form.variant.width * np.arange(form.inside, dtype=np.int64)
    return np.sort((parts[..., None] + apart * np.arange(ranks, dtype=np.int64)).ravel())


class Crossing(NamedTuple):
    """What crosses a boundary between two stages, in seconds.

    Parameters
    ----------
    received, gathered
        To receive what comes, and to gather it behind the boundary.
    sent
        To send as much the other way; nothing where a stage goes on meanwhile.
    """

    received: Floats
    gathered: Floats
    sent: Floats


class Exchanges:
    """Times on the network of a problem.

    Parameters
    ----------
    problem
        Kinds of links and the library are those that its cluster names; an oversubscribed level is given with what
        remains.

    Raises
    ------
    InvalidProblem
        If there is no such kind or library.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.cluster = problem, problem.cluster
        training = problem.training
        self.tax, self.splits_transfers = training.overlap_tax, training.splits_transfers
        self.blocking_sends = training.blocking_sends
        self.network = Network.of(self.cluster)
        self._known: dict[tuple[Kind, Spread], alpha_beta.Collective] = {}

    def spread(self, places: Sequence[int] | Ints) -> Spread:
        """Return how devices are spread over the levels."""
        return spread(self.cluster, np.asarray(places, dtype=np.int64))

    def seconds(self, kind: CollectiveKind, where: Spread, sizes: Floats) -> Floats:
        """Return the times of collectives of so many bytes; 0 where there is a single member."""
        if kind != "ring":
            return self._curves(Kind(kind), where).seconds(sizes)
        slowest = np.zeros_like(sizes)
        for level in where.levels:
            slowest = np.maximum(slowest, self.hop_s(level, sizes))
        return slowest * (where.count - 1)

    def sent_over(self, level: int, kind: CollectiveKind, where: Spread, sizes: Floats) -> Ints:
        """Return the bytes, to the byte, that a group sends over a level or one outside it in collectives (D16)."""
        if kind == "ring":
            sent = sizes * ((where.count - 1) * sum(where.hops[level:]))
        else:
            sent = self._curves(Kind(kind), where).sent_over(level, sizes)
        return np.rint(sent).astype(np.int64)

    def exposed_s(self, each: Collective, where: Spread) -> float:
        """Return what a collective of a layer takes: what no computation hides, and what it costs the one that does."""
        seconds = float(self.seconds(each.kind, where, np.array([float(each.bytes)]))[0])
        return seconds - (1 - self.tax) * min(seconds, each.hidden_s)

    def hop_s(self, level: int, sizes: Floats) -> Floats:
        """Return the times of transfers between two devices that a level joins."""
        return self._curves(Kind.POINT_TO_POINT, self.pair(level)).seconds(sizes)

    def crossing_s(self, variant: Variant, level: int, sizes: Floats) -> Crossing:
        """Return for how long a stage is busy with so many bytes that cross a boundary of a level, there and back.

        Where transfers are split, the tensor ranks of a stage each send their part of what all of them have, and gather
        the whole (arXiv 2104.04473, section 4.1). Ranks that share the sequence have parts of their own.
        """
        return self.resharding_s((variant, variant), level, (sizes, sizes))

    def resharding_s(self, ends: tuple[Variant, Variant], level: int, sizes: tuple[Floats, Floats]) -> Crossing:
        """Return the same between stages of two tensor widths, whose tensors are laid out anew (D10).

        Each device of the stage with fewer tensor ranks deals with as many of the other one as that has more. Where
        ranks have parts of their own, or transfers are split, it sends each of them a part of what it has; else each of
        them all of it. Between stages whose devices share the sequences of a microbatch otherwise, a device sends and
        receives what is alive on it, in whatever parts.

        Parameters
        ----------
        ends
            What the two stages are of.
        sizes
            Bytes alive on a device of each.
        """
        hop = self.hop_s(level, self.transferred(ends, sizes))
        gathered, behind = map(self._gathered_s, ends, sizes)
        return Crossing(hop, np.maximum(gathered, behind), hop if self.blocking_sends else np.zeros_like(hop))

    def transferred(self, ends: tuple[Variant, Variant], sizes: tuple[Floats, Floats]) -> Floats:
        """Return the bytes that each device sends, and receives, at a boundary, at the end with the fewer devices."""
        here, there = ends
        parts = [size / each.tensor if self.gathers(each) else size for each, size in zip(ends, sizes, strict=True)]
        copied = not (max(ends, key=lambda variant: variant.tensor).sequence or self.splits_transfers)
        ways = (-(-there.tensor // here.tensor), -(-here.tensor // there.tensor)) if copied else (1, 1)
        return np.maximum(parts[0] * ways[0], parts[1] * ways[1])

    def gathers(self, variant: Variant) -> bool:
        """Whether the tensor ranks of a stage each send a part of what crosses a boundary, and gather the whole."""
        return self.splits_transfers and variant.tensor > 1 and not variant.sequence

    def _gathered_s(self, variant: Variant, sizes: Floats) -> Floats:
        """Return what it takes to gather so many bytes from the parts that tensor ranks have, where they do."""
        if not self.gathers(variant):
            return np.zeros_like(sizes)
        return self.seconds("all-gather", self.spread(range(variant.tensor)), sizes)

    def ends_s(self, level: int, sizes: Floats) -> Floats:
        """Return what an all-reduce takes of two devices that a level joins: copies of a table in two stages."""
        return self._curves(Kind.ALL_REDUCE, self.pair(level)).seconds(sizes)

    def _curves(self, kind: Kind, where: Spread) -> alpha_beta.Collective:
        key = kind, where
        if key not in self._known:
            self._known[key] = alpha_beta.collective(self.network, kind, where)
        return self._known[key]

    def pair(self, level: int) -> Spread:
        """Return how two devices are spread that a level joins."""
        levels = range(len(self.cluster.levels))
        parts, hops = (tuple(high if at == level else low for at in levels) for low, high in ((1, 2), (0, 2)))
        ones = tuple(1 if at <= level else 2 for at in levels)
        return Spread(2, parts, ones, ones, hops, True)

    def least_s(self, kind: CollectiveKind, count: Ints, apart: Ints, size: float) -> Floats:
        """Return times below which no groups of so many devices get, no two of them nearer than ``apart``.

        Every call takes the time to launch, and its bytes what `least_rate` says.
        """
        launch, each = self.network.library.launch_s, self.least_rate(kind, count, apart)
        least: Floats = np.where((count > 1) & (size > 0), launch + size * each, 0.0)
        return least

    def least_rate(self, kind: CollectiveKind, count: Ints, apart: Ints) -> Floats:
        """Return seconds for each byte below which no such groups get.

        On the innermost level that a group uses each child has one member, and sends at least ``(N - 1) / N`` of the
        bytes over its own link, for an all-reduce all of them: whatever the algorithm, for sums.
        """
        groups = np.array(self.cluster.group_sizes, dtype=np.int64)
        best = np.maximum.accumulate(self.best_speeds[::-1])[::-1]  # of a level and those outside it
        level = np.minimum(np.searchsorted(groups, apart, side="right"), len(groups) - 1)
        share = 1.0 if kind == "all-reduce" else (count - 1) / count
        rate: Floats = share / best[level]
        return rate

    @cached_property
    def best_speeds(self) -> Floats:
        """Bytes/s that a device gets at most through each level."""
        speeds = [
            bandwidth * max(traits.kind.efficiency(use) for use in Use)
            for bandwidth, traits in zip(self.network.group_bandwidths, self.network.traits, strict=True)
        ]
        return np.array(speeds)

    def longest_s(self, kind: CollectiveKind, count: int, size: float, within: int | None = None) -> float:
        """Return a time that no group of so many devices exceeds, wherever they are among ``within`` neighbours.

        They begin at a multiple of their number, which nests with the groups of the network. None is for all devices.

        That of a ring, all of whose steps have the longest latency and the least bandwidth; pairwise exchanges have as
        many steps, and put no more on any link.
        """
        if count == 1 or size == 0:
            return 0.0
        rounds = {"all-reduce": 2.0, "ring": count - 1.0}.get(kind, 1.0)
        steps = count - 1 if kind == "ring" else rounds * (count - 1)
        sizes = self.cluster.group_sizes
        top = len(sizes) - 1 if within is None else min(bisect_left(sizes, within), len(sizes) - 1)
        each = self._longest_steps[top]
        return steps * each[0] + rounds * size / each[1]

    @cached_property
    def _longest_steps(self) -> list[tuple[float, float]]:
        """Longest latency and least bandwidth of a step that climbs to each level at most."""
        network, launch = self.network, self.network.library.launch_s
        speeds = [
            min(bandwidth, traits.pair_bytes_per_s) * min(traits.kind.efficiency(use) for use in Use)
            for bandwidth, traits in zip(network.group_bandwidths, network.traits, strict=True)
        ]
        delays = accumulate((level.latency_s for level in self.cluster.levels), max)
        return [(launch + delay, speed) for delay, speed in zip(delays, accumulate(speeds, min), strict=True)]
