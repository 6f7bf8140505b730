"""Which software a plan is estimated with where nobody says: what such a run was, or is, trained with.

The constants of a device were measured with some software, and the reader of a published table does not name it. The
rules go from what is known to what is usual; `docs/costs.md` has them as a table, with what each leaves of the errors.
"""

from __future__ import annotations

from dataclasses import dataclass

from nest.costing.framework import Framework
from nest.costing.frameworks import FSDP, MEGATRON_2022, MEGATRON_CORE, TORCHTITAN_COMPILED, framework_named
from nest.families import Architecture, Block, Elementwise, Scores
from nest.hardware import Device

BEFORE_HOPPER = frozenset({"v100", "a100"})
"""Devices of the years in which large models were GPTs, by the first part of their names."""

HOPPER = frozenset({"h100", "h200", "h800"})
"""Devices on which FSDP of 2023 was measured with GPTs (llm-foundry), and of 2024 with Llamas (torchtitan)."""

BLACKWELL = frozenset({"b200", "gb200"})
"""What came after Hopper, for which it is taken as well."""

OF_A_GPT = frozenset({"norm", "attention", "mlp", "residual"})
"""Kinds of components that a layer of a GPT has."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """A framework that nobody named.

    Parameters
    ----------
    framework
        What the software does.
    why
        Why it is assumed, in a few words.
    """

    framework: Framework
    why: str


def assumed_framework(
    model: Architecture, device: Device, zero: int, context: int = 1, *, stated: str = "", system: str = ""
) -> Assumed:
    """Return what such a run was or is trained with.

    Parameters
    ----------
    model, device
        What is trained, on what.
    zero
        ZeRO type, 0 to 3.
    context
        Context-parallel width, which Megatron-LM of 2022 did not have.
    stated
        Framework that the model's file is for, by name; empty where it says none.
    system
        Framework with which GPTs were measured on the system, by name; empty where it is none of its own.

    Raises
    ------
    InvalidProblem
        If a name is none of a framework.
    """
    generation = device.name.partition("-")[0]
    gpt, chip = is_gpt(model), generation.upper()
    if stated:
        return Assumed(framework_named(stated), "the model file is one of that framework")
    if zero >= 2 and (generation in BEFORE_HOPPER or (gpt and generation in HOPPER)):
        return Assumed(FSDP, f"ZeRO-{zero} on {chip} is PyTorch's FSDP of 2023")
    if zero == 3 and generation in HOPPER | BLACKWELL:
        return Assumed(TORCHTITAN_COMPILED, f"ZeRO-3 on {chip} is FSDP, as measured with Llama 3 on H100")
    if gpt and context == 1 and generation in BEFORE_HOPPER:
        if system:
            return Assumed(framework_named(system), "GPTs were measured with it on this system")
        return Assumed(MEGATRON_2022, f"GPTs were trained on {chip} without fused attention")
    return Assumed(MEGATRON_CORE, "software of today")


def is_gpt(model: Architecture) -> bool:
    """Whether a model is built as GPT-2, GPT-3, BERT or BLOOM are.

    It is one stack of attention with a key-value head for each head, positions that are not rotated, and MLPs without a
    gate: what was trained before Llama, and before fused attention.
    """
    blocks = {block for stack in model.stacks for block in stack.blocks if block.layer}
    return len(model.stacks) == 1 and all(map(_is_gpt_layer, blocks))


def _is_gpt_layer(block: Block) -> bool:
    names = {part.name for part in block.operators}
    plain = all(part.heads == part.kv_heads for part in block.operators if isinstance(part, Scores))
    rotated = any(isinstance(part, Elementwise) and part.kind == "rotary" for part in block.operators)
    return {part.kind for part in block.components} <= OF_A_GPT and plain and not rotated and "gate" not in names
