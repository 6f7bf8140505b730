"""Operators: what a layer computes, in numbers of elements, tokens and operations; no times and no bytes.

Four kinds are enough: matrix products, attention scores, element-wise work, and exchanges between devices. Everything
is stated for one token of the stack's stream, so that batch, sequence length, widths, dtypes and devices stay free: a
stream of ``T`` tokens makes ``rows * T`` rows of a matrix product, and ``width * rows * T`` elements of a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from nest.families.weights import Split

Rows: TypeAlias = int | Fraction

Element: TypeAlias = Literal["value", "fp32", "mask"]
"""What an element of a kept tensor is: a number in the dtype of computation, one in fp32, or a byte."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that stays until the backward pass, unless it is computed again.

    Parameters
    ----------
    name
        Unique in its block: operators that keep the same tensor name it alike, and it is counted once.
    width
        Elements per row.
    rows
        Rows per token of the stream: the experts that one token passes, or 1/4 where four patches become one.
    sharded
        Whether tensor parallel cuts its width; if not, sequence parallel cuts its rows.
    parts
        Pieces into which the width can be cut, as in `nest.families.weights.Weight`.
    element
        What an element is.
    stream
        The stream whose tokens it has; empty for the stack's own.
    """

    name: str
    width: int
    rows: Rows = 1
    sharded: bool = False
    parts: int = 0
    element: Element = "value"
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Matmul:
    """A product of activations with a weight matrix.

    Parameters
    ----------
    name
        Name of the weight.
    inputs, outputs
        The lengths ``k`` and ``n``: ``2 * k * n`` operations per row.
    split, parts
        How tensor parallel cuts it, as for the weight.
    rows
        Rows per token of the stream.
    groups
        Experts among which the rows are spread, each with a matrix of its own; 1 for a plain product.
    keeps
        Its input.
    stream
        The stream whose tokens it has; empty for the stack's own.
    """

    name: str
    inputs: int
    outputs: int
    split: Split
    parts: int = 0
    rows: Rows = 1
    groups: int = 1
    keeps: tuple[Tensor, ...] = ()
    stream: str = ""

    @property
    def flops(self) -> Rows:
        """Operations of the forward pass per token of the stream; the backward pass takes twice as many."""
        return 2 * self.inputs * self.outputs * self.rows


@dataclass(frozen=True, slots=True)
class Scores:
    """Attention proper: queries times keys, softmax, times values.

    Parameters
    ----------
    heads, kv_heads
        Heads of the queries, and of keys and values.
    key_width, value_width
        Width of a head in the first product, and in the second.
    causal
        Whether a token looks at none after it.
    span
        Tokens it looks back at most, itself included; 0 for all.
    chunked
        Whether the span is a fixed chunk of the sequence instead of a window that slides.
    dropout
        Whether probabilities are dropped, which keeps a mask and the result besides.
    keeps
        Queries, keys, values and the result; what the probabilities take follows from `pairs`.
    keys
        The stream of the keys; empty for the stack's own.
    """

    name: str
    heads: int
    kv_heads: int
    key_width: int
    value_width: int
    causal: bool = True
    span: int = 0
    chunked: bool = False
    dropout: bool = False
    keeps: tuple[Tensor, ...] = ()
    keys: str = ""

    def pairs(self, queries: int, keys: int) -> int:
        """Return how many (query, key) pairs of one head count, for one sequence of so many tokens.

        Causal pairs are those below and on the diagonal: of ``s`` tokens ``s (s + 1) / 2``. Model FLOPs as Megatron-LM
        counts them take ``s * s`` instead, which is ``queries * keys``.
        """
        if not self.causal:
            return queries * min(self.span or keys, keys)
        if queries != keys:
            return queries * keys
        span = min(self.span or keys, keys)
        if self.chunked:
            whole, rest = divmod(keys, span)
            return whole * _triangle(span) + _triangle(rest)
        return _triangle(span) + (keys - span) * span

    def flops(self, queries: int, keys: int) -> int:
        """Return the operations of the forward pass for one sequence."""
        return 2 * self.heads * (self.key_width + self.value_width) * self.pairs(queries, keys)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Work that is bound by memory: norms, activations, rotations, dropout, residual sums, scans.

    Parameters
    ----------
    kind
        What it is, as in ``norm``, ``activation``, ``residual``.
    reads, writes
        Elements per row.
    flops
        Operations per row where they may count (the scan of a state-space layer); 0 elsewhere.
    sharded
        Whether tensor parallel cuts it; if not, sequence parallel does.
    """

    name: str
    kind: str
    reads: int
    writes: int
    flops: int = 0
    rows: Rows = 1
    sharded: bool = False
    keeps: tuple[Tensor, ...] = ()
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective of the forward pass; the backward pass has its mirror image.

    Parameters
    ----------
    collective
        ``all-reduce`` over the devices of tensor parallel (with sequence parallel, a reduce-scatter here and an
        all-gather where the sum is used), or ``all-to-all`` over those of expert parallel.
    width, rows
        Elements per row, and rows per token of the stream.
    """

    name: str
    collective: Literal["all-reduce", "all-to-all"]
    width: int
    rows: Rows = 1


Operator: TypeAlias = Matmul | Scores | Elementwise | Exchange
"""What a block consists of."""


def _triangle(tokens: int) -> int:
    return tokens * (tokens + 1) // 2
