"""Vision and language of Hugging Face: a tower, a projector, a decoder; each with a table of its own in the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nest.errors import InvalidProblem
from nest.families.architecture import Architecture
from nest.families.decoder import Decoder
from nest.families.ends import matrices_block
from nest.families.huggingface.deepseek import read_deepseek
from nest.families.huggingface.dense import attention_of, read_dense
from nest.families.huggingface.experts import read_experts
from nest.families.huggingface.hybrid import read_hybrid
from nest.families.huggingface.traits import TRAITS
from nest.families.huggingface.vision import TOWERS, mllama_tower, qwen2_tower, read_tower
from nest.families.keys import Keys
from nest.families.parts import RMS, share
from nest.families.towers import VISION, Tower, multimodal


def read_decoder(keys: Keys) -> Decoder | None:
    """Return the decoder of a file or of a nested table, or None if its type is no decoder's."""
    for read in (read_dense, read_experts, read_deepseek, read_hybrid):
        decoder = read(keys)
        if decoder is not None:
            return decoder
    return None


def _parts(keys: Keys, text_type: str, vision_type: str) -> tuple[Decoder, Tower]:
    """Return decoder and tower of a file; types are those that its nested tables have by default.

    Raises
    ------
    InvalidProblem
        If a table is missing, or of a type that is not known.
    """
    text = _table(keys, ("text_config", "llm_config", "language_config"), text_type)
    vision = _table(keys, ("vision_config",), vision_type)
    decoder, tower = read_decoder(text), read_tower(vision)
    if decoder is None:
        raise InvalidProblem(text.path("model_type"), f"{text.text('model_type')!r} is not known", "a decoder's")
    if tower is None:
        remedy = f"one of {', '.join(sorted(TOWERS))}"
        raise InvalidProblem(vision.path("model_type"), f"{vision.text('model_type')!r} is not known", remedy)
    return decoder, tower


def _table(keys: Keys, names: tuple[str, ...], model_type: str) -> Keys:
    """Return a nested table, with what the file says at its top where the table does not."""
    found = keys.nested(*names, partial=True)
    if found is None:
        raise keys.missing(*names)
    inherited = {name: keys.table[name] for name in ("tie_word_embeddings",) if name in keys}
    table = {"model_type": model_type, **inherited, **found.table}
    return Keys(table, found.where, found.reader, partial=True, notes=keys.notes)


def read_llava(keys: Keys, name: str) -> Architecture:
    """Return a LLaVA: two matrices with biases join tower and decoder."""
    decoder, tower = _parts(keys.read_by("LlavaConfig"), "llama", "clip_vision_model")
    keys.note("the projector reads the last layer but one; the last is counted, and does nothing")
    if tower.behind:
        keys.note(f"{tower.behind[0].kind} of the tower: nothing uses it, and it is not counted")
    projector = matrices_block("projector", (tower.width, decoder.width, decoder.width), bias=True)
    return multimodal(name, "llava", replace(tower, behind=(projector,)), decoder)


def read_gemma3(keys: Keys, name: str) -> Architecture:
    """Return a Gemma-3 with its tower: a norm and one matrix, behind a pooling to 256 vectors per image."""
    decoder, tower = _parts(keys.read_by("Gemma3Config"), "gemma3_text", "siglip_vision_model")
    pooled = share(keys.option("mm_tokens_per_image", 256, least=1), tower.tokens)
    projector = matrices_block(
        "projector", (tower.width, decoder.width), bias=False, norm=(RMS, tower.width), rows=pooled
    )
    return multimodal(name, "gemma3", replace(tower, behind=(projector,), merged=pooled), decoder)


def read_gemma4(keys: Keys, name: str) -> Architecture:
    """Return a Gemma-4 with its tower: one matrix behind a norm that learns nothing."""
    decoder, tower = _parts(keys.read_by("Gemma4Config"), "gemma4_text", "gemma4_vision")
    if "audio_config" in keys:
        raise InvalidProblem("audio_config", "a tower for sound is not supported", "null is")
    keys.note("the checkpoint's exact count is not published; weights are those that the modelling code names")
    projector = matrices_block("projector", (tower.width, decoder.width), bias=False, rows=tower.merged)
    return multimodal(name, "gemma4", replace(tower, behind=(projector,)), decoder)


def read_qwen2_vl(keys: Keys, name: str) -> Architecture:
    """Return a Qwen2-VL, whose text keys stand at the top of the file."""
    keys = keys.read_by("Qwen2VLConfig")
    vision = keys.nested("vision_config", partial=True)
    if vision is None:
        raise keys.missing("vision_config")
    nested = keys.nested("text_config", partial=True)
    text = nested.table if nested else keys.table
    where = nested.where if nested else ""
    inner = {**text, "model_type": "qwen2"}
    decoder = read_dense(Keys(inner, where, "Qwen2Config", partial=nested is not None, notes=keys.notes))
    assert decoder is not None, "qwen2 is a dense decoder"
    return multimodal(name, "qwen2_vl", qwen2_tower(vision), decoder)


def read_llama4(keys: Keys, name: str) -> Architecture:
    """Return a Llama-4 with its tower: one matrix behind the tower's own two."""
    decoder, tower = _parts(keys.read_by("Llama4Config"), "llama4_text", "llama4_vision_model")
    entering = tower.behind[-1].width
    projector = matrices_block("projector", (entering, decoder.width), bias=False, rows=tower.merged)
    return multimodal(name, "llama4", replace(tower, behind=(*tower.behind, projector)), decoder)


def read_mllama(keys: Keys, name: str) -> Architecture:
    """Return a Llama-3.2-Vision: layers of cross-attention, each with two gates, in the place of some of the others."""
    keys = keys.read_by("MllamaConfig")
    text, vision = _table(keys, ("text_config",), "llama"), _table(keys, ("vision_config",), "mllama_vision_model")
    decoder = read_dense(Keys({**text.table, "model_type": "llama"}, text.where, notes=keys.notes, partial=True))
    assert decoder is not None, "llama is a dense decoder"
    keys.note("the embedding table has 8 rows more than the head, for special tokens")
    tower = mllama_tower(vision)
    heads = attention_of(text.read_by("MllamaTextConfig"), TRAITS["llama"], decoder.width)
    cross = replace(heads, qk_norm="head", keys=VISION, keys_width=decoder.width, causal=False)
    places = set(text.items("cross_attention_layers"))
    layers = tuple(
        replace(layer, mixer=cross, scalars=2) if place in places else layer
        for place, layer in enumerate(decoder.layers)
    )
    leaving = vision.size("vision_output_dim")
    projector = matrices_block("projector", (leaving, decoder.width), bias=True)
    tower = replace(tower, behind=(projector,))
    return multimodal(name, "mllama", tower, replace(decoder, layers=layers, further_rows=8))


READERS: dict[str, Callable[[Keys, str], Architecture]] = {
    "llava": read_llava,
    "gemma3": read_gemma3,
    "gemma4": read_gemma4,
    "qwen2_vl": read_qwen2_vl,
    "llama4": read_llama4,
    "mllama": read_mllama,
}
"""Multimodal models, by ``model_type``."""
