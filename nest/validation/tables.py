"""The tables of published measurements, as cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from nest.costing import Layout, Recipe, Recompute, Setting, framework_named, recipe_named
from nest.costing.frameworks import (
    FSDP,
    MEGATRON_2021,
    MEGATRON_2022,
    MEGATRON_CORE,
    MEGATRON_DEEPSPEED,
    MEGATRON_DEEPSPEED_BF16,
    MIST,
)
from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named, device_named
from nest.validation import machines, models
from nest.validation.case import Case
from nest.validation.figures import read_figures

Row = Mapping[str, str]

GB, GIB, MIB = 10**9, 2**30, 2**20

UNSYNCHRONISED = replace(MEGATRON_CORE, hides_tensor=False, hides_gradients=False)
"""Megatron-Core with all overlap turned off, as the measurements on B200 have it."""

BINDING_FIXED = "2022-02-25"

FP16_OPTIMIZER = Recipe("deepspeed-fp16", 2, 2, 4, 8, reduced=2, stepped=4, touched=54)

EARLY_BF16 = replace(FP16_OPTIMIZER, name="deepspeed-bf16-sums", reduced=4)
"""Before there was a bf16 optimizer: what is no fp16 was summed in fp32 (deepspeed/runtime/engine.py)."""

SUM_BUCKET = 500_000_000
"""Gradients that DeepSpeed sums at a time (`MEMORY_OPT_ALLREDUCE_SIZE`); to sum in fp32 it copies them first."""

BF16_OPTIMIZER = Recipe("deepspeed-bf16", 2, 6, 4, 8, reduced=2, stepped=4, touched=54)
"""From the rebalancing of layers on: gradients in bf16, and their sum over the microbatches in fp32."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of measurements.

    Parameters
    ----------
    name
        As given by users, and of its file.
    case
        Makes a case of a row.
    reserve
        Bytes of framework and communication that were added to what the parts of a plan take, besides those that a case
        has itself.
    """

    name: str
    case: Callable[[Row], Case]
    reserve: int = 0

    @property
    def source(self) -> str:
        """Where the figures are from, and what was run."""
        return read_figures(self.name)[0]

    def cases(self) -> tuple[Case, ...]:
        """Return all its cases."""
        made = (self.case(row) for row in read_figures(self.name)[1])
        return tuple(
            replace(case, layout=replace(case.layout, reserve=self.reserve + case.layout.reserve)) for case in made
        )


def _whole(row: Row, *names: str) -> list[int]:
    return [int(row[name]) for name in names]


def _fitted(row: Row) -> bool:
    return row["fitted"] == "1"


def _recomputation(row: Row) -> Case:
    layers, hidden, heads, t, stages, virtual = _whole(row, "layers", "hidden", "heads", "tensor", "stages", "virtual")
    microbatch, batch = _whole(row, "microbatch", "global_batch")
    recompute = cast(Recompute, row["recompute"])
    setting = Setting(
        2048,
        microbatch,
        t,
        sequence_parallel=recompute == "selective",
        flash=False,
        dtype="fp16",
        framework=MEGATRON_2022,
    )
    return Case(
        f"{row['model']} {recompute}",
        "",
        _fitted(row),
        models.gpt(layers, hidden, heads, 51200),
        cluster_named(f"selene:{t * stages}"),
        setting,
        Layout(batch, 1, stages, virtual, recompute=recompute),
        recipe_named("mixed"),
        float(row["seconds"]),
    )


def _megatron_sc21(row: Row) -> Case:
    layers, hidden, heads, t, stages, virtual = _whole(row, "layers", "hidden", "heads", "tensor", "stages", "virtual")
    data, microbatch, batch = _whole(row, "data", "microbatch", "global_batch")
    sequence, vocabulary, devices = 2048, 51200, t * stages * data
    # arXiv 2104.04473, equation 3: the repeated forward pass counts
    counted = 96.0 * batch * sequence * layers * hidden**2
    counted = counted * (1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden))
    return Case(
        row["model"],
        "",
        _fitted(row),
        models.gpt(layers, hidden, heads, vocabulary),
        cluster_named(f"selene:{devices}"),
        Setting(sequence, microbatch, t, flash=False, dtype="fp16", framework=MEGATRON_2021),
        Layout(batch, data, stages, virtual, recompute="full"),
        recipe_named("mixed-half"),
        counted / devices / (float(row["tflops"]) * 1e12),
    )


def _bloom(row: Row) -> Case:
    layers, hidden, heads, t, stages, data = _whole(row, "layers", "hidden", "heads", "tensor", "stages", "data")
    microbatch, batch = _whole(row, "microbatch", "global_batch")
    memory, section = row["memory_gb"], row["section"]
    rebalanced, early = section == "Rebalancing layers", section == "bf16"
    return Case(
        f"{hidden} x {layers}, {heads} heads, t {t}, S {stages}, d {data}, b {microbatch}",
        section,
        _fitted(row),
        models.gpt(layers, hidden, heads, 250880),
        machines.jean_zay(t * stages * data, bound=row["date"] >= BINDING_FIXED),
        Setting(
            2048,
            microbatch,
            t,
            flash=False,
            framework=MEGATRON_DEEPSPEED_BF16 if rebalanced else MEGATRON_DEEPSPEED,
        ),
        Layout(
            batch,
            data,
            stages,
            zero=1,
            layers=_split(layers, stages),
            recompute="full",
            reserve=4 * SUM_BUCKET if early else 0,
        ),
        BF16_OPTIMIZER if rebalanced else EARLY_BF16 if early else FP16_OPTIMIZER,
        float(row["seconds"]) if row["seconds"] else None,
        (int(memory) * GB,) if memory.isdecimal() else (),
        memory != "oom",
    )


def _split(layers: int, stages: int) -> tuple[int, ...]:
    """Return the layers of each stage: embedding and head count as one each where layers alone do not divide.

    Where neither divides, the last stage has what is left: "the last stage has 1 block, while the rest have 7".
    """
    if layers % stages == 0:
        return ()
    each, left = divmod(layers + 2, stages)
    if not left:
        return (each - 1, *(each,) * (stages - 2), each - 1)
    most = -(-layers // stages)
    return (*(most,) * (stages - 1), layers - most * (stages - 1))


def _b200(row: Row) -> Case:
    layers, t, context, expert, stages, ranks = _whole(row, "layers", "tensor", "context", "expert", "stages", "ranks")
    microbatches, sequence = _whole(row, "microbatches", "sequence")
    setting = Setting(
        sequence,
        1,
        t,
        sequence_parallel=t > 1,
        context=context,
        context_kind="exchange",
        expert=expert,
        framework=UNSYNCHRONISED,
    )
    return Case(
        f"{row['model']} x {layers}, t {t}, c {context}, e {expert}, S {stages}, {microbatches} mb, {sequence}",
        row["model"],
        _fitted(row),
        from_hyperparameters(replace(models.CUT[row["model"]], layers=layers)),
        cluster_named("dgx-b200:8"),
        setting,
        Layout(ranks * microbatches, ranks // expert, stages, zero=1),
        recipe_named("mixed"),
        float(row["seconds"]),
        (int(float(row["memory_gib"]) * GIB),),
        fits=True,
    )


def _torchtitan(row: Row) -> Case:
    devices, t, context, stages, virtual = _whole(row, "devices", "tensor", "context", "stages", "virtual")
    microbatch, batch, sequence = _whole(row, "microbatch", "global_batch", "sequence")
    setting = Setting(
        sequence,
        microbatch,
        t,
        sequence_parallel=t > 1,
        context=context,
        dtype=row["dtype"],
        padding=0,
        framework=framework_named(row["framework"]),
    )
    layout = Layout(
        batch,
        devices // (t * context * stages),
        stages,
        virtual,
        zero=3,
        recompute=cast(Recompute, row["recompute"]),
        recomputed=(int(row["recomputed"]),) if row["recomputed"] else (),
    )
    name = (
        f"{row['model']} on {devices}, {row['framework']}, {row['dtype']}, t {t}, c {context}, S {stages}, {sequence}"
    )
    return Case(
        name if virtual == 1 else f"{name}, {virtual} chunks",
        f"table {row['table']}",
        _fitted(row),
        from_hyperparameters(replace(models.LLAMA3[row["model"]], seq=sequence)),
        cluster_named(f"grand-teton:{devices}"),
        setting,
        layout,
        recipe_named("amp"),
        batch * sequence / devices / float(row["tokens_per_s"]),
        (int(float(row["memory_gib"]) * GIB),),
        fits=True,
    )


def _llm_foundry(row: Row) -> Case:
    sequence, devices, microbatch, batch = _whole(row, "sequence", "devices", "microbatch", "global_batch")
    return Case(
        f"{row['model']} on {devices} {row['device']}, {sequence}, b {microbatch}, {row['recompute']}",
        row["model"],
        _fitted(row),
        models.mpt(row["model"], sequence),
        machines.roce(device_named(row["device"]), devices),
        Setting(sequence, microbatch, padding=0, framework=FSDP),
        Layout(batch, devices, zero=3, recompute=cast(Recompute, row["recompute"])),
        recipe_named(row["recipe"]),
        batch * sequence / devices / float(row["tokens_per_s"]),
        fits=True,
    )


def _mist(row: Row) -> Case:
    layers, hidden, heads, ffn, data = _whole(row, "layers", "hidden", "heads", "ffn", "data")
    microbatch, batch = _whole(row, "microbatch", "global_batch")
    split = tuple(map(int, row["stage_layers"].split()))
    if row["family"] == "gpt":
        model = models.plain_gpt(layers, hidden, heads, 50304, 2048, ffn=ffn)
    else:
        numbers = Hyperparameters("llama", layers, hidden, heads, ffn=ffn, vocab=50304)
        model = from_hyperparameters(numbers)
    layout = Layout(
        batch,
        data,
        len(split),
        zero=1,
        layers=split,
        recompute="full",
        recomputed=tuple(map(int, row["recomputed"].split())),
        offloaded=tuple(map(float, row["offloaded"].split())),
    )
    return Case(
        f"{row['family']} {row['model']}, {'flash' if row['flash'] == '1' else 'plain'} attention",
        row["family"],
        _fitted(row),
        model,
        machines.l4_node(data * len(split)),
        Setting(2048, microbatch, flash=row["flash"] == "1", dtype="fp16", padding=0, framework=MIST),
        layout,
        recipe_named("mixed-half"),
        float(row["seconds"]),
        tuple(int(size) * MIB for size in row["memory_mib"].split()),
        fits=True,
    )


TABLES = (
    Table("recomputation", _recomputation),
    Table("megatron_sc21", _megatron_sc21),
    Table("bloom", _bloom, reserve=14 * GIB),
    Table("b200", _b200),
    Table("torchtitan", _torchtitan, reserve=43 * GIB // 4),
    Table("llm_foundry", _llm_foundry),
    Table("mist", _mist),
)
"""All tables of measured iterations."""
