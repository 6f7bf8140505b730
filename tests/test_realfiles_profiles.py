"""Profiles as people publish them, of layers, collectives and memory, and what each should come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from nest.collective_tables import CollectiveTable, is_collective_table, read_collective_table
from nest.errors import InvalidProblem
from nest.files.ancestors import read_dag
from nest.files.cluster_file import read_cluster
from nest.layer_profiles import LayerProfile, is_layer_profile, read_layer_profiles, read_memory_profile
from nest.layer_tables import Point, Said, TableRun, read_profiled, table_problem
from nest.result import Status
from nest.solve import solve

PLACES = [above / "shared" / "realfiles" / "files" for above in Path(__file__).resolve().parents]
FILES = next((place for place in PLACES if place.is_dir()), PLACES[0])

pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason=f"the profiles are not in {FILES}")


def one(name: str) -> LayerProfile:
    """Return the only profile of a file."""
    (profile,) = read_layer_profiles(FILES / name)
    return profile


def warned(profile: LayerProfile, what: str) -> bool:
    """Whether a warning says something."""
    return any(what in warning for warning in profile.warnings)


def test_metis() -> None:
    """Ten layers; the key of the memory is not that of its own documentation."""
    profile = one("metis-A100-tp1-bs1.json")
    assert len(profile.layers) == 10
    assert profile.seconds("step_s") == pytest.approx(236.763e-3, abs=1e-6)
    assert profile.amount("parameter_bytes") == 2_405_502_976
    assert profile.amount("memory_bytes") == 53120 * 2**20
    assert (profile.tensor, profile.microbatch, profile.model) == (1, 1, "GPT3")
    assert not warned(profile, "the file's")


def test_metis_of_sailor() -> None:
    """Whole layers under a tensor width of 2, no device in the name, and no key of the embedding's gradients."""
    profile = one("sailor-metis-gptneo2.7-A100-40-mbs1-tp2.json")
    assert len(profile.layers) == 34
    assert profile.seconds("step_s") == pytest.approx(313.345e-3, abs=1e-6)
    assert profile.amount("parameter_bytes") == 5_315_481_600
    assert (profile.tensor, profile.microbatch, profile.device) == (2, 1, None)
    assert warned(profile, "whole layers, not one of 2 tensor ranks")
    assert not warned(profile, "the file's")


def test_pipedream() -> None:
    """VGG-16, a graph that is nearly a chain: 138,357,544 parameters of four bytes."""
    profile = one("pipedream-vgg16.graph.txt")
    assert len(profile.layers) == 41
    assert profile.edges is not None
    assert len(profile.edges) == 41
    assert profile.seconds("forward_s") == pytest.approx(251.874e-3, abs=1e-6)
    assert profile.seconds("backward_s") == pytest.approx(438.633e-3, abs=1e-6)
    assert profile.amount("parameter_bytes") == 553_430_176 == 4 * 138_357_544
    assert all(source < target for source, target in profile.edges)
    assert warned(profile, "no chain: 41 nodes, 41 edges")


def test_aceso() -> None:
    """Microseconds, and one layer of many."""
    profile = one("aceso-gpt1.3B-mbs1-tp1-algo0.csv")
    assert profile.seconds("forward_s") == pytest.approx(15473.2e-6, abs=1e-7)
    assert profile.seconds("backward_s") == pytest.approx(21802.7e-6, abs=1e-7)
    assert (profile.tensor, profile.microbatch) == (1, 1)
    assert warned(profile, "ONE layer")


def test_galvatron() -> None:
    """The derived times are what one more layer takes of a run, by sample, and fall with the batch."""
    profiles = read_layer_profiles(FILES / "galvatron-comp-llama2-7b.json")
    assert [(profile.microbatch, profile.seq) for profile in profiles] == [(batch, 2048) for batch in range(1, 13)]
    layers = {profile.microbatch: profile.layers[0].forward_s for profile in profiles}
    assert layers[1] == pytest.approx((23.87112617492676 - 15.0786208152771) / 2 / 1e3)
    assert layers[8] == pytest.approx((149.65230712890624 - 86.66073913574219) / 2 / 1e3)
    assert warned(profiles[0], "3.918 to 4.396 ms per sample")


def test_deepspeed() -> None:
    """Milliseconds beside microseconds, and a stray quote that nothing trips over."""
    profile = one("deepspeed-flops-bert-large.txt")
    assert profile.amount("parameters") == 336_230_000
    assert profile.seconds("forward_s") == pytest.approx(76.67e-3)
    assert profile.seconds("backward_s") == pytest.approx(108.02e-3)
    assert profile.microbatch == 80
    assert dict(profile.beside)["step latency (weights update)"] == pytest.approx(34.09e-6)
    assert profile.layers[0].name == "BertForPreTrainingPreLN"
    assert not warned(profile, "ZeRO-3")


def test_torch_trace() -> None:
    """Fourteen kernels on one of four devices."""
    profile = one("hta-mi250-train.trace.json")
    assert sum(int(layer.kind.partition(" ")[0]) for layer in profile.layers) == 14
    assert warned(profile, "220 events, 14 of them kernels, 62 without category")
    assert warned(profile, "4 devices are listed, kernels ran on 1")


def test_simai() -> None:
    """Seventy-six rows of few names, a dependency of -1 that is none, and no unit."""
    profile = one("simai-llama7b-tp2.workload.txt")
    assert len(profile.layers) == 76
    assert profile.tensor == 2
    assert warned(profile, "no unit is in the file")
    assert warned(profile, "76 rows of")
    assert not warned(profile, "the file says that it has")
    attention = next(layer for layer in profile.layers if layer.name == "attention_layer")
    assert attention.forward_s == pytest.approx(539986e-9)
    assert "allreduce 16777216" in attention.kind


def test_estimates_of_operators() -> None:
    """Numbers as text are keys, of tensor widths and of operators; no unit is stated."""
    profile = one("nest-bert-large-h100.estimates.json")
    assert (profile.tensor, len(profile.layers)) == (1, 24)
    by_name = {layer.name: layer for layer in profile.layers}
    assert by_name["32"].kind == "TC"
    assert by_name["32"].forward_s == pytest.approx(0.0012415e-3)
    assert [layer.name for layer in profile.layers] == sorted(by_name, key=int)
    assert warned(profile, "no unit is in the file")


def collectives(name: str) -> CollectiveTable:
    """Return the collectives of a file, which is no profile of layers."""
    assert not is_layer_profile(FILES / name)
    return read_collective_table(FILES / name)


def test_aceso_collectives() -> None:
    """Rows in any order, milliseconds here where operators have microseconds."""
    table = collectives("aceso-allreduce-8gpus.csv")
    assert len(table.rows) == 70
    sizes = [row.bytes for row in table.rows]
    assert sizes == sorted(sizes, key=lambda size: size or 0.0)
    last = table.rows[-1]
    assert (last.kind, last.ranks, last.bytes) == ("all-reduce", 8, 3840 * 2**20)
    assert last.seconds == pytest.approx(54.139e-3)
    assert last.bus == pytest.approx(2 * 7 / 8 * 3840 * 2**20 / 54.139e-3)


def test_aceso_transfers() -> None:
    """A transposed table without names."""
    table = collectives("aceso-p2p-inter-node.csv")
    assert [row.bytes for row in table.rows] == [2.0**power * 2**20 for power in range(11)]
    assert [row.bus for row in table.rows][::10] == pytest.approx([3.88 * 2**30, 5.44 * 2**30])


def test_galvatron_bandwidths() -> None:
    """Groups near and far, and pipelines, in GB/s."""
    rows = {(row.ranks, row.group): row.bus for row in collectives("galvatron-allreduce-2n8g.json").rows}
    assert rows[8, "neighbours"] == pytest.approx(155.658e9)
    assert rows[2, "ranks far apart"] == pytest.approx(8.13007e9)
    assert len(rows) == 7
    piped = collectives("galvatron-p2p-2n8g.json").rows
    assert [row.bus for row in piped if row.group == "pipeline of 8 stages"] == pytest.approx([8.76278e9])


def test_nnscaler_collectives() -> None:
    """Two lists for each collective; taken as MiB and seconds no bus is faster than eight MI200 have."""
    table = collectives("nnscaler-mi200-intra8.comm.json")
    assert len(table.rows) == 4 * 12
    reduced = [row for row in table.rows if row.kind == "all-reduce"]
    assert (reduced[-1].ranks, reduced[-1].bytes) == (8, 512 * 2**20)
    assert reduced[-1].seconds == pytest.approx(0.013917374610900878)
    assert all(row.bus is not None and row.bus < 400e9 for row in table.rows)
    assert any("units are not in the file" in warning for warning in table.warnings)


def test_galvatron_memory() -> None:
    """Keys are pipeline, tensor and data-parallel width; values MiB of a rank."""
    profile = read_memory_profile(FILES / "galvatron-mem-llama2-7b.json")
    assert profile is not None
    first = profile.rows[0]
    assert (first.pipeline, first.tensor, first.data, first.rank, first.layers) == (1, 1, 8, 0, "1")
    assert first.states_bytes == pytest.approx(904.3330078125 * 2**20)
    assert {(row.pipeline, row.tensor, row.data) for row in profile.rows} == {
        *((1, 1, 8), (1, 2, 4), (1, 4, 2), (1, 8, 1), (2, 1, 4), (2, 2, 2), (2, 4, 1), (4, 1, 2), (4, 2, 1))
    }
    assert all(row.pipeline * row.tensor * row.data == 8 for row in profile.rows)
    derived = dict(profile.derived)
    assert derived["layertype_0_sp.2048.parameter_size"] == pytest.approx(778.2236328125 * 2**20)


def test_dnn_partitioning() -> None:
    """Colours tie forward and backward nodes; accelerators are called FPGA."""
    problem = read_dag(FILES / "dnnpartitioning-bert24-training.json")
    assert (len(problem.layers), len(problem.edges)) == (64, 110)
    assert sum(layer.backward for layer in problem.layers) == 32
    accelerators = next(kind for kind in problem.classes if kind.name == "accelerator")
    assert (accelerators.count, accelerators.memory_bytes) == (6, 17185374208)
    colours = {layer.colour for layer in problem.layers if layer.backward}
    assert colours <= {layer.colour for layer in problem.layers if not layer.backward}


def test_piper() -> None:
    """Options by tensor width and recomputation; names that come several times are not what tells layers apart."""
    problem = read_dag(FILES / "piper-bert32-a100.json")
    assert (len(problem.layers), len(problem.edges)) == (37, 67)
    assert (problem.classes[0].count, problem.bandwidth, problem.microbatches) == (10, 25e9, 1920)
    assert {width for layer in problem.layers for _, width in layer.options} == {1, 2, 4, 8}
    assert all(len(options) == 2 for options in problem.layers[0].options.values())


@pytest.mark.parametrize(
    ("name", "said", "point", "layers"),
    [
        ("metis-A100-tp1-bs1.json", Said(hidden=2048, sequence=1024), Point(1, 1), 10),
        ("aceso-gpt1.3B-mbs1-tp1-algo0.csv", Said(layers=24), Point(1, 1), 27),
        ("pipedream-vgg16.graph.txt", Said(microbatch=64), Point(1, 64), 41),
    ],
)
def test_profiles_that_are_planned_with(name: str, said: Said, point: Point, layers: int) -> None:
    """What holds all that a plan needs, once it is said what it leaves open, is a model: solved, and proven."""
    table = read_profiled(FILES / name, said)
    assert table.complete == (point,)
    problem = table_problem(TableRun(table, read_cluster("dgx-a100:8"), 64)).problem
    assert [len(graph) for graph in problem.graphs.values()] == [layers]
    assert solve(problem).status is Status.OPTIMAL


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("metis-A100-tp1-bs1.json", "what layers send is not said"),
        ("sailor-metis-gptneo2.7-A100-40-mbs1-tp2.json", "the weights of one device where these are of whole layers"),
        ("galvatron-comp-llama2-7b.json", "no time of the backward pass (backward_ms) of any layer"),
        ("aceso-gpt1.3B-mbs1-tp1-algo0.csv", "how often the layer repeats, is not said (--layers)"),
        ("pipedream-vgg16.graph.txt", "of which microbatch it is, is not said (--microbatch)"),
        ("deepspeed-flops-bert-large.txt", "no bytes kept until the backward pass"),
        ("hta-mi250-train.trace.json", "a trace has kernels, and says of none which layer"),
        ("simai-llama7b-tp2.workload.txt", "no bytes of weights"),
        ("nest-bert-large-h100.estimates.json", "without their order, weights or what they keep"),
    ],
)
def test_profiles_that_lack_something(name: str, what: str) -> None:
    """One line names what is missing."""
    with pytest.raises(InvalidProblem) as caught:
        table_problem(TableRun(read_profiled(FILES / name), read_cluster("dgx-a100:8"), 64))
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_other_file_is_a_profile() -> None:
    """No model, no cluster and no table of collectives is taken for a profile of layers, and none for collectives."""
    assert {path.name for path in FILES.iterdir() if is_collective_table(path)} == {
        *("aceso-allreduce-8gpus.csv", "aceso-p2p-inter-node.csv", "galvatron-allreduce-2n8g.json"),
        *("galvatron-p2p-2n8g.json", "nnscaler-mi200-intra8.comm.json"),
    }
    taken = {path.name for path in FILES.iterdir() if is_layer_profile(path)}
    assert taken == {
        "aceso-gpt1.3B-mbs1-tp1-algo0.csv",
        "deepspeed-flops-bert-large.txt",
        "galvatron-comp-llama2-7b.json",
        "hta-mi250-train.trace.json",
        "metis-A100-tp1-bs1.json",
        "nest-bert-large-h100.estimates.json",
        "pipedream-vgg16.graph.txt",
        "sailor-metis-gptneo2.7-A100-40-mbs1-tp2.json",
        "simai-llama7b-tp2.workload.txt",
    }
