"""What arguments of Megatron-LM say besides the model: widths, sizes, data types, and what is kept and spread.

Defaults and dependencies of the flags are those of its own parser (`megatron/training/arguments.py`).
"""

from __future__ import annotations

from nest.errors import InvalidProblem
from nest.families.description import Stated
from nest.families.formats.megatron_flags import is_given
from nest.families.formats.megatron_layout import division_of
from nest.families.keys import Keys

NUMBERS = {
    "tensor": "--tensor-model-parallel-size",
    "pipeline": "--pipeline-model-parallel-size",
    "context": "--context-parallel-size",
    "expert": "--expert-model-parallel-size",
    "microbatch": "--micro-batch-size",
    "global_batch": "--global-batch-size",
    "sequence": "--seq-length",
}
"""Whole numbers, under our names."""

EXCHANGES = {"p2p": "ring", "all_gather": "gather", "allgather": "gather", "a2a": "exchange"}
"""How context parallel exchanges keys and values, by ``--cp-comm-type``."""

STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""What is spread, by ``--data-parallel-sharding-strategy``."""


DEEPSPEED = ("--deepspeed", "--deepspeed_config", "--deepspeed-config", "--zero-stage")
"""Flags that Megatron-DeepSpeed alone has."""


CHECKPOINTING = ("--checkpoint-activations", "--activations-checkpoint-method")
"""Flags of full recomputation in Megatron-LM of 2021 and early 2022, and in its forks."""

EARLIER = (*CHECKPOINTING, "--DDP-impl")
"""Flags that were gone before Megatron-LM was built on Megatron-Core."""


def software_of(keys: Keys) -> str:
    """Return the framework whose arguments these are, by its name in `nest.costing`."""
    if not any(is_given(keys, flag) for flag in DEEPSPEED):
        return "megatron-2022" if any(is_given(keys, flag) for flag in EARLIER) else "megatron-core"
    return "megatron-deepspeed-bf16" if is_given(keys, "--bf16") else "megatron-deepspeed"


def settings_of(keys: Keys) -> dict[str, Stated]:
    """Return what the flags say, under the names of our options.

    Variables that nothing assigns are noted and left out.

    Raises
    ------
    InvalidProblem
        If a value is wrong.
    """
    table = {flag: value for flag, value in keys.table.items() if not _open(keys, flag, value)}
    keys = Keys(table, keys.where, keys.reader, notes=keys.notes)
    numbers = {name: keys.size(flag) for name, flag in NUMBERS.items() if table.get(flag) not in (None, True)}
    found: dict[str, Stated] = dict(numbers)
    counts, chunks = division_of(keys, numbers.get("pipeline", 1))
    if len(set(counts)) > 1:
        found["stage_layers"] = counts
    if chunks > 1:
        found["virtual"] = chunks
    tensor = numbers.get("tensor", 1)
    if is_given(keys, "--sequence-parallel"):
        found["sequence_parallel"] = True
    if "--num-experts" in keys and ("--expert-tensor-parallel-size" in keys or tensor > 1):
        found["expert_tensor"] = keys.whole("--expert-tensor-parallel-size") or tensor
    multiple = keys.whole("--make-vocab-size-divisible-by")
    if "--padded-vocab-size" in keys or "--pad-vocab-size-to" in keys:
        found["padding"] = 0
    elif multiple is not None:
        found["padding"] = multiple
    for part in (_kept(keys, chunks), _spread(keys), _data_types(keys), _attention(keys)):
        found |= part
    return found


def _open(keys: Keys, flag: str, value: object) -> bool:
    """Whether the value is a variable that nothing assigns; noted for what would be read."""
    if not (isinstance(value, str) and "$" in value) or flag == "--num-layers":  # without which there is no model
        return False
    if flag in NUMBERS.values():
        keys.note(f"{flag}: {value} has no value in the file")
    return True


def _kept(keys: Keys, chunks: int) -> dict[str, Stated]:
    """Return what layers compute again, and how many of each stage do."""
    kind = keys.text("--recompute-granularity") or ("selective" if is_given(keys, "--recompute-activations") else "")
    if not kind and any(is_given(keys, flag) for flag in CHECKPOINTING):
        kind = "full"
    if kind not in ("", "selective", "full"):
        raise InvalidProblem("--recompute-granularity", f"{kind!r}", "give full or selective")
    modules = _several(keys, "--recompute-modules")
    if kind == "selective" and modules not in ([], ["core_attn"]):
        keys.note(f"--recompute-modules {' '.join(modules)}: only core_attn is read")
        kind = "selective" if "core_attn" in modules else ""
    if not kind:
        return {}
    count = keys.whole("--recompute-num-layers", least=0)
    if kind == "full" and count is not None and keys.text("--recompute-method") == "block":
        return {"recompute": kind, "recompute_layers": count * chunks}
    if kind == "full" and (count or 1) > 1:
        keys.note(f"--recompute-num-layers {count}: each layer keeps its input here, not one for every {count} layers")
    return {"recompute": kind}


def _spread(keys: Keys) -> dict[str, Stated]:
    """Return the ZeRO type, where something is spread or a flag of its own says that nothing is, and its groups."""
    zero = _zero(keys)
    instances = keys.whole("--num-distributed-optimizer-instances", least=1) or 1
    return {
        **({} if zero is None else {"zero": zero}),
        **({"zero_groups": instances} if zero and instances > 1 else {}),
    }


def _zero(keys: Keys) -> int | None:
    if is_given(keys, "--use-torch-fsdp2"):
        return 3
    if is_given(keys, "--use-megatron-fsdp") or is_given(keys, "--use-custom-fsdp"):
        name = keys.text("--data-parallel-sharding-strategy", "no_shard")
        if name not in STRATEGIES:
            raise InvalidProblem("--data-parallel-sharding-strategy", f"{name!r}", f"one of {', '.join(STRATEGIES)}")
        return STRATEGIES[name]
    if is_given(keys, "--use-distributed-optimizer"):
        return 1
    return keys.whole("--zero-stage", least=0, most=3)  # of Megatron-DeepSpeed


def _data_types(keys: Keys) -> dict[str, Stated]:
    """Return the data type of products, and the recipe: gradients have 32 bits unless they are summed in 16.

    Under bf16 they have unless a flag says otherwise, under fp16 only where a flag says so.
    """
    brain, half = is_given(keys, "--bf16"), is_given(keys, "--fp16")
    if not brain and not half:
        if "--micro-batch-size" in keys:
            keys.note("neither --bf16 nor --fp16: Megatron-LM would compute in fp32; --dtype and --recipe decide here")
        return {}
    if brain:
        short = is_given(keys, "--grad-reduce-in-bf16") or keys.text("--main-grads-dtype", "fp32") != "fp32"
    else:
        short = not is_given(keys, "--accumulate-allreduce-grads-in-fp32")
    eight = any(keys.text(flag) for flag in ("--fp8-format", "--fp8")) or is_given(keys, "--fp8-hybrid")
    recipe = "mixed-half" if short else "mixed"
    if eight and is_given(keys, "--fp8-param-gather") and not short:
        recipe = "mixed-fp8"
    moments = {keys.text(flag, "fp32") for flag in ("--exp-avg-dtype", "--exp-avg-sq-dtype")}
    if moments == {"bf16"} and recipe == "mixed":
        recipe = "adam-bf16"
    elif moments != {"fp32"}:
        keys.note(f"moments of {' and '.join(sorted(moments))}: counted as recipe {recipe} has them")
    return {"dtype": "fp8" if eight else "bf16" if brain else "fp16", "recipe": recipe}


def _attention(keys: Keys) -> dict[str, Stated]:
    """Return whether attention is fused, where that is said, and how context parallel exchanges keys and values."""
    found: dict[str, Stated] = {}
    backend = keys.text("--attention-backend", "auto").rpartition(".")[2]
    if backend in ("flash", "fused") or is_given(keys, "--use-flash-attn"):
        found["flash"] = True
    elif backend in ("unfused", "local") or keys.text("--transformer-impl") == "local":
        found["flash"] = False
    kinds = _several(keys, "--cp-comm-type")
    if kinds and kinds[0] in EXCHANGES:
        found["context_kind"] = EXCHANGES[kinds[0]]
    elif kinds:
        keys.note(f"--cp-comm-type {kinds[0]}: not read")
    return found


def _several(keys: Keys, flag: str) -> list[str]:
    value = keys.table.get(flag)
    return [str(each) for each in value] if isinstance(value, list) else [] if value in (None, True) else [str(value)]
