"""Megatron-LM: arguments of ``pretrain_gpt.py``, as an array of a shell script."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import ClassVar

from nest.constraints import Outer
from nest.cost.schedules import wave_size
from nest.export.base import (
    Assignment,
    Export,
    Fault,
    Framework,
    Inexpressible,
    common_faults,
    header,
    same_recompute,
    same_sharding,
)
from nest.export.layout import is_even, layout_of
from nest.export.megatron_model import Flags, model_flags, require_same_model
from nest.export.megatron_rules import broken_rules
from nest.export.numbers import ModelNumbers
from nest.families.formats.megatron_flags import flags_of_text
from nest.families.formats.megatron_layout import IN_TURN
from nest.presets import ScheduleName
from nest.problem import Recompute
from nest.runs import Run

EXCHANGES: Mapping[str, str] = {"ring": "p2p", "gather": "all_gather", "exchange": "a2a"}
"""``--cp-comm-type`` by how context parallel exchanges keys and values."""

STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
"""``--data-parallel-sharding-strategy`` by ZeRO type; type 1 is the distributed optimizer."""


class Megatron(Framework):
    """Megatron-LM."""

    name: ClassVar[str] = "megatron"
    title: ClassVar[str] = "Megatron-LM"
    versions: ClassVar[str] = "core 0.13 to 0.16"
    zeros: ClassVar[frozenset[int]] = frozenset({0, 1, 2, 3})
    zeros_in_pipeline: ClassVar[frozenset[int]] = frozenset({0, 1})  # Megatron-FSDP is for one stage here
    recomputes: ClassVar[frozenset[Recompute]] = frozenset({"none", "selective", "full"})
    parts: ClassVar[frozenset[Recompute]] = frozenset({"full"})
    schedules: ClassVar[frozenset[ScheduleName]] = frozenset({"1f1b", "interleaved"})

    def faults(self, run: Run, model: ModelNumbers, outer: Outer) -> list[Fault]:
        """Return why no plan with an outer choice runs there."""
        variant, attention = outer.variant, model.attention
        found = list(common_faults(run, outer))
        for name, count in (("heads", attention.heads), ("key-value heads", attention.kv_heads)):
            if count % variant.tensor:
                found.append(Fault("tensor", f"{variant.tensor} does not divide the {count} {name}"))
        if variant.context > 1 and run.sequence % (2 * variant.context):
            what = f"{variant.context}: twice as much does not divide a sequence of {run.sequence}"
            found.append(Fault("context", what))
        return [*found, *self._expert_faults(run, model, outer), *_software_faults(run)]

    def turn_faults(self, stages: int, microbatches: int) -> list[Fault]:
        """Return that fewer microbatches than stages are not interleaved.

        A group of them that pass a chunk in turn is neither smaller than the stages nor larger than all microbatches
        (`forward_backward_pipelining_with_interleaving`).
        """
        what = f"{microbatches} microbatches of each for {stages} stages: {self.title} interleaves as many, or more"
        return [Fault("replicas", what)] if microbatches < stages else []

    def _expert_faults(self, run: Run, model: ModelNumbers, outer: Outer) -> Iterator[Fault]:
        variant = outer.variant
        if model.experts is not None and variant.tensor > 1 and not variant.sequence:
            yield Fault("sequence", "false: experts beside tensor parallel need sequence parallel there")
        if variant.expert == 1:
            return
        if variant.context > 1 and run.hardware.cluster.group_sizes[0] % variant.width:
            yield _elsewhere(variant.expert, "context", variant.context)
        if variant.tensor > 1 and not run.cut_experts:
            yield _elsewhere(variant.expert, "tensor", variant.tensor)
        if run.dtype == "fp16":
            yield Fault("expert", f"{variant.expert} in fp16")

    def write(self, given: Assignment) -> Export:
        """Return the arguments, once it is sure that they make the same model."""
        groups = {
            "model": model_flags(given),
            "parallel": self._parallel(given),
            "memory and speed": self._memory(given),
            "data: put your own here, and --lr, --train-iters": _data(given),
        }
        require_same_model(given, groups["model"])
        launch = f"torchrun --nnodes {given.nodes} --nproc-per-node {given.node} pretrain_gpt.py"
        launch = f'source FILE && {launch} "${{NEST_ARGS[@]}}"'
        lines = [*header(given, self), f"# {launch}", *_environment(groups["memory and speed"]), "NEST_ARGS=("]
        for name, flags in groups.items():
            lines += [f"  # {name}", *(f"  {_spelt(flag, value)}" for flag, value in flags.items())]
        return Export("\n".join([*lines, ")", ""]), launch, tuple(_notes(given)))

    def broken(self, text: str, world: int) -> list[str]:
        """Return the rules of its parser and configuration that arguments break on so many devices."""
        return broken_rules(flags_of_text(text), world)

    def _parallel(self, given: Assignment) -> Flags:
        variant, stages = given.plan.variant, len(given.plan.stages)
        flags: Flags = {
            "--tensor-model-parallel-size": str(variant.tensor),
            "--pipeline-model-parallel-size": str(stages),
            "--context-parallel-size": str(variant.context),
        }
        if stages > 1 and not is_even(given):
            flags["--pipeline-model-parallel-layout"] = layout_of(given)
        elif given.plan.chunks > 1:
            flags["--num-layers-per-virtual-pipeline-stage"] = str(len(given.layers[0]))
        if given.plan.chunks > 1 and (size := wave_size(given.microbatches, stages)) != stages:
            flags[IN_TURN] = str(size)
        if variant.context > 1:
            flags["--cp-comm-type"] = EXCHANGES[given.run.context_kind]
        if given.model.experts is not None:
            flags["--expert-model-parallel-size"] = str(variant.expert)
            flags["--expert-tensor-parallel-size"] = str(variant.tensor if given.run.cut_experts else 1)
        if variant.sequence:
            flags["--sequence-parallel"] = True
        flags["--micro-batch-size"] = str(variant.microbatch)
        flags["--global-batch-size"] = str(given.run.global_batch)
        return flags

    def _memory(self, given: Assignment) -> Flags:
        again, layers = same_recompute(given.problem, given.plan, self.title)
        flags = {**_recomputed(again, layers), **_sharded(given, self.title), **_data_types(given.run)}
        fused = given.run.fused
        latent = given.model.attention.latent_rank > 0
        flags["--attention-backend"] = ("fused" if latent else "flash") if fused else "unfused"
        if given.run.framework.hides_gradients and given.data * given.plan.variant.context > 1:
            flags["--overlap-grad-reduce"] = True
            if "--use-distributed-optimizer" in flags:
                flags["--overlap-param-gather"] = True
        return flags


def _recomputed(kind: Recompute, layers: int | None) -> Flags:
    """Return what is computed again, in the first so many layers of each stage or in all."""
    if kind == "none":
        return {}
    if kind == "selective":
        return {"--recompute-granularity": "selective"}
    method = {"--recompute-method": "uniform" if layers is None else "block"}
    return {"--recompute-granularity": "full", **method, "--recompute-num-layers": str(layers or 1)}


def _sharded(given: Assignment, title: str) -> Flags:
    zero, degree = same_sharding(given.plan, title)
    if zero == 0:
        return {}
    ranks = given.data * given.plan.variant.context
    if ranks % degree:
        raise Inexpressible("stage 0", f"ZeRO over {degree} of {ranks} ranks: they do not come out even")
    flags: Flags = {"--use-distributed-optimizer": True}
    if ranks > degree:
        flags["--num-distributed-optimizer-instances"] = str(ranks // degree)
    if zero > 1:
        flags |= {
            "--use-megatron-fsdp": True,
            "--data-parallel-sharding-strategy": STRATEGIES[zero],
            "--no-gradient-accumulation-fusion": True,
            "--ckpt-format": "fsdp_dtensor",
        }
    return flags


def _elsewhere(expert: int, axis: str, width: int) -> Fault:
    """Return why an expert width does not go with another width.

    Core numbers the ranks of experts for themselves (`parallel_state.py`): within a stage tensor ranks of experts count
    up first, then expert ranks, whatever of dense layers they are. Beside context parallel its groups of experts are
    thus neighbours where ours are a context width apart. As long as nodes consist of whole blocks, the groups of both
    have equally many members in equally many nodes, and nothing takes another time.
    """
    what = f"{expert} beside {axis} {width}: Megatron-LM spreads experts over {axis} ranks first, this plan does not"
    return Fault("expert", f"{what}, and not all of a block is in one node" if axis == "context" else what)


def _software_faults(run: Run) -> Iterator[Fault]:
    if run.recipe.name not in {"fp32": ("fp32",)}.get(run.dtype, ("mixed", "mixed-half")):
        yield Fault(
            "recipe", f"{run.recipe.name!r} in {run.dtype}: Megatron-LM holds weights, gradients, optimizer otherwise"
        )
    if run.capacity and run.capacity < 1:
        yield Fault("capacity", f"{run.capacity:g}: below the mean")


def _data_types(run: Run) -> Flags:
    half = run.recipe.name == "mixed-half"
    if run.dtype == "fp32":
        return {}
    if run.dtype == "fp16":
        return {"--fp16": True, **({} if half else {"--accumulate-allreduce-grads-in-fp32": True})}
    flags: Flags = {"--bf16": True, **({"--grad-reduce-in-bf16": True} if half else {})}
    return {**flags, "--fp8-format": "hybrid"} if run.dtype == "fp8" else flags


def _data(given: Assignment) -> Flags:
    """Return tokens of noise over the plan's vocabulary; the tokenizer adds one of its own."""
    return {
        "--mock-data": True,
        "--tokenizer-type": "NullTokenizer",
        "--vocab-size": str(given.model.vocabulary - 1),
        "--make-vocab-size-divisible-by": str(given.run.padding or 1),
    }


def _environment(flags: Flags) -> list[str]:
    one = "--use-megatron-fsdp" not in flags
    return ["export CUDA_DEVICE_MAX_CONNECTIONS=1"] if one else ["unset CUDA_DEVICE_MAX_CONNECTIONS"]


def _notes(given: Assignment) -> Iterator[str]:
    run = given.run
    if not run.framework.name.startswith("megatron"):
        yield f"the plan was priced for framework {run.framework.name!r}"
    if given.plan.variant.context > 1 and given.plan.variant.expert > 1:
        yield "groups of experts are those of Megatron-LM, neighbours within the same nodes"
    if run.imbalance != 1 or run.capacity:
        yield "the load of experts that the plan assumes is no setting"
    if any(extra.stack.name == "prediction" for extra in run.model.extras):
        yield "modules of multi-token prediction are not in the plan, and not written"


def _spelt(flag: str, value: object) -> str:
    return flag if value is True else f"{flag} {shlex.quote(str(value))}"
