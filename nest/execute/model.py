"""The tiny model in PyTorch, as a list of layers that a plan can cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from nest.execute.exchange import exchanged, gathered
from nest.execute.tiny import CHOSEN, Tiny
from nest.problem import Recompute


@dataclass(frozen=True)
class Part:
    """What a rank has of a sequence and of the experts, and with whom it exchanges the rest.

    Parameters
    ----------
    first
        The first of its tokens.
    shared
        Tokens before its own among those, between the matrices (sequence parallel).
    context, expert
        Process groups that share the sequence and the experts; None where one rank has all.
    """

    first: int = 0
    shared: int = 0
    context: Any = None
    expert: Any = None


class Embedding(nn.Module):
    """The table of tokens, and fixed positions (sines and cosines of arXiv 1706.03762, section 3.5)."""

    def __init__(self, tiny: Tiny, part: Part) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tiny.vocab, tiny.hidden)
        self.first = part.first + part.shared
        self.register_buffer("positions", _positions(tiny), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return vectors, sequences x tokens x width; with sequence parallel, those of the rank's own tokens."""
        rows = self.tokens(tokens)
        return rows + self.positions[self.first : self.first + rows.shape[1]]


class Attention(nn.Module):
    """Causal attention over heads, by a fused kernel unless its core is computed again."""

    def __init__(self, tiny: Tiny, part: Part, *, again: bool) -> None:
        super().__init__()
        self.query = nn.Linear(tiny.hidden, tiny.hidden)
        self.key = nn.Linear(tiny.hidden, tiny.hidden, bias=False)
        self.value = nn.Linear(tiny.hidden, tiny.hidden)
        self.out = nn.Linear(tiny.hidden, tiny.hidden)
        self.width, self.part, self.again = tiny.hidden // tiny.heads, part, again
        hidden = torch.ones(tiny.sequence, tiny.sequence, dtype=torch.bool).tril()
        self.register_buffer("seen", hidden, persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Return what each token finds, of the same shape as the input."""
        queries, keys, values = (self._heads(product(rows)) for product in (self.query, self.key, self.value))
        if self.again:
            found = checkpoint(self._written, queries, keys, values, use_reentrant=False, preserve_rng_state=False)
        else:
            found = self._fused(queries, keys, values)
        result: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return result

    def _heads(self, rows: Tensor) -> Tensor:
        return rows.unflatten(-1, (-1, self.width)).transpose(1, 2)

    def _fused(self, queries: Tensor, keys: Tensor, values: Tensor) -> Any:
        if self.part.context is None:
            return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        keys, values = (gathered(each, 2, self.part.context) for each in (keys, values))
        return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=self._mask(queries, keys))

    def _written(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if self.part.context is not None:
            keys, values = (gathered(each, 2, self.part.context) for each in (keys, values))
        scores = queries @ keys.transpose(2, 3) / self.width**0.5
        return scores.masked_fill(~self._mask(queries, keys), float("-inf")).softmax(-1) @ values

    def _mask(self, queries: Tensor, keys: Tensor) -> Tensor:
        mask: Tensor = self.seen[self.part.first : self.part.first + queries.shape[2], : keys.shape[2]]
        return mask


class Mlp(nn.Module):
    """Two matrices with GELU between them."""

    def __init__(self, tiny: Tiny) -> None:
        super().__init__()
        self.up = nn.Linear(tiny.hidden, tiny.ffn)
        self.down = nn.Linear(tiny.ffn, tiny.hidden)

    def forward(self, rows: Tensor) -> Tensor:
        """Return a tensor of the same shape."""
        result: Tensor = self.down(functional.gelu(self.up(rows)))
        return result


class Experts(nn.Module):
    """A router and experts, of which each token passes those with the highest probabilities; none is dropped."""

    def __init__(self, tiny: Tiny, group: Any) -> None:
        super().__init__()
        self.router = nn.Linear(tiny.hidden, tiny.experts, bias=False)
        every = [Mlp(tiny) for _ in range(tiny.experts)]
        ranks, rank = (1, 0) if group is None else (dist.get_world_size(group), dist.get_rank(group))
        own = range(rank * tiny.experts // ranks, (rank + 1) * tiny.experts // ranks)
        self.experts = nn.ModuleDict({str(at): every[at] for at in own})
        self.count, self.group = tiny.experts, group

    def forward(self, rows: Tensor) -> Tensor:
        """Return a tensor of the same shape."""
        flat = rows.flatten(0, 1)
        weights, chosen = self.router(flat).softmax(-1).topk(CHOSEN)
        order = chosen.flatten().argsort(stable=True)
        sent = flat[order // CHOSEN]
        counts = chosen.flatten().bincount(minlength=self.count)
        found = self._here(sent, counts.tolist()) if self.group is None else self._elsewhere(sent, counts)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        summed = (found[back].unflatten(0, (-1, CHOSEN)) * weights.unsqueeze(-1)).sum(1)
        return summed.view_as(rows)

    def _here(self, rows: Tensor, counts: list[int]) -> Tensor:
        parts = rows.split(counts)
        return torch.cat([expert(part) for expert, part in zip(self.experts.values(), parts, strict=True)])

    def _elsewhere(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Return what the experts of all ranks find, whose rows come and go sorted by expert."""
        ranks, own = dist.get_world_size(self.group), len(self.experts)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self.group)
        there, here = (each.view(ranks, own).sum(1).tolist() for each in (counts, arriving))
        arrived = exchanged(rows, there, here, self.group)
        # rows come by rank, then by expert; experts want them by expert, then by rank
        labels = torch.arange(own).repeat(ranks).repeat_interleave(arriving)
        order = labels.argsort(stable=True)
        found = self._here(arrived[order], arriving.view(ranks, own).sum(0).tolist())
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        return exchanged(found[back], here, there, self.group)


class Block(nn.Module):
    """A layer of the decoder, which computes again what the plan says."""

    def __init__(self, tiny: Tiny, part: Part, again: Recompute) -> None:
        super().__init__()
        self.first_norm = nn.LayerNorm(tiny.hidden)
        self.attention = Attention(tiny, part, again=again == "selective")
        self.second_norm = nn.LayerNorm(tiny.hidden)
        self.mlp = Experts(tiny, part.expert) if tiny.experts else Mlp(tiny)
        self.whole = again == "full"

    def forward(self, rows: Tensor) -> Any:
        """Return a tensor of the same shape."""
        if self.whole:
            return checkpoint(self._layer, rows, use_reentrant=False, preserve_rng_state=False)
        return self._layer(rows)

    def _layer(self, rows: Tensor) -> Any:
        rows = rows + self.attention(self.first_norm(rows))
        return rows + self.mlp(self.second_norm(rows))


class Head(nn.Module):
    """The last norm and the logits."""

    def __init__(self, tiny: Tiny) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(tiny.hidden)
        self.logits = nn.Linear(tiny.hidden, tiny.vocab, bias=False)

    def forward(self, rows: Tensor) -> Any:
        """Return logits, sequences x tokens x vocabulary (the rank's part of it)."""
        return self.logits(self.norm(rows))


def layers_of(tiny: Tiny, seed: int, again: Sequence[Recompute], part: Part) -> list[nn.Module]:
    """Return all layers with the weights of a seed, the same on every rank.

    Parameters
    ----------
    again
        What each layer computes again; embedding and head never do.
    part
        What the rank has of sequence and experts.
    """
    torch.manual_seed(seed)
    blocks = [Block(tiny, part, kind) for kind in again[1:-1]]
    return [Embedding(tiny, part), *blocks, Head(tiny)]


def tokens_of(tiny: Tiny, seed: int, sequences: int) -> Tensor:
    """Return tokens, sequences x (tokens + 1): each is the target of the one before it."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(tiny.vocab, (sequences, tiny.sequence + 1), generator=generator)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over all tokens of the cross-entropy."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _positions(tiny: Tiny) -> Tensor:
    places = torch.arange(tiny.sequence).unsqueeze(1)
    angles = places * 10_000.0 ** (-torch.arange(0, tiny.hidden, 2) / tiny.hidden)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
