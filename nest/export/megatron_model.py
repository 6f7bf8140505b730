"""The model of a plan as arguments of Megatron-LM, read back to make sure that it is the same."""

from __future__ import annotations

from typing import TypeAlias

from nest.errors import InvalidProblem
from nest.export.base import Assignment
from nest.export.numbers import ModelNumbers
from nest.families import Block
from nest.families.formats.megatron import described

Flags: TypeAlias = dict[str, object]
"""Flags as our reader of Megatron-LM has them: True for a flag alone, a text for a value."""

USUAL_RATE = "0.1"
"""Of dropout, where a model drops anything: how much costs nothing."""


def model_flags(given: Assignment) -> Flags:
    """Return what makes the model; the vocabulary is in the flags of the data."""
    model, sequence = given.model, given.run.sequence
    attention = model.attention
    flags: Flags = {
        "--num-layers": str(model.layers),
        "--hidden-size": str(model.width),
        "--ffn-hidden-size": str(model.mlp or (model.experts.width if model.experts else 0)),
        "--num-attention-heads": str(attention.heads),
        "--seq-length": str(sequence),
        "--max-position-embeddings": str(model.positions or max(given.run.model.sequence, sequence)),
        "--position-embedding-type": "rope" if attention.rotary else "learned_absolute",
        "--normalization": "LayerNorm" if model.norm_bias else "RMSNorm",
        "--hidden-dropout": USUAL_RATE if model.dropout else "0",
        "--attention-dropout": USUAL_RATE if attention.dropout else "0",
        **_attention_flags(given),
        **_expert_flags(model, grouped=given.run.dtype in ("bf16", "fp8")),
    }
    for flag, wanted in (
        ("--swiglu", model.gated),
        ("--disable-bias-linear", not model.mlp_bias),
        ("--add-qkv-bias", attention.qkv_bias and not model.mlp_bias),
        ("--qk-layernorm", attention.normed),
        ("--untie-embeddings-and-output-weights", not model.tied),
    ):
        if wanted:
            flags[flag] = True
    return flags


def _attention_flags(given: Assignment) -> Flags:
    attention = given.model.attention
    if attention.latent_rank:
        return {
            "--multi-latent-attention": True,
            **({"--q-lora-rank": str(attention.query_rank)} if attention.query_rank else {}),
            "--kv-lora-rank": str(attention.latent_rank),
            "--qk-head-dim": str(attention.key_width - attention.rotary_width),
            "--qk-pos-emb-head-dim": str(attention.rotary_width),
            "--v-head-dim": str(attention.value_width),
        }
    flags: Flags = {}
    if attention.kv_heads != attention.heads:
        flags |= {"--group-query-attention": True, "--num-query-groups": str(attention.kv_heads)}
    if attention.key_width * attention.heads != given.model.width:
        flags["--kv-channels"] = str(attention.key_width)
    return flags


def _expert_flags(model: ModelNumbers, *, grouped: bool) -> Flags:
    experts = model.experts
    if experts is None:
        return {}
    flags: Flags = {
        "--num-experts": str(experts.count),
        "--moe-router-topk": str(experts.chosen),
        "--moe-ffn-hidden-size": str(experts.width),
        "--moe-token-dispatcher-type": "alltoall",
        **({"--moe-grouped-gemm": True} if grouped else {}),
    }
    if not all(model.routed):
        flags["--moe-layer-freq"] = _listed(model.routed)
    if experts.shared:
        flags["--moe-shared-expert-intermediate-size"] = str(experts.shared)
    if experts.shared_gate:
        flags["--moe-shared-expert-gate"] = True
    if experts.correction:
        flags |= {"--moe-router-enable-expert-bias": True, "--moe-router-score-function": "sigmoid"}
    return flags


def _listed(routed: tuple[bool, ...]) -> str:
    """Return which layers have experts as Megatron-LM has it: ``([0]*3+[1]*58)``."""
    parts: list[list[int]] = []
    for has in routed:
        if parts and parts[-1][0] == has:
            parts[-1][1] += 1
        else:
            parts.append([int(has), 1])
    return f"({'+'.join(f'[{has}]*{count}' for has, count in parts)})"


def require_same_model(given: Assignment, flags: Flags) -> None:
    """Refuse models that Megatron-LM's arguments cannot say: read back, its blocks are those of the plan's model.

    Raises
    ------
    InvalidProblem
        Naming the first block that is another one.
    """
    exact: Flags = {"--tokenizer-type": "NullTokenizer", "--vocab-size": str(given.model.vocabulary - 1)}
    again = described("", {**flags, **exact, "--make-vocab-size-divisible-by": "1"}, None).model
    own, read = given.run.model.stacks[0].blocks, again.stacks[0].blocks
    for at, (block, other) in enumerate(zip(own, read, strict=True)):
        if block != other:
            what = f"block {at} ({block.kind}) has {_unlike(block, other)}, which Megatron-LM's arguments do not say"
            raise InvalidProblem("model", what, "write another framework's settings, or 'ranks'")


def _unlike(block: Block, other: Block) -> str:
    """Return what a block has that another one has not."""
    for mine, theirs in zip(block.components, other.components, strict=False):
        for name in ("weights", "operators"):
            for each, its in zip(getattr(mine, name), getattr(theirs, name), strict=False):
                if each != its:
                    return f"{mine.name}.{each.name}"
        if mine != theirs:
            return mine.name
    return f"{len(block.components)} parts"
