"""A model as stacks of blocks of components; what it computes and learns, independent of any framework or device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from nest.errors import InvalidProblem
from nest.families.operators import Elementwise, Matmul, Operator, Rows, Scores, Tensor
from nest.families.weights import Weight


@dataclass(frozen=True, slots=True)
class Component:
    """A part of a block that does one thing.

    Parameters
    ----------
    name
        Unique in its block.
    kind
        What it is: ``embedding``, ``norm``, ``attention``, ``mlp``, ``router``, ``experts``, ``shared_experts``,
        ``mamba``, ``projector``, ``pooler``, ``head`` and the like; parameters are summed by it.
    weights, operators
        What it learns, and what it computes, in order.
    """

    name: str
    kind: str
    weights: tuple[Weight, ...] = ()
    operators: tuple[Operator, ...] = ()

    @property
    def parameters(self) -> int:
        """Parameters, each counted where it is stored."""
        return sum(weight.parameters for weight in self.weights)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes."""
        return sum(weight.active_parameters for weight in self.weights)


@dataclass(frozen=True)
class Block:
    """The smallest part that a pipeline stage holds: a layer, an embedding, a head.

    Parameters
    ----------
    kind
        What sets it apart from others, as in ``sliding_attention+mlp``; equal kinds have equal costs.
    components
        In order of computation.
    width
        Elements per token of the tensor that leaves it.
    layer
        Whether it counts as one of the model's layers.
    """

    kind: str
    components: tuple[Component, ...]
    width: int
    layer: bool = True

    @cached_property
    def parameters(self) -> int:
        """Parameters of all components."""
        return sum(component.parameters for component in self.components)

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token passes."""
        return sum(component.active_parameters for component in self.components)

    @property
    def operators(self) -> Iterator[Operator]:
        """The operators of all components."""
        return (operator for component in self.components for operator in component.operators)

    @cached_property
    def kept(self) -> tuple[Tensor, ...]:
        """The tensors that stay for the backward pass, each once; probabilities of `Scores` come on top."""
        tensors = {}
        for operator in self.operators:
            if isinstance(operator, Matmul | Scores | Elementwise):
                tensors.update({tensor.name: tensor for tensor in operator.keeps})
        return tuple(tensors.values())

    @cached_property
    def matmul_flops(self) -> Rows:
        """Operations of the matrix products in the forward pass, per token of the stack's stream.

        Products over the tokens of another stream (keys and values of cross-attention) are not among them.
        """
        return sum(
            operator.flops for operator in self.operators if isinstance(operator, Matmul) and not operator.stream
        )


@dataclass(frozen=True, slots=True)
class Stream:
    """Tokens that pass a stack.

    Parameters
    ----------
    tokens
        Per sequence of the batch; None where the training decides (the sequence length).
    """

    name: str
    tokens: int | None = None


@dataclass(frozen=True)
class Stack:
    """Blocks one after the other, over the tokens of one stream.

    Parameters
    ----------
    aside
        Whether a token of text does not pass it: a vision tower beside a decoder.
    """

    name: str
    stream: str
    blocks: tuple[Block, ...]
    aside: bool = False

    @property
    def parameters(self) -> int:
        """Parameters of all blocks."""
        return sum(block.parameters for block in self.blocks)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes."""
        return sum(block.active_parameters for block in self.blocks)

    @property
    def layers(self) -> int:
        """Blocks that count as layers."""
        return sum(block.layer for block in self.blocks)

    @property
    def kinds(self) -> dict[str, int]:
        """How many layers there are of each kind."""
        return dict(Counter(block.kind for block in self.blocks if block.layer))


@dataclass(frozen=True, slots=True)
class Link:
    """An edge between blocks of two stacks; within a stack each block feeds the next.

    Parameters
    ----------
    source, target
        Stack and place in it, from 0.
    width
        Elements per token of the source's stream, or per merged token where ``rows`` says so.
    rows
        Rows per token of the source's stream.
    """

    source: tuple[str, int]
    target: tuple[str, int]
    width: int
    rows: Rows = 1


@dataclass(frozen=True, slots=True)
class Extra:
    """A stack outside the published model.

    Parameters
    ----------
    why
        What it is, for people to read.
    trained
        Whether pre-training usually runs it (the heads of BERT), so that costs include it.
    """

    stack: Stack
    why: str
    trained: bool = False


@dataclass(frozen=True)
class Architecture:
    """A model.

    Parameters
    ----------
    name
        What the file or the user calls it; may be empty.
    family
        What kind of model it is, as in ``llama`` or ``deepseek_v3``.
    streams, stacks, links
        The graph: stacks in topological order, and the edges between them.
    sequence
        The longest sequence, or 0 if nothing says so.
    extras
        Stacks outside the published model, and outside its parameter count.
    notes
        What was assumed or is odd, one sentence each.

    Raises
    ------
    InvalidProblem
        If a stack names no stream, a link leads nowhere, or there is no layer.
    """

    name: str
    family: str
    streams: tuple[Stream, ...]
    stacks: tuple[Stack, ...]
    links: tuple[Link, ...] = ()
    sequence: int = 0
    extras: tuple[Extra, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        streams = {stream.name for stream in self.streams}
        lengths = {stack.name: len(stack.blocks) for stack in self.every_stack}
        if not any(stack.layers for stack in self.stacks):
            raise InvalidProblem("layers", "the model has none", "give at least one layer")
        for stack in self.every_stack:
            if stack.stream not in streams:
                raise InvalidProblem(f"stacks.{stack.name}", f"no stream {stack.stream!r}", f"one of {sorted(streams)}")
        for link in self.links:
            for name, place in (link.source, link.target):
                if not 0 <= place < lengths.get(name, 0):
                    raise InvalidProblem("links", f"there is no block {name}.{place}", f"stacks have {lengths} blocks")

    @property
    def every_stack(self) -> tuple[Stack, ...]:
        """All stacks, those outside the published model last."""
        return (*self.stacks, *(extra.stack for extra in self.extras))

    def tokens(self, sequence: int, lengths: Sequence[tuple[str, int]] = ()) -> dict[str, int]:
        """Return the tokens of a sequence in each stream: what is given, or its own number, or ``sequence``."""
        given = dict(lengths)
        return {each.name: given.get(each.name) or each.tokens or sequence for each in self.streams}

    @property
    def parameters(self) -> int:
        """Parameters of the published model, tied ones counted once."""
        return sum(stack.parameters for stack in self.stacks)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token of text passes, both embedding matrices included."""
        return sum(stack.active_parameters for stack in self.stacks if not stack.aside)

    @property
    def routed(self) -> bool:
        """Whether some weights belong to routed experts."""
        return any(stack.parameters != stack.active_parameters for stack in self.stacks)

    @property
    def shares_layers(self) -> bool:
        """Whether layers use the weights of others (ALBERT)."""
        blocks = {block for stack in self.stacks for block in stack.blocks if block.layer}
        return any(weight.tied for block in blocks for part in block.components for weight in part.weights)

    @property
    def layers(self) -> int:
        """Layers of all stacks of the published model."""
        return sum(stack.layers for stack in self.stacks)

    @property
    def edges(self) -> tuple[Link, ...]:
        """All edges between blocks: those within the stacks, and the links."""
        within = (
            Link((stack.name, place), (stack.name, place + 1), block.width)
            for stack in self.every_stack
            for place, block in enumerate(stack.blocks[:-1])
        )
        return (*within, *self.links)

    def stack(self, name: str) -> Stack:
        """Return the stack of that name.

        Raises
        ------
        KeyError
            If there is none.
        """
        return {stack.name: stack for stack in self.every_stack}[name]

    def layer_kinds(self) -> dict[str, dict[str, int]]:
        """Return for each stack of the published model how many layers there are of each kind."""
        return {stack.name: stack.kinds for stack in self.stacks}

    def with_notes(self, *notes: str) -> Architecture:
        """Return the same model with further notes."""
        return replace(self, notes=(*self.notes, *notes))


def tied_block(block: Block) -> Block:
    """Return a block that uses the weights of another one like it, which counts them."""
    components = tuple(
        replace(part, weights=tuple(replace(weight, tied=True) for weight in part.weights)) for part in block.components
    )
    return replace(block, components=components)
