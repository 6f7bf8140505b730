"""Models from a family and a few numbers: for the command line, and for our own model files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

from nest.errors import InvalidProblem
from nest.families.architecture import Architecture
from nest.families.attention import Attention, LatentAttention
from nest.families.decoder import Decoder
from nest.families.feeds import Experts, Mlp
from nest.families.huggingface.deepseek import with_prediction
from nest.families.huggingface.encoders import read_bert
from nest.families.huggingface.seq2seq import read_t5
from nest.families.keys import MOST_LAYERS, Keys
from nest.families.layers import Layer, Sublayer
from nest.families.parts import LAYER, RMS

VOCABULARIES = {"gpt": 51200, "llama": 32000, "bert": 30522, "t5": 32128, "moe": 32000}
"""Vocabulary of each family where none is given: GPT-2's 50257 padded to a multiple of 1024, Llama-2's and Mixtral's,
BERT's (uncased), T5's."""


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Numbers that describe a model; 0 where the family decides.

    Parameters
    ----------
    family
        ``gpt`` (LayerNorm, biases, GELU, learned positions, tied), ``llama`` (RMSNorm, SwiGLU, rotated), ``moe``
        (the same with experts), ``bert``, ``t5``.
    layers, hidden, heads
        Layers (of each stack of T5), width of the model, heads.
    kv_heads, head_width
        Key-value heads, as many as heads by default; width of a head, ``hidden / heads`` by default.
    ffn
        Width of the MLP: by default ``4 * hidden``, and for gated ones two thirds of it, up to a multiple of 256.
    vocab
        Rows of the embedding table.
    seq
        The longest sequence; rows of the table of positions of gpt and bert.
    tied
        Whether the head uses the embedding table; by default as the family has it.
    gated
        Whether T5's MLP has a gate.
    experts, top_k, expert_ffn, shared_ffn
        Routed experts, how many a token passes, width of one (``ffn`` by default), width of all shared ones together.
    dense_layers
        Leading layers without experts.
    query_rank, latent_rank, plain_width, rotary_width, value_width
        Of latent attention, as in `LatentAttention`; ``latent_rank`` above 0 chooses it.
    correction
        Whether each expert has a bias that balances the load.
    predictions
        Modules of multi-token prediction, outside the model.
    name
        What to call it.
    """

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int = 0
    head_width: int = 0
    ffn: int = 0
    vocab: int = 0
    seq: int = 2048
    tied: bool | None = None
    gated: bool = False
    experts: int = 0
    top_k: int = 2
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    query_rank: int = 0
    latent_rank: int = 0
    plain_width: int = 128
    rotary_width: int = 64
    value_width: int = 128
    correction: bool = False
    predictions: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            if type(value) is int and value < 0:
                raise InvalidProblem(spec.name, f"{value} is negative", "give a whole number from 0")
        for name in ("layers", "hidden", "heads"):
            if not getattr(self, name):
                raise InvalidProblem(name, "0", "give a whole number from 1")
        self._check()

    def _check(self) -> None:
        if self.family not in VOCABULARIES:
            raise InvalidProblem("family", f"{self.family!r} is none", f"one of {', '.join(VOCABULARIES)}")
        for name in ("layers", "predictions"):
            if getattr(self, name) > MOST_LAYERS:
                raise InvalidProblem(name, f"{getattr(self, name)}", f"at most {MOST_LAYERS}")
        if not self.head_width and self.hidden % self.heads:
            raise InvalidProblem("heads", f"{self.heads} do not divide hidden {self.hidden}", "give head_width")
        if self.kv_heads and self.heads % self.kv_heads:
            raise InvalidProblem("kv_heads", f"{self.kv_heads} does not divide {self.heads} heads", "give a divisor")
        if self.family == "moe" and not 1 <= self.top_k <= self.experts:
            raise InvalidProblem("top_k", f"{self.top_k} of {self.experts} experts", "give experts, and top_k of them")
        if self.family != "moe" and self.experts:
            raise InvalidProblem("experts", f"family {self.family} has none", "choose family moe")


def from_hyperparameters(numbers: Hyperparameters) -> Architecture:
    """Return the model of a family with these numbers.

    Raises
    ------
    InvalidProblem
        If the numbers do not fit together.
    """
    notes = []
    if not numbers.vocab:
        vocabulary = VOCABULARIES[numbers.family]
        notes.append(f"vocab: not given, {vocabulary} by default of family {numbers.family}")
        numbers = replace(numbers, vocab=vocabulary)
    if not numbers.ffn and (numbers.family != "moe" or numbers.dense_layers or not numbers.expert_ffn):
        numbers = replace(numbers, ffn=_ffn(numbers))
        notes.append(f"ffn: not given, {numbers.ffn} by default of family {numbers.family}")
    return _BUILDERS[numbers.family](numbers).with_notes(*notes)


def read_hyperparameters(table: Mapping[str, object]) -> Architecture:
    """Return the model of one of our own model files: a table with the fields of `Hyperparameters`.

    Raises
    ------
    InvalidProblem
        Naming the first key that is wrong, unknown or missing.
    """
    known = {spec.name: spec for spec in fields(Hyperparameters)}
    for name, value in table.items():
        if name in ("source", "schema"):
            continue
        if name not in known:
            raise InvalidProblem(name, "is no key of a model file", f"one of {', '.join(known)}")
        kind = {"family": str, "name": str, "tied": bool, "gated": bool, "correction": bool}.get(name, int)
        if type(value) is not kind:
            raise InvalidProblem(name, f"{value!r} is no {_SPELT[kind]}", f"give a {_SPELT[kind]}")
    for name in ("family", "layers", "hidden", "heads"):
        if name not in table:
            raise InvalidProblem(name, "missing", f"a model file gives it; its keys are {', '.join(known)}")
    return from_hyperparameters(Hyperparameters(**{name: table[name] for name in known if name in table}))  # type: ignore[arg-type]


_SPELT = {str: "text", bool: "truth value", int: "whole number"}


def _ffn(numbers: Hyperparameters) -> int:
    plain = 4 * numbers.hidden
    gated = numbers.family in ("llama", "moe") or numbers.gated
    return -(-(2 * plain // 3) // 256) * 256 if gated else plain


def _gpt(numbers: Hyperparameters) -> Architecture:
    layer = Layer(_attention(numbers, bias=True), Mlp(numbers.ffn, False, True, True), norm=LAYER, dropout=True)
    decoder = Decoder(
        numbers.hidden,
        (layer,) * numbers.layers,
        numbers.vocab,
        tied=numbers.tied is not False,
        norm=LAYER,
        positions=numbers.seq,
        sequence=numbers.seq,
        dropout=True,
    )
    return decoder.architecture(numbers.name, "gpt")


def _llama(numbers: Hyperparameters) -> Architecture:
    dense = Layer(_mixer(numbers), Mlp(numbers.ffn), norm=RMS)
    routed = replace(dense, feed=_experts(numbers)) if numbers.experts else dense
    leading = min(numbers.dense_layers, numbers.layers)
    decoder = Decoder(
        numbers.hidden,
        (*(dense,) * leading, *(routed,) * (numbers.layers - leading)),
        numbers.vocab,
        tied=numbers.tied is True,
        sequence=numbers.seq,
    )
    return with_prediction(decoder, numbers.predictions).architecture(numbers.name, numbers.family)


def _mixer(numbers: Hyperparameters) -> Sublayer:
    if not numbers.latent_rank:
        return _attention(numbers, bias=False)
    return LatentAttention(
        numbers.heads,
        numbers.query_rank,
        numbers.latent_rank,
        numbers.plain_width,
        numbers.rotary_width,
        numbers.value_width,
    )


def _experts(numbers: Hyperparameters) -> Experts:
    return Experts(
        numbers.experts,
        numbers.top_k,
        Mlp(numbers.expert_ffn or numbers.ffn),
        Mlp(numbers.shared_ffn) if numbers.shared_ffn else None,
        correction=numbers.correction,
    )


def _attention(numbers: Hyperparameters, *, bias: bool) -> Attention:
    return Attention(
        numbers.heads,
        numbers.kv_heads or numbers.heads,
        numbers.head_width or numbers.hidden // numbers.heads,
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        out_bias=bias,
        rotary=not bias,
        dropout=bias,
    )


def _bert(numbers: Hyperparameters) -> Architecture:
    table = {
        "model_type": "bert",
        "hidden_size": numbers.hidden,
        "num_hidden_layers": numbers.layers,
        "num_attention_heads": numbers.heads,
        "intermediate_size": numbers.ffn,
        "vocab_size": numbers.vocab,
        "max_position_embeddings": numbers.seq,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.1,
    }
    return read_bert(Keys(table), numbers.name)


def _t5(numbers: Hyperparameters) -> Architecture:
    table = {
        "d_model": numbers.hidden,
        "num_layers": numbers.layers,
        "num_heads": numbers.heads,
        "d_ff": numbers.ffn,
        "d_kv": numbers.head_width or numbers.hidden // numbers.heads,
        "vocab_size": numbers.vocab,
        "feed_forward_proj": "gated-gelu" if numbers.gated else "relu",
        "tie_word_embeddings": numbers.tied is not False,
        "relative_attention_num_buckets": 32,
        "n_positions": numbers.seq,
        "dropout_rate": 0.1,
    }
    return read_t5(Keys(table), numbers.name)


_BUILDERS: dict[str, Callable[[Hyperparameters], Architecture]] = {
    "gpt": _gpt,
    "llama": _llama,
    "moe": _llama,
    "bert": _bert,
    "t5": _t5,
}
