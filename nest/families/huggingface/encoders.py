"""Encoders of Hugging Face over text: BERT, RoBERTa, DistilBERT."""

from __future__ import annotations

from nest.families.architecture import Architecture, Extra, Link, Stack, Stream
from nest.families.attention import Attention
from nest.families.decoder import blocks_of
from nest.families.ends import Embedding, masked_head, matrices_block
from nest.families.feeds import Mlp
from nest.families.huggingface.dense import has_dropout
from nest.families.keys import HEADS, LAYERS, MOST_LAYERS, VOCABULARY, Keys
from nest.families.layers import Layer
from nest.families.pairs import ENCODER, SOURCE
from nest.families.parts import LAYER

CLASSES = {"bert": "BertConfig", "roberta": "RobertaConfig", "xlm-roberta": "XLMRobertaConfig"}


def biased_layer(heads: int, width: int, feed: int, *, before: bool, dropout: bool = False) -> Layer:
    """Return the layer of BERT, and with the norms ``before``, of ViT: biases everywhere, no gate, nothing rotated."""
    attention = Attention(
        heads,
        heads,
        width // heads,
        query_bias=True,
        key_bias=True,
        value_bias=True,
        out_bias=True,
        rotary=False,
        causal=False,
        dropout=dropout,
    )
    mlp = Mlp(feed, gated=False, bias=True, out_bias=True)
    return Layer(attention, mlp, order="pre" if before else "post", norm=LAYER, dropout=dropout)


def read_bert(keys: Keys, name: str) -> Architecture:
    """Return a BERT or RoBERTa, pooler included; its head for masked tokens stands outside, as published counts do."""
    keys = keys.read_by(CLASSES[keys.text("model_type")])
    width, vocabulary = keys.size("hidden_size"), keys.size(*VOCABULARY)
    layer = biased_layer(
        keys.size(*HEADS), width, keys.size("intermediate_size"), before=False, dropout=has_dropout(keys)
    )
    positions = keys.size("max_position_embeddings")
    embedding = Embedding(
        vocabulary,
        width,
        positions=positions,
        types=keys.option("type_vocab_size", 2),
        norm=LAYER,
        dropout=has_dropout(keys),
    )
    layers = (layer,) * keys.size(*LAYERS, most=MOST_LAYERS)
    pooler = matrices_block("pooler", (width, width), bias=True)
    stack = Stack(ENCODER, SOURCE, (embedding.block(), *blocks_of(layers, width), pooler))
    return _with_head(name, keys, stack, vocabulary, positions)


def _with_head(name: str, keys: Keys, stack: Stack, vocabulary: int, positions: int) -> Architecture:
    """Return the encoder with the head for masked tokens outside, fed by the last layer."""
    last = max(place for place, block in enumerate(stack.blocks) if block.layer)
    width = stack.blocks[last].width
    head = Extra(
        Stack("heads", SOURCE, (masked_head(width, vocabulary),)),
        "the head for masked tokens, trained but not counted: published counts are those of the encoder",
        trained=True,
    )
    link = Link((ENCODER, last), ("heads", 0), width)
    return Architecture(
        name, keys.text("model_type"), (Stream(SOURCE),), (stack,), (link,), sequence=positions, extras=(head,)
    )


def read_distilbert(keys: Keys, name: str) -> Architecture:
    """Return a DistilBERT: a BERT without token types and pooler."""
    keys = keys.read_by("DistilBertConfig")
    width, vocabulary, positions = keys.size("dim"), keys.size(*VOCABULARY), keys.size("max_position_embeddings")
    layer = biased_layer(keys.size("n_heads"), width, keys.size("hidden_dim"), before=False, dropout=has_dropout(keys))
    embedding = Embedding(vocabulary, width, positions=positions, norm=LAYER, dropout=has_dropout(keys))
    layers = (layer,) * keys.size("n_layers", most=MOST_LAYERS)
    stack = Stack(ENCODER, SOURCE, (embedding.block(), *blocks_of(layers, width)))
    return _with_head(name, keys, stack, vocabulary, positions)


READERS = {"bert": read_bert, "roberta": read_bert, "xlm-roberta": read_bert, "distilbert": read_distilbert}
"""Encoders, by ``model_type``."""
