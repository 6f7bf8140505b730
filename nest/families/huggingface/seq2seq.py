"""Encoder-decoders of Hugging Face: T5, BART, Whisper."""

from __future__ import annotations

from dataclasses import replace

from nest.families.architecture import Architecture
from nest.families.attention import Attention
from nest.families.ends import Embedding, Head, Patches, norm_block
from nest.families.feeds import Mlp
from nest.families.keys import HEADS, LAYERS, MOST_LAYERS, VOCABULARY, Keys
from nest.families.layers import Layer
from nest.families.pairs import SOURCE, Side, encoder_decoder
from nest.families.parts import LAYER, RMS


def read_t5(keys: Keys, name: str) -> Architecture:
    """Return a T5: relative positions in the first layer of each stack, norms without bias, no biases at all."""
    keys = keys.read_by("T5Config")
    width, vocabulary = keys.size("d_model"), keys.size(*VOCABULARY)
    attention = _t5_attention(keys)
    kind = keys.text("feed_forward_proj", "relu")
    mlp = Mlp(keys.size("d_ff"), gated=kind.startswith("gated"))
    layer = Layer(attention, mlp, norm=RMS, dropout=keys.number("dropout_rate", 0) > 0)
    deep = keys.size("num_layers", most=MOST_LAYERS)
    deeper = keys.whole("num_decoder_layers", most=MOST_LAYERS) or deep
    buckets = keys.option("relative_attention_num_buckets", 32)
    cross = replace(attention, keys=SOURCE, keys_width=width, causal=False)
    decoding = replace(layer, mixer=replace(attention, causal=True), cross=cross)
    encoder = Side(
        width,
        (Embedding(vocabulary, width, dropout=layer.dropout).block(),),
        _placed(layer, deep, buckets),
        (norm_block(RMS, width),),
    )
    tied = keys.flag("tie_word_embeddings", keys.text("model_type") != "mt5", noted=True)
    head = Head(vocabulary, width, tied, norm=RMS)
    decoder = Side(
        width,
        (Embedding(vocabulary, width, dropout=layer.dropout, shared=True).block(),),
        _placed(decoding, deeper, buckets),
        (head.block(),),
    )
    return encoder_decoder(name, "t5", encoder, decoder, sequence=keys.whole("n_positions") or 0)


def _t5_attention(keys: Keys) -> Attention:
    heads = keys.size(*HEADS)
    head_width = keys.option("d_kv", 64, least=1)
    return Attention(heads, heads, head_width, rotary=False, causal=False, dropout=keys.number("dropout_rate", 0) > 0)


def _placed(layer: Layer, count: int, buckets: int) -> tuple[Layer, ...]:
    """Return the layers of a stack, the first of which learns the relative positions for all."""
    assert isinstance(layer.mixer, Attention), "T5 has attention everywhere"
    return (replace(layer, mixer=replace(layer.mixer, relative_buckets=buckets)), *(layer,) * (count - 1))


def read_bart(keys: Keys, name: str) -> Architecture:
    """Return a BART: learned positions with two rows more, norms behind; mBART has them before, and last ones."""
    before = keys.text("model_type") == "mbart"
    keys = keys.read_by("BartConfig")
    width, vocabulary = keys.size("d_model"), keys.size(*VOCABULARY)
    positions = keys.size("max_position_embeddings") + 2
    tied = keys.flag("tie_word_embeddings", True)
    last = LAYER if before else None
    encoder = Side(
        width,
        (Embedding(vocabulary, width, positions=positions, norm=LAYER).block(),),
        _layers(keys, "encoder", before=before),
        (norm_block(LAYER, width),) if before else (),
    )
    decoder = Side(
        width,
        (Embedding(vocabulary, width, positions=positions, norm=LAYER, shared=True).block(),),
        _layers(keys, "decoder", before=before, width=width),
        (Head(vocabulary, width, tied, norm=last).block(),),
    )
    return encoder_decoder(name, "bart", encoder, decoder, sequence=positions - 2)


def _layers(keys: Keys, side: str, *, before: bool, width: int = 0, key_bias: bool = True) -> tuple[Layer, ...]:
    """Return the layers of one side; those of a decoder, for which ``width`` is given, look at the encoder."""
    heads, model = keys.size(f"{side}_attention_heads", *HEADS), keys.size("d_model")
    attention = Attention(
        heads,
        heads,
        model // heads,
        query_bias=True,
        key_bias=key_bias,
        value_bias=True,
        out_bias=True,
        rotary=False,
        causal=bool(width),
        dropout=keys.number("attention_dropout", 0) > 0,
    )
    mlp = Mlp(keys.size(f"{side}_ffn_dim"), gated=False, bias=True, out_bias=True)
    cross = replace(attention, keys=SOURCE, keys_width=width, causal=False) if width else None
    dropout = keys.number("dropout", 0) > 0
    layer = Layer(attention, mlp, cross, order="pre" if before else "post", norm=LAYER, dropout=dropout)
    return (layer,) * keys.size(f"{side}_layers", *LAYERS, most=MOST_LAYERS)


def read_whisper(keys: Keys, name: str) -> Architecture:
    """Return a Whisper: two convolutions over a spectrum, keys without bias, positions of both sides in tables."""
    keys = keys.read_by("WhisperConfig")
    width, vocabulary = keys.size("d_model"), keys.size(*VOCABULARY)
    frames = keys.size("max_source_positions")
    sound = Patches(3 * keys.size("num_mel_bins"), width, bias=True, positions=frames, second=3 * width)
    keys.note("the encoder's positions are a fixed table, counted; the first convolution sees two frames per position")
    encoder = Side(
        width,
        (sound.block(),),
        _layers(keys, "encoder", before=True, key_bias=False),
        (norm_block(LAYER, width),),
    )
    positions = keys.size("max_target_positions")
    head = Head(vocabulary, width, tied=True, norm=LAYER)
    decoder = Side(
        width,
        (Embedding(vocabulary, width, positions=positions).block(),),
        _layers(keys, "decoder", before=True, width=width, key_bias=False),
        (head.block(),),
    )
    return encoder_decoder(name, "whisper", encoder, decoder, sequence=positions, source_tokens=frames)


READERS = {
    "t5": read_t5,
    "mt5": read_t5,
    "bart": read_bart,
    "mbart": read_bart,
    "whisper": read_whisper,
}
"""Encoder-decoders, by ``model_type``."""
