"""open_clip: JSON of two towers, one over images and one over text, that meet in a product of embeddings."""

from __future__ import annotations

from collections.abc import Mapping

from nest.errors import InvalidProblem
from nest.families.architecture import Stack
from nest.families.decoder import TEXT, blocks_of
from nest.families.description import Description
from nest.families.ends import Embedding, Patches, matrices_block, norm_block
from nest.families.huggingface.encoders import biased_layer
from nest.families.keys import MOST_LAYERS, Keys
from nest.families.parts import LAYER
from nest.families.towers import Tower, facing


def read_open_clip(table: Mapping[str, object]) -> Description:
    """Return what a file of open_clip says.

    Raises
    ------
    InvalidProblem
        If a key is missing or wrong, or a tower is one of timm or Hugging Face, whose sizes the file does not hold.
    """
    keys = Keys(table, reader="open_clip")
    vision, text = keys.nested("vision_cfg"), keys.nested("text_cfg")
    if vision is None or text is None:
        raise keys.missing("text_cfg" if vision else "vision_cfg")
    for part, name in ((vision, "timm_model_name"), (text, "hf_model_name")):
        if name in part:
            raise InvalidProblem(part.path(name), f"{part.text(name)!r} has its sizes elsewhere", "a tower with sizes")
    out = keys.size("embed_dim")
    context = text.size("context_length")
    tower, words = _images(vision, out), _words(text, out)
    model = facing("", "open_clip", tower, words, context, notes=tuple(keys.notes))
    return Description("open_clip model", model, {"sequence": context})


def _tokens(keys: Keys) -> int:
    return (keys.size("image_size") // keys.size("patch_size")) ** 2 + 1


def _images(keys: Keys, out: int) -> Tower:
    width = keys.size("width")
    heads = width // (keys.whole("head_width") or 64)
    layer = biased_layer(heads, width, int(keys.number("mlp_ratio", 4) * width), before=True)
    patches = Patches(3 * keys.size("patch_size") ** 2, width, positions=_tokens(keys), classes=1, norm=LAYER)
    behind = (matrices_block("projection", (width, out), bias=False),)
    return Tower(width, patches, (layer,) * keys.size("layers", most=MOST_LAYERS), _tokens(keys), LAYER, behind)


def _words(keys: Keys, out: int) -> Stack:
    width = keys.size("width")
    feed = int(keys.number("mlp_ratio", 4) * width)
    layer = biased_layer(keys.size("heads"), width, feed, before=True, causal=True)
    embedding = Embedding(keys.size("vocab_size"), width, positions=keys.size("context_length"))
    layers = blocks_of((layer,) * keys.size("layers", most=MOST_LAYERS), width)
    projection = matrices_block("projection", (width, out), bias=False)
    return Stack(TEXT, TEXT, (embedding.block(), *layers, norm_block(LAYER, width), projection))
