"""Hugging Face Accelerate: a configuration of FSDP in YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import yaml

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
    width_faults,
)
from nest.export.numbers import ModelNumbers
from nest.runs import Run

PRECISION = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp32": "no"}
"""``mixed_precision`` by data type."""

METHODS = {"ring": "alltoall", "gather": "allgather"}
"""How context parallel passes keys and values on."""


class Accelerate(Framework):
    """Accelerate with FSDP2, sharded over all ranks or within groups of them; without sharding, plain replicas."""

    name: ClassVar[str] = "accelerate"
    title: ClassVar[str] = "Accelerate"
    versions: ClassVar[str] = "1.10 and later"
    zeros: ClassVar[frozenset[int]] = frozenset({0, 2, 3})
    zeros_in_pipeline: ClassVar[frozenset[int]] = frozenset()

    def faults(self, run: Run, model: ModelNumbers, outer: Outer) -> list[Fault]:
        """Return why no plan with an outer choice runs there."""
        variant = outer.variant
        found = [*width_faults(outer, self.title, stages=1, expert=1), *common_faults(run, outer)]
        if model.attention.kv_heads % variant.tensor:
            found.append(
                Fault("tensor", f"{variant.tensor} does not divide {model.attention.kv_heads} key-value heads")
            )
        if variant.sequence:
            found.append(Fault("sequence", "true: tensor plans of Transformers do not share the sequence"))
        if variant.context > 1 and (run.context_kind not in METHODS or run.sequence % (2 * variant.context)):
            what = (
                f"{variant.context} by {run.context_kind!r}: a sequence of {run.sequence} is cut into 2 x context parts"
            )
            found.append(Fault("context", f"{what}, and passed on or gathered"))
        return found

    def zero_faults(self, zero: int, outer: Outer) -> list[Fault]:
        """Return why an outer choice does not go with a ZeRO type: tensor and context parallel go with FSDP only."""
        variant = outer.variant
        if zero == 0 and (variant.context > 1 or (variant.tensor > 1 and outer.replicas > 1)):
            what = f"none beside tensor {variant.tensor}, context {variant.context}: Accelerate shards there"
            return [Fault("sharding", what)]
        return super().zero_faults(zero, outer)

    def degree_faults(self, degree: int, outer: Outer) -> list[Fault]:
        """Return why an outer choice does not go with so many ranks: whole copies in replicas go with FSDP alone."""
        if outer.replicas > 1 and 1 < degree == outer.variant.context:
            return [plain_groups(degree, self.title)]
        return super().degree_faults(degree, outer)

    def write(self, given: Assignment) -> Export:
        """Return the configuration."""
        zero, degree = same_sharding(given.plan, self.title)
        settings: dict[str, Any] = {
            "compute_environment": "LOCAL_MACHINE",
            "distributed_type": "FSDP" if zero else "MULTI_GPU",
            "mixed_precision": PRECISION[given.run.dtype],
            "num_machines": given.nodes,
            "num_processes": given.world,
            "machine_rank": 0,
            "rdzv_backend": "c10d",
            "same_network": True,
            **({"fsdp_config": _fsdp(given, zero, self.title)} if zero else {}),
            **_parallelism(given, zero, degree),
        }
        text = "\n".join([*header(given, self), yaml.safe_dump(settings, sort_keys=False)])
        steps = f"ACCELERATE_GRADIENT_ACCUMULATION_STEPS={given.microbatches}"
        launch = f"{steps} accelerate launch --config_file FILE --machine_rank RANK train.py"
        return Export(text, launch, tuple(_notes(given, zero, self.title)))

    def broken(self, text: str, world: int) -> list[str]:
        """Return the rules of its `ParallelismConfig` that a file breaks on so many devices."""
        return list(_broken(yaml.safe_load(text), world))


def _fsdp(given: Assignment, zero: int, title: str) -> dict[str, Any]:
    return {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": zero == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_activation_checkpointing": same_recompute(given.problem, given.plan, title)[0] == "full",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_offload_params": False,
    }


def _parallelism(given: Assignment, zero: int, degree: int) -> dict[str, Any]:
    """Return the sizes of the mesh where it is more than one axis of shards or of replicas."""
    variant = given.plan.variant
    shard = degree // variant.context if zero else 1
    if zero and (degree % variant.context or given.data % shard):
        raise Inexpressible("stage 0", f"ZeRO over {degree} ranks: no whole number of data-parallel ranks")
    sizes = {"dp_replicate": given.data // shard, "dp_shard": shard, "cp": variant.context, "tp": variant.tensor}
    if sum(size > 1 for size in sizes.values()) < 2 and variant.context == variant.tensor == 1:
        return {}
    table: dict[str, Any] = {f"parallelism_config_{name}_size": size for name, size in sizes.items()}
    if variant.context > 1:
        table["parallelism_config_cp_comm_strategy"] = METHODS[given.run.context_kind]
    return {"parallelism_config": table}


def _notes(given: Assignment, zero: int, title: str) -> Iterator[str]:
    yield f"a process takes {given.plan.variant.microbatch} sequences at a time, which the training program says"
    if not zero and same_recompute(given.problem, given.plan, title)[0] == "full":
        yield "every layer is computed again: switch that on in the model (gradient_checkpointing_enable())"
    if given.run.framework.name != "fsdp":
        yield f"the plan was priced for framework {given.run.framework.name!r}"
    if given.run.dtype != "fp32":
        yield "weights, gradients and optimizer are kept in fp32, 16 bytes a parameter in the place of the plan's"


def _broken(settings: Mapping[str, Any], world: int) -> Iterator[str]:
    if settings["num_processes"] != world:
        yield f"num_processes: {settings['num_processes']}, not {world}"
    if world % settings["num_machines"]:
        yield f"num_machines: {settings['num_machines']} do not share {world} processes evenly"
    found = settings.get("parallelism_config")
    if found is None:
        return
    sizes = {name: found[f"parallelism_config_{name}_size"] for name in ("dp_replicate", "dp_shard", "cp", "tp")}
    made = 1
    for size in sizes.values():
        made *= size
    if made != world:
        yield f"parallelism_config: the sizes make {made} processes, not {world}"
    if sizes["dp_replicate"] > 1 and sizes["dp_shard"] == 1 and (sizes["cp"] > 1 or sizes["tp"] > 1):
        yield "parallelism_config: tensor and context parallel do not go with plain replicas"
    if settings["distributed_type"] == "FSDP" and settings["fsdp_config"]["fsdp_version"] != 2:
        yield "fsdp_config.fsdp_version: parallelism_config takes version 2"
