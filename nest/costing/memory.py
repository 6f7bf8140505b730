"""Memory of one device of a stage, in bytes and by component."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from nest.costing.framework import Recompute
from nest.costing.layer import Buckets, LayerCost
from nest.costing.recipe import Recipe
from nest.errors import InvalidProblem


@dataclass(frozen=True, slots=True)
class Sharding:
    """How the copies of a stage's parameters are spread over the ranks that hold the same ones (ZeRO, FSDP).

    Parameters
    ----------
    zero
        0 for whole copies; from 1 the optimizer state is spread, from 2 the gradients, from 3 the weights.
    ranks, expert_ranks
        Ranks that hold the same dense parameters (replicas x context x expert), and the same experts.

    Raises
    ------
    InvalidProblem
        If the type is none, or there is no rank.
    """

    zero: int = 0
    ranks: int = 1
    expert_ranks: int = 1

    def __post_init__(self) -> None:
        if self.zero not in range(4):
            raise InvalidProblem("zero", f"{self.zero}", "give 0, 1, 2 or 3")
        if self.ranks < 1 or self.expert_ranks < 1:
            raise InvalidProblem("ranks", f"{self.ranks} and {self.expert_ranks}", "give whole numbers from 1")

    def share(self, parameters: Buckets, since: int) -> int:
        """Return of how many parameters a device holds what is spread from that type on."""
        if self.zero < since:
            return parameters.total
        return -(-parameters.dense // self.ranks) - (-parameters.expert // self.expert_ranks)

    def spread(self, parameters: Buckets) -> int:
        """Return how many parameters have ranks to be spread over."""
        return parameters.dense * (self.ranks > 1) + parameters.expert * (self.expert_ranks > 1)


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes on each device of a stage.

    Parameters
    ----------
    weights, gradients, optimizer
        By the recipe, as sharded.
    activations
        Kept by the microbatches in flight.
    working
        In use for a moment of a backward pass: gradients of activations, what is computed again, gathered weights.
    stepping
        In use for a moment of the optimizer's step, when no activations are left.
    reserve
        Of the framework and of communication.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    working: int
    stepping: int = 0
    reserve: int = 0

    @property
    def state(self) -> int:
        """Weights, gradients and optimizer state."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        """The peak, reserve included."""
        return self.state + max(self.activations + self.working, self.stepping) + self.reserve


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stage is in its pipeline.

    Parameters
    ----------
    stage, stages
        Its place from 0, and how many there are.
    microbatches
        Of one replica in an iteration.
    virtual
        Chunks of layers of each stage under the interleaved schedule (arXiv 2104.04473, section 2.2); 1 without.

    Raises
    ------
    InvalidProblem
        If there is no such stage.
    """

    stage: int = 0
    stages: int = 1
    microbatches: int = 1
    virtual: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.stage < self.stages or self.microbatches < 1 or self.virtual < 1:
            what = f"stage {self.stage} of {self.stages}, {self.microbatches} microbatches, {self.virtual} chunks"
            raise InvalidProblem("position", what, "count stages from 0, everything else from 1")

    @property
    def in_flight(self) -> Fraction:
        """Microbatches of which the stage keeps activations at its peak, in units of all its layers.

        ``min(m, S - i)`` under 1F1B. Interleaved, ``2 (S - i - 1) + (v - 1) S + 1`` passes of one chunk each come
        before the first backward pass is done: at the first stage ``S (1 + (S - 1) / (S v))`` (arXiv 2205.05198,
        section 5).
        """
        if self.virtual == 1:
            return Fraction(min(self.microbatches, self.stages - self.stage))
        chunks = 2 * (self.stages - self.stage - 1) + (self.virtual - 1) * self.stages + 1
        return Fraction(min(chunks, self.microbatches * self.virtual), self.virtual)


def stage_parameters(blocks: Sequence[LayerCost]) -> Buckets:
    """Return the parameters that a stage stores: a table that is used again counts once on the stage that owns it."""
    own = sum((block.parameters for block in blocks), Buckets())
    owner = any(block.kind == "embedding" and block.parameters.sharded for block in blocks)
    return own + Buckets(0 if owner else sum(block.tied for block in blocks))


def stage_memory(
    blocks: Sequence[LayerCost],
    recompute: Sequence[Recompute],
    position: Position,
    recipe: Recipe,
    *,
    sharding: Sharding | None = None,
    offloaded: float = 0.0,
    reserve: int = 0,
) -> StageMemory:
    """Return the memory of each device of a stage.

    Parameters
    ----------
    blocks
        The stage's layers, all chunks together.
    recompute
        What each of them computes again.
    position
        Where the stage is.
    recipe, sharding
        Bytes per parameter, and over which ranks they are spread.
    offloaded
        Share of the optimizer state that is in the memory of the host.
    reserve
        Bytes of framework and communication.

    Raises
    ------
    InvalidProblem
        If there is not one kind of recomputation for each block.
    """
    if len(recompute) != len(blocks):
        raise InvalidProblem("recompute", f"{len(recompute)} for {len(blocks)} blocks", "give one for each block")
    sharding = sharding or Sharding()
    parameters = stage_parameters(blocks)
    kept = [block.kept.of(kind) for block, kind in zip(blocks, recompute, strict=True)]
    spare = sum({size for block in blocks if block.repeats for size in block.spare})
    return StageMemory(
        weights=_bytes(recipe.weights, sharding.share(parameters, 3)),
        gradients=_bytes(recipe.gradients, sharding.share(parameters, 2)),
        optimizer=_bytes(recipe.optimizer * (1 - offloaded), sharding.share(parameters, 1)),
        activations=_activations(blocks, kept, position),
        working=_working(blocks, recompute, recipe, sharding, _whole(position, recipe, sharding))
        + _bytes(recipe.gathered, spare)
        + _held(parameters, position, recipe, sharding),
        stepping=_bytes(recipe.stepped, sharding.share(parameters, 1)),
        reserve=reserve,
    )


def _activations(blocks: Sequence[LayerCost], kept: Sequence[int], position: Position) -> int:
    """Return what the microbatches in flight keep; of what follows the last layer, only the one at work."""
    last = max((at for at, block in enumerate(blocks) if block.repeats), default=-1)
    ending = sum(kept[last + 1 :]) if position.stage == position.stages - 1 else 0
    return ceil((sum(kept) - ending) * position.in_flight) + ending


def _whole(position: Position, recipe: Recipe, sharding: Sharding) -> float:
    """Return the bytes of each parameter of a block that are whole for a moment while it runs, though they are spread.

    Gradients are before they are spread (type 2), and gathered weights, too (type 3).
    """
    if sharding.zero < 2:
        return 0.0
    if sharding.zero == 2:
        return recipe.gradients
    return recipe.gathered + recipe.gradients if position.stages == 1 else 0.0


def _working(
    blocks: Sequence[LayerCost], recompute: Sequence[Recompute], recipe: Recipe, sharding: Sharding, whole: float
) -> int:
    """Return the most that a backward pass needs on top of what the forward pass kept.

    A block needs what it computes again, gradients of activations, and what is ``whole`` of its parameters, in bytes of
    each that is spread; what the blocks behind it kept is free by then.
    """
    most = freed = 0
    for block, kind in zip(reversed(blocks), reversed(recompute), strict=True):
        again = block.kept.none - block.kept.of(kind)
        gathered = _bytes(whole, sharding.spread(block.parameters))
        spare = 0 if block.repeats else _bytes(recipe.gathered, sum(block.spare))
        most = max(most, again + block.working_bytes + gathered + spare - freed)
        freed += block.kept.of(kind)
    return most


def _held(parameters: Buckets, position: Position, recipe: Recipe, sharding: Sharding) -> int:
    """Return what a stage of a pipeline gathers for the whole iteration (type 3).

    Its microbatches follow each other too closely to gather the weights for each of them, and gradients are summed over
    the ranks only when the last is done.
    """
    if sharding.zero < 3 or position.stages == 1:
        return 0
    return _bytes(recipe.gathered + recipe.gradients, sharding.spread(parameters))


def _bytes(each: float, count: int) -> int:
    return ceil(each * count)
