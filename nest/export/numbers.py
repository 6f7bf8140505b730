"""The numbers that frameworks ask for, found again in the components of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nest.errors import InvalidProblem
from nest.families import Architecture, Block, Scores
from nest.families.architecture import Component


@dataclass(frozen=True, slots=True)
class AttentionNumbers:
    """Attention of a layer.

    Parameters
    ----------
    heads, kv_heads, key_width, value_width
        Heads of queries, of keys and values; width of a head in both products.
    query_rank, latent_rank, rotary_width
        Of latent attention; ``latent_rank`` is 0 without it.
    bias, qkv_bias
        Whether the matrix out of the heads, and those into them, have a bias.
    normed
        Whether queries and keys (or the latents) have norms.
    rotary, dropout
        Whether queries and keys are rotated, and probabilities dropped in part.
    """

    heads: int
    kv_heads: int
    key_width: int
    value_width: int
    query_rank: int = 0
    latent_rank: int = 0
    rotary_width: int = 0
    bias: bool = False
    qkv_bias: bool = False
    normed: bool = False
    rotary: bool = False
    dropout: bool = False


@dataclass(frozen=True, slots=True)
class ExpertNumbers:
    """Experts of a layer: how many, how many a token passes, the width of one and of all shared ones together."""

    count: int
    chosen: int
    width: int
    shared: int = 0
    shared_gate: bool = False
    correction: bool = False


@dataclass(frozen=True, slots=True)
class ModelNumbers:
    """A decoder in the numbers of frameworks.

    Parameters
    ----------
    vocabulary, width, layers
        Rows of the embedding table, width of the residual stream, and number of layers.
    attention
        Of every layer.
    mlp, gated, mlp_bias
        Width of a plain layer's MLP, 0 without such a layer; whether it and the experts have a gate, and biases.
    experts
        None without.
    routed
        Which layers have experts.
    norm_bias, tied, positions, dropout
        Whether norms shift, whether the head is the embedding table, rows of learned positions, and whether the output
        of sublayers is dropped in part.
    """

    vocabulary: int
    width: int
    layers: int
    attention: AttentionNumbers
    mlp: int
    gated: bool
    mlp_bias: bool
    experts: ExpertNumbers | None
    routed: tuple[bool, ...]
    norm_bias: bool
    tied: bool
    positions: int
    dropout: bool


def numbers_of(model: Architecture) -> ModelNumbers:
    """Return the numbers of a decoder; they tell decoders of one shape of layers apart, no more.

    Raises
    ------
    InvalidProblem
        If the model is no decoder between an embedding and a head, or its layers have no attention and MLP.
    """
    if len(model.stacks) != 1 or any(extra.trained for extra in model.extras):
        names = ", ".join(stack.name for stack in model.every_stack)
        raise InvalidProblem("model", f"stacks {names}", "decoders of one stack are written for frameworks")
    blocks = model.stacks[0].blocks
    layers = [block for block in blocks if block.layer]
    if [block.kind for block in blocks if not block.layer] != ["embedding", "head"] or blocks[1:-1] != tuple(layers):
        what = f"blocks {', '.join(block.kind for block in blocks if not block.layer) or 'of layers only'}"
        raise InvalidProblem("model", what, "decoders between an embedding and a head are written for frameworks")
    return _numbers(blocks[0], layers, blocks[-1])


def _numbers(embedding: Block, layers: Sequence[Block], head: Block) -> ModelNumbers:
    routed = tuple(_part(layer, "experts") is not None for layer in layers)
    plain = next((layer for layer, has in zip(layers, routed, strict=True) if not has), None)
    sparse = next((layer for layer, has in zip(layers, routed, strict=True) if has), None)
    mlp = None if plain is None else _required(plain, "mlp")
    experts = None if sparse is None else _experts(sparse)
    shown = _shapes(mlp or _required(sparse or layers[0], "experts"))
    rows = _shapes(_required(embedding, "embedding"))
    return ModelNumbers(
        rows["tokens"][0],
        embedding.width,
        len(layers),
        _attention(_required(layers[0], "attention")),
        _shapes(mlp)["up"][0] if mlp else 0,
        "gate" in shown,
        "up.bias" in shown,
        experts,
        routed,
        "norm.bias" in _shapes(_required(layers[0], "norm")),
        any(weight.tied for weight in _required(head, "head").weights),
        rows["positions"][0] if "positions" in rows else 0,
        any(operator.name == "dropout" for operator in embedding.operators if not isinstance(operator, Scores)),
    )


def _attention(part: Component) -> AttentionNumbers:
    shapes = _shapes(part)
    scores = next((each for each in part.operators if isinstance(each, Scores)), None)
    if scores is None:
        raise InvalidProblem("model", "a layer without attention", "models of attention layers are written")
    latent = shapes["latent_up"][1] if "latent_up" in shapes else 0
    return AttentionNumbers(
        scores.heads,
        scores.kv_heads,
        scores.key_width,
        scores.value_width,
        shapes["query_down"][0] if "query_down" in shapes else 0,
        latent,
        shapes["latent"][0] - latent if latent else 0,
        "out.bias" in shapes,
        "query.bias" in shapes or "query_down.bias" in shapes,
        bool({"query_norm.weight", "latent_norm.weight"} & shapes.keys()),
        any(operator.name.endswith("rotary") for operator in part.operators),
        scores.dropout,
    )


def _experts(layer: Block) -> ExpertNumbers:
    part, router = _required(layer, "experts"), _required(layer, "router")
    weight = next(each for each in part.weights if each.name == "up")
    shared = _part(layer, "shared_experts")
    return ExpertNumbers(
        weight.experts,
        weight.chosen,
        weight.shape[0],
        0 if shared is None else _shapes(shared)["up"][0],
        shared is not None and "shared_gate" in _shapes(shared),
        "correction" in _shapes(router),
    )


def _part(block: Block, kind: str) -> Component | None:
    return next((part for part in block.components if part.kind == kind), None)


def _required(block: Block, kind: str) -> Component:
    part = _part(block, kind)
    if part is None:
        what = f"a block {block.kind!r} without {kind}"
        raise InvalidProblem("model", what, "decoders of attention and MLP or experts are written for frameworks")
    return part


def _shapes(part: Component) -> dict[str, tuple[int, ...]]:
    return {weight.name: weight.shape for weight in part.weights}
