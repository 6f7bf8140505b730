"""Problem files that are right: what is read, that nothing is lost on the way, and how fast."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from artifact_data import ARTIFACT_DATA, needs_artifact_data
from pace import is_within
from random_problems import Size, random_problem

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem
from nest.files import problem_schema, problem_text, read_problem, write_problem
from nest.graph import Edge, Layer, LayerGraph
from nest.presets import ARTIFACT, PAPER
from nest.problem import Choices, Problem, Training, Variant

ARTIFACT_INPUTS = sorted([*ARTIFACT_DATA.glob("inputs/*.json"), *ARTIFACT_DATA.glob("faults/*.json")])
ARTIFACT_INPUTS = [path for path in ARTIFACT_INPUTS if path.stem != "optimum"]

VALIDATOR = jsonschema.Draft202012Validator(problem_schema())

ARTIFACT_INPUT: dict[str, Any] = {
    "maxDevices": 6,
    "maxMemoryPerDevice": 6.5,
    "devices_per_level": [3, 2],
    "bws": [400, 100],
    "latency_per_level": [0, 0.25],
    "mbsInBatch": 4096.0,
    "ep_degree": 2,
    "cp_degree": 3,
    "sp_enabled": True,
    "activationRecomputation": True,
    "optimizerAlgorithm": "Adam",
    "frequency": 1e6,
    "baselines": {"Manual": {"p": 8}},
    "nodes": {
        "1": [
            {"id": 0, "parameterSize": 10, "activationSize": 0.5, "optimalLatencyFw": 2, "optimalLatencyBw": 4.5},
            {"id": -1, "parameterSize": 1e-7, "activationSize": 7, "optimalLatencyFw": 1, "optimalLatencyBw": 0},
        ]
    },
    "edges": {"1": [{"sourceId": -1, "destId": 0, "communicationCost": 3}]},
}


def chain(
    count: int, *, levels: int = 1, fanout: int = 2, kind: str = "block", widths: tuple[int, ...] = (1,)
) -> Problem:
    """Return a problem whose layers all differ, on ``fanout ** levels`` devices."""
    cluster = Cluster(
        fanout**levels, 1000, tuple(Level(fanout, 10.0 / (at + 1), 0.1 * at, f"level {at}") for at in range(levels))
    )
    graphs = {}
    for width in widths:
        layers = [Layer(at, at / (3 * width), at / 7, 10 * at, at, kind) for at in range(count)]
        graphs[Variant(width)] = LayerGraph.sort(layers, [Edge(a.id, b.id, 5 + width) for a, b in pairwise(layers)])
    return Problem("chain", graphs, cluster, Training(7))


def twin() -> LayerGraph:
    """Return a graph of layers that are alike except for one, with strings and numbers as ids, and skips."""
    names: list[int | str] = ["embedding", 3, 4, 5, 'ünï "code" \\ \x7f', "head"]
    layers = [Layer(name, 1.5, 3.0, 8, 9, "block") for name in names]
    layers[2] = replace(layers[2], forward_s=1e-9)
    edges = [*(Edge(a, b, 100) for a, b in pairwise(names)), Edge("embedding", 5, 100), Edge(3, "head", 0.1)]
    place = {name: at for at, name in enumerate(names)}
    return LayerGraph.sort(layers, sorted(edges, key=lambda edge: (place[edge.source], place[edge.target])))


def alike(count: int) -> LayerGraph:
    """Return a chain of equal layers."""
    layers = [Layer(at, 1.0, 2.0, 3, 4, "block") for at in range(count)]
    return LayerGraph.sort(layers, [Edge(a.id, b.id, 5) for a, b in pairwise(layers)])


def in_order(problem: Problem) -> Problem:
    """Return a problem with its edges in the order of their layers, which the compact form of the file keeps."""

    def sorted_edges(graph: LayerGraph) -> LayerGraph:
        return LayerGraph(
            graph.layers,
            tuple(sorted(graph.edges, key=lambda edge: (graph.index[edge.source], graph.index[edge.target]))),
        )

    return replace(problem, graphs={variant: sorted_edges(graph) for variant, graph in problem.graphs.items()})


def again(problem: Problem, folder: Path) -> Problem:
    """Return a problem after writing and reading it."""
    write_problem(problem, folder / "problem.toml")
    return read_problem(folder / "problem.toml")


GOOD = {
    "one layer": chain(1),
    "one level": chain(5),
    "ten levels": chain(5, levels=10),
    "odd fan-outs": chain(3, levels=3, fanout=7),
    "no kinds": chain(4, kind=""),
    "three widths": chain(6, widths=(1, 3, 5)),
    "one device": replace(chain(2), cluster=Cluster(1, 0.5, (Level(1, 1e-3, 0.0),))),
    "last group incomplete": replace(
        chain(2), cluster=Cluster(5, 2**53, (Level(2, 1e18, 1e9), Level(3, 1.5, 0.0)), "five", partial=True)
    ),
    "skips and an exception": replace(chain(1), graphs={Variant(2, 3, 4, True, 5): twin()}, preset=ARTIFACT),
    "every choice": replace(
        chain(3, widths=(1, 2)),
        choices=Choices(
            tensor=frozenset({1, 2}),
            expert=frozenset({1}),
            context=frozenset({1, 5, 6}),
            microbatch=frozenset({1}),
            sequence=False,
            replicas=frozenset(range(2, 9)),
            stages=frozenset({1, 3}),
            zero=frozenset({0, 3}),
            zero_degree=frozenset({3, 6}),
            recompute="full",
        ),
    ),
    "no sharding": replace(chain(3), choices=Choices(zero=frozenset({0}))),
    "sharding of one type": replace(chain(3), choices=Choices(zero=frozenset({2}))),
    "milliseconds": replace(chain(3), time_unit_s=1e-3, source="a\nb\t", name=""),
}


@pytest.mark.parametrize("problem", GOOD.values(), ids=GOOD.keys())
def test_round_trip(problem: Problem, tmp_path: Path) -> None:
    """A problem written and read is equal to the last bit."""
    assert again(problem, tmp_path) == problem


@pytest.mark.parametrize(("ordered", "form"), [(True, "skips"), (False, "edges")])
def test_round_trip_of_random_problems(ordered: bool, form: str, tmp_path: Path) -> None:
    """The same for problems with every feature: parallel edges, fractional bytes, several variants."""
    forms = 0
    for seed in range(60):
        problem = random_problem(seed, Size(layers=9), ugly=seed % 2 == 0)
        problem = in_order(problem) if ordered else problem
        assert again(problem, tmp_path) == problem, f"seed {seed}"
        forms += form in tomllib.loads(problem_text(problem))["model"]
    assert forms >= 10, f"only {forms} problems show the form with {form}"


@pytest.mark.parametrize("problem", GOOD.values(), ids=GOOD.keys())
def test_json_form(problem: Problem, tmp_path: Path) -> None:
    """The same structure as JSON is the same problem, under any file name; both fit the published schema."""
    tree = tomllib.loads(problem_text(problem))
    (tmp_path / "problem.toml").write_text(json.dumps(tree))
    assert read_problem(tmp_path / "problem.toml") == problem
    VALIDATOR.validate(tree)


def test_schema_refuses() -> None:
    """The schema is strict, so that fitting it says something."""
    tree = tomllib.loads(problem_text(chain(2)))
    changes: tuple[dict[str, Any], ...] = (
        {"extra": 1},
        {"cluster": tree["cluster"] | {"devices": 0}},
        {"model": {"layers": []}},
    )
    for change in changes:
        assert list(VALIDATOR.iter_errors(tree | change)), change


@needs_artifact_data
@pytest.mark.parametrize("path", ARTIFACT_INPUTS, ids=lambda path: path.stem)
def test_round_trip_of_artifact_inputs(path: Path, tmp_path: Path) -> None:
    """The compact form holds every input of the original solver exactly, in at most a hundred lines."""
    problem = read_problem(path)
    assert again(problem, tmp_path) == problem
    text = (tmp_path / "problem.toml").read_text()
    assert len(text.splitlines()) <= 100
    VALIDATOR.validate(tomllib.loads(text))


def test_artifact_input(tmp_path: Path) -> None:
    """An input of the original solver: milliseconds become seconds, layers go in order, network figures stay."""
    path = tmp_path / "some_input.txt"
    path.write_text(json.dumps(ARTIFACT_INPUT))
    layers = (Layer(-1, 0.001, 0.0, 1e-7, 7), Layer(0, 0.002, 0.0045, 10, 0.5))
    assert read_problem(path) == Problem(
        name="some_input",
        graphs={Variant(tensor=1, expert=2, context=3, sequence=True): LayerGraph(layers, (Edge(-1, 0, 3),))},
        cluster=Cluster(6, 6.5, (Level(3, 400.0, 0.0), Level(2, 100.0, 0.25))),
        training=Training(4096, "adam"),
        choices=Choices(recompute="full"),
        preset=PAPER,
        time_unit_s=1e-3,
    )


def test_artifact_cluster_may_be_partial(tmp_path: Path) -> None:
    """More places than devices is what the original solver takes; only then is the cluster partial."""
    path = tmp_path / "input.json"
    for fanouts, partial in (([3, 2], False), ([4, 2], True), ([3, 3], True)):
        path.write_text(json.dumps(ARTIFACT_INPUT | {"devices_per_level": fanouts}))
        assert read_problem(path).cluster.partial is partial


@pytest.mark.parametrize("ignored", ["NaN", "Infinity", "1e999", "[[[]]]", '"\\u00e4"'])
def test_artifact_extra_keys(ignored: str, tmp_path: Path) -> None:
    """Keys that say nothing about the problem may hold anything that Python's JSON writes."""
    path = tmp_path / "input.json"
    path.write_text(json.dumps(ARTIFACT_INPUT | {"energy": "HERE"}).replace('"HERE"', ignored))
    assert read_problem(path).training == Training(4096, "adam")


def test_equal_keys_in_json(tmp_path: Path) -> None:
    """Of two equal keys in a JSON object the later counts, as in Python."""
    path = tmp_path / "input.json"
    path.write_text(json.dumps(ARTIFACT_INPUT).replace('"mbsInBatch"', '"mbsInBatch": 5, "mbsInBatch"'))
    assert read_problem(path).training.microbatches == 4096


def test_byte_order_mark(tmp_path: Path) -> None:
    """A UTF-8 file may begin with a byte order mark, in either syntax."""
    for text in (problem_text(chain(2)), json.dumps(tomllib.loads(problem_text(chain(2))))):
        (tmp_path / "p").write_text(text, encoding="utf-8-sig")
        assert read_problem(tmp_path / "p") == chain(2)


def test_name_defaults_to_the_file(tmp_path: Path) -> None:
    """A problem without a name is called as its file."""
    lines = problem_text(chain(2)).splitlines(keepends=True)
    (tmp_path / "my problem.toml").write_text("".join(line for line in lines if line != 'name = "chain"\n'))
    assert read_problem(tmp_path / "my problem.toml").name == "my problem"


def test_ids_default_to_places(tmp_path: Path) -> None:
    """Layers without ids are numbered by place, from 0, whatever the ids before them."""
    tree = tomllib.loads(problem_text(chain(1)))
    tree["model"]["layers"] = [{"kind": "block", "ids": ["a", "b"]}, {"kind": "block", "count": 2}]
    tree["model"]["costs"] = [tree["model"]["costs"][0] | {"output_bytes": 1}]
    (tmp_path / "p.json").write_text(json.dumps(tree))
    (graph,) = read_problem(tmp_path / "p.json").graphs.values()
    assert [layer.id for layer in graph.layers] == ["a", "b", 2, 3]


def test_rows_for_ids_come_first(tmp_path: Path) -> None:
    """A cost row with ids holds for these layers, the row of their kind for the others."""
    tree = tomllib.loads(problem_text(chain(1)))
    row = tree["model"]["costs"][0] | {"output_bytes": 1}
    tree["model"]["layers"] = [{"kind": "block", "count": 3}]
    special = {name: value for name, value in row.items() if name != "kind"} | {"ids": [1], "forward_s": 9}
    tree["model"]["costs"] = [special, row]
    (tmp_path / "p.json").write_text(json.dumps(tree))
    (graph,) = read_problem(tmp_path / "p.json").graphs.values()
    assert [layer.forward_s for layer in graph.layers] == [0.0, 9.0, 0.0]


def test_identical_layers_are_written_once() -> None:
    """Equal layers take one entry and one row, the last one, which sends nothing, included."""
    tree = tomllib.loads(problem_text(replace(chain(1), graphs={Variant(1): alike(50)})))
    assert tree["model"]["layers"] == [{"kind": "block", "first_id": 0, "count": 50}]
    assert [(row["kind"], row["output_bytes"]) for row in tree["model"]["costs"]] == [("block", 5)]
    assert tree["model"].keys() == {"layers", "costs"}


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            replace(chain(2), preset=replace(PAPER, network_factor=2.0)),
            "preset: 'paper' is no preset known by name; use a named preset",
        ),
        (
            replace(chain(2), graphs={Variant(1): chain(2).graphs[Variant(1)], Variant(2): twin()}),
            "model: layers or edges differ between tensor=1 and tensor=2; "
            "give every variant the same layers and edges, in the same order",
        ),
    ],
    ids=["own preset", "different layers"],
)
def test_what_cannot_be_written(problem: Problem, message: str, tmp_path: Path) -> None:
    """What the format cannot express is an error, and no file is left."""
    with pytest.raises(InvalidProblem) as caught:
        write_problem(problem, tmp_path / "problem.toml")
    assert str(caught.value) == message
    assert not list(tmp_path.iterdir())


def test_artifact_input_is_read_quickly(tmp_path: Path) -> None:
    """97 layers in two widths, 45 KB, take about half a millisecond; the limit leaves room for a busy machine."""
    node = ARTIFACT_INPUT["nodes"]["1"][0] | {"isTensorParallelized": False, "energy": 0}
    nodes = [node | {"id": at, "activationSize": 9074450476 + at} for at in range(97)]
    edges = [{"sourceId": at, "destId": at + 1, "communicationCost": 33554432} for at in range(96)]
    tables = {"nodes": {"4": nodes, "8": nodes}, "edges": {"4": edges, "8": edges}}
    (tmp_path / "input.json").write_text(json.dumps(ARTIFACT_INPUT | tables))
    assert is_within(0.02, lambda: read_problem(tmp_path / "input.json"))


def test_many_layers(tmp_path: Path) -> None:
    """2,000 layers of one kind, in a handful of lines, or all different."""
    for problem, limit in ((chain(2000), 3.0), (replace(chain(1), graphs={Variant(1): alike(2000)}), 0.3)):
        assert again(problem, tmp_path) == problem
        assert is_within(limit, lambda: read_problem(tmp_path / "problem.toml"))


def test_reading_is_light() -> None:
    """The readers load nothing that only tests or reports need."""
    heavy = ("jsonschema", "networkx", "rich", "click", "difflib", "hypothesis")
    script = f"import nest.files, sys; print([name for name in {heavy} if name in sys.modules])"
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
