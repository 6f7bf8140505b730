"""torchtitan: a job's settings in TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from nest.constraints import Outer
from nest.export.base import (
    Assignment,
    Export,
    Fault,
    Framework,
    Inexpressible,
    common_faults,
    header,
    plain_groups,
    same_recompute,
    same_sharding,
)
from nest.export.numbers import ModelNumbers
from nest.presets import ScheduleName
from nest.problem import Variant
from nest.runs import Run

FLAVORS: Mapping[tuple[int, int, int, int, int, int], tuple[str, str]] = {
    (4096, 32, 32, 8, 14336, 0): ("llama3", "8B"),
    (8192, 80, 64, 8, 28672, 0): ("llama3", "70B"),
    (16384, 126, 128, 8, 53248, 0): ("llama3", "405B"),
    (1024, 28, 16, 8, 3072, 0): ("qwen3", "0.6B"),
    (2048, 28, 16, 8, 6144, 0): ("qwen3", "1.7B"),
    (2560, 36, 32, 8, 9728, 0): ("qwen3", "4B"),
    (4096, 36, 32, 8, 12288, 0): ("qwen3", "8B"),
    (5120, 40, 40, 8, 17408, 0): ("qwen3", "14B"),
    (5120, 64, 64, 8, 25600, 0): ("qwen3", "32B"),
    (2048, 27, 16, 16, 10944, 64): ("deepseek_v3", "16B"),
    (5120, 60, 128, 128, 12288, 160): ("deepseek_v3", "236B"),
    (7168, 61, 128, 128, 18432, 256): ("deepseek_v3", "671B"),
}
"""Model and flavor by width, layers, heads, key-value heads, width of a plain MLP, and experts.

From `torchtitan/models/*/__init__.py`.
"""

FLEXIBLE = frozenset({"deepseek_v3"})
"""Models whose flavors above have ``attn_type="flex"``."""

RESHARD = {2: "never", 3: "always"}
"""``fsdp_reshard_after_forward`` by ZeRO type."""

NAMES: Mapping[ScheduleName, str] = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
"""``pipeline_parallel_schedule`` by schedule. What PyTorch has of zero bubbles is other than ZB-H1."""


class Torchtitan(Framework):
    """torchtitan, with settings in TOML."""

    name: ClassVar[str] = "torchtitan"
    title: ClassVar[str] = "torchtitan"
    versions: ClassVar[str] = "0.2"
    zeros: ClassVar[frozenset[int]] = frozenset({0, 2, 3})
    zeros_in_pipeline: ClassVar[frozenset[int]] = zeros
    schedules: ClassVar[frozenset[ScheduleName]] = frozenset(NAMES)

    def turn_faults(self, stages: int, microbatches: int) -> list[Fault]:
        """Return that PyTorch has rounds of equally many microbatches (`ScheduleInterleaved1F1B`)."""
        rounds = max(1, microbatches // stages)
        what = f"{microbatches} microbatches of each for {stages} stages: PyTorch interleaves multiples of {rounds}"
        return [Fault("replicas", what)] if microbatches % rounds else []

    def faults(self, run: Run, model: ModelNumbers, outer: Outer) -> list[Fault]:
        """Return why no plan with an outer choice runs there."""
        variant = outer.variant
        found = list(common_faults(run, outer))
        for name, count in (("heads", model.attention.heads), ("key-value heads", model.attention.kv_heads)):
            if count % variant.tensor:
                found.append(Fault("tensor", f"{variant.tensor} does not divide the {count} {name}"))
        if run.sequence % (variant.tensor * (2 * variant.context)):
            found.append(Fault("context", f"tensor x 2 context does not divide a sequence of {run.sequence}"))
        if variant.tensor > 1 and not variant.sequence:
            found.append(Fault("sequence", "false: torchtitan's tensor parallel shares the sequence"))
        found += [*_expert_faults(run, variant), *_context_faults(model, variant.context)]
        if run.dtype not in ("bf16", "fp32"):
            found.append(Fault("dtype", f"{run.dtype!r}: a converter of the model's, no setting of the plan's"))
        return found

    def zero_faults(self, zero: int, outer: Outer) -> list[Fault]:
        """Return why an outer choice does not go with a ZeRO type: plain replicas go with no other parallelism."""
        variant = outer.variant
        if zero == 0 and variant.context * variant.expert > 1:
            what = f"none beside context {variant.context}, expert {variant.expert}: torchtitan shards over them"
            return [Fault("sharding", what)]
        if zero == 0 and outer.replicas > 1 and (variant.tensor > 1 or outer.stages > 1):
            what = (
                f"none beside tensor {variant.tensor}, {outer.stages} stages: torchtitan replicates whole models only"
            )
            return [Fault("sharding", what)]
        return super().zero_faults(zero, outer)

    def degree_faults(self, degree: int, outer: Outer) -> list[Fault]:
        """Return why an outer choice does not go with so many ranks: whole copies in replicas go with FSDP alone."""
        if outer.replicas > 1 and 1 < degree == outer.variant.context:
            return [plain_groups(degree, self.title)]
        return super().degree_faults(degree, outer)

    def write(self, given: Assignment) -> Export:
        """Return the settings."""
        flavor = _flavor(given.model)
        tables = {
            **({} if flavor is None else {"model": {"name": flavor[0], "flavor": flavor[1]}}),
            "training": self._training(given),
            "parallelism": self._parallelism(given),
            "activation_checkpoint": {"mode": same_recompute(given.problem, given.plan, self.title)[0]},
        }
        lines = header(given, self)
        for name, table in tables.items():
            lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        launch = f"torchrun --nnodes {given.nodes} --nproc-per-node {given.node} -m torchtitan.train"
        return Export("\n".join([*lines, ""]), f"{launch} --job.config_file FILE", tuple(_notes(given, flavor)))

    def _training(self, given: Assignment) -> dict[str, Any]:
        """Return the batch: with a pipeline a rank takes all its microbatches at once, else one after the other."""
        microbatch = given.plan.variant.microbatch
        local = microbatch * (given.microbatches if len(given.plan.stages) > 1 else 1)
        return {
            "seq_len": given.run.sequence,
            "local_batch_size": local,
            "global_batch_size": given.run.global_batch,
            "mixed_precision_param": "float32" if given.run.dtype == "fp32" else "bfloat16",
            "mixed_precision_reduce": "float32",
        }

    def _parallelism(self, given: Assignment) -> dict[str, Any]:
        variant, stages = given.plan.variant, len(given.plan.stages)
        zero, degree = same_sharding(given.plan, self.title)
        shard = 1 if zero == 0 else _shard(given, degree)
        table: dict[str, Any] = {
            "data_parallel_replicate_degree": given.data // shard,
            "data_parallel_shard_degree": shard,
            "tensor_parallel_degree": variant.tensor,
            "context_parallel_degree": variant.context,
            "pipeline_parallel_degree": stages,
        }
        if zero:
            table["fsdp_reshard_after_forward"] = RESHARD[zero]
        if given.model.experts is not None:
            table["expert_parallel_degree"] = variant.expert
            table["expert_tensor_parallel_degree"] = variant.tensor if given.run.cut_experts else 1
        if stages > 1:
            table["pipeline_parallel_schedule"] = NAMES[given.plan.schedule]
            table["pipeline_parallel_microbatch_size"] = variant.microbatch
            table["module_fqns_per_model_part"] = _modules(given)
        return table

    def broken(self, text: str, world: int) -> list[str]:
        """Return the rules of its `ParallelDims` and its batches that settings break on so many devices."""
        tables = tomllib.loads(text)
        return list(_broken(tables["training"], tables["parallelism"], world))


def _expert_faults(run: Run, variant: Variant) -> Iterator[Fault]:
    """Yield why expert ranks do not go with those of other axes.

    In `parallel_dims.py` of 0.2.2 ranks of a stage are cut as replicas x ``efsdp`` x ``ep`` x ``etp``: ranks that share
    experts are neighbours behind those that cut one, whatever ranks of dense layers they are. Beside context parallel
    they are thus neighbours where ours are a context width apart. As long as nodes consist of whole blocks, the groups
    of both have equally many members in equally many nodes, as in Megatron-LM. Releases before 0.2.2 take whole
    context groups.
    """
    expert, context = variant.expert, variant.context
    if expert == 1:
        return
    if variant.tensor > 1 and not run.cut_experts:
        yield Fault("expert", f"{expert} beside tensor {variant.tensor}: torchtitan's experts take tensor ranks first")
    if context > 1 and run.hardware.cluster.group_sizes[0] % variant.width:
        what = f"{expert} beside context {context}: torchtitan's experts take context ranks first"
        yield Fault("expert", f"{what}, and not all of a block is in one node")
    elif expert % context:
        yield Fault("expert", f"{expert} is no multiple of context {context}, which torchtitan's experts take first")


def _context_faults(model: ModelNumbers, context: int) -> Iterator[Fault]:
    """Yield why a model of torchtitan does not share its sequence: its `parallelize.py` refuses FlexAttention."""
    flavor = _flavor(model)
    if context > 1 and flavor is not None and flavor[0] in FLEXIBLE:
        yield Fault(
            "context", f"{context}: torchtitan's {' '.join(flavor)} has FlexAttention, which shares no sequence"
        )


def _shard(given: Assignment, degree: int) -> int:
    """Return the ranks over which dense weights are sharded, without context ranks."""
    variant = given.plan.variant
    if degree % variant.context or given.data % (degree // variant.context):
        raise Inexpressible("stage 0", f"ZeRO over {degree} ranks: no whole number of data-parallel ranks")
    if (degree // variant.context) % variant.expert:
        raise Inexpressible("stage 0", f"ZeRO over {degree} ranks: no multiple of the {variant.expert} expert ranks")
    return degree // variant.context


def _modules(given: Assignment) -> list[list[str]]:
    """Return the modules of each part of the pipeline by name."""
    last, parts = given.model.layers + 2, []
    for (first, end), layers in zip(given.runs, given.layers, strict=True):
        before = ["tok_embeddings"] if first == 0 else []
        parts.append([*before, *(f"layers.{at}" for at in layers), *(["norm", "output"] if end == last else [])])
    return parts


def _flavor(model: ModelNumbers) -> tuple[str, str] | None:
    attention = model.attention
    experts = 0 if model.experts is None else model.experts.count
    return FLAVORS.get((model.width, model.layers, attention.heads, attention.kv_heads, model.mlp, experts))


def _notes(given: Assignment, flavor: tuple[str, str] | None) -> Iterator[str]:
    if given.plan.variant.context > 1 and given.plan.variant.expert > 1:
        yield "groups of experts are those of torchtitan, neighbours within the same nodes"
    if flavor is None:
        yield "no model of torchtitan has these numbers: give model.name and model.flavor of one of your own"
    if not given.run.framework.name.startswith("torchtitan"):
        yield f"the plan was priced for framework {given.run.framework.name!r}"
    if given.run.dtype != "fp32":
        yield "weights, gradients and optimizer are kept in fp32, 16 bytes a parameter in the place of the plan's"


def _broken(training: Mapping[str, Any], parallelism: Mapping[str, Any], world: int) -> Iterator[str]:
    names = ("data_parallel_replicate", "data_parallel_shard", "context_parallel", "tensor_parallel")
    replicate, shard, context, tensor = (parallelism[f"{name}_degree"] for name in names)
    stages, expert = parallelism["pipeline_parallel_degree"], parallelism.get("expert_parallel_degree", 1)
    cut = parallelism.get("expert_tensor_parallel_degree", 1)
    if (made := replicate * shard * context * tensor * stages) != world:
        yield f"parallelism: the degrees make {made} devices, not {world}"
    if expert > 1:
        if cut not in (1, tensor):
            yield f"expert_tensor_parallel_degree: {cut} is neither 1 nor {tensor}"
        taken, ranks = (context, shard * context) if cut == tensor else (context * tensor, shard * context * tensor)
        if expert % taken or ranks % expert:
            yield f"expert_parallel_degree: {expert} is no multiple of {taken} that divides {ranks}"
    if training["seq_len"] % (tensor * 2 * context):
        yield f"seq_len: {training['seq_len']} is no multiple of tensor x 2 context"
    once = training["local_batch_size"] * replicate * shard
    if training["global_batch_size"] % once:
        yield f"global_batch_size: {training['global_batch_size']} is no multiple of {once}"
    if shard == 1 and replicate > 1 and context * tensor * stages > 1:
        yield "data_parallel_replicate_degree: plain replicas go with no other parallelism"
    yield from _broken_pipeline(training, parallelism, stages)


def _broken_pipeline(training: Mapping[str, Any], parallelism: Mapping[str, Any], stages: int) -> Iterator[str]:
    parts = parallelism.get("module_fqns_per_model_part", [[]])
    if stages == 1:
        return
    if len(parts) % stages or (len(parts) > stages) != (
        parallelism["pipeline_parallel_schedule"] == NAMES["interleaved"]
    ):
        yield f"module_fqns_per_model_part: {len(parts)} parts for {stages} stages"
    modules = [name for part in parts for name in part]
    layers = [f"layers.{at}" for at in range(len(modules) - 3)]
    if modules != ["tok_embeddings", *layers, "norm", "output"] or not all(parts):
        yield "module_fqns_per_model_part: not every module once and in order"
    if training["local_batch_size"] % parallelism.get("pipeline_parallel_microbatch_size", 1):
        yield "local_batch_size: no multiple of pipeline_parallel_microbatch_size"
