"""Layer profiles of other tools: small samples of each format, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nest.cli import cli
from nest.errors import InvalidProblem
from nest.layer_profiles import LayerProfile, is_layer_profile, profiles_of

METIS = {
    "model": {
        "model_name": "tiny",
        "num_layers": 2,
        "parameters": {"total_parameters_bytes": 30, "parameters_per_layer_bytes": [10, 20]},
    },
    "execution_time": {"total_time_ms": 9, "optimizer_time_ms": 4.0, "layer_compute_total_ms": [2.0, 3.0]},
    "execution_memory": {"total_memory_mb": 3, "layer_memory_total_mb": [1, 2]},
}

NODE = "forward_compute_time=1.500, backward_compute_time=2.500, activation_size={}, parameter_size=8.000"
CHAIN = "\n".join((f"b -- Conv2d(3, 4, size=(3, 3)) -- {NODE.format('[4.0; 2.0]')}", f"a -- Input -- {NODE.format(0)}"))
GRAPH = f"{CHAIN}\n\ta -- b\n"

ACESO = """op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,fwd_reserved,bwd_reserved
embedding,100.0,200.0,0.1,8.0,208.5,12.0,0.0,220.0
head,1.0,2.0,0.1,8.0,0.0,1.0,0.0,220.0
"""

GALVATRON = {
    "layernum[2]_bsz4_seq128": 50.0,
    "layertype_0_bsz4_seq128": 2.0,
    "layertype_other_bsz4_seq128": 3.0,
    "layertype_0_bsz1_seq128": 2.5,
    "layertype_other_bsz1_seq128": 3.0,
}

FLOPS = """---- DeepSpeed Flops Profiler ----
data parallel size:                     {ranks}
batch size per GPU:                     8
params per gpu:                         1.29 M
fwd latency:                            1.5 s
bwd latency:                            20.0 ms
step latency:                           30.0 us

Net(
  (fc): Linear({parameters}, 10.0 GMACs, 100.00% MACs, 1.5 s, 100.00% latency, 1 TFLOPS)
)
"""

SIMAI = """HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 4 checkpoints: 0
3
norm\t-1\t1\tBROADCAST\t64\t1\tNONE\t0\t1\tNONE\t0\t100
layer\t-1\t5000\tALLREDUCE\t128\t3000\tALLREDUCE\t128\t2000\tNONE\t0\t100
layer\t-1\t5000\tALLREDUCE\t128\t3000\tALLREDUCE\t128\t2000\tNONE\t0\t100
"""

PASSES = {"fwd": {"latency": 2.0, "estimation_time": 1.0}, "bwd": {"latency": 3.0, "estimation_time": 1.0}}
ESTIMATES = {"2": {"TC": {"10": [PASSES], "9": [PASSES]}, "AR": {}}}

KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5.0, "dur": 2.0, "args": {"device": 1}}
TRACE = {"deviceProperties": [{"name": "X"}, {"name": "X"}], "traceEvents": [KERNEL, KERNEL, {"ph": "M"}]}


def one(text: object, name: str = "") -> LayerProfile:
    """Return the only profile of a text, or of a table as JSON."""
    (profile,) = profiles_of(text if isinstance(text, str) else json.dumps(text), name)
    return profile


def test_metis() -> None:
    """Milliseconds and MiB become seconds and bytes; the name of the file says the rest."""
    profile = one(METIS, "DeviceType.A100_tp2_bs4.json")
    assert (profile.device, profile.tensor, profile.microbatch) == ("A100", 2, 4)
    assert profile.seconds("step_s") == pytest.approx(5e-3)
    assert (profile.amount("parameter_bytes"), profile.amount("memory_bytes")) == (30, 3 * 2**20)
    assert profile.beside == (("optimizer_time_ms", 4e-3),)
    assert profile.seconds("forward_s") is None
    assert profile.amount("activation_bytes") is None
    assert any("whole layers, not one of 2" in warning for warning in profile.warnings)


def test_metis_without_facts_in_its_name() -> None:
    """A name that says nothing, or two things, leaves them open; tensor width 1 needs no warning of whole layers."""
    for name in ("a.json", "tp1_tp2_bs1_bs4.json"):
        profile = one(METIS, name)
        assert (profile.device, profile.tensor, profile.microbatch) == (None, None, None)
        assert sum("the file's name" in warning for warning in profile.warnings) == 2
    assert not any("whole layers" in warning for warning in one(METIS, "mbs1_tmp1.json").warnings)


def test_metis_totals_that_differ() -> None:
    """A total that is not the sum of the layers is told."""
    other = {**METIS, "model": {**METIS["model"], "num_layers": 3}}
    assert "the file's num_layers is 3, its layers have 2" in one(other, "tp1_bs1").warnings


def test_pipedream() -> None:
    """Nodes in any order, commas in what they are, sizes of several results."""
    profile = one(GRAPH)
    assert [(layer.name, layer.kind) for layer in profile.layers] == [
        ("a", "Input"),
        ("b", "Conv2d(3, 4, size=(3, 3))"),
    ]
    assert (profile.seconds("forward_s"), profile.seconds("backward_s")) == pytest.approx((3e-3, 5e-3))
    assert (profile.amount("activation_bytes"), profile.amount("parameter_bytes")) == (6, 16)
    assert (profile.is_chain, profile.warnings, profile.microbatch) == (True, (), None)


def test_pipedream_that_is_no_chain() -> None:
    """Branches are told."""
    profile = one(f"{CHAIN}\nc -- colons: a -- b -- {NODE.format(1)} -- stage_id=1\n\ta -- b\n\ta -- c\n")
    assert profile.is_chain is False
    assert profile.layers[-1].kind == "colons: a -- b"
    assert profile.warnings == ("the graph is no chain: 3 nodes, 2 edges",)


def test_aceso() -> None:
    """Microseconds and MiB; operators of one layer."""
    profile = one(ACESO, "gpt_mbs2_tp4_algo0.csv")
    assert (profile.tensor, profile.microbatch) == (4, 2)
    assert (profile.seconds("forward_s"), profile.seconds("backward_s")) == pytest.approx((101e-6, 202e-6))
    assert (profile.amount("parameter_bytes"), profile.amount("activation_bytes")) == (208.5 * 2**20, 13 * 2**20)
    assert "ONE layer" in profile.warnings[0]


def test_galvatron() -> None:
    """A profile for each batch, of the whole batch; runs of whole models are no layers."""
    small, large = profiles_of(json.dumps(GALVATRON))
    assert [(each.microbatch, each.seq, each.tensor) for each in (small, large)] == [(1, 128, None), (4, 128, None)]
    assert [layer.forward_s for layer in large.layers] == pytest.approx([8e-3, 12e-3])
    assert any("batch 2, 3 not measured" in warning for warning in small.warnings)
    assert any("2 to 2.5 ms per sample" in warning for warning in small.warnings)


def test_deepspeed() -> None:
    """Units differ by line."""
    profile = one(FLOPS.format(ranks=1, parameters="1.29 M, 100.00% Params"))
    assert (profile.seconds("forward_s"), profile.seconds("backward_s")) == pytest.approx((1.5, 20e-3))
    assert dict(profile.beside) == pytest.approx({"step latency (weights update)": 30e-6})
    assert (profile.microbatch, profile.tensor, profile.amount("parameters")) == (8, None, 1_290_000)
    assert profile.amount("parameter_bytes") is None
    assert not any("ZeRO-3" in warning for warning in profile.warnings)


def test_deepspeed_of_sharded_parameters() -> None:
    """A run that shards its parameters reports those it holds whole, 1.29 M of any number."""
    for ranks, parameters in ((1, "0, 0.00% Params"), (8, "1.29 M, 100.00% Params")):
        assert "ZeRO-3" in one(FLOPS.format(ranks=ranks, parameters=parameters)).warnings[-1]


def test_torch_trace() -> None:
    """Kernels of one name come together; what is no kernel is counted and left out."""
    profile = one(TRACE)
    assert [(layer.name, layer.kind) for layer in profile.layers] == [("gemm", "2 x kernel")]
    assert profile.seconds("step_s") == pytest.approx(4e-6)
    assert profile.device == "X"
    assert profile.warnings[1:] == (
        "3 events, 2 of them kernels, 1 without category",
        "2 devices are listed, kernels ran on 1",
    )


def test_simai() -> None:
    """Nanoseconds behind a header of keys; names come again, and times of 1 are none."""
    profile = one(SIMAI, "llama_tp4_mbs2.txt")
    assert (profile.tensor, profile.microbatch) == (4, 2)
    assert [layer.forward_s for layer in profile.layers] == pytest.approx([1e-9, 5e-6, 5e-6])
    assert profile.layers[1].backward_s == pytest.approx(5e-6)
    assert profile.layers[1].kind == "allreduce 128, allreduce 128"
    assert "3 rows of 2 names: 1 of them come several times" in profile.warnings
    assert "times of 1 stand for what was not timed" in profile.warnings
    assert "the file says that it has 4 rows, and has 3" in one(SIMAI.replace("\n3\n", "\n4\n")).warnings


def test_estimates() -> None:
    """Keys are numbers as text: of widths, and of operators, which are in their order."""
    (profile,) = profiles_of(json.dumps(ESTIMATES), "bert_mbs_1_sl_512.json")
    assert (profile.tensor, profile.microbatch, profile.seq) == (2, 1, 512)
    assert [(layer.name, layer.kind) for layer in profile.layers] == [("9", "TC"), ("10", "TC")]
    assert profile.seconds("forward_s") == pytest.approx(4e-3)
    assert "no unit is in the file" in profile.warnings[0]


def test_metis_key_of_its_memory() -> None:
    """The key is total_memory in files, and total_memory_mb in what its own page says: both are compared."""
    for key in ("total_memory", "total_memory_mb"):
        table = {**METIS, "execution_memory": {key: 4, "layer_memory_total_mb": [1, 2]}}
        assert "the file's total_memory is 4, its layers have 3" in one(table, "tp1_bs1").warnings


def changed(where: str, value: object) -> str:
    """Return the sample of Metis with one value changed."""
    table = json.loads(json.dumps(METIS))
    *path, last = where.split(".")
    inner = table
    for key in path:
        inner = inner[key]
    inner[last] = value
    return json.dumps(table)


BAD = {
    "times": (changed("execution_time.layer_compute_total_ms", [1.0]), "1 times, but other lists have 2 numbers"),
    "negative": (changed("execution_time.layer_compute_total_ms", [1.0, -2.0]), "layer_compute_total_ms[1]: -2.0"),
    "infinite": (changed("execution_time.layer_compute_total_ms", [1.0, float("inf")]), "[1]: Infinity"),
    "huge": (changed("execution_time.layer_compute_total_ms", [1.0, 10**400]), "[1]: a number of"),
    "flag": (changed("execution_time.layer_compute_total_ms", [1.0, True]), "[1]: true"),
    "no list": (changed("execution_memory.layer_memory_total_mb", []), "execution_memory.layer_memory_total_mb: []"),
    "no table": (changed("model", 3), "model: 3; give a table"),
    "missing": (changed("model", {"parameter": {}}), 'model.parameters: missing (there is a key "parameter")'),
    "circle": (f"{GRAPH}\tb -- a\n", "edges: a circle"),
    "no node": (f"{GRAPH}\tb -- z\n", "there is no node 'z'"),
    "twice": (f"{CHAIN}\n{CHAIN}\n", "line 3: a second node 'b'"),
    "no line": (f"{GRAPH}what\n", "line 4: 'what' is no node"),
    "no figure": (GRAPH.replace(", parameter_size=8.000", ""), "line 1: b has no parameter_size"),
    "cells": (f"{ACESO}head,1.0\n", "line 4: 2 cells, the head has 9"),
    "word": (ACESO.replace("200.0", "fast"), 'line 2: backward-compute: "fast"'),
    "no operators": (ACESO.partition("\n")[0], "without layers"),
    "column": (ACESO.replace("activations", "kept"), "no column 'activations'"),
    "runs alone": (json.dumps({"layernum[2]_bsz4_seq128": 1.0}), "run times of whole models alone"),
    "other key": (json.dumps({**GALVATRON, "bsz": 1}), "bsz: a key that says nothing"),
    "no batch": (json.dumps({**GALVATRON, "layertype_0_bsz0_seq128": 1}), "microbatch: 0; give at least 1"),
    "no latency": (FLOPS.replace("fwd", "forward"), "fwd latency: missing"),
    "unit": (FLOPS.replace("1.5 s\n", "1.5 h\n", 1), "fwd latency: unit 'h'; known are us, ms, s"),
    "no kernel": (json.dumps({"traceEvents": [{"ph": "M"}]}), "none of 1 events is a kernel"),
    "no events": (json.dumps({"traceEvents": 3}), "traceEvents: 3; give a list"),
    "no duration": (json.dumps({"traceEvents": [{"cat": "kernel"}]}), "traceEvents[0].dur: null"),
    "rows": (SIMAI.replace("\n3\n", "\nthree\n"), "line 2: no number of rows"),
    "tabs": (SIMAI.replace("\t100", "", 1), "line 3: 11 cells; give 12"),
    "no estimates": (json.dumps({"2": {"TC": {"9": [PASSES], "10": 3}}}), "2.TC.10: 3"),
    "unknown": ("hello", "no layer profile that is known"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case: str) -> None:
    """A value that is missing or wrong is named."""
    text, message = BAD[case]
    with pytest.raises(InvalidProblem) as fault:
        profiles_of(text)
    assert message in str(fault.value)


def test_show(tmp_path: Path) -> None:
    """`nest show` prints layers, sums, units and warnings, as text and as JSON."""
    path = tmp_path / "DeviceType.A100_tp2_bs4.json"
    path.write_text(json.dumps(METIS))
    text = CliRunner().invoke(cli, ["show", str(path)])
    assert text.exit_code == 0
    for part in ("Metis JSON", "device A100, tensor width 2, microbatch 4", "5 ms", "parameter bytes 30", "Warning"):
        assert part in text.output
    facts = json.loads(CliRunner().invoke(cli, ["show", str(path), "--json"]).output)
    (profile,) = facts["profiles"]
    assert facts["schema"] == "nest.layer-profiles/1"
    assert profile["totals"]["parameter_bytes"] == 30
    assert profile["totals"]["forward_s"] is None
    assert len(profile["layers"]) == 2


def test_show_refuses(tmp_path: Path) -> None:
    """A broken profile is one line and exit code 2; options of problems and models say nothing here."""
    path = tmp_path / "tp1_bs1.json"
    path.write_text(BAD["negative"][0])
    done = CliRunner().invoke(cli, ["show", str(path)], standalone_mode=False)
    assert isinstance(done.exception, InvalidProblem)
    assert str(done.exception).startswith(f"{path}: execution_time.layer_compute_total_ms[1]: -2.0")
    path.write_text(json.dumps(METIS))
    done = CliRunner().invoke(cli, ["show", str(path), "--vocab", "8"])
    assert done.exit_code == 2
    assert "'--vocab' says nothing of a layer profile" in done.output


def test_what_is_no_profile(tmp_path: Path) -> None:
    """Other files, broken JSON and directories stay what they are."""
    assert not is_layer_profile(tmp_path)
    for text in (
        '{"traceEvents": [',
        '["traceEvents"]',
        '{"schema": "nest.problem/1"}',
        "data_size(MB),time(ms)\n1,2\n",
        "# by the DeepSpeed Flops Profiler\n",
        "",
    ):
        path = tmp_path / "file"
        path.write_text(text)
        assert not is_layer_profile(path)
