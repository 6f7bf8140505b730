"""Encoders of Hugging Face over text: BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA."""

from __future__ import annotations

from nest.errors import InvalidProblem
from nest.families.architecture import Architecture, Block, Extra, Link, Stack, Stream, tied_block
from nest.families.attention import Attention
from nest.families.decoder import blocks_of
from nest.families.ends import Embedding, masked_head, matrices_block, replaced_head
from nest.families.feeds import Mlp
from nest.families.huggingface.dense import has_dropout
from nest.families.keys import HEADS, LAYERS, MOST_LAYERS, VOCABULARY, Keys
from nest.families.layers import Layer
from nest.families.pairs import ENCODER, SOURCE
from nest.families.parts import LAYER

CLASSES = {"bert": "BertConfig", "roberta": "RobertaConfig", "xlm-roberta": "XLMRobertaConfig"}


def biased_layer(
    heads: int, width: int, feed: int, *, before: bool, dropout: bool = False, causal: bool = False
) -> Layer:
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
        causal=causal,
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
    return _with_head(name, keys, stack, masked_head(width, vocabulary), positions)


MASKED = "the head for masked tokens, trained but not counted: published counts are those of the encoder"


def _with_head(name: str, keys: Keys, stack: Stack, head: Block, positions: int, *, why: str = MASKED) -> Architecture:
    """Return the encoder with the head that trains it outside, fed by the last layer."""
    last = max(place for place, block in enumerate(stack.blocks) if block.layer)
    width = stack.blocks[last].width
    extra = Extra(Stack("heads", SOURCE, (head,)), why, trained=True)
    link = Link((ENCODER, last), ("heads", 0), width)
    return Architecture(
        name, keys.text("model_type"), (Stream(SOURCE),), (stack,), (link,), sequence=positions, extras=(extra,)
    )


def read_distilbert(keys: Keys, name: str) -> Architecture:
    """Return a DistilBERT: a BERT without token types and pooler."""
    keys = keys.read_by("DistilBertConfig")
    width, vocabulary, positions = keys.size("dim"), keys.size(*VOCABULARY), keys.size("max_position_embeddings")
    layer = biased_layer(keys.size("n_heads"), width, keys.size("hidden_dim"), before=False, dropout=has_dropout(keys))
    embedding = Embedding(vocabulary, width, positions=positions, norm=LAYER, dropout=has_dropout(keys))
    layers = (layer,) * keys.size("n_layers", most=MOST_LAYERS)
    stack = Stack(ENCODER, SOURCE, (embedding.block(), *blocks_of(layers, width)))
    return _with_head(name, keys, stack, masked_head(width, vocabulary), positions)


def read_albert(keys: Keys, name: str) -> Architecture:
    """Return an ALBERT, pooler included: a narrow table, and layers of a group that share their weights.

    What shares is counted where it comes first.
    """
    keys = keys.read_by("AlbertConfig")
    width, table, vocabulary = keys.size("hidden_size"), keys.size("embedding_size"), keys.size(*VOCABULARY)
    heads, feed, positions = keys.size(*HEADS), keys.size("intermediate_size"), keys.size("max_position_embeddings")
    layer = biased_layer(heads, width, feed, before=False, dropout=has_dropout(keys))
    depth, groups = keys.size(*LAYERS, most=MOST_LAYERS), keys.option("num_hidden_groups", 1, least=1)
    inner = keys.option("inner_group_num", 1, least=1)
    if groups > depth or depth * inner > MOST_LAYERS:
        raise InvalidProblem("num_hidden_groups", f"{groups} of {depth} layers, {inner} inside", "give fewer")
    block = layer.block(width)
    again = tied_block(block)
    seen: set[tuple[int, int]] = set()
    blocks = []
    for place in ((at * groups // depth, part) for at in range(depth) for part in range(inner)):
        blocks.append(again if place in seen else block)
        seen.add(place)
    keys.note(f"{len(blocks)} layers share the weights of {len(seen)}")
    ends = matrices_block("projection", (table, width), bias=True), matrices_block("pooler", (width, width), bias=True)
    stack = Stack(ENCODER, SOURCE, (_narrow(keys, vocabulary, table, positions), ends[0], *blocks, ends[1]))
    return _with_head(name, keys, stack, masked_head(width, vocabulary, table), positions)


def _narrow(keys: Keys, vocabulary: int, table: int, positions: int) -> Block:
    """Return an embedding whose tables are all as narrow as that of tokens."""
    types, dropout = keys.option("type_vocab_size", 2), has_dropout(keys)
    return Embedding(vocabulary, table, positions=positions, types=types, norm=LAYER, dropout=dropout).block()


def read_electra(keys: Keys, name: str) -> Architecture:
    """Return an ELECTRA without a pooler: the model that tells replaced tokens, not the one that replaces them."""
    keys = keys.read_by("ElectraConfig")
    width, table, vocabulary = keys.size("hidden_size"), keys.size("embedding_size"), keys.size(*VOCABULARY)
    heads, feed, positions = keys.size(*HEADS), keys.size("intermediate_size"), keys.size("max_position_embeddings")
    layer = biased_layer(heads, width, feed, before=False, dropout=has_dropout(keys))
    layers = blocks_of((layer,) * keys.size(*LAYERS, most=MOST_LAYERS), width)
    projection = (matrices_block("projection", (table, width), bias=True),) if table != width else ()
    stack = Stack(ENCODER, SOURCE, (_narrow(keys, vocabulary, table, positions), *projection, *layers))
    keys.note("pre-training runs a smaller generator besides, which a file of its own describes")
    why = "the head that tells replaced tokens, trained but not counted"
    return _with_head(name, keys, stack, replaced_head(width), positions, why=why)


READERS = {
    "bert": read_bert,
    "roberta": read_bert,
    "xlm-roberta": read_bert,
    "distilbert": read_distilbert,
    "albert": read_albert,
    "electra": read_electra,
}
"""Encoders, by ``model_type``."""
