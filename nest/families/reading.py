"""Model files: which format a text is, by its content, and what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nest.errors import InvalidProblem
from nest.families.description import Description
from nest.families.documents import Table, json_table, toml_table, yaml_table
from nest.families.formats import maxtext, megatron, native, nemo, neox, open_clip, planners, trainers
from nest.families.huggingface.reading import read_config
from nest.families.hyperparameters import read_hyperparameters

_FLAG_LINE = re.compile(
    r"^\s*(?:[A-Za-z_]\w*=\(\s*)?--(?:(?:encoder-)?num-layers|hidden-size)[ =]"
    r"|^[^#]*\.py\s.*--(?:(?:encoder-)?num-layers|hidden-size)[ =]",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Format:
    """A format of model files.

    Parameters
    ----------
    name
        What people call it.
    fits
        Whether a table is of this format, from the keys that it has.
    read
        Returns what the table says, with the vocabulary that the user gives.
    takes_vocabulary
        Whether a file may leave the vocabulary open, so that the user may give it.
    has_shapes
        Whether it holds the shapes of a model; formats that go with models and hold none are refused.
    """

    name: str
    fits: Callable[[Table], bool]
    read: Callable[[Table, int | None], Description]
    takes_vocabulary: bool = False
    has_shapes: bool = True


def is_model(text: str) -> bool:
    """Whether a text is a model file, or one that goes with models and is refused with its name."""
    return _is_arguments(text) or _found(text) is not None


def describe(text: str, vocabulary: int | None = None) -> Description:
    """Return what a model file says.

    Parameters
    ----------
    text
        Its content.
    vocabulary
        Tokens of the vocabulary, for formats that leave them to a tokenizer; None if the user says nothing.

    Raises
    ------
    InvalidProblem
        If the text is of no known format, holds no shapes, or a key is missing or wrong.
    """
    if _is_arguments(text):
        return megatron.read_arguments(text, vocabulary)
    found = _found(text)
    if found is None:
        known = ", ".join(form.name for form in FORMATS if form.has_shapes)
        raise InvalidProblem("", "no model file that is known", f"known are {known}, Megatron-LM arguments")
    form, table = found
    if vocabulary is not None and not form.takes_vocabulary:
        raise InvalidProblem("--vocab", f"a {form.name} has its vocabulary", "leave it out")
    return form.read(table, vocabulary)


def _is_arguments(text: str) -> bool:
    return _FLAG_LINE.search(text) is not None


def _found(text: str) -> tuple[Format, Table] | None:
    """Return the format of a text, and its table; YAML comes last, since most texts are some YAML."""
    for parse in (json_table, toml_table, yaml_table):
        table = parse(text)
        if table is not None:
            return next(((form, table) for form in FORMATS if form.fits(table)), None)
    return None


def _has(*names: str) -> Callable[[Table], bool]:
    return lambda table: all(name in table for name in names)


def _inner(outer: str, *names: str) -> Callable[[Table], bool]:
    def fits(table: Table) -> bool:
        """Whether a table has an inner one with all names."""
        inner = table.get(outer)
        return isinstance(inner, Mapping) and all(name in inner for name in names)

    return fits


def _any(*tests: Callable[[Table], bool]) -> Callable[[Table], bool]:
    return lambda table: any(test(table) for test in tests)


def _plain(read: Callable[[Table], Description]) -> Callable[[Table, int | None], Description]:
    """Return a reader that is never given a vocabulary."""
    return lambda table, _vocabulary: read(table)


def _refuses(name: str, fits: Callable[[Table], bool], holds: str, remedy: str) -> Format:
    """Return a format that is known to hold no shapes, and is refused with what it is."""

    def refuse(_table: Table, _vocabulary: int | None) -> Description:
        """Say what the file is and what to give instead."""
        raise InvalidProblem("", f"{name}: it holds {holds}, and no shapes of a model", remedy)

    return Format(name, fits, refuse, takes_vocabulary=True, has_shapes=False)


def _is_override(table: Table) -> bool:
    model = table.get("model")
    return isinstance(model, Mapping) and any(str(name).endswith("_parallel_size") for name in model)


def _has_sizes(table: Table) -> bool:
    """Whether a table has sizes as a ``config.json`` has, which is then refused for its type."""
    deep = any(name in table for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"))
    return deep and any(name in table for name in ("hidden_size", "n_embd", "n_embed", "d_model"))


def _is_flags(table: Table) -> bool:
    return "MODEL_ARGS" in table or any(str(name).startswith("--") for name in table)


_GIVE_CONFIG = "give the config.json of the model"

FORMATS = (
    Format(
        "model file of nest",
        _has("family"),
        _plain(lambda table: Description("model file of nest", read_hyperparameters(table))),
    ),
    Format("calculon model", _has("attn_heads", "num_blocks"), planners.read_calculon, takes_vocabulary=True),
    Format("SimuMax model", _has("layer_num", "head_num"), _plain(planners.read_simumax)),
    Format("llm-analysis model", _has("hidden_dim", "n_head", "num_layers"), _plain(planners.read_llm_analysis)),
    Format("open_clip model", _has("vision_cfg", "embed_dim"), _plain(open_clip.read_open_clip)),
    Format("DeepSeek parameters", _has("inter_dim", "moe_inter_dim"), _plain(native.read_deepseek_native)),
    Format("Llama parameters", _has("dim", "n_layers", "multiple_of"), native.read_llama_native, takes_vocabulary=True),
    Format("Megatron-LM arguments in YAML", _is_flags, megatron.read_yaml, takes_vocabulary=True),
    Format("MaxText model", _has("base_emb_dim"), _plain(maxtext.read_maxtext)),
    Format("nanotron settings", _inner("model", "model_config"), _plain(trainers.read_nanotron)),
    Format("OLMo settings", _inner("model", "d_model", "activation_type"), _plain(trainers.read_olmo)),
    Format("llm-foundry settings", _inner("model", "d_model"), _plain(trainers.read_foundry)),
    Format(
        "NeMo settings",
        _any(_inner("model", "hidden_size"), _inner("model", "encoder", "decoder")),
        nemo.read_nemo,
        takes_vocabulary=True,
    ),
    Format(
        "GPT-NeoX settings",
        _any(_has("num_layers", "hidden_size", "pipe_parallel_size"), _has("num-layers", "hidden-size")),
        neox.read_neox,
        takes_vocabulary=True,
    ),
    Format(
        "Hugging Face config.json",
        _any(_has("model_type"), _has("architectures"), _has("text_config"), _has_sizes),
        _plain(lambda table: Description("Hugging Face config.json", read_config(table))),
    ),
    _refuses("DeepSpeed configuration", _has("zero_optimization"), "parallel settings", _GIVE_CONFIG),
    _refuses("DeepSpeed configuration", _has("train_micro_batch_size_per_gpu"), "batch sizes", _GIVE_CONFIG),
    _refuses("axolotl configuration", _has("base_model"), "the name of a model and how to tune it", _GIVE_CONFIG),
    _refuses(
        "Megatron Bridge model card",
        _has("verification_index"),
        "the name of a model and what was verified",
        f"{_GIVE_CONFIG} that model.hf_id names",
    ),
    _refuses("Megatron Bridge override", _is_override, "changes to a recipe that is code", _GIVE_CONFIG),
)
"""All formats of tables, the more particular first."""
