"""DeepSpeed: its JSON of settings, and the line that starts a job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

from nest.constraints import Outer
from nest.export.base import (
    Assignment,
    Export,
    Fault,
    Framework,
    common_faults,
    same_recompute,
    same_sharding,
    width_faults,
)
from nest.export.numbers import ModelNumbers
from nest.runs import Run


class DeepSpeed(Framework):
    """DeepSpeed: ZeRO, and tensor parallel by AutoTP. Its pipelines and experts are made in code, not in settings."""

    name: ClassVar[str] = "deepspeed"
    title: ClassVar[str] = "DeepSpeed"
    versions: ClassVar[str] = "0.16.4 to 0.19"
    zeros: ClassVar[frozenset[int]] = frozenset({0, 1, 2, 3})
    zeros_in_pipeline: ClassVar[frozenset[int]] = frozenset()
    hybrid: ClassVar[bool] = False

    def faults(self, run: Run, model: ModelNumbers, outer: Outer) -> list[Fault]:
        """Return why no plan with an outer choice runs there."""
        variant = outer.variant
        found = [*width_faults(outer, self.title, stages=1, context=1, expert=1), *common_faults(run, outer)]
        if model.attention.kv_heads % variant.tensor:
            found.append(
                Fault("tensor", f"{variant.tensor} does not divide {model.attention.kv_heads} key-value heads")
            )
        if variant.sequence:
            found.append(Fault("sequence", "true: AutoTP does not share the sequence"))
        if run.dtype not in ("bf16", "fp16", "fp32"):
            found.append(Fault("dtype", f"{run.dtype!r}: no setting of DeepSpeed"))
        return found

    def zero_faults(self, zero: int, outer: Outer) -> list[Fault]:
        """Return why an outer choice does not go with a ZeRO type: AutoTP takes types 0 to 2."""
        if zero == 3 and outer.variant.tensor > 1:
            return [Fault("sharding", f"ZeRO type 3 beside tensor {outer.variant.tensor}: AutoTP takes types 0 to 2")]
        return super().zero_faults(zero, outer)

    def write(self, given: Assignment) -> Export:
        """Return the settings."""
        tensor, microbatch = given.plan.variant.tensor, given.plan.variant.microbatch
        zero, _ = same_sharding(given.plan, self.title)
        whole = {"train_batch_size": given.run.global_batch} if tensor == 1 else {}
        settings: dict[str, Any] = {
            **whole,
            "train_micro_batch_size_per_gpu": microbatch,
            "gradient_accumulation_steps": given.microbatches,
            "zero_optimization": {"stage": zero},
            **({"tensor_parallel": {"autotp_size": tensor}} if tensor > 1 else {}),
            **({given.run.dtype: {"enabled": True}} if given.run.dtype != "fp32" else {}),
        }
        if given.run.recipe.name == "mixed" and given.run.dtype != "fp32":
            settings["data_types"] = {"grad_accum_dtype": "fp32"}
        launch = f"deepspeed --num_nodes {given.nodes} --num_gpus {given.node} --hostfile HOSTS train.py"
        text = json.dumps(settings, indent=2)
        return Export(f"{text}\n", f"{launch} --deepspeed --deepspeed_config FILE", tuple(self._notes(given)))

    def _notes(self, given: Assignment) -> Iterator[str]:
        if same_recompute(given.problem, given.plan, self.title)[0] == "full":
            yield "every layer is computed again: switch that on in the model (gradient_checkpointing_enable())"
        if given.plan.variant.tensor > 1:
            batch = given.run.global_batch
            yield f"train_batch_size would count tensor ranks, and is left out: a step takes {batch} sequences"
        if "deepspeed" not in given.run.framework.name:
            yield f"the plan was priced for framework {given.run.framework.name!r}"

    def broken(self, text: str, world: int) -> list[str]:
        """Return the rules of its settings that a file breaks on so many devices."""
        return list(_broken(json.loads(text), world))


def _broken(settings: dict[str, Any], world: int) -> Iterator[str]:
    tensor, sharding = settings.get("tensor_parallel", {}).get("autotp_size", 1), settings["zero_optimization"]
    made = settings["train_micro_batch_size_per_gpu"] * settings["gradient_accumulation_steps"] * world
    if world % tensor:
        yield f"tensor_parallel.autotp_size: {tensor} does not divide {world} devices"
    if settings.get("train_batch_size", made) != made:
        yield f"train_batch_size: {settings['train_batch_size']} is not micro batch x accumulation x devices, {made}"
    if sharding["stage"] == 3 and tensor > 1:
        yield "zero_optimization.stage: 3 does not go with AutoTP before 0.19"
    if "mics_shard_size" in sharding:
        yield "zero_optimization.mics_shard_size: is gone from 0.19 on"
    if "bf16" in settings and "fp16" in settings:
        yield "bf16: does not go with fp16"
