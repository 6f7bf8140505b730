"""CLIP and SigLIP of Hugging Face: a tower over images and one over text, each with a table of its own in the file."""

from __future__ import annotations

from collections.abc import Mapping

from nest.families.architecture import Architecture, Stack
from nest.families.decoder import TEXT, blocks_of
from nest.families.ends import Embedding, matrices_block, norm_block
from nest.families.huggingface.encoders import biased_layer
from nest.families.huggingface.vision import clip_tower, layers_of, siglip_tower
from nest.families.keys import HEADS, Keys
from nest.families.parts import LAYER
from nest.families.towers import Tower, facing


def _nested(keys: Keys, name: str) -> Keys:
    """Return the table of a tower, which leaves out what equals the default; older files repeat it as ``name_dict``."""
    table: dict[str, object] = {}
    for part in (name, f"{name}_dict"):
        value = keys.nested(part)
        table |= {} if value is None else value.table
    return Keys(table, keys.path(name), partial=True, notes=keys.notes)


def _projected(tower: Tower, out: int) -> Tower:
    behind = (matrices_block("projection", (tower.width, out), bias=False),)
    return Tower(tower.width, tower.patches, tower.layers, tower.tokens, tower.norm, behind)


def _words(keys: Keys, usual: Mapping[str, int], out: int, *, causal: bool, bias: bool) -> tuple[Stack, int]:
    """Return the tower over text, its projection included, and the tokens of a text."""
    width = keys.size("hidden_size", default=usual["width"])
    feed = keys.size("intermediate_size", default=usual["feed"])
    heads = keys.size(*HEADS, default=usual["heads"])
    layer = biased_layer(heads, width, feed, before=True, causal=causal)
    context = keys.size("max_position_embeddings", default=usual["context"])
    embedding = Embedding(keys.size("vocab_size", default=usual["vocabulary"]), width, positions=context)
    layers = blocks_of(layers_of(keys, layer, default=12), width)
    projection = matrices_block("projection", (width, out), bias=bias)
    return Stack(TEXT, TEXT, (embedding.block(), *layers, norm_block(LAYER, width), projection)), context


CLIP_TEXT = {"width": 512, "feed": 2048, "heads": 8, "context": 77, "vocabulary": 49408}
SIGLIP_TEXT = {"width": 768, "feed": 3072, "heads": 12, "context": 64, "vocabulary": 32000}
"""Defaults of CLIPTextConfig and SiglipTextConfig."""


def read_clip(keys: Keys, name: str) -> Architecture:
    """Return a CLIP: both towers end in a matrix without bias, and meet in a product that is scaled."""
    keys = keys.read_by("CLIPConfig")
    out = keys.option("projection_dim", 512, least=1)
    tower = _projected(clip_tower(_nested(keys, "vision_config")), out)
    text = _nested(keys, "text_config").read_by("CLIPTextConfig")
    words, context = _words(text, CLIP_TEXT, out, causal=True, bias=False)
    return facing(name, "clip", tower, words, context)


def read_siglip(keys: Keys, name: str) -> Architecture:
    """Return a SigLIP: one tower ends in a matrix, the other in its pooling head; the product is shifted, too."""
    keys = keys.read_by("SiglipConfig")
    tower = siglip_tower(_nested(keys, "vision_config"))
    text = _nested(keys, "text_config").read_by("SiglipTextConfig")
    out = text.whole("projection_size") or text.size("hidden_size", default=SIGLIP_TEXT["width"])
    words, context = _words(text, SIGLIP_TEXT, out, causal=False, bias=True)
    return facing(name, "siglip", tower, words, context, scalars=2)


READERS = {"clip": read_clip, "siglip": read_siglip}
"""Pairs of towers, by ``model_type``."""
