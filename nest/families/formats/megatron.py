"""Megatron-LM: from its arguments to the model that it would build, by the defaults of its own parser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nest.errors import InvalidProblem
from nest.families.architecture import Architecture
from nest.families.attention import Attention, LatentAttention
from nest.families.decoder import Decoder
from nest.families.description import Description, Stated, number
from nest.families.feeds import Experts, Mlp
from nest.families.formats.megatron_flags import flags_of_table, flags_of_text, is_given, whole_list
from nest.families.formats.megatron_settings import settings_of, software_of
from nest.families.huggingface.deepseek import with_prediction
from nest.families.keys import MOST_LAYERS, Keys
from nest.families.layers import Layer, Sublayer
from nest.families.parts import LAYER, RMS, Norm
from nest.families.recurrent import Mamba2
from nest.families.vocabulary import chosen, padded

READER = "Megatron-LM"

_OTHER_PROGRAM = re.compile(r"^[^#\n]*\b(pretrain_(?:t5|bert|ict|vlm|vision_\w+))\.py", re.MULTILINE)
"""Programs of Megatron-LM that train something else than decoders."""

DECODER_FLAGS = ("--decoder-num-layers", "--decoder-seq-length")
"""Flags that only a model has whose decoder is beside an encoder."""

ADVICE = "only decoders are read from such arguments: give a config.json of the model, or --family {} with its numbers"


def read_arguments(text: str, vocabulary: int | None) -> Description:
    """Return what a list of flags or a shell script says; raises `InvalidProblem` as `described` does."""
    other = _OTHER_PROGRAM.search(text)
    if other is not None:
        family = other[1].removeprefix("pretrain_")
        remedy = ADVICE.format(family) if family in ("t5", "bert") else ADVICE.partition(", or")[0]
        raise InvalidProblem("", f"arguments of {other[1]}.py, which trains no decoder", remedy)
    return described("Megatron-LM arguments", flags_of_text(text), vocabulary)


def read_yaml(table: Mapping[str, object], vocabulary: int | None) -> Description:
    """Return what a YAML file with flags as keys says."""
    inner = table.get("MODEL_ARGS", table)
    flags = flags_of_table(inner) if isinstance(inner, Mapping) else {}
    return described("Megatron-LM arguments in YAML", flags, vocabulary)


def described(kind: str, flags: Mapping[str, object], vocabulary: int | None) -> Description:
    """Return what flags say.

    Raises
    ------
    InvalidProblem
        If a flag is missing or wrong, or nothing says the vocabulary.
    """
    keys = Keys(_of_decoder(flags), reader=READER)
    settings = settings_of(keys)
    model = megatron_decoder(keys, vocabulary, number(settings, "tensor")).architecture("", "megatron")
    model = model.with_notes(*keys.notes, *odd_settings(keys, model, settings))
    return Description(kind, model, settings, software_of(keys))


def _of_decoder(flags: Mapping[str, object]) -> dict[str, object]:
    """Return flags with those of an encoder that is alone under the names that decoders have for them, too."""
    for flag in DECODER_FLAGS:
        if flag in flags:
            raise InvalidProblem(flag, "given, and goes with an encoder and a decoder, as of T5", ADVICE.format("t5"))
    renamed = dict(flags)
    for flag, usual in (("--encoder-num-layers", "--num-layers"), ("--encoder-seq-length", "--seq-length")):
        if flag in flags and usual in flags:
            raise InvalidProblem(flag, f"given beside {usual}", "give one of them, as Megatron-LM asks")
        if flag in flags:
            renamed[usual] = renamed.pop(flag)
    return renamed


def megatron_decoder(keys: Keys, vocabulary: int | None, tensor: int) -> Decoder:
    """Return the decoder; its vocabulary is padded to what ``tensor`` devices share evenly."""
    width = keys.size("--hidden-size")
    sequence = keys.whole("--max-position-embeddings") or keys.whole("--seq-length") or 0
    dropping = _rate(keys, "--hidden-dropout") > 0
    decoder = Decoder(
        width,
        _layers(keys, width, dropout=dropping),
        _vocabulary(keys, vocabulary, tensor),
        tied=not is_given(keys, "--untie-embeddings-and-output-weights"),
        norm=_norm(keys),
        positions=keys.size("--max-position-embeddings") if _learned_positions(keys) else 0,
        sequence=sequence,
        embedding_norm=LAYER if is_given(keys, "--embed-layernorm") else None,
        dropout=dropping,
    )
    return with_prediction(decoder, keys.whole("--mtp-num-layers", least=0, most=MOST_LAYERS) or 0)


def _layers(keys: Keys, width: int, *, dropout: bool) -> tuple[Layer, ...]:
    pattern = keys.text("--hybrid-override-pattern")
    count = keys.size("--num-layers", most=MOST_LAYERS)
    layer = Layer(attention_of(keys, width), _mlp(keys, width), norm=_norm(keys), dropout=dropout)
    if pattern:
        return _pattern(keys, pattern, layer, width, count)
    if "--num-experts" not in keys:
        return (layer,) * count
    routed = replace(layer, feed=_experts(keys, width))
    return tuple(routed if moe else layer for moe in _routed_places(keys, count))


def _routed_places(keys: Keys, count: int) -> list[bool]:
    """Return which layers have experts: every n-th from the first, or as a list says."""
    text = keys.text("--moe-layer-freq", "1")
    if text.isdecimal():
        every = keys.whole("--moe-layer-freq") or 1
        return [place % every == 0 for place in range(count)]
    listed = whole_list("--moe-layer-freq", text)
    if len(listed) != count:
        raise InvalidProblem("--moe-layer-freq", f"{len(listed)} entries for {count} layers", "give one per layer")
    return [entry == 1 for entry in listed]


def attention_of(keys: Keys, width: int) -> Sublayer:
    """Return the attention of a layer."""
    heads = keys.size("--num-attention-heads")
    if is_given(keys, "--multi-latent-attention"):
        return _latent(keys, heads)
    grouped = is_given(keys, "--group-query-attention")
    groups = (keys.whole("--num-query-groups") or 1) if grouped else heads
    if "--num-query-groups" in keys and not grouped:
        keys.note("--num-query-groups: without effect, --group-query-attention is not given")
    if heads % groups:
        raise InvalidProblem("--num-query-groups", f"{groups} does not divide {heads} heads", "give a divisor")
    if "--kv-channels" not in keys and width % heads:
        raise InvalidProblem("--num-attention-heads", f"{heads} do not divide the width {width}", "give --kv-channels")
    bias = _bias(keys)
    qkv = bias or is_given(keys, "--add-qkv-bias")
    return Attention(
        heads,
        groups,
        keys.whole("--kv-channels") or width // heads,
        query_bias=qkv,
        key_bias=qkv,
        value_bias=qkv,
        out_bias=bias,
        qk_norm="head" if is_given(keys, "--qk-layernorm") else "",
        norm=_norm(keys),
        rotary=_position_kind(keys) == "rope",
        dropout=_rate(keys, "--attention-dropout") > 0,
    )


def _latent(keys: Keys, heads: int) -> LatentAttention:
    return LatentAttention(
        heads,
        keys.whole("--q-lora-rank") or 0,
        keys.size("--kv-lora-rank"),
        keys.option("--qk-head-dim", 128, least=1),
        keys.option("--qk-pos-emb-head-dim", 64, least=1),
        keys.option("--v-head-dim", 128, least=1),
        normed=is_given(keys, "--qk-layernorm"),
        bias=_bias(keys),
    )


def _mlp(keys: Keys, width: int) -> Mlp:
    gated = is_given(keys, "--swiglu")
    plain = 4 * width * 2 // (3 * 64) * 64 if gated else 4 * width
    given = keys.whole("--ffn-hidden-size")
    if given is None:
        keys.note(f"--ffn-hidden-size: not in the file, {plain} by default of {READER}")
    return Mlp(given or plain, gated, _bias(keys), _bias(keys))


def _experts(keys: Keys, width: int) -> Experts:
    mlp = _mlp(keys, width)
    experts, taken = keys.size("--num-experts"), keys.option("--moe-router-topk", 2, least=1)
    if taken > experts:
        raise InvalidProblem("--moe-router-topk", f"{taken} of {experts} experts", "give no more than there are")
    shared = keys.whole("--moe-shared-expert-intermediate-size")
    return Experts(
        experts,
        taken,
        replace(mlp, width=keys.whole("--moe-ffn-hidden-size") or mlp.width),
        replace(mlp, width=shared) if shared else None,
        shared_gate=is_given(keys, "--moe-shared-expert-gate"),
        correction=is_given(keys, "--moe-router-enable-expert-bias"),
    )


def _pattern(keys: Keys, pattern: str, layer: Layer, width: int, count: int) -> tuple[Layer, ...]:
    """Return the layers of a hybrid model, one letter each."""
    head_width = keys.option("--mamba-head-dim", 64, least=1)
    mamba = Mamba2(
        keys.whole("--mamba-num-heads") or 2 * width // head_width,
        head_width,
        keys.option("--mamba-num-groups", 8, least=1),
        keys.option("--mamba-state-dim", 128, least=1),
        4,
    )
    kinds = {"*": replace(layer, feed=None), "-": replace(layer, mixer=None)}
    kinds["M"] = replace(layer, mixer=mamba, feed=None)
    if "--num-experts" in keys:
        kinds["E"] = replace(layer, mixer=None, feed=_experts(keys, width))
    if len(pattern) != count or set(pattern) - set(kinds):
        remedy = f"give {count} letters, each one of {' '.join(kinds)}"
        raise InvalidProblem("--hybrid-override-pattern", f"{pattern!r} has {len(pattern)} letters", remedy)
    return tuple(kinds[letter] for letter in pattern)


def _vocabulary(keys: Keys, given: int | None, tensor: int) -> int:
    """Return the rows of the embedding table: given as they are, or the vocabulary padded."""
    fixed = keys.whole("--padded-vocab-size", "--pad-vocab-size-to")
    if fixed is not None:
        return fixed
    null = keys.text("--tokenizer-type") == "NullTokenizer"
    names = tuple(keys.text(name) for name in ("--tokenizer-model", "--tokenizer-name-or-path", "--tokenizer-type"))
    count = chosen(keys, "--vocab-size", given, names) + (1 if null else 0)
    multiple = (keys.whole("--make-vocab-size-divisible-by") or 128) * tensor
    rows = padded(count, multiple)
    if rows != count:
        keys.note(f"vocabulary {count} padded to {rows}, a multiple of {multiple}")
    return rows


def _norm(keys: Keys) -> Norm:
    return RMS if keys.text("--normalization") == "RMSNorm" else LAYER


def _bias(keys: Keys) -> bool:
    return not is_given(keys, "--disable-bias-linear")


def _learned_positions(keys: Keys) -> bool:
    return _position_kind(keys) == "learned_absolute" and not is_given(keys, "--no-position-embedding")


def _position_kind(keys: Keys) -> str:
    if is_given(keys, "--use-rotary-position-embeddings"):
        return "rope"
    return keys.text("--position-embedding-type", "learned_absolute")


def _rate(keys: Keys, flag: str) -> float:
    """Return a rate of dropout; the parser's default is a tenth."""
    try:
        return float(keys.text(flag, "0.1"))
    except ValueError:
        raise InvalidProblem(flag, f"{keys.table[flag]!r} is no number", "give a rate from 0 to 1") from None


def odd_settings(keys: Keys, model: Architecture, settings: Mapping[str, Stated]) -> list[str]:
    """Return what does not come out even: layers over stages, devices for one replica."""
    notes = []
    stages = number(settings, "pipeline")
    if model.layers % stages and "stage_layers" not in settings:
        how = keys.text("--pp-partition-method")
        by = f"; {how} divides otherwise" if how else ""
        notes.append(f"{model.layers} layers do not divide over {stages} stages{by}")
    one = number(settings, "tensor") * stages * number(settings, "context")
    here = (keys.whole("--nnodes") or 0) * (keys.whole("--nproc_per_node") or 0)
    if here and here % one:
        notes.append(f"{here} devices are started, but one replica takes {one}")
    return notes
