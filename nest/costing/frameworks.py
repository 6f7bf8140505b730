"""Training frameworks by name, as `nest.costing.framework.Framework` describes them.

What a framework fuses, hides and holds is read from its source and its release notes; the two times of the host are
measured, on the rows that `docs/costs.md` names.
"""

from __future__ import annotations

from dataclasses import replace

from nest.costing.framework import Framework
from nest.errors import InvalidProblem

MEGATRON_CORE = Framework(
    "megatron-core",
    scatter_gather=False,  # whole tensors cross boundaries, unless the sequence is shared
    loss_moved=(6.0, 6.0),  # the fused loss reads the logits twice, and writes gradients in their place
    logit_kept=2.0,
    logit_bytes=2.0,
    logit_shared=2.0,
    spare_gradients=True,
    host_s=30e-6,
)
"""Megatron-Core with Transformer Engine, flash attention and the fused loss, as of 2024 to 2026."""

MEGATRON_2022 = Framework("megatron-2022", fused_attention=False, hides_gradients=False)
"""Megatron-LM of arXiv 2205.05198: products of weight gradients accumulate, and hide the sums of tensor parallel.

Gradients are summed over the replicas when the last backward pass is over: `--overlap-grad-reduce` came in 2023.
"""

MEGATRON_2021 = Framework(
    "megatron-2021",
    fused_accumulation=False,
    gradient_bytes=2.0,
    fused_attention=False,
    hides_tensor=False,
    hides_gradients=False,
)
"""Megatron-LM of arXiv 2104.04473: nothing runs at the same time, gradients of 16 bits accumulate in own kernels."""

MEGATRON_DEEPSPEED = Framework(
    "megatron-deepspeed",
    fused_accumulation=False,
    gradient_bytes=2.0,
    fused_attention=False,
    hides_tensor=False,
    hides_gradients=False,
    sums_whole=True,
    blocking_sends=True,  # "blocking and must be paired" (deepspeed/runtime/pipe/schedule.py)
    layer_s=1.25e-3,
)
"""Megatron-DeepSpeed of 2022, with the pipeline and checkpointing of DeepSpeed."""

MEGATRON_DEEPSPEED_BF16 = replace(MEGATRON_DEEPSPEED, name="megatron-deepspeed-bf16", added_bytes=20.0)
"""The same with DeepSpeed's bf16 optimizer (deepspeed/runtime/bf16_optimizer.py), which sums microbatches in fp32.

After each backward pass it makes an fp32 copy of the 16-bit gradients (reads 2, writes 4), adds it to the sum (reads 8,
writes 4), and sets the gradients to zero (writes 2).
"""

FSDP = Framework("fsdp", gradient_bytes=2.0, hides_tensor=False, attention=0.6, logit_bytes=2.0, logit_shared=2.0)
"""PyTorch FSDP of 2023 with fused attention of before FlashAttention-2, as in MosaicML's llm-foundry."""

TORCHTITAN = Framework(
    "torchtitan",
    fused_elementwise=False,
    fused_inputs=False,
    gradient_bytes=2.0,
    hides_tensor=False,
    attention=0.5,  # FlashAttention-2, which has nothing of Hopper's
    logit_kept=6.0,  # 16-bit logits that the training loop holds, and their logarithm in fp32
    logit_bytes=8.0,  # gradients of both
    logit_shared=12.0,  # one-hot, exponential and their sum, in fp32 (torch/distributed/tensor/parallel/loss.py)
    keeps_gathered=True,
    buffers_boundaries=True,  # torch/distributed/pipelining/stage.py: output_chunks, grad_recv_info, args_recv_info
)
"""torchtitan of 2024 without compiler: FSDP2, tensor parallel by DTensor."""

TORCHTITAN_COMPILED = Framework(
    "torchtitan-compiled",
    fused_inputs=False,
    gradient_bytes=2.0,
    attention=0.5,
    loss_moved=(10.0, 8.0),
    logit_kept=6.0,
    logit_bytes=8.0,
    logit_shared=12.0,
    keeps_gathered=True,
    buffers_boundaries=True,  # torch/distributed/pipelining/stage.py: output_chunks, grad_recv_info, args_recv_info
)
"""The same with torch.compile, which fuses element-wise work."""

TORCHTITAN_ASYNC = Framework(
    "torchtitan-async",
    fused_inputs=False,
    gradient_bytes=2.0,
    hides_products=True,
    attention=0.5,
    loss_moved=(10.0, 8.0),
    logit_kept=6.0,
    logit_bytes=8.0,
    logit_shared=12.0,
    keeps_gathered=True,
    buffers_boundaries=True,  # torch/distributed/pipelining/stage.py: output_chunks, grad_recv_info, args_recv_info
)
"""The same with asynchronous tensor parallel."""

MIST = Framework(
    "mist",
    fused_accumulation=False,
    gradient_bytes=2.0,
    hides_tensor=False,
    hides_gradients=False,
    logit_bytes=2.0,
    logit_shared=2.0,
    spare_gradients=True,  # gradients of a layer, before they are added
    recomputes_last=True,  # benchmark/mist/exec/benchmark_one_case.py
)
"""The runtime of Mist (EuroSys 2025)."""

FRAMEWORKS = (
    MEGATRON_CORE,
    MEGATRON_2022,
    MEGATRON_2021,
    MEGATRON_DEEPSPEED,
    MEGATRON_DEEPSPEED_BF16,
    FSDP,
    TORCHTITAN,
    TORCHTITAN_COMPILED,
    TORCHTITAN_ASYNC,
    MIST,
)
"""All of them; the first is taken where none is named."""


def framework_named(name: str) -> Framework:
    """Return a framework by its name.

    Raises
    ------
    InvalidProblem
        If there is none.
    """
    for framework in FRAMEWORKS:
        if framework.name == name:
            return framework
    raise InvalidProblem("framework", f"{name!r} is none", f"one of {', '.join(each.name for each in FRAMEWORKS)}")
