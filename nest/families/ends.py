"""What begins and ends a stack: embeddings, patches, heads, poolers, projectors."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from nest.families.architecture import Block, Component
from nest.families.operators import Exchange, Rows, Tensor
from nest.families.parts import LAYER, Bench, Norm, share
from nest.families.weights import Split


@dataclass(frozen=True, slots=True)
class Embedding:
    """Tables that turn tokens into vectors.

    Parameters
    ----------
    vocabulary
        Rows of the table of tokens.
    width
        Of the model.
    table_width
        Of the table, where a matrix brings it to the model's (OPT-350m); 0 for the same.
    positions, types
        Rows of the tables of learned positions and of token types; 0 for none.
    norm
        A norm behind them, as BERT and BLOOM have.
    dropout
        Whether the result is dropped in part.
    shared
        Whether the table is that of another stack, which counts it (decoder of T5).
    """

    vocabulary: int
    width: int
    table_width: int = 0
    positions: int = 0
    types: int = 0
    norm: Norm | None = None
    dropout: bool = False
    shared: bool = False

    def block(self) -> Block:
        """Return the embedding as a block."""
        bench = Bench("embedding", "embedding")
        table = self.table_width or self.width
        bench.learn("tokens", self.vocabulary, table, split=Split.VOCABULARY, tied=self.shared)
        if self.positions:
            bench.learn("positions", self.positions, self.width)
        if self.types:
            bench.learn("types", self.types, self.width)
        bench.work("gather", "gather", table, table)
        bench.add(Exchange("sum", "all-reduce", table))
        if table != self.width:
            bench.product("project", table, self.width, Split.REPLICATED, bench.tensor("rows", table))
        if self.norm:
            bench.norm("norm", self.norm, self.width, bench.tensor("summed", self.width))
        if self.dropout:
            mask = Tensor("embedding.mask", self.width, element="mask")
            bench.work("dropout", "dropout", self.width, self.width, keeps=(mask,))
        return Block("embedding", (bench.done(),), self.width, layer=False)


@dataclass(frozen=True, slots=True)
class Head:
    """What turns vectors into logits.

    Parameters
    ----------
    vocabulary, width
        Logits of a token, and the width of the model.
    tied
        Whether the matrix is the embedding table.
    bias
        Whether the logits have a bias.
    norm
        The norm before it, the stack's last; None for none.
    table_width
        As in `Embedding`.
    """

    vocabulary: int
    width: int
    tied: bool = False
    bias: bool = False
    norm: Norm | None = None
    table_width: int = 0

    def block(self) -> Block:
        """Return the head as a block."""
        parts: list[Component] = []
        if self.norm:
            parts.append(last_norm(self.norm, self.width))
        bench = Bench("head", "head")
        width, source = self.table_width or self.width, bench.tensor("in", self.width)
        if width != self.width:
            bench.product("project", self.width, width, Split.REPLICATED, source)
            source = bench.tensor("projected", width)
        bench.product("logits", width, self.vocabulary, Split.VOCABULARY, source, bias=self.bias, tied=self.tied)
        logits = Tensor("head.logits", self.vocabulary, sharded=True, element="fp32")
        bench.work("loss", "loss", self.vocabulary, self.vocabulary, sharded=True, keeps=(logits,))
        return Block("head", (*parts, bench.done()), self.vocabulary, layer=False)


def last_norm(norm: Norm, width: int) -> Component:
    """Return the norm behind the last layer of a stack."""
    bench = Bench("last_norm", "norm")
    bench.norm("norm", norm, width, Tensor("input", width))
    return bench.done()


def norm_block(norm: Norm, width: int) -> Block:
    """Return the norm behind the last layer as a block of its own, where no head follows."""
    return Block("norm", (last_norm(norm, width),), width, layer=False)


@dataclass(frozen=True, slots=True)
class Patches:
    """What turns patches of an image, or frames of sound, into vectors.

    Parameters
    ----------
    inputs
        Numbers in a patch.
    width
        Of the tower.
    bias
        Whether the matrix has a bias.
    positions
        Rows of the table of positions.
    classes
        Extra tokens with a learned vector.
    norm
        A norm behind them (CLIP).
    further
        Lengths of further vectors and tables that it learns.
    second
        Inputs of a second matrix behind the first (the second convolution of Whisper); 0 for none.
    """

    inputs: int
    width: int
    bias: bool = False
    positions: int = 0
    classes: int = 0
    norm: Norm | None = None
    further: tuple[int, ...] = ()
    second: int = 0

    def block(self) -> Block:
        """Return them as a block."""
        bench = Bench("patches", "embedding")
        source = bench.tensor("in", self.inputs)
        bench.product("patches", self.inputs, self.width, Split.REPLICATED, source, bias=self.bias)
        if self.second:
            source = bench.tensor("first", self.second)
            bench.product("second", self.second, self.width, Split.REPLICATED, source, bias=self.bias)
        if self.positions:
            bench.learn("positions", self.positions, self.width)
        if self.classes:
            bench.learn("classes", self.classes, self.width)
        for at, length in enumerate(self.further):
            bench.learn(f"table{at}", length)
        if self.norm:
            bench.norm("norm", self.norm, self.width, bench.tensor("summed", self.width))
        return Block("patches", (bench.done(),), self.width, layer=False)


def matrices_block(
    kind: str,
    widths: tuple[int, ...],
    *,
    bias: bool,
    norm: tuple[Norm, int] | None = None,
    rows: Rows = 1,
    norm_last: bool = False,
) -> Block:
    """Return matrices one after the other as a block: a projector, a pooler, a classifier.

    Parameters
    ----------
    kind
        Kind of the block and of its component.
    widths
        What enters the first matrix, and what leaves each.
    norm
        A norm before them, and its width (that of a patch, before four of them become one input); with
        ``norm_last``, behind them.
    rows
        Rows per token of the stream: 1/4 where four patches become one input.
    """
    bench = Bench(kind, kind)
    if norm and not norm_last:
        bench.norm("norm", norm[0], norm[1], bench.tensor("in", norm[1]))
    for at, (inputs, outputs) in enumerate(pairwise(widths)):
        if at:
            bench.work(f"activation{at}", "activation", inputs, inputs, rows=rows)
        source = bench.tensor(f"in{at}", inputs, rows)
        bench.product(f"matrix{at}", inputs, outputs, Split.REPLICATED, source, bias=bias, rows=rows)
    if norm and norm_last:
        bench.norm("norm", norm[0], norm[1], bench.tensor("out", norm[1]))
    return Block(kind, (bench.done(),), widths[-1], layer=False)


def attention_pooler(width: int, feed: int, tokens: int) -> Block:
    """Return SigLIP's pooling head as a block: one learned query looks at all tokens, then an MLP; one vector leaves.

    Biases everywhere; its scores, one row for each head, are left out.
    """
    once = share(1, tokens)
    bench = Bench("pooler", "pooler")
    bench.learn("probe", width)
    for name in ("key", "value"):
        bench.product(name, width, width, Split.REPLICATED, bench.tensor("in", width), bias=True)
    for name in ("query", "out"):
        bench.product(
            name, width, width, Split.REPLICATED, bench.tensor(f"{name}_in", width, once), bias=True, rows=once
        )
    bench.norm("norm", LAYER, width)
    bench.product("up", width, feed, Split.REPLICATED, bench.tensor("normed", width, once), bias=True, rows=once)
    bench.work("activation", "activation", feed, feed, rows=once)
    bench.product("down", feed, width, Split.REPLICATED, bench.tensor("up", feed, once), bias=True, rows=once)
    return Block("pooler", (bench.done(),), width, layer=False)


def masked_head(width: int, vocabulary: int, table_width: int = 0) -> Block:
    """Return BERT's head for masked tokens: a matrix, a norm, and the embedding table again with a bias.

    Parameters
    ----------
    table_width
        Width of the table, where it is not that of the model (ALBERT).
    """
    table = table_width or width
    bench = Bench("masked_head", "head")
    bench.product("transform", width, table, Split.REPLICATED, bench.tensor("in", width), bias=True)
    bench.work("activation", "activation", table, table)
    bench.norm("norm", LAYER, table, bench.tensor("transformed", table))
    source = bench.tensor("normed", table)
    bench.product("logits", table, vocabulary, Split.VOCABULARY, source, bias=True, tied=True)
    logits = Tensor("masked_head.logits", vocabulary, sharded=True, element="fp32")
    bench.work("loss", "loss", vocabulary, vocabulary, sharded=True, keeps=(logits,))
    return Block("masked_head", (bench.done(),), vocabulary, layer=False)


def replaced_head(width: int) -> Block:
    """Return ELECTRA's head: of each token, whether it was replaced."""
    bench = Bench("replaced_head", "head")
    bench.product("dense", width, width, Split.REPLICATED, bench.tensor("in", width), bias=True)
    bench.work("activation", "activation", width, width)
    bench.product("prediction", width, 1, Split.REPLICATED, bench.tensor("activated", width), bias=True)
    return Block("replaced_head", (bench.done(),), 1, layer=False)
