"""Facts from threads of issues: what ran out of memory, bytes, throughput; and why some cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nest.costing import Layout, Recompute, Setting, recipe_named
from nest.costing.frameworks import TORCHTITAN
from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named
from nest.validation.case import Case
from nest.validation.compare import Comparison, compare
from nest.validation.fact import Fact, left_out
from nest.validation.models import CUT

GB, GIB = 1e9, 2.0**30

CONTEXT = 2**30
"""What nvidia-smi shows besides tensors: half a GiB of CUDA's context and kernels, the rest for communicators."""

LLAMA2_7B = Hyperparameters("llama", 32, 4096, 32, 32, ffn=11008, vocab=32000, seq=4096)
LLAMA2_70B = Hyperparameters("llama", 80, 8192, 64, 8, ffn=28672, vocab=32000, seq=4096)
QWEN_7B = Hyperparameters("llama", 32, 4096, 32, ffn=11008, vocab=151936, seq=4096)
QWEN2_7B = Hyperparameters("llama", 28, 3584, 28, 4, ffn=18944, vocab=152064, seq=10240)
QWEN_32B = Hyperparameters("llama", 64, 5120, 40, 8, ffn=27648, vocab=152064, seq=32704)
QWEN3_30B = Hyperparameters(
    "moe", 48, 2048, 32, 4, 128, 6144, 151936, 4096, experts=128, top_k=8, expert_ffn=768, shared_ffn=0
)
HY3 = Hyperparameters(
    *("moe", 80, 4096, 64, 8, 128, 13312, 120832, 4096),
    tied=False,
    experts=192,
    top_k=8,
    expert_ffn=1536,
    shared_ffn=1536,
    dense_layers=1,
)
DEEPSEEK_V3 = replace(CUT["deepseekv3"], layers=61, dense_layers=3, seq=4096)

MEGATRON, HY3_THREAD = "NVIDIA/Megatron-LM#1031", "NVIDIA-NeMo/Automodel#2546"
TITAN, AICB = "pytorch/torchtitan#4016", "aliyun/aicb#36"

SPREAD_GIB = {8: 167.93, 16: 138.75, 32: 124.58, 64: 117.50, 128: 114.78}
"""Memory by devices (NousResearch/torchtitan#19): only the state depends on them; sequence and batch are not stated."""


AUTOMODEL = replace(TORCHTITAN, name="automodel", buffers_boundaries=False)
"""Stages of 2026 keep what they have sent no longer (PyTorch, torch/distributed/pipelining/stage.py)."""


def issues() -> tuple[Fact, ...]:
    """Return everything that the threads say, and for what cannot be compared, why."""
    return (*_labels(), *_amounts(), *_states(), *_spread(), *_left_out())


def _labels() -> Iterator[Fact]:
    """Yield whether layouts fit that ran, or ran out of memory."""
    for reference, ran, case, note in _asked():
        fits = compare(case)
        said = f"{fits.estimate.peak_bytes / GIB:.1f} of {case.hardware.cluster.hbm_bytes / GIB:.1f} GiB; {note}"
        yield Fact(f"{reference}: {case.name}", "", "fits", "1", float(ran), float(fits.fits), note=said)


def _asked() -> Iterator[tuple[str, bool, Case, str]]:
    open_ = "microbatch not stated: 4, the least with which all three hold"
    yield MEGATRON, True, _megatron(8, "full"), open_
    yield MEGATRON, False, _megatron(8, "none"), open_
    yield MEGATRON, False, _megatron(2, "none"), open_
    yield "ISEEKYAN/verl_megatron_practice#2", False, _case(QWEN2_7B, "dgx-h100", tensor=2), "with sequence parallel"
    for tensor in (2, 4):
        case = _case(QWEN_32B, "dgx-h200", tensor=tensor, recompute="selective")
        yield "OpenPipe/ART#913", False, case, "Qwen 32B assumed"
    for stages, expert, replicas, ran in ((4, 8, 1, False), (4, 8, 2, False), (4, 16, 1, True), (8, 8, 1, True)):
        whole = ", each replica with all of its state" if replicas > 1 else ""
        yield HY3_THREAD, ran, _hy3(stages, expert, replicas), f"all in bf16, sequence 4096 assumed{whole}"
    one = Layout(4096, 128, zero=3)
    yield TITAN, False, _deepseek(Setting(4096, 4, expert=2), one, "amp"), "256 devices assumed"
    deep = Layout(4096, 1, 8, 4, zero=1, recompute="full")
    yield TITAN, True, _deepseek(Setting(4096, 1, expert=32), deep, "mixed"), "all computed again assumed"


def _amounts() -> Iterator[Fact]:
    """Yield bytes of whole devices, and throughput."""
    ran = compare(_megatron(8, "full"))
    name = f"{MEGATRON}: FLOP/s of a device"
    note = "microbatch 4 and global batch 512 assumed"
    yield Fact(name, "", "rate", "FLOP/s", 296.5e12, ran.estimate.flops_per_device, note=note)
    whole = compare(_hy3(8, 8, 1)).estimate
    for what, published, predicted in (
        ("least of 8 stages", 40.02, min(memory.total for memory in whole.memory)),
        ("most of 8 stages, the last apart", 41.84, max(memory.total for memory in whole.memory[:-1])),
    ):
        name = f"{HY3_THREAD}: {what}"
        yield Fact(name, "", "memory", "B", published * GIB, float(predicted), note="sequence 4096 assumed")
    layout = Layout(2048, 8, 2, zero=1, recompute="selective", reserve=CONTEXT)
    setting = Setting(4096, 2, flash=False)
    first = compare(_with("7B", LLAMA2_7B, "dgx-a100:16", setting, layout)).estimate.memory[0].total
    note = "sequence 4096, ZeRO-1 and selective recomputation assumed"
    yield Fact("NVIDIA/Megatron-LM#482: first stage", "", "memory", "B", 69.1 * GB, float(first), note=note)
    device = compare(_case(QWEN_7B, "dgx-a100", tensor=8)).estimate.peak_bytes + CONTEXT
    note = "fused attention and sequence parallel assumed"
    yield Fact(f"{AICB}: all that nvidia-smi shows", "", "memory", "B", 21 * GB, float(device), note=note)


def _states() -> Iterator[Fact]:
    """Yield parameters and optimizer state of Qwen-7B on 8 devices."""
    (found,) = compare(_case(QWEN_7B, "dgx-a100", tensor=8)).estimate.memory
    for name, published, predicted in (("parameters", 1.92, found.weights), ("optimizer", 11.52, found.optimizer)):
        yield Fact(f"{AICB}: {name}", "", "memory", "B", published * GB, float(predicted))


def _spread() -> Iterator[Fact]:
    """Yield memory by devices: what does not depend on them is taken from the row with the most."""
    states = {devices: _qwen3(devices).estimate.memory[0].state for devices in SPREAD_GIB}
    most = max(SPREAD_GIB)
    for devices, published in SPREAD_GIB.items():
        predicted = SPREAD_GIB[most] * GIB + states[devices] - states[most]
        name = f"NousResearch/torchtitan#19: {devices} devices"
        note = "activations from the row with 128 devices: sequence and batch are not stated"
        yield Fact(name, "", "memory", "B", published * GIB, predicted, devices == most, note)


def _left_out() -> Iterator[Fact]:
    sizes = "sequence and batch are not stated"
    across = f"{sizes}, and its expert groups lie across tensor parallel"
    contradicted = "another tool's estimate, more than what nvidia-smi shows leaves for it"
    placed = "of placement, not of cost: stages in order cross 3 times, as expected there"
    for name, why, published, unit in (
        ("NVIDIA-NeMo/Megatron-Bridge#5077: parameters of four stages", "the model is not stated", 9952.0, "1"),
        ("NVIDIA-NeMo/Megatron-Bridge#5077: parameters, dense and experts", "the model is not stated", 5856.0, "1"),
        ("awslabs/awsome-distributed-ai#1144: a step, 16 expert ranks", across, 8.60, "s"),
        ("awslabs/awsome-distributed-ai#1144: a step, 32 expert ranks", across, 9.24, "s"),
        ("NousResearch/torchtitan#19: tokens per second, 8 devices", sizes, 14796.0, "1"),
        ("meta-pytorch/autoparallel#18: an integer program", "the time of a solver, not of training", 118.7, "s"),
        ("alpa-projects/alpa#752: transfers that cross nodes", placed, 5.0, "1"),
        (f"{AICB}: activations", contradicted, 10.98 * GB, "B"),
    ):
        yield left_out(name, why, published, unit)


def _megatron(stages: int, recompute: Recompute) -> Case:
    setting, layout = Setting(4096, 4, 8), Layout(512, 16 // stages, stages, zero=1, recompute=recompute)
    name = f"70B, t 8, S {stages}, {'all computed again' if recompute == 'full' else 'nothing computed again'}"
    return _with(name, LLAMA2_70B, "dgx-h100:128", setting, layout)


def _case(numbers: Hyperparameters, system: str, *, tensor: int, recompute: Recompute = "none") -> Case:
    setting = Setting(numbers.seq, 1, tensor, sequence_parallel=True)
    return _with(f"t {tensor}", numbers, f"{system}:{tensor}", setting, Layout(8, recompute=recompute))


def _hy3(stages: int, expert: int, replicas: int) -> Case:
    """Return a layout of Hy3 of which each whole replica has its own state: one of them says it all."""
    setting = Setting(4096, 1, expert=expert, padding=0, framework=AUTOMODEL)
    layout = Layout(8 * stages * expert, 1, stages, zero=3, recompute="full")
    name = f"S {stages}, e {expert}" + (f", {replicas} replicas" if replicas > 1 else "")
    return _with(name, HY3, f"dgx-h100:{stages * expert}", setting, layout, recipe="bf16")


def _deepseek(setting: Setting, layout: Layout, recipe: str) -> Case:
    name = f"S {layout.stages}, e {setting.expert}, b {setting.microbatch}"
    return _with(name, DEEPSEEK_V3, "gb200-nvl72:288", setting, layout, recipe=recipe)


def _qwen3(devices: int) -> Comparison:
    setting = Setting(4096, 1, expert=8, padding=0, framework=TORCHTITAN)
    layout = Layout(8 * devices, devices // 8, zero=3)
    return compare(_with("", QWEN3_30B, f"dgx-b200:{devices}", setting, layout, recipe="amp"))


def _with(
    name: str, numbers: Hyperparameters, cluster: str, setting: Setting, layout: Layout, *, recipe: str = "mixed"
) -> Case:
    return Case(
        name,
        "",
        fitted=False,
        model=from_hyperparameters(numbers),
        hardware=cluster_named(cluster),
        setting=setting,
        layout=layout,
        recipe=recipe_named(recipe),
    )
