"""Published measurements asked of ``nest estimate`` by plain options: nobody names the software, which is assumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from click.testing import CliRunner

from nest.cli.estimate import estimate_command
from nest.costing import FRAMEWORKS, assumed_framework
from nest.families import Description, Hyperparameters, describe, from_hyperparameters
from nest.hardware import device_named
from nest.problem import RECOMPUTE
from nest.validation import Table, table_named
from nest.validation.figures import read_figures
from nest.validation.models import CUT, LLAMA3, MPT

GIB = 2**30

ON = {"a100-80gb": "dgx-a100", "a100-40gb": "dgx-a100-40gb", "h100-sxm": "dgx-h100"}
"""Systems of the devices of llm-foundry."""


def asked(*options: object) -> dict[str, Any]:
    """Return what the command says of a plan."""
    result = CliRunner().invoke(estimate_command, [*map(str, options), "--json"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def given(row: Mapping[str, str], **columns: str) -> list[str]:
    """Return columns of a row as options, under the names of the options."""
    return [word for name, column in columns.items() for word in (f"--{name.replace('_', '-')}", row[column])]


def of_a_gpt(row: Mapping[str, str], cluster: str, vocabulary: int) -> list[str]:
    """Return the options of a row with a GPT that all tables have."""
    model = given(row, layers="layers", hidden="hidden", heads="heads", tensor="tensor", pipeline="stages")
    sizes = given(row, microbatch="microbatch", global_batch="global_batch")
    return ["--family", "gpt", *model, *sizes, "--vocab", str(vocabulary), "--cluster", cluster, "--seq", "2048"]


def devices(row: Mapping[str, str], *widths: str) -> int:
    """Return the product of some widths of a row."""
    found = 1
    for name in widths:
        found *= int(row[name])
    return found


def recomputation(row: Mapping[str, str], _path: Path) -> list[str]:
    """Return what a reader of table 5 of arXiv 2205.05198 types."""
    shared = ["--sequence-parallel"] if row["recompute"] == "selective" else []
    cluster = f"dgx-a100:{devices(row, 'tensor', 'stages')}"
    return [*of_a_gpt(row, cluster, 51200), *given(row, virtual="virtual", recompute="recompute"), *shared]


def megatron_sc21(row: Mapping[str, str], _path: Path) -> list[str]:
    """Return what a reader of table 1 of arXiv 2104.04473 types."""
    cluster = f"dgx-a100:{devices(row, 'tensor', 'stages', 'data')}"
    return [*of_a_gpt(row, cluster, 51200), *given(row, virtual="virtual", data="data"), "--recompute", "full"]


def bloom(row: Mapping[str, str], _path: Path) -> list[str]:
    """Return what a reader of BLOOM's search types."""
    cluster = f"jean-zay:{devices(row, 'tensor', 'stages', 'data')}"
    return [*of_a_gpt(row, cluster, 250880), *given(row, data="data"), "--recompute", "full", "--zero", "1"]


def llm_foundry(row: Mapping[str, str], _path: Path) -> list[str]:
    """Return what a reader of llm-foundry's benchmarks types."""
    hidden, layers, heads = MPT[row["model"]]
    model = ["--layers", str(layers), "--hidden", str(hidden), "--heads", str(heads), "--vocab", "50368"]
    sizes = given(row, seq="sequence", microbatch="microbatch", global_batch="global_batch", data="devices")
    cluster = f"{ON[row['device']]}:{row['devices']}"
    return [
        *("--family", "gpt", *model, *sizes, "--cluster", cluster),
        *("--zero", "3", *given(row, recompute="recompute")),
    ]


def of_a_llama(numbers: Hyperparameters) -> list[str]:
    """Return the options of a Llama."""
    names = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
    typed = {name: str(getattr(numbers, name)) for name in names}
    return ["--family", "llama", *given(typed, **{name: name for name in names})]


def torchtitan(row: Mapping[str, str], _path: Path) -> list[str]:
    """Return what a reader of torchtitan's benchmarks types, its own recomputation by the layers that it comes to."""
    one = devices(row, "tensor", "context", "stages")
    widths = given(row, tensor="tensor", context="context", pipeline="stages", virtual="virtual")
    sizes = given(row, seq="sequence", microbatch="microbatch", global_batch="global_batch", dtype="dtype")
    again = given(row, recompute_layers="recomputed") if row["recomputed"] else []
    return [
        *(*of_a_llama(LLAMA3[row["model"]]), *widths, *sizes, "--cluster", f"grand-teton:{row['devices']}"),
        *("--data", str(int(row["devices"]) // one), "--zero", "3", *given(row, recompute="recompute"), *again),
        *(["--sequence-parallel"] if row["tensor"] != "1" else []),
    ]


def b200(row: Mapping[str, str], path: Path) -> list[str]:
    """Return what a reader of SimuMax's measurements types; DeepSeek's models are files of ours."""
    numbers = replace(CUT[row["model"]], layers=int(row["layers"]))
    stated = {spec.name: getattr(numbers, spec.name) for spec in fields(numbers)}
    path.write_text(json.dumps({name: value for name, value in stated.items() if value is not None}))
    model = of_a_llama(numbers) if numbers.family == "llama" else ["--model", str(path)]
    replicas = int(row["ranks"]) // int(row["expert"])
    widths = given(row, tensor="tensor", context="context", expert="expert", pipeline="stages", seq="sequence")
    batch = int(row["ranks"]) * int(row["microbatches"])
    return [
        *(*model, *widths, "--cluster", "dgx-b200:8", "--microbatch", "1", "--global-batch", str(batch)),
        *("--data", str(replicas), "--zero", "1", *(["--sequence-parallel"] if row["tensor"] != "1" else [])),
    ]


def errors(name: str, path: Path, every: int = 1) -> Iterator[tuple[float, float, str]]:
    """Yield errors of time and memory (0 without one), and the framework, of every so many-th row of a table."""
    table = table_named(name)
    assert isinstance(table, Table)
    typed = {each.__name__: each for each in (recomputation, megatron_sc21, bloom, llm_foundry, torchtitan, b200)}[name]
    for row, case in list(zip(read_figures(name)[1], table.cases(), strict=True))[::every]:
        if case.seconds is None or (name == "bloom" and row["date"] < "2022-02-25"):
            continue  # devices and network cards of Jean Zay were bound to the wrong processors
        found = asked(*typed(row, path))
        peak = max(stage["memory_bytes"] for stage in found["stages"])
        memory = peak / case.memory_bytes[0] - 1 if name == "b200" else 0.0
        yield found["iteration_s"] / case.seconds - 1, memory, found["framework"]


TABLES = {  # framework that is assumed; mean and worst error of time that is asked for; every so many-th row is tried
    "recomputation": ("megatron-2022", 0.035, 0.085, 1),
    "megatron_sc21": ("megatron-2022", 0.05, 0.12, 1),
    "bloom": ("megatron-deepspeed", 0.10, 1.0, 5),
    "b200": ("megatron-core", 0.055, 1.0, 1),
    "torchtitan": ("torchtitan-compiled", 0.10, 1.0, 1),
    "llm_foundry": ("fsdp", 0.10, 1.0, 3),
}


@pytest.mark.parametrize("name", TABLES)
def test_published_times(name: str, tmp_path: Path) -> None:
    """A reader who names no software is as near to each table as is asked of the model."""
    framework, average, worst, every = TABLES[name]
    found = list(errors(name, tmp_path / "model.json", every))
    assert {each[2] for each in found} == {framework}
    assert mean(abs(each[0]) for each in found) <= average
    assert max(abs(each[0]) for each in found) <= worst
    assert mean(abs(each[1]) for each in found) <= 0.02
    assert max(abs(each[1]) for each in found) <= 0.05


FIGURE_1 = {  # layers, hidden, heads, stages, chunks, microbatch; GiB of the layers of the first stage
    "22B": ((48, 6144, 64, 1, 1, 4), 45.5625, 59.25, 9.5625),
    "175B": ((96, 12288, 96, 8, 3, 1), 45.5625, 66.84375, 12.3515625),
}


@pytest.mark.parametrize("name", FIGURE_1)
def test_figure_1_of_2205_05198(name: str) -> None:
    """What a layer more takes, as often as the first stage has one, is the figure to the last digit.

    It counts layers alone, and of these the matrices: embedding, biases and norms are on top, byte by byte.
    """
    (layers, hidden, heads, stages, chunks, microbatch), state, plain, paper = FIGURE_1[name]

    def first(layers: int, *more: str) -> dict[str, int]:
        model = ("--family", "gpt", "--layers", layers, "--hidden", hidden, "--heads", heads, "--vocab", 51200)
        widths = ("--tensor", 8, "--pipeline", stages, "--virtual", chunks, "--microbatch", microbatch)
        batch = ("--seq", 2048, "--global-batch", 10 * stages * microbatch, "--cluster", f"dgx-a100:{8 * stages}")
        return asked(*model, *widths, *batch, *more)["stages"][0]["memory"]  # type: ignore[no-any-return]

    own, more = layers // stages, stages * chunks  # layers of the stage; one more for each chunk
    for options, expected in (((), plain), (("--recompute", "selective", "--sequence-parallel"), paper)):
        fewer, wider = first(layers, *options), first(layers + more, *options)
        assert (wider["activations"] - fewer["activations"]) * own == chunks * expected * GIB
        held = sum(wider[part] - fewer[part] for part in ("weights", "gradients", "optimizer"))
        vectors = 18 * chunks * (7 * hidden // 8 + 6 * hidden)  # biases, and two norms with the biases behind the sums
        assert (held - vectors) * own == chunks * state * GIB


ARGUMENTS = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --vocab-size 50257 --max-position-embeddings 1024"


@pytest.mark.parametrize(
    ("family", "device", "zero", "context", "expected"),
    [
        ("gpt", "a100-80gb", 0, 1, "megatron-2022"),
        ("gpt", "v100-32gb", 1, 1, "megatron-2022"),
        ("bert", "a100-40gb", 1, 1, "megatron-2022"),
        ("gpt", "a100-80gb", 1, 2, "megatron-core"),
        ("llama", "a100-80gb", 1, 1, "megatron-core"),
        ("moe", "a100-80gb", 1, 1, "megatron-core"),
        ("t5", "a100-80gb", 1, 1, "megatron-core"),
        ("gpt", "h100-sxm", 1, 1, "megatron-core"),
        ("gpt", "a100-80gb", 2, 1, "fsdp"),
        ("gpt", "h100-sxm", 3, 1, "fsdp"),
        ("llama", "a100-80gb", 3, 1, "fsdp"),
        ("llama", "h100-sxm", 2, 1, "megatron-core"),
        ("llama", "h100-sxm", 3, 1, "torchtitan-compiled"),
        ("gpt", "b200", 3, 1, "torchtitan-compiled"),
        ("llama", "mi300x", 3, 1, "megatron-core"),
        ("gpt", "tpu-v5p", 3, 1, "megatron-core"),
    ],
)
def test_what_is_assumed(family: str, device: str, zero: int, context: int, expected: str) -> None:
    """By the table of docs/costs.md."""
    model = from_hyperparameters(Hyperparameters(family, 2, 64, 4, experts=4 if family == "moe" else 0))
    found = assumed_framework(model, device_named(device), zero, context)
    assert found.framework.name == expected
    assert found.why


def test_files_go_first_and_what_is_typed_before_them(tmp_path: Path) -> None:
    """Arguments of Megatron-LM are of Megatron-Core, on A100 as well; the reason is said."""
    path = tmp_path / "args.sh"
    path.write_text(f"{ARGUMENTS} --seq-length 1024\n")
    plan = ("--model", path, "--cluster", "dgx-a100:8", "--global-batch", 8)
    assert asked(*plan)["framework"] == "megatron-core"
    assert asked(*plan)["framework_why"] == "assumed: the model file is one of that framework"
    typed = asked(*plan, "--framework", "megatron-2021")
    assert (typed["framework"], typed["framework_why"]) == ("megatron-2021", "named by the user")
    text = CliRunner().invoke(estimate_command, [*map(str, plan)], standalone_mode=False).stdout
    assert "assumed: the model file is one of that framework" in " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "software"),
    [
        (f"{ARGUMENTS} --deepspeed --fp16", "megatron-deepspeed"),
        (f"{ARGUMENTS} --zero-stage 1 --bf16", "megatron-deepspeed-bf16"),
        (f"{ARGUMENTS} --bf16", "megatron-core"),
        (f"{ARGUMENTS} --fp16 --activations-checkpoint-method uniform --DDP-impl local", "megatron-2022"),
        ("model: {d_model: 64, n_heads: 4, n_layers: 2, expansion_ratio: 4, vocab_size: 512, max_seq_len: 64}", "fsdp"),
        ('{"family": "gpt", "layers": 2, "hidden": 64, "heads": 4}', ""),
    ],
)
def test_what_files_are_of(text: str, software: str) -> None:
    """Files of a trainer say what trains; those of a model alone say nothing."""
    found: Description = describe(text)
    assert found.software == software
    if software:
        names = {each.name for each in FRAMEWORKS}
        assert found.software in names
        why = assumed_framework(found.model, device_named("a100-80gb"), 3, stated=software)
        assert why.framework.name == software


@pytest.mark.parametrize("device", ["v100-32gb", "a100-80gb", "h100-sxm", "b200", "mi300x"])
@pytest.mark.parametrize("family", ["gpt", "llama", "moe", "bert", "t5"])
def test_recomputation_keeps_less_by_default(family: str, device: str, tmp_path: Path) -> None:
    """None needs at least what selective does, and that at least what full does, whatever is assumed."""
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        f'schema = "nest.cluster/1"\ndevice = "{device}"\ndevices = 8\n'
        'levels = [{ name = "node", fanout = 8, bandwidth_gb_per_s = 100, latency_us = 3 }]\n'
    )
    experts = ("--experts", 4) if family == "moe" else ()
    model = ("--family", family, "--layers", 4, "--hidden", 512, "--heads", 8, *experts)
    dtype = "fp16" if device.startswith("v100") else "bf16"
    plan = ("--cluster", cluster, "--seq", 512, "--global-batch", 16, "--tensor", 2, "--pipeline", 2, "--dtype", dtype)
    for zero in (1, 3):
        found = [asked(*model, *plan, "--zero", zero, "--recompute", kind) for kind in RECOMPUTE]
        assert len({each["framework"] for each in found}) == 1
        for stages in zip(*(each["stages"] for each in found), strict=True):
            none, selective, full = (stage["memory_bytes"] for stage in stages)
            assert none >= selective >= full
