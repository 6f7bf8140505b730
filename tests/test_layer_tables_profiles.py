"""Profiles of other planners in the place of a model: what they are posed as, what is named that they lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_layer_profiles import ACESO, FLOPS, GALVATRON, GRAPH, METIS, TRACE

from nest.cli.program import run
from nest.errors import InvalidProblem
from nest.files.cluster_file import read_cluster
from nest.layer_tables import LayerTable, Point, Said, TableRun, is_profiled, read_profiled, table_problem
from nest.problem import Problem, Variant

MIB = 2**20

OPERATORS = f"""{ACESO.partition(chr(10))[0]}
embedding,100.0,200.0,0.1,8.0,2.0,12.0,0.0,220.0
enc-attention,10.0,20.0,8.0,16.0,1.0,3.0,0.0,0.0
enc-mlp,30.0,40.0,16.0,8.0,2.0,4.0,0.0,0.0
head,1.0,2.0,8.0,0.0,3.0,1.0,0.0,220.0
"""


def metis(forward: float = 2.0, weights: int = 10, sent: bool = True, name: str = "tiny") -> str:
    """Return a file of Metis."""
    table = json.loads(json.dumps(METIS))
    table["model"]["model_name"] = name
    table["model"]["parameters"] = {"parameters_per_layer_bytes": [weights, 2 * weights]}
    if sent:
        table["model"]["parameters"]["activation_parameters_bytes"] = [64, 32]
    table["execution_time"]["layer_compute_total_ms"] = [forward, 3.0]
    return json.dumps(table)


def folder(tmp_path: Path, files: dict[str, str]) -> Path:
    """Return a folder with files."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def read(tmp_path: Path, text: object, name: str = "profile", **said: Any) -> LayerTable:
    """Return the table of one file."""
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    assert is_profiled(path)
    return read_profiled(path, Said(**said))


def posed(table: LayerTable, cluster: str = "dgx-a100:4") -> Problem:
    """Return the problem of a table with a batch of 8."""
    return table_problem(TableRun(table, read_cluster(cluster), 8)).problem


def test_metis_by_width_and_batch(tmp_path: Path) -> None:
    """Each file is a point; what no file is of is named, and not tried."""
    files = {
        "DeviceType.A100_tp1_bs1.json": metis(),
        "DeviceType.A100_tp2_bs1.json": metis(1.0, 5),
        "DeviceType.A100_tp1_bs4.json": metis(7.0),
        "notes.md": "mine",
    }
    table = read_profiled(folder(tmp_path, files))
    assert (table.name, table.device, table.complete) == ("tiny", "A100", (Point(1, 1), Point(1, 4), Point(2, 1)))
    assert table.missing == {Point(2, 4): "not measured"}
    assert "no layer profiles: notes.md" in table.notes
    batches, widths = table.warnings
    assert batches.startswith(
        "the bytes kept at tensor 1, microbatch 1 (DeviceType.A100_tp1_bs1.json) and at tensor 1, "
    )
    assert batches.endswith("(DeviceType.A100_tp1_bs4.json) are the same: those of one sequence, it seems, and not of "
                            "a microbatch")  # fmt: skip
    assert widths.endswith("(DeviceType.A100_tp2_bs1.json) are the same: copied, it seems, and not measured")
    problem = posed(table)
    assert set(problem.graphs) == {Variant(1), Variant(2), Variant(1, microbatch=4)}
    first, last = problem.graphs[Variant(1)].layers
    assert (first.forward_s, first.backward_s, first.parameter_bytes) == (0.0, 2e-3, 10)
    assert first.activation_bytes == MIB - 10 * 18 // 2
    assert last.activation_bytes == 2 * MIB - 20 * 18 // 2
    assert [edge.bytes for edge in problem.graphs[Variant(1)].edges] == [64]


def test_values_copied_between_widths(tmp_path: Path) -> None:
    """Times and weights that are the same in two files of different widths are warned of, by their names."""
    files = {"DeviceType.T4_tp1_bs1.json": metis(), "DeviceType.T4_tp2_bs1.json": metis()}
    warnings = read_profiled(folder(tmp_path, files)).warnings
    for what in ("the times at tensor 1", "the weights at tensor 1"):
        (found,) = [each for each in warnings if each.startswith(what)]
        assert "DeviceType.T4_tp1_bs1.json" in found
        assert "DeviceType.T4_tp2_bs1.json" in found
    assert any("those of whole layers" in each for each in warnings)


def test_metis_without_what_it_sends(tmp_path: Path) -> None:
    """The width of the model and the tokens of a sequence say it, as for the planner itself; else it is named."""
    name = "DeviceType.A100_tp1_bs2.json"
    table = read(tmp_path, metis(sent=False), name)
    assert table.lacking[0] == "what layers send is not said (--seq and --hidden)"
    with pytest.raises(InvalidProblem, match=r"no bytes that go to the next layer \(output_bytes\) of layer 'layer 0'"):
        posed(table)
    said = read(tmp_path, metis(sent=False), name, hidden=16, sequence=8)
    assert [edge.bytes for edge in posed(said).graphs[Variant(1, microbatch=2)].edges] == [2 * 8 * 16 * 2]


def test_names_that_say_nothing(tmp_path: Path) -> None:
    """Width and batch that are nowhere have to be said."""
    table = read(tmp_path, metis(), "profile.json")
    assert table.unsaid == (
        "of which tensor width it is, is not said (--tensor)",
        "of which microbatch it is, is not said (--microbatch)",
    )
    with pytest.raises(InvalidProblem, match="of which tensor width it is"):
        posed(table)
    assert read(tmp_path, metis(), "profile.json", tensor=2, microbatch=4).complete == (Point(2, 4),)


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"DeviceType.A100_tp1_bs1.json": metis(), "DeviceType.H100_tp1_bs2.json": metis()}, "device 'H100', and"),
        ({"tp1_bs1.json": metis(), "tp2_bs1.json": metis(name="other")}, "model 'other', and tp1_bs1.json has 'tiny'"),
        ({"tp1_bs1.json": metis(), "a_tp1_bs1.json": metis()}, "again at tensor 1, microbatch 1, as in a_tp1_bs1.json"),
        ({"tp1_bs1.json": metis(), "mbs1_tp1.csv": OPERATORS}, "format 'Metis JSON', and mbs1_tp1.csv has 'Aceso CSV'"),
    ],
)
def test_folders_that_are_mixed(files: dict[str, str], what: str, tmp_path: Path) -> None:
    """Files of several devices, models or planners, and two that say the same, are no profile."""
    with pytest.raises(InvalidProblem) as caught:
        read_profiled(folder(tmp_path, files))
    assert what in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_pipedream(tmp_path: Path) -> None:
    """A node keeps its output and sends it; the size of a minibatch is to be said."""
    assert read(tmp_path, GRAPH).unsaid == ("of which microbatch it is, is not said (--microbatch)",)
    table = read(tmp_path, GRAPH, microbatch=4)
    assert table.recipe == "fp32"
    made = posed(table).graphs[Variant(1, microbatch=4)]
    assert [(each.id, each.forward_s, each.activation_bytes, each.parameter_bytes) for each in made.layers] == [
        ("a", 1.5e-3, 0, 8),
        ("b", 1.5e-3, 6, 8),
    ]
    assert [(edge.source, edge.target, edge.bytes) for edge in made.edges] == [("a", "b", 0)]


def test_pipedream_with_branches(tmp_path: Path) -> None:
    """A graph that is no chain keeps its edges."""
    node = "{} -- X -- forward_compute_time=1.0, backward_compute_time=1.0, activation_size={}, parameter_size=0"
    text = "\n".join([*(node.format(name, 8) for name in "abcd"), "\ta -- b", "\ta -- c", "\tb -- d", "\tc -- d", ""])
    made = posed(read(tmp_path, text, microbatch=1)).graphs[Variant(1)]
    assert len(made.edges) == 4
    assert made.unordered_pair is not None


def test_aceso(tmp_path: Path) -> None:
    """Operators of a layer are one layer, which repeats as often as is said."""
    name = "gpt_mbs2_tp1_algo0.csv"
    assert read(tmp_path, OPERATORS, name).unsaid == ("how often the layer repeats, is not said (--layers)",)
    made = posed(read(tmp_path, OPERATORS, name, layers=3)).graphs[Variant(1, microbatch=2)]
    assert [each.id for each in made.layers] == ["embedding", "layer.1", "layer.2", "layer.3", "head"]
    layer = made.layers[1]
    assert (layer.forward_s, layer.backward_s) == pytest.approx((40e-6, 60e-6))
    assert (layer.parameter_bytes, layer.activation_bytes) == (3 * MIB, 7 * MIB)
    assert {edge.bytes for edge in made.edges} == {8 * MIB}
    with pytest.raises(InvalidProblem, match="no one run of operators"):
        read(tmp_path, ACESO, name, layers=3)


def test_aceso_at_tensor_widths(tmp_path: Path) -> None:
    """Operators alone do not say what tensor ranks exchange: such widths are reported, not tried."""
    files = {"gpt_mbs1_tp1_algo0.csv": OPERATORS, "gpt_mbs1_tp2_algo0.csv": OPERATORS}
    table = read_profiled(folder(tmp_path, files), Said(layers=2))
    assert table.complete == (Point(1, 1),)
    assert "what the tensor ranks exchange is in no column" in table.missing[Point(2, 1)]


def test_formats_that_lack_something(tmp_path: Path) -> None:
    """One line names what a plan needs and the format does not have."""
    for text, what in (
        (GALVATRON, "no time of the backward pass (backward_ms) of any layer; no weights"),
        (FLOPS.format(ranks=1, parameters="1"), "no bytes kept until the backward pass"),
    ):
        with pytest.raises(InvalidProblem) as caught:
            posed(read(tmp_path, text))
        assert what in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidProblem, match="a trace has kernels, and says of none which layer"):
        read(tmp_path, TRACE)


def test_galvatron_of_several_sequences(tmp_path: Path) -> None:
    """Sequences are not mixed: which, is to be said."""
    more = {**GALVATRON, "layertype_0_bsz1_seq64": 1.0, "layertype_other_bsz1_seq64": 1.0}
    with pytest.raises(InvalidProblem, match="sequences of 64, 128 tokens; say with --seq which"):
        read(tmp_path, more)
    assert read(tmp_path, more, sequence=64).complete == (Point(1, 1),)
    with pytest.raises(InvalidProblem, match="no sequences of 32 tokens"):
        read(tmp_path, GALVATRON, sequence=32)


def test_layers_that_are_said_twice(tmp_path: Path) -> None:
    """A profile that lists its layers takes no number of them."""
    with pytest.raises(InvalidProblem, match="--layers: 3: the profile says which layers there are"):
        read(tmp_path, metis(), "tp1_bs1.json", layers=3)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`nest show` of a folder is its table, `nest solve` and `nest estimate` plan with it, -o writes it in CSV."""
    files = {"DeviceType.A100_tp1_bs1.json": metis(), "DeviceType.A100_tp2_bs1.json": metis(1.0, 5)}
    (tmp_path / "in").mkdir()
    path = folder(tmp_path / "in", files)
    assert run(["show", str(path)]) == 0
    assert "those at tensor 1, microbatch 1" in capsys.readouterr().out
    typed = ["--model", str(path), "--cluster", "dgx-h100:4", "--global-batch", "8"]
    assert run(["solve", *typed, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "optimal"
    assert any(note.startswith("measured on A100; the devices of the cluster are") for note in answer["notes"])
    assert run(["solve", *typed, "--objective", "simulated"]) == 2
    assert "passes are timed together" in capsys.readouterr().err
    assert run(["estimate", *typed, "--tensor", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fits"] is True
    one = path / "DeviceType.A100_tp1_bs1.json"
    assert run(["show", str(one), "-o", str(tmp_path / "layers.csv")]) == 0
    capsys.readouterr()
    assert (tmp_path / "layers.csv").read_text().splitlines()[0].startswith("layer,tensor,microbatch,forward_s,")
    assert run(["show", str(tmp_path / "layers.csv")]) == 0
