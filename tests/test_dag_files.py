"""Inputs of dnn-partitioning and Piper: what is read, what is refused in one line, and what ``nest solve`` answers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nest.cli import run
from nest.dag import DNN_PARTITIONING, PIPER, DagProblem
from nest.errors import InvalidProblem
from nest.files.ancestors import read_dag, with_devices


def node(name: int, **rest: Any) -> dict[str, Any]:
    """Return a node of dnn-partitioning."""
    return {
        "id": name,
        "supportedOnFpga": 1,
        "cpuLatency": 10.0,
        "fpgaLatency": 2.0,
        "isBackwardNode": False,
        "size": 3.0,
        **rest,
    }


def option(name: str, time: float, into: dict[str, float], out: dict[str, float]) -> dict[str, Any]:
    """Return an option of Piper's."""
    sizes = {"parameterSize": 8.0, "memoryUsageA": 1.0, "memoryUsageB": 4.0}
    return {"id": name, "timePerSample": time, **sizes, "syncTimeFw": into, "syncTimeBw": out}


PARTITIONING: dict[str, Any] = {
    "maxSizePerFPGA": 6.0,
    "maxFPGAs": 2,
    "maxCPUs": 0,
    "nodes": [
        node(1),
        node(2, supportedOnFpga=True),
        node(3, colorClass=7),
        node(4, isBackwardNode=1, colorClass=7, size=0),
    ],
    "edges": [
        {"sourceId": 1, "destId": 2, "cost": 0.5, "size": 99},
        {"sourceId": 2, "destId": 3, "cost": 0.25},
        {"sourceId": 3, "destId": 4, "cost": 0.125},
    ],
}

PIPERS: dict[str, Any] = {
    "maxDevices": 4,
    "maxMemoryPerDevice": 100.0,
    "bandwidth": 8.0,
    "mbsInBatch": 4,
    "nodes": [
        {"id": 0, "name": "in", "TMPCs": {"1": [option("vanilla", 4.0, {}, {"5": 0.0})]}},
        {"id": 5, "TMPCs": {"1": [option("vanilla", 4.0, {"0": 1.0}, {})], "2": [option("wide", 2.0, {"0": 1.0}, {})]}},
    ],
    "edges": [{"sourceId": 0, "destId": 5, "communicationCost": 2.0}],
}

ARTIFACT_WITH_LISTS = {"maxDevices": 8, "nodes": [], "edges": [], "devices_per_level": [8]}


def written(tmp_path: Path, document: object) -> Path:
    """Write a document."""
    path = tmp_path / "input.json"
    path.write_text(json.dumps(document))
    return path


def test_partitioning_is_read(tmp_path: Path) -> None:
    """Times, sizes, colours, and flags in both of their spellings; what says nothing is passed over."""
    problem = read_dag(written(tmp_path, PARTITIONING))
    assert problem.preset is DNN_PARTITIONING
    assert [layer.id for layer in problem.layers] == [1, 2, 3, 4]
    assert [layer.backward for layer in problem.layers] == [False, False, False, True]
    assert [layer.colour for layer in problem.layers] == [None, None, 7, 7]
    assert {kind: options[0].time for (kind, _), options in problem.layers[1].options.items()} == {
        "accelerator": 2,
        "cpu": 10,
    }
    assert [(kind.count, kind.memory_bytes, kind.pays_transfers) for kind in problem.classes] == [
        (2, 6, True),
        (0, None, False),
    ]


def test_unsupported_node_runs_on_cpus_only(tmp_path: Path) -> None:
    """Whether as false or as 0."""
    for value in (False, 0):
        document = {**PARTITIONING, "nodes": [node(1, supportedOnFpga=value)], "edges": []}
        assert list(read_dag(written(tmp_path, document)).layers[0].options) == [("cpu", 1)]


def test_piper_is_read(tmp_path: Path) -> None:
    """Options by width, with what is exchanged for each edge."""
    problem = read_dag(written(tmp_path, PIPERS))
    assert (problem.preset, problem.bandwidth, problem.microbatches) == (PIPER, 8, 4)
    wide = problem.layers[1].options["device", 2][0]
    assert (wide.name, wide.time, wide.fixed_bytes, wide.in_flight_bytes, wide.parameter_bytes) == ("wide", 2, 4, 1, 8)
    assert (wide.sync_in, wide.sync_out) == ({0: 1}, {})


def at(*keys: str | int) -> Callable[[dict[str, Any], Any], None]:
    """Return what replaces the value at a path; None removes it."""

    def change(document: dict[str, Any], value: Any) -> None:
        place: Any = document
        for key in keys[:-1]:
            place = place[key]
        if value is None:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value

    return change


BAD_PARTITIONING: list[tuple[Callable[[dict[str, Any], Any], None], Any, str | None]] = [
    (at("maxCPUs"), None, "maxCPUs: missing; give a whole number from 0 to 10000"),
    (at("maxFPGAs"), -1, "maxFPGAs: -1; give a whole number from 0 to 10000"),
    (at("maxFPGAs"), 0, "classes: there is no device; give at least one"),
    (at("maxSizePerFPGA"), "6", 'maxSizePerFPGA: "6"; give bytes, a number above 0'),
    (at("nodes"), [], "nodes: []; give a list of nodes, at least one"),
    (at("nodes", 1, "id"), 1, "nodes: id 1 is given twice; give each layer an id of its own"),
    (at("nodes", 1, "supportedOnFpga"), 2, "nodes[1].supportedOnFpga: 2; give true, false, 1 or 0"),
    (at("nodes", 1, "supportedOnFpga"), "yes", 'nodes[1].supportedOnFpga: "yes"; give true, false, 1 or 0'),
    (at("nodes", 0, "fpgaLatency"), -2.0, "nodes[0].fpgaLatency: -2.0; give a time, a number from 0 to 1e15"),
    (at("nodes", 0, "cpuLatency"), None, "nodes[0].cpuLatency: missing; give a time, a number from 0 to 1e15"),
    (at("nodes", 2, "colorClass"), "red", 'nodes[2].colorClass: "red"; give a whole number up to 2^53'),
    (at("edges", 0, "destId"), 9, "edges[0].destId: there is no layer 9; name a layer"),
    (at("edges", 0, "destId"), 1, "edges: there is a cycle: 1 -> 1; remove one of its edges"),
    (at("edges", 2, "sourceId"), 1, "edges[2].cost: 0.125, but another edge of 1 has 0.5"),
    (at("nodes", 2, "isBackwardNode"), True, None),
    (at("nodes", 1, "isBackwardNode"), True, "edges[1]: 2 is backward, 3 is not"),
]

BAD_PIPER = [
    (at("maxDevices"), 0, "maxDevices: 0; give a whole number from 1 to 4096"),
    (at("bandwidth"), 0, "bandwidth: 0; give bytes per second, a number above 0"),
    (at("mbsInBatch"), 1.5, "mbsInBatch: 1.5; give a whole number from 1"),
    (at("nodes", 1, "TMPCs", "2", 0, "timePerSample"), "fast", 'nodes[1].TMPCs["2"][0].timePerSample: "fast"'),
    (at("nodes", 1, "TMPCs", "two"), [], 'nodes[1].TMPCs["two"]: no tensor width; give a whole number'),
    (at("nodes", 1, "TMPCs", "1", 0, "syncTimeFw"), {}, 'nodes[1].TMPCs["1"][0].syncTimeFw: names no node; name the'),
    (at("nodes", 1, "TMPCs", "1", 0, "syncTimeBw"), {"7": 1}, 'nodes[1].TMPCs["1"][0].syncTimeBw: names 7; name the'),
    (
        at("nodes", 1, "TMPCs", "1"),
        [option("a", 1, {"0": 0}, {})] * 2,
        'nodes[1].TMPCs["1"]: no options, or two of a name; give options with names',
    ),
    (at("edges", 0, "communicationCost"), -1, "edges[0].communicationCost: -1; give bytes"),
    (at("edges", 0, "sourceId"), 3, "edges[0].sourceId: there is no layer 3"),
    (at("edges"), PIPERS["edges"] * 2, "edges[1]: 0 -> 5 is given twice; remove one"),
]


@pytest.mark.parametrize(
    ("good", "change", "value", "message"),
    [(PARTITIONING, *case) for case in BAD_PARTITIONING] + [(PIPERS, *case) for case in BAD_PIPER],
)
def test_bad_input_is_one_line(
    good: dict[str, Any],
    change: Callable[[dict[str, Any], Any], None],
    value: Any,
    message: str | None,
    tmp_path: Path,
) -> None:
    """It names file, key, value and what would be right; where there is no message, nothing is wrong."""
    document = copy.deepcopy(good)
    change(document, value)
    path = written(tmp_path, document)
    if message is None:
        read_dag(path)
        return
    with pytest.raises(InvalidProblem) as error:
        read_dag(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("document", [{"nodes": []}, ARTIFACT_WITH_LISTS, {"schema": "nest.problem/1"}])
def test_other_files_are_none(document: object, tmp_path: Path) -> None:
    """Inputs of the solver of arXiv 2603.06798 have nearly the same keys."""
    with pytest.raises(InvalidProblem, match="no input of dnn-partitioning or Piper"):
        read_dag(written(tmp_path, document))


def problem(tmp_path: Path, document: object = PIPERS) -> DagProblem:
    """Read a good document."""
    return read_dag(written(tmp_path, document))


def test_devices_can_be_set(tmp_path: Path) -> None:
    """Numbers of devices by class, memory, microbatches and bandwidth; the later of two counts."""
    changed = with_devices(problem(tmp_path), ["device=7", "memory_bytes=2.5e3", "device=8", "microbatches=2"])
    changed = with_devices(changed, ["bandwidth=16"])
    assert (changed.classes[0].count, changed.classes[0].memory_bytes) == (8, 2500)
    assert (changed.microbatches, changed.bandwidth) == (2, 16)
    split = with_devices(problem(tmp_path, PARTITIONING), ["cpu=3", "memory_bytes=9"])
    assert [(kind.count, kind.memory_bytes) for kind in split.classes] == [(2, 9), (3, None)]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("devices=3", '--set devices=3: nothing that can be set; did you mean "device"?'),
        ("device", "--set device: nothing that can be set"),
        ("device=many", '--set device=many: "many" is no value; give a whole number'),
        ("device=0", "--set device=0: there is no device"),
        ("memory_bytes=-1", "--set memory_bytes=-1: "),
    ],
)
def test_wrong_settings(setting: str, message: str, tmp_path: Path) -> None:
    """Each says what is wrong with it."""
    with pytest.raises(InvalidProblem) as error:
        with_devices(problem(tmp_path), [setting])
    assert message in str(error.value)


def test_solve_prints_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table has each stage; the summary says that it is proven."""
    assert run(["solve", str(written(tmp_path, PARTITIONING))]) == 0
    text = capsys.readouterr().out
    assert "optimal: proven" in text
    assert "3-4 (2)" in text
    assert "as dnn-partitioning has them" in text


def test_solve_json_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both hold the same result, apart from how long it took."""
    output = tmp_path / "plan.json"
    assert run(["solve", str(written(tmp_path, PIPERS)), "--json", "-o", str(output), "--set", "device=2"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(output.read_text())
    assert (printed["schema"], printed["status"], printed["bound"]) == (
        "nest.dag.result/1",
        "optimal",
        printed["objective"],
    )
    assert sum(stage["width"] * stage["replicas"] for stage in printed["stages"]) <= 2
    assert sorted(layer for stage in printed["stages"] for layer in stage["layers"]) == [0, 5]


def test_solve_infeasible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3, the reason, and no file."""
    output = tmp_path / "plan.json"
    arguments = ["solve", str(written(tmp_path, PARTITIONING)), "--set", "memory_bytes=2", "-o", str(output)]
    assert run([*arguments, "--json"]) == 3
    printed = json.loads(capsys.readouterr().out)
    assert (printed["status"], printed["objective"], printed["stages"]) == ("infeasible", None, [])
    assert printed["reason"] == "no device can hold the layers that must share one: 1, 3 bytes in all"
    assert run(arguments) == 3
    assert "infeasible: no device can hold" in capsys.readouterr().out
    assert not output.exists()


@pytest.mark.parametrize(
    "option", [["--certify"], ["--preset", "paper"], ["--minimize", "devices"], ["--backend", "dp"]]
)
def test_options_of_other_problems_are_refused(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that was typed is passed over."""
    assert run(["solve", str(written(tmp_path, PIPERS)), *option]) == 2
    assert f"{option[0]} is not for inputs of piper" in capsys.readouterr().err


def test_bad_file_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on standard error."""
    path = written(tmp_path, {**PARTITIONING, "maxFPGAs": -1})
    assert run(["solve", str(path)]) == 2
    assert capsys.readouterr().err == f"nest: {path}: maxFPGAs: -1; give a whole number from 0 to 10000\n"


@pytest.mark.parametrize("command", ["certify", "frontier"])
def test_other_commands_say_what_takes_it(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rather than complaining about keys that other formats have."""
    assert run([command, str(written(tmp_path, PIPERS))]) == 2
    assert (
        "an input of piper, a graph with branches; nest solve and nest show take it, other commands do not"
        in capsys.readouterr().err
    )
