"""Attention over heads: multi-head, grouped-query, multi-query; self or cross; windows; and its many small weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nest.families.architecture import Component
from nest.families.operators import Scores, Tensor
from nest.families.parts import RMS, Bench, Norm
from nest.families.weights import Split


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention whose keys and values come from matrices over the whole width.

    Parameters
    ----------
    heads, kv_heads, head_width
        Of the queries, of keys and values, and the width of each; they need not make the width of the model.
    query_bias, key_bias, value_bias, out_bias
        Which of the four matrices have a bias.
    qk_norm
        Norms of queries and keys: one over each head, one over all heads together, or none.
    norm
        What kind of norm that is.
    gated
        Whether the result is multiplied by a gate as wide as the queries (Qwen3-Next).
    sinks
        Whether each head learns a logit that takes part in the softmax (gpt-oss).
    shared_values
        Whether the values are the keys again (Gemma 4).
    relative_buckets
        Distances for which each head learns a bias (the first layer of a T5 stack); 0 for none.
    rotary
        Whether queries and keys are rotated by their position.
    causal, span, chunked, dropout
        As in `Scores`.
    keys, keys_width
        For cross-attention, the stream of keys and values, and its width.
    label
        What people read; by default ``attention``, ``sliding_attention``, ``chunked_attention``, ``cross_attention``.
    """

    heads: int
    kv_heads: int
    head_width: int
    query_bias: bool = False
    key_bias: bool = False
    value_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["", "head", "full"] = ""
    norm: Norm = RMS
    gated: bool = False
    sinks: bool = False
    shared_values: bool = False
    relative_buckets: int = 0
    rotary: bool = True
    causal: bool = True
    span: int = 0
    chunked: bool = False
    dropout: bool = False
    keys: str = ""
    keys_width: int = 0
    label: str = ""

    @property
    def kind(self) -> str:
        """What people read."""
        if self.label:
            return self.label
        if self.keys:
            return "cross_attention"
        if self.span:
            return "chunked_attention" if self.chunked else "sliding_attention"
        return "attention"

    def build(self, name: str, width: int, source: Tensor) -> tuple[Component, ...]:
        """Return its components; ``source`` is its input, ``width`` elements wide."""
        bench = Bench(name, "attention")
        inner, outer = self.heads * self.head_width, self.kv_heads * self.head_width
        queries = bench.tensor("queries", inner, sharded=True, parts=self.heads)
        context = bench.tensor("context", inner, sharded=True, parts=self.heads)
        asked = inner * (2 if self.gated else 1)
        bench.product("query", width, asked, Split.COLUMN, source, bias=self.query_bias, parts=self.heads)
        components: tuple[Component, ...] = ()
        if self.keys:
            remote = Bench(f"{name}_memory", "attention", self.keys)
            keys, values = self._keys(remote, self.keys_width, remote.tensor("in", self.keys_width), outer)
            components = (remote.done(),)
        else:
            keys, values = self._keys(bench, width, source, outer)
        self._queries(bench)
        bench.add(self._scores((queries, keys, values, context)))
        if self.gated:
            gate = bench.tensor("gate", inner, sharded=True, parts=self.heads)
            bench.work("gate", "gate", 2 * inner, inner, sharded=True, keeps=(gate,))
        bench.product("out", inner, width, Split.ROW, context, bias=self.out_bias, parts=self.heads)
        return (*components, bench.done())

    def _keys(self, bench: Bench, width: int, source: Tensor, outer: int) -> tuple[Tensor, Tensor]:
        keys = bench.tensor("keys", outer, sharded=True, parts=self.kv_heads)
        values = bench.tensor("values", outer, sharded=True, parts=self.kv_heads)
        bench.product("key", width, outer, Split.COLUMN, source, bias=self.key_bias, parts=self.kv_heads)
        if not self.shared_values:
            bench.product("value", width, outer, Split.COLUMN, source, bias=self.value_bias, parts=self.kv_heads)
        self._position(bench, "key", self.kv_heads)
        return keys, values

    def _queries(self, bench: Bench) -> None:
        self._position(bench, "query", self.heads)
        if self.relative_buckets:
            bench.learn("relative", self.relative_buckets, self.heads, split=Split.COLUMN, parts=self.heads)
        if self.sinks:
            bench.learn("sinks", self.heads, split=Split.COLUMN, parts=self.heads)

    def _position(self, bench: Bench, name: str, heads: int) -> None:
        if self.qk_norm == "head":
            bench.norm(f"{name}_norm", self.norm, self.head_width, times=heads)
        elif self.qk_norm:
            bench.norm(f"{name}_norm", self.norm, self.head_width * heads)
        if self.rotary and not self.keys:
            touched = heads * self.head_width
            bench.work(f"{name}_rotary", "rotary", touched, touched, sharded=True)

    def _scores(self, kept: tuple[Tensor, ...]) -> Scores:
        return Scores(
            "scores",
            self.heads,
            self.kv_heads,
            self.head_width,
            self.head_width,
            causal=self.causal and not self.keys,
            span=self.span,
            chunked=self.chunked,
            dropout=self.dropout,
            keeps=kept,
            keys=self.keys,
        )


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values from a small latent.

    Parameters
    ----------
    heads
        Heads of queries, keys and values alike.
    query_rank, latent_rank
        Width of the latent of the queries, 0 for a plain matrix; width of the latent of keys and values.
    plain_width, rotary_width, value_width
        Of a head: the part of keys that is not rotated, the part that is (shared by all heads), the values.
    normed
        Whether the latents have norms.
    bias
        Whether the matrices into the latents and out of the heads have a bias.
    """

    heads: int
    query_rank: int
    latent_rank: int
    plain_width: int
    rotary_width: int
    value_width: int
    normed: bool = True
    bias: bool = False
    dropout: bool = False
    kind: str = "latent_attention"

    @property
    def key_width(self) -> int:
        """Width of a head in the first product."""
        return self.plain_width + self.rotary_width

    def build(self, name: str, width: int, source: Tensor) -> tuple[Component, ...]:
        """Return its component; ``source`` is its input, ``width`` elements wide."""
        bench = Bench(name, "attention")
        self._queries(bench, width, source)
        self._latent(bench, width, source)
        kept = [bench.tensor(part, size * self.heads, sharded=True, parts=self.heads) for part, size in self._kept()]
        bench.work("rotary", "rotary", *2 * (self.heads * self.rotary_width,), sharded=True)
        scores = Scores(
            "scores",
            self.heads,
            self.heads,
            self.key_width,
            self.value_width,
            dropout=self.dropout,
            keeps=tuple(kept),
        )
        bench.add(scores)
        inner = self.heads * self.value_width
        bench.product("out", inner, width, Split.ROW, kept[-1], bias=self.bias, parts=self.heads)
        return (bench.done(),)

    def _kept(self) -> tuple[tuple[str, int], ...]:
        key, value = self.key_width, self.value_width
        return (("queries", key), ("keys", key), ("values", value), ("context", value))

    def _queries(self, bench: Bench, width: int, source: Tensor) -> None:
        outputs = self.heads * self.key_width
        if not self.query_rank:
            bench.product("query", width, outputs, Split.COLUMN, source, parts=self.heads)
            return
        latent = bench.tensor("query_latent", self.query_rank)
        bench.product("query_down", width, self.query_rank, Split.REPLICATED, source, bias=self.bias)
        if self.normed:
            bench.norm("query_norm", RMS, self.query_rank, latent)
        normed = bench.tensor("query_normed", self.query_rank)
        bench.product("query_up", self.query_rank, outputs, Split.COLUMN, normed, parts=self.heads)

    def _latent(self, bench: Bench, width: int, source: Tensor) -> None:
        rank = self.latent_rank
        bench.product("latent", width, rank + self.rotary_width, Split.REPLICATED, source, bias=self.bias)
        if self.normed:
            bench.norm("latent_norm", RMS, rank, bench.tensor("latent", rank + self.rotary_width))
        outputs = self.heads * (self.plain_width + self.value_width)
        bench.product("latent_up", rank, outputs, Split.COLUMN, bench.tensor("normed", rank), parts=self.heads)
