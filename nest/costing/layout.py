"""How an iteration is laid out: replicas, stages, and which layers each has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from nest.costing.framework import Recompute
from nest.costing.setting import Setting
from nest.errors import InvalidProblem
from nest.presets import ScheduleName


@dataclass(frozen=True, slots=True)
class Layout:
    """How an iteration is laid out, besides the widths of `Setting`.

    Parameters
    ----------
    global_batch
        Sequences of an iteration.
    data
        Replicas.
    stages
        Stages of the pipeline.
    virtual
        Chunks of each under the interleaved schedule; 1 without.
    zero
        What is spread over the ranks that hold the same parameters: ZeRO type 0 to 3.
    zero_groups
        Groups of neighbouring replicas, each of which has all that ZeRO spreads; 1 where all replicas share it.
    layers
        Blocks that count as layers in each stage, or in each part of the pipeline where stages have several chunks: the
        first chunks of all stages, then the second. Empty for as equal as it goes.
    recompute
        What layers compute again.
    recomputed
        How many layers of each stage do so, the first of them (``--recompute-method block`` of Megatron-LM) unless the
        framework takes the last; empty for all.
    offloaded
        Share of each stage's optimizer state that is in the memory of the host; empty for none.
    reserve
        Bytes of framework and communication on every device.
    schedule
        In which order stages take their passes; None for interleaved where they have several chunks, else 1F1B.
    first_class
        Of several classes of devices that on which the first stages stand; empty for the order of the cluster.

    Raises
    ------
    InvalidProblem
        If a number is out of range, the replicas do not share the batch evenly, or schedule and chunks do not go
        together.
    """

    global_batch: int
    data: int = 1
    stages: int = 1
    virtual: int = 1
    zero: int = 0
    zero_groups: int = 1
    layers: tuple[int, ...] = ()
    recompute: Recompute = "none"
    recomputed: tuple[int, ...] = ()
    offloaded: tuple[float, ...] = ()
    reserve: int = 0
    schedule: ScheduleName | None = None
    first_class: str = ""

    def __post_init__(self) -> None:
        for name in ("global_batch", "data", "stages", "virtual"):
            if getattr(self, name) < 1:
                raise InvalidProblem(name, f"{getattr(self, name)}", "give a whole number from 1")
        if self.zero not in range(4):
            raise InvalidProblem("zero", f"{self.zero}", "give 0, 1, 2 or 3")
        if self.zero_groups < 1 or self.data % self.zero_groups:
            what = f"{self.zero_groups} groups of {self.data} replicas"
            raise InvalidProblem("zero_groups", what, "give a number that divides the replicas")
        for name in ("layers", "recomputed", "offloaded"):
            given = getattr(self, name)
            if given and len(given) != self.stages and (name, len(given)) != ("layers", self.stages * self.virtual):
                raise InvalidProblem(name, f"{len(given)} numbers", f"give {self.stages}, one for each stage")
        if not all(0 <= share <= 1 for share in self.offloaded):
            raise InvalidProblem("offloaded", f"{self.offloaded}", "give shares from 0 to 1")
        if self.virtual > 1 and self.stages == 1:
            raise InvalidProblem("virtual", f"{self.virtual} chunks of one stage", "give more stages, or 1")
        if self.schedule is not None and (self.schedule == "interleaved") != (self.virtual > 1):
            what = f"{self.schedule} with {self.virtual} chunk" + "s" * (self.virtual > 1)
            raise InvalidProblem("schedule", what, "interleaved has 2 chunks or more, every other schedule 1")

    @property
    def passes(self) -> ScheduleName:
        """The schedule, also where none is given."""
        return self.schedule or ("interleaved" if self.virtual > 1 else "1f1b")

    def microbatches(self, setting: Setting) -> int:
        """Return the microbatches of one replica."""
        slot = self.data * setting.expert * setting.microbatch
        return -(-self.global_batch // slot)


class Repeating(Protocol):
    """A block of a model."""

    @property
    def repeats(self) -> bool:
        """Whether it counts as one of the layers, and not as what stands before or behind them."""


Block = TypeVar("Block", bound=Repeating)


def split_parts(costs: Sequence[Block], layout: Layout) -> list[list[Block]]:
    """Return the blocks of each part of the pipeline: its stages, or the first chunks of all stages, then the second.

    What precedes the first layer goes with it, what follows the last as well. Where the last part is said to have no
    layers, it has what follows them; the first, what precedes them.

    Raises
    ------
    InvalidProblem
        If the numbers of layers do not add up, a part has nothing, or there are more chunks than layers.
    """
    counts = _counts(layout, sum(cost.repeats for cost in costs))
    parts: list[list[Block]] = [[] for _ in counts]
    part, left = 0, counts[0]
    end = max((at for at, cost in enumerate(costs) if cost.repeats), default=-1)
    for at, cost in enumerate(costs):
        if layout.layers and at > end:
            part = len(counts) - 1  # which has no layers where numbers say so: the head alone
        while cost.repeats and left == 0 and part < len(counts) - 1:
            part += 1
            left = counts[part]
        parts[part].append(cost)
        left -= cost.repeats
    if not all(parts):
        what, each = ("virtual", "chunk") if layout.virtual > 1 else ("stages", "stage")
        if layout.layers:
            raise InvalidProblem("layers", f"none for {each} {parts.index([])}", f"give each {each} a layer")
        raise InvalidProblem(what, f"{len(counts)} for {sum(counts)} layers", f"give each {each} a layer")
    return parts


def _counts(layout: Layout, total: int) -> tuple[int, ...]:
    """Return how many of so many layers each part of the pipeline has.

    Where they are given by stage, the chunks of each have equally many, or the first ones one more.
    """
    stages, chunks, given = layout.stages, layout.virtual, layout.layers
    if chunks > 1 and not given and stages * chunks > total:
        raise InvalidProblem("virtual", f"{stages * chunks} for {total} layers", "give each chunk a layer")
    counts = given or _even(total, stages * chunks)
    if given and len(given) < stages * chunks:
        counts = tuple(count for row in zip(*(_even(count, chunks) for count in given), strict=True) for count in row)
    if sum(counts) != total or min(counts) < 0:
        raise InvalidProblem("layers", f"{sum(counts)} in all stages", f"the model has {total} layers")
    return counts


def _even(total: int, parts: int) -> tuple[int, ...]:
    """Return a number in so many parts, as equal as it goes, the larger ones first."""
    each, more = divmod(total, parts)
    return tuple(each + (at < more) for at in range(parts))
