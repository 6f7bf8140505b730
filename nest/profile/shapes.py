"""Blocks of a model as one device of tensor parallel has them, where there is a reference block to time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from nest.errors import InvalidProblem
from nest.families import Block, Component, Matmul, Scores, Split


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A layer of attention and MLP, norms in front.

    Parameters
    ----------
    width
        Of the model.
    heads, kv_heads, head
        Heads of queries, and of keys and values, on this device; the width of one.
    inner
        Width of the MLP on this device.
    gated, bias, rms, rotary, dropout
        Whether the MLP has a gate, products a bias; whether norms are without a mean; whether queries and keys are
        rotated; whether the model drops.
    causal
        Whether a token looks at none after it.
    """

    width: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    gated: bool
    bias: bool
    rms: bool
    rotary: bool
    dropout: bool
    causal: bool


@dataclass(frozen=True, slots=True)
class EmbeddingShape:
    """A look-up: tokens on this device, positions (0 without), width, and whether it drops."""

    vocabulary: int
    positions: int
    width: int
    dropout: bool


@dataclass(frozen=True, slots=True)
class HeadShape:
    """A last norm (or none), the product that makes logits of the tokens on this device, and the loss."""

    vocabulary: int
    width: int
    norm: bool
    rms: bool


Shape: TypeAlias = LayerShape | EmbeddingShape | HeadShape
"""A block that can be measured: a layer, the embedding, or the head."""


def shape_of(block: Block, tensor: int) -> Shape | None:
    """Return a block as one of ``tensor`` devices has it; None where it is of a kind that has no reference block.

    Raises
    ------
    InvalidProblem
        If the width does not divide what it cuts.
    """
    kinds = tuple(component.kind for component in block.components)
    if kinds == ("norm", "attention", "residual", "norm", "mlp", "residual"):
        return _layer(block, tensor)
    if kinds == ("embedding",):
        return _embedding(block.components[0], tensor)
    if kinds in {("norm", "head"), ("head",)}:
        return _head(block, tensor)
    return None


def _layer(block: Block, tensor: int) -> LayerShape | None:
    norm, attention, _, _, mlp, last = block.components
    products = {each.name: each for each in (*attention.operators, *mlp.operators) if isinstance(each, Matmul)}
    scores = [each for each in attention.operators if isinstance(each, Scores)]
    plain = {"query", "key", "value", "out", "up", "down"}
    if set(products) - {"gate"} != plain or len(scores) != 1 or scores[0].span or scores[0].keys:
        return None
    heads, kv_heads = scores[0].heads, scores[0].kv_heads
    if scores[0].key_width != scores[0].value_width:
        return None
    _check("heads", heads, tensor)
    _check("rows of the MLP", products["up"].outputs, tensor)
    return LayerShape(
        block.width,
        heads // tensor,
        max(1, kv_heads // tensor),
        scores[0].key_width,
        products["up"].outputs // tensor,
        "gate" in products,
        any(weight.name == "up.bias" for weight in mlp.weights),
        _is_rms(norm),
        any(each.name.endswith("rotary") for each in attention.operators),
        any(each.name == "dropout" for each in last.operators),
        scores[0].causal,
    )


def _embedding(component: Component, tensor: int) -> EmbeddingShape | None:
    shapes = {weight.name: weight.shape for weight in component.weights}
    if not shapes.keys() <= {"tokens", "positions"} or "tokens" not in shapes:
        return None
    vocabulary, width = shapes["tokens"]
    drops = any(each.name == "dropout" for each in component.operators)
    return EmbeddingShape(-(-vocabulary // tensor), shapes.get("positions", (0, 0))[0], width, drops)


def _head(block: Block, tensor: int) -> HeadShape | None:
    products = [each for each in block.components[-1].operators if isinstance(each, Matmul)]
    if len(products) != 1 or products[0].split is not Split.VOCABULARY:
        return None
    norms = block.components[:-1]
    vocabulary = -(-products[0].outputs // tensor)
    return HeadShape(vocabulary, products[0].inputs, bool(norms), all(map(_is_rms, norms)))


def _is_rms(norm: Component) -> bool:
    return not any(weight.name.endswith("bias") for weight in norm.weights)


def _check(what: str, length: int, tensor: int) -> None:
    if length % tensor:
        raise InvalidProblem("--tensor", f"{tensor} does not divide the {length} {what}", "give a width that does")
