"""What single frameworks hold and move besides: each effect by hand, and none of them where it does not belong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from costing_models import small

from nest.costing import LayerCost, Setting, framework_named, layer_costs
from nest.costing import recipe_named as recipe
from nest.costing.efficiency import efficiency_of
from nest.costing.frameworks import MEGATRON_DEEPSPEED, MEGATRON_DEEPSPEED_BF16, TORCHTITAN
from nest.errors import InvalidProblem
from nest.hardware import device_named

A100 = device_named("a100-80gb")
S, B, H = 1024, 2, 1024


def blocks(setting: Setting, family: str = "llama") -> tuple[LayerCost, ...]:
    """Return the blocks of a small model."""
    return layer_costs(small(family), A100, setting)["text"]


@pytest.mark.parametrize("shared", [False, True])
def test_annotated_tensors_keep_gathered_inputs(shared: bool) -> None:
    """The inputs of attention and of the MLP are whole on each of 4 devices, if they share a sequence."""
    setting = Setting(S, B, 4, sequence_parallel=shared, padding=0, framework=TORCHTITAN)
    parts = replace(setting, framework=replace(TORCHTITAN, keeps_gathered=False))
    whole, part = blocks(setting), blocks(parts)
    gathered = 2 * S * B * H * 3 // 4 if shared else 0
    assert whole[1].kept.none - part[1].kept.none == 2 * gathered
    assert whole[-1].kept.none - part[-1].kept.none == gathered
    assert whole[1].kept.full == part[1].kept.full
    again = [sum(each.kind == "all-gather" for each in block[1].exchanged) for block in (part, whole)]
    assert again[0] - again[1] == (2 if shared else 0)


@pytest.mark.parametrize("tensor", [1, 2])
def test_loss_of_parts_of_the_vocabulary_holds_more(tensor: int) -> None:
    """12 bytes of each logit instead of 8, where tensor parallel cuts the vocabulary."""
    setting = Setting(S, B, tensor, padding=0, framework=TORCHTITAN)
    alike = replace(setting, framework=replace(TORCHTITAN, logit_shared=8.0))
    vocabulary = next(block for block in small("llama").stacks[0].blocks if block.kind == "embedding").parameters // H
    more = 4 * S * B * vocabulary // tensor if tensor > 1 else 0
    assert blocks(setting)[-1].working_bytes - blocks(alike)[-1].working_bytes == more


def test_sums_in_fp32_are_moved_by_kernels_of_their_own() -> None:
    """DeepSpeed's optimizer for bf16 reads and writes 20 bytes of each weight more, after every microbatch."""
    setting = Setting(S, B, 2, flash=False, padding=0, framework=MEGATRON_DEEPSPEED)
    before = blocks(setting, "gpt")[1]
    after = blocks(replace(setting, framework=MEGATRON_DEEPSPEED_BF16), "gpt")[1]
    matrices = (12 * H**2 - 2 * H * H * 3 // 4) // 2  # 4 key-value heads of 16: keys and values are a quarter as wide
    seconds = 20 * matrices / (A100.hbm_bytes_per_s * efficiency_of(A100).memory)
    assert after.backward_s - before.backward_s == pytest.approx(seconds, rel=1e-6)
    assert after.forward_s == before.forward_s
    assert after.kept == before.kept


def test_bytes_of_frameworks_are_checked() -> None:
    """A negative amount names its field."""
    with pytest.raises(InvalidProblem, match="added_bytes"):
        replace(TORCHTITAN, added_bytes=-1.0)
    with pytest.raises(InvalidProblem, match="logit_shared"):
        replace(TORCHTITAN, logit_shared=-1.0)
    assert framework_named("megatron-deepspeed-bf16").added_bytes == 20


@pytest.mark.parametrize(
    ("name", "total", "weights", "wire"),
    [("mixed", 18, 2, 2), ("bf16", 8, 2, 2), ("adam-8bit", 12, 2, 2), ("adam-bf16", 14, 2, 2), ("mixed-fp8", 18, 2, 1)],
)
def test_recipes(name: str, total: float, weights: float, wire: float) -> None:
    """Bytes of a parameter, as the sources of each recipe have them."""
    found = recipe(name)
    assert (found.total, found.weights, found.gathered) == (total, weights, wire)
