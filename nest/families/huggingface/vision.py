"""Vision towers of Hugging Face, alone or under a decoder; which of them a table describes is in its ``model_type``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nest.errors import InvalidProblem
from nest.families.attention import Attention
from nest.families.ends import Patches, attention_pooler, matrices_block
from nest.families.feeds import Mlp
from nest.families.huggingface.encoders import biased_layer
from nest.families.keys import HEADS, LAYERS, MOST_LAYERS, Keys
from nest.families.layers import Layer
from nest.families.parts import LAYER, RMS, share
from nest.families.towers import Tower


def read_tower(keys: Keys) -> Tower | None:
    """Return the tower of a file or of a nested table, or None if its type is none of these."""
    read = TOWERS.get(keys.text("model_type"))
    return None if read is None else read(keys)


def layers_of(keys: Keys, layer: Layer, *, default: int | None = None) -> tuple[Layer, ...]:
    """Return so many equal layers as the file says."""
    return (layer,) * keys.size(*LAYERS, default=default, most=MOST_LAYERS)


def _grid(keys: Keys, image: int, patch: int) -> int:
    """Return the patches of one image."""
    side, part = keys.size("image_size", default=image), keys.size("patch_size", default=patch)
    if side < part:
        raise InvalidProblem(keys.path("image_size"), f"{side} is less than a patch, {part}", "give a larger image")
    return (side // part) ** 2


def _patch_inputs(keys: Keys, patch: int) -> int:
    channels = keys.whole("num_channels") or 3
    return channels * keys.size("patch_size", default=patch) ** 2


def _vit(keys: Keys) -> Tower:
    keys = keys.read_by("ViTConfig")
    width = keys.size("hidden_size")
    layer = biased_layer(keys.size(*HEADS), width, keys.size("intermediate_size"), before=True)
    tokens = _grid(keys, 224, 16) + 1
    labels = keys.nested("id2label")
    classes = len(labels.table) if labels else keys.whole("num_labels") or 0
    behind = (matrices_block("classifier", (width, classes), bias=True),) if classes else ()
    if classes:
        keys.note(f"{classes} classes, of which only id2label tells")
    patches = Patches(_patch_inputs(keys, 16), width, bias=True, positions=tokens, classes=1)
    return Tower(width, patches, layers_of(keys, layer), tokens, LAYER, behind)


def clip_tower(keys: Keys) -> Tower:
    """Return CLIP's tower; with the class that projects, the projection too."""
    keys = keys.read_by("CLIPVisionConfig")
    width = keys.size("hidden_size", default=768)
    feed = keys.size("intermediate_size", default=3072)
    layer = biased_layer(keys.size(*HEADS, default=12), width, feed, before=True)
    tokens = _grid(keys, 224, 32) + 1
    patches = Patches(_patch_inputs(keys, 32), width, positions=tokens, classes=1, norm=LAYER)
    projects = "CLIPVisionModelWithProjection" in keys.items("architectures")
    projection = keys.size("projection_dim", default=512) if projects else 0
    behind = (matrices_block("projection", (width, projection), bias=False),) if projection else ()
    return Tower(width, patches, layers_of(keys, layer, default=12), tokens, LAYER, behind)


def siglip_tower(keys: Keys) -> Tower:
    """Return SigLIP's tower, with the head that pools its tokens unless the file says that there is none."""
    keys = keys.read_by("SiglipVisionConfig")
    width = keys.size("hidden_size", default=768)
    feed = keys.size("intermediate_size", default=3072)
    layer = biased_layer(keys.size(*HEADS, default=12), width, feed, before=True)
    tokens = _grid(keys, 224, 16)
    patches = Patches(_patch_inputs(keys, 16), width, bias=True, positions=tokens)
    behind = (attention_pooler(width, feed, tokens),) if keys.flag("vision_use_head", True) else ()
    return Tower(width, patches, layers_of(keys, layer, default=12), tokens, LAYER, behind)


def qwen2_tower(keys: Keys) -> Tower:
    """Return Qwen2-VL's tower; ``hidden_size`` is what leaves it, ``embed_dim`` its own width."""
    keys = keys.read_by("Qwen2VLVisionConfig")
    width = keys.size("embed_dim", default=1280)
    keys.note(f"{keys.path('hidden_size')}: the width that leaves the tower; its own is embed_dim, {width}")
    feed = int(keys.number("mlp_ratio", 4) * width)
    layer = biased_layer(keys.size("num_heads", default=16), width, feed, before=True)
    side, frames = keys.size("patch_size", default=14), keys.size("temporal_patch_size", default=2)
    merge = keys.size("spatial_merge_size", default=2) ** 2
    inputs = (keys.whole("in_chans", "in_channels") or 3) * frames * side**2
    joined = width * merge
    out = keys.size("hidden_size", default=3584)
    projector = matrices_block("projector", (joined, joined, out), bias=True, norm=(LAYER, width), rows=share(1, merge))
    keys.note("images have any size in Qwen2-VL; 1024 patches are assumed")
    depth = keys.size("depth", default=32, most=MOST_LAYERS)
    return Tower(width, Patches(inputs, width), (layer,) * depth, 1024, behind=(projector,), merged=share(1, merge))


def llama4_tower(keys: Keys) -> Tower:
    """Return Llama-4's tower, the matrices that shuffle pixels included."""
    keys = keys.read_by("Llama4VisionConfig")
    width, feed = keys.size("hidden_size"), keys.size("intermediate_size")
    layer = biased_layer(keys.size(*HEADS), width, feed, before=True)
    layer = replace(layer, mixer=replace(layer.mixer, rotary=True) if isinstance(layer.mixer, Attention) else None)
    tokens = _grid(keys, 448, 14) + 1
    patches = Patches(_patch_inputs(keys, 14), width, positions=tokens, classes=1, norm=LAYER)
    ratio = keys.number("pixel_shuffle_ratio", 0.5)
    if not 1 / 64 <= ratio <= 1:
        raise InvalidProblem(keys.path("pixel_shuffle_ratio"), f"{ratio}", "give a ratio from 1/64 to 1")
    merged = share(1, round(1 / ratio**2))
    shuffled = round(width / ratio**2)
    widths = (shuffled, keys.size("projector_input_dim"), keys.size("projector_output_dim"))
    adapter = matrices_block("adapter", widths, bias=False, rows=merged)
    return Tower(width, patches, layers_of(keys, layer), tokens, LAYER, (adapter,), merged)


def gemma4_tower(keys: Keys) -> Tower:
    """Return Gemma-4's tower: gated MLPs, four norms per layer, norms of queries and keys, a table per direction."""
    keys = keys.read_by("Gemma4VisionConfig")
    width, heads = keys.size("hidden_size"), keys.size(*HEADS)
    kv_heads = keys.whole("num_key_value_heads") or heads
    head_width = keys.whole("head_dim") or width // heads
    attention = Attention(heads, kv_heads, head_width, qk_norm="head", causal=False)
    layer = Layer(attention, Mlp(keys.size("intermediate_size")), order="sandwich", norm=RMS)
    rows = 2 * keys.size("position_embedding_size")
    further = (width, width) if keys.flag("standardize", False) else ()
    pooled = keys.whole("pooling_kernel_size") or 1
    tokens = (keys.whole("default_output_length") or 256) * pooled**2
    patches = Patches(_patch_inputs(keys, 16), width, positions=rows, further=further)
    return Tower(width, patches, layers_of(keys, layer), tokens, merged=share(1, pooled**2))


def mllama_tower(keys: Keys) -> Tower:
    """Return the tower of Llama-3.2-Vision: local layers, then global ones with gates, over several tiles.

    What leaves it is the last state and those of some layers, side by side.
    """
    keys = keys.read_by("MllamaVisionConfig")
    width, feed = keys.size("hidden_size"), keys.size("intermediate_size")
    heads = keys.size("attention_heads", *HEADS)
    attention = Attention(heads, heads, width // heads, rotary=False, causal=False)
    layer = Layer(attention, Mlp(feed, gated=False, bias=True, out_bias=True), norm=LAYER)
    spread = keys.size("num_global_layers", default=8, most=MOST_LAYERS)
    local, tiles = layers_of(keys, layer), keys.size("max_num_tiles", default=4)
    patches_per_tile = _grid(keys, 448, 14) + 1
    ratios = len(keys.items("supported_aspect_ratios")) + 1
    table = ratios * tiles * width
    # a gate and a table of all patches of all tiles; before and behind the layers, a gate and a table of tiles
    further = (1, table * patches_per_tile, 1, table, 1, table, 2 * width)
    inputs = _patch_inputs(keys, 14)
    patches = Patches(inputs, width, positions=patches_per_tile, classes=1, norm=LAYER, further=further)
    tower_layers = (*local, *(replace(layer, scalars=2),) * spread)
    return Tower(width, patches, tower_layers, tiles * patches_per_tile)


TOWERS: dict[str, Callable[[Keys], Tower]] = {
    "vit": _vit,
    "clip_vision_model": clip_tower,
    "siglip_vision_model": siglip_tower,
    "llama4_vision_model": llama4_tower,
    "gemma4_vision": gemma4_tower,
    "mllama_vision_model": mllama_tower,
    "qwen2_vl": qwen2_tower,
}
"""Towers, by the ``model_type`` of their table."""
