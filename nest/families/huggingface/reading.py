"""From a parsed ``config.json`` to a model: the type decides which class would read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nest.errors import InvalidProblem
from nest.families.architecture import Architecture
from nest.families.huggingface import encoders, experts, hybrid, multimodal, seq2seq, two_towers, vision
from nest.families.huggingface.deepseek import TYPES
from nest.families.huggingface.dense import ALIASES
from nest.families.huggingface.traits import TRAITS
from nest.families.keys import Keys

WHOLE = {**multimodal.READERS, **seq2seq.READERS, **encoders.READERS, **two_towers.READERS}
"""Models that are more than one decoder or one tower, by ``model_type``."""

KNOWN = sorted({*WHOLE, *TRAITS, *ALIASES, *TYPES, *experts.READERS, *hybrid.READERS, *vision.TOWERS})

_NAMES = {
    "GPTNeoX": "gpt_neox",
    "OPT": "opt",
    "XLMRoberta": "xlm-roberta",
    "DistilBert": "distilbert",
    "DeepseekV2": "deepseek_v2",
    "DeepseekV3": "deepseek_v3",
    "Qwen2Moe": "qwen2_moe",
    "Qwen3Moe": "qwen3_moe",
    "GptOss": "gpt_oss",
    "DeciLM": "nemotron-nas",
    "NemotronH": "nemotron_h",
    "Qwen3Next": "qwen3_next",
    "RW": "falcon",
    "QWen": "qwen",
}
"""Types whose name in ``architectures`` is spelt otherwise than in lower case."""

_TASK = re.compile(r"(LMHead|PreTrained|ForConditionalGeneration|ForCausalLM|For[A-Z]\w*|Model|LM)+$")


def read_config(table: Mapping[str, object]) -> Architecture:
    """Return the model of a ``config.json``.

    Raises
    ------
    InvalidProblem
        If the type is missing or not known, or a key is missing or wrong.
    """
    top = Keys(table, reader="config.json")
    name = _model_type(top)
    keys = Keys({**table, "model_type": name}, reader="config.json", notes=top.notes)
    title = top.text("_name_or_path").replace("\\", "/").rstrip("/").rpartition("/")[2]
    model = _model(keys, name, title)
    _note_quantized(keys)
    return replace(model, notes=(*model.notes, *keys.notes))


def _model(keys: Keys, model_type: str, title: str) -> Architecture:
    if model_type in WHOLE:
        return WHOLE[model_type](keys, title)
    tower = None if model_type == "qwen2_vl" else vision.read_tower(keys)
    if tower is not None:
        return tower.architecture(title, model_type)
    decoder = multimodal.read_decoder(keys)
    if decoder is None:
        known = f"one of {', '.join(KNOWN)}"
        raise InvalidProblem("model_type", f"{model_type!r} is not known: its class defaults would be a guess", known)
    return decoder.architecture(title, model_type)


def _model_type(keys: Keys) -> str:
    """Return the type; a file without one may name its class in ``architectures``."""
    given = keys.text("model_type")
    if given:
        return given
    for name in keys.items("architectures"):
        stem = _TASK.sub("", str(name))
        keys.note(f"model_type: not in the file, taken from the class {name}")
        return _NAMES.get(stem, stem.lower())
    raise InvalidProblem("model_type", "missing, and no architectures either", f"one of {', '.join(KNOWN)}")


def _note_quantized(keys: Keys) -> None:
    quantized = keys.nested("quantization_config")
    if quantized is not None:
        method = quantized.text("quant_method", "quantized")
        keys.note(f"the checkpoint is quantized ({method}): its bytes per weight say nothing about training")
