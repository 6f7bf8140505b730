"""Reference blocks in plain torch: what a shape runs on one device, collectives apart."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from nest.profile.shapes import EmbeddingShape, HeadShape, LayerShape, Shape


def block_of(shape: Shape, sequence: int) -> Any:
    """Return a module that runs a block over sequences of so many tokens."""
    if isinstance(shape, LayerShape):
        return _Layer(shape, sequence)
    return _Embedding(shape) if isinstance(shape, EmbeddingShape) else _Head(shape)


def inputs_of(shape: Shape, sequence: int, microbatch: int, dtype: Any, device: str) -> tuple[Any, ...]:
    """Return what such a module takes, drawn at random: vectors that want a gradient, tokens, or both."""
    if isinstance(shape, EmbeddingShape):
        return (_tokens(shape.vocabulary, sequence, microbatch, device),)
    vectors = torch.randn(microbatch, sequence, shape.width, dtype=dtype, device=device, requires_grad=True)
    if isinstance(shape, LayerShape):
        return (vectors,)
    return vectors, _tokens(shape.vocabulary, sequence, microbatch, device)


def _tokens(vocabulary: int, sequence: int, microbatch: int, device: str) -> Any:
    return torch.randint(vocabulary, (microbatch, sequence), device=device)


def _norm(width: int, *, rms: bool) -> Any:
    return nn.RMSNorm(width) if rms else nn.LayerNorm(width)


class _Layer(nn.Module):  # type: ignore[misc]
    """Attention and MLP; queries, keys and values are one product, and so are gate and up."""

    def __init__(self, shape: LayerShape, sequence: int) -> None:
        super().__init__()
        self.shape = shape
        self.parts = [heads * shape.head for heads in (shape.heads, shape.kv_heads, shape.kv_heads)]
        self.mixer_norm, self.feed_norm = (_norm(shape.width, rms=shape.rms) for _ in range(2))
        self.taken = nn.Linear(shape.width, sum(self.parts), bias=shape.bias)
        self.out = nn.Linear(shape.heads * shape.head, shape.width, bias=shape.bias)
        self.up = nn.Linear(shape.width, shape.inner * (2 if shape.gated else 1), bias=shape.bias)
        self.down = nn.Linear(shape.inner, shape.width, bias=shape.bias)
        self.drop = nn.Dropout(0.1 if shape.dropout else 0.0)
        angles = torch.outer(torch.arange(sequence), 1e4 ** -torch.arange(0, 1, 2 / shape.head))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

    def forward(self, x: Any) -> Any:
        """Return the hidden states after the layer."""
        x = x + self.drop(self._mixed(self.mixer_norm(x)))
        return x + self.drop(self._fed(self.feed_norm(x)))

    def _mixed(self, x: Any) -> Any:
        shape = self.shape
        query, key, value = (
            each.unflatten(-1, (-1, shape.head)).transpose(1, 2) for each in self.taken(x).split(self.parts, -1)
        )
        if shape.rotary:
            query, key = self._rotated(query), self._rotated(key)
        grouped = shape.kv_heads < shape.heads
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=shape.causal, enable_gqa=grouped)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _rotated(self, x: Any) -> Any:
        one, two = x.chunk(2, -1)
        return x * self.cos + torch.cat([-two, one], -1) * self.sin

    def _fed(self, x: Any) -> Any:
        if self.shape.gated:
            gate, up = self.up(x).chunk(2, -1)
            return self.down(F.silu(gate) * up)
        return self.down(F.gelu(self.up(x)))


class _Embedding(nn.Module):  # type: ignore[misc]
    """The look-up of tokens, and of their places."""

    def __init__(self, shape: EmbeddingShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.positions, shape.width) if shape.positions else None
        self.drop = nn.Dropout(0.1 if shape.dropout else 0.0)

    def forward(self, tokens: Any) -> Any:
        """Return the hidden states of tokens."""
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.drop(x)


class _Head(nn.Module):  # type: ignore[misc]
    """The last norm, logits, and their loss in fp32."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.norm = _norm(shape.width, rms=shape.rms) if shape.norm else nn.Identity()
        self.logits = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, x: Any, tokens: Any) -> Any:
        """Return the loss of predicting tokens."""
        return F.cross_entropy(self.logits(self.norm(x)).flatten(0, 1).float(), tokens.flatten())
