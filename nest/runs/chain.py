"""The blocks of a model in one order, whatever its stacks, and what feeds what: pipelines are cut from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from nest.costing import LayerCost
from nest.errors import InvalidProblem
from nest.families import Architecture, Block, Link, Stack
from nest.families.operators import Rows


@dataclass(frozen=True, slots=True)
class Step:
    """An edge between two places of the order.

    Parameters
    ----------
    source, target
        Places.
    share
        Bytes over those that the source sends to the next block; 0 where an edge only says what runs first.
    """

    source: int
    target: int
    share: Rows = 1


@dataclass(frozen=True)
class Chain:
    """Blocks in an order in which they can run, one stack after the other.

    Parameters
    ----------
    stacks
        Those that are trained, in order.
    kinds
        Kind of each block, behind the name of its stack where there are several.
    steps
        The edges.
    """

    stacks: tuple[Stack, ...]
    kinds: tuple[str, ...]
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, model: Architecture, *, given: bool = False) -> Chain:
        """Put the blocks of a model in order.

        An encoder comes before its decoder, a tower before the layers that look at it. Only edges say what has to run
        first: two towers run side by side, and so do an encoder and the embedding of its decoder.

        Parameters
        ----------
        given
            Whether the stages are given, so that stacks come in the order of the model, whatever orders them.

        Raises
        ------
        InvalidProblem
            If layers share weights; and, where stages are to be found, if nothing joins a stack to others, or a later
            one feeds it.
        """
        check_own_weights(model)
        stacks = trained_stacks(model)
        starts = _starts(stacks)
        links = [link for link in model.links if link.source[0] in starts and link.target[0] in starts]
        if given:
            order = list(starts)
            links = [link for link in links if order.index(link.source[0]) < order.index(link.target[0])]
        else:
            _check_order(stacks, links)
        several = len(stacks) > 1
        kinds = (f"{stack.name}.{block.kind}" if several else block.kind for stack in stacks for block in stack.blocks)
        steps = [*_steps(stacks, starts, links), *(_one_order(stacks, starts, links) if given else ())]
        return cls(stacks, tuple(kinds), tuple(sorted(steps, key=_ends)))

    def flattened(self, costs: Mapping[str, Sequence[LayerCost]]) -> list[LayerCost]:
        """Return costs by stack as costs by place."""
        return [cost for stack in self.stacks for cost in costs[stack.name]]


def check_own_weights(model: Architecture) -> None:
    """Refuse models whose layers share weights: stages would hold copies of each other's, and sum their gradients.

    Raises
    ------
    InvalidProblem
        If they do.
    """
    if model.shares_layers:
        what = "its layers share their weights, of which every stage would hold a copy; nothing here prices that"
        raise InvalidProblem("model", what, "models whose layers have weights of their own can be planned")


def trained_stacks(model: Architecture) -> tuple[Stack, ...]:
    """Return the stacks of a model that are trained, in its order."""
    trained = {extra.stack.name for extra in model.extras if extra.trained}
    return tuple(each for each in model.every_stack if each in model.stacks or each.name in trained)


def _ends(step: Step) -> tuple[int, int]:
    return step.source, step.target


def _starts(stacks: Sequence[Stack]) -> dict[str, int]:
    """Return the place of the first block of each stack."""
    starts, at = {}, 0
    for stack in stacks:
        starts[stack.name] = at
        at += len(stack.blocks)
    return starts


def _check_order(stacks: Sequence[Stack], links: Sequence[Link]) -> None:
    order = [stack.name for stack in stacks]
    for link in links:
        if order.index(link.source[0]) >= order.index(link.target[0]):
            what = f"stack {link.target[0]!r} runs before {link.source[0]!r}, which feeds it"
            raise InvalidProblem("model", what, "models whose stacks follow each other can be planned")
    joined = {name for link in links for name, _ in (link.source, link.target)}
    for stack in stacks if len(stacks) > 1 else ():
        if stack.name not in joined:
            what = f"stack {stack.name!r} feeds no other stack, and none feeds it"
            raise InvalidProblem("model", what, "models in one piece can be planned")


def _steps(stacks: Sequence[Stack], starts: Mapping[str, int], links: Sequence[Link]) -> Iterator[Step]:
    blocks: list[Block] = [block for stack in stacks for block in stack.blocks]
    for link in links:
        source, target = (starts[name] + place for name, place in (link.source, link.target))
        yield Step(source, target, Fraction(link.width) * Fraction(link.rows) / blocks[source].width)
    for stack in stacks:
        first = starts[stack.name]
        yield from (Step(place, place + 1) for place in range(first, first + len(stack.blocks) - 1))


def _one_order(stacks: Sequence[Stack], starts: Mapping[str, int], links: Sequence[Link]) -> Iterator[Step]:
    """Yield what joins each stack to the next where no link does."""
    made = {tuple(starts[name] + place for name, place in (link.source, link.target)) for link in links}
    for before, behind in pairwise(stacks):
        ends = starts[behind.name] - 1, starts[behind.name]
        if ends not in made and before.blocks:
            yield Step(*ends, 0)
