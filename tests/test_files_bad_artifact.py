"""Inputs of the solver of arXiv 2603.06798 that are wrong: each error names the key, the value and the remedy."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from bad_files import BANDWIDTH, BYTES, COUNT, INPUT, SECONDS, message

from nest.files import read_problem

GONE = object()
WIDTHS = "give the same tensor widths in nodes and edges"

ARTIFACT = [
    (["maxDevices"], GONE, f"maxDevices: missing; {COUNT}"),
    (["maxDevices"], 4.5, f"maxDevices: 4.5; {COUNT}"),
    (["maxDevices"], 0, f"maxDevices: 0; {COUNT}"),
    (["maxDevices"], True, f"maxDevices: true; {COUNT}"),
    (
        ["maxDevices"],
        5,
        "devices_per_level: fan-outs 2 x 2 make 4 places for 5 devices; make their product the number of devices",
    ),
    (
        ["maxMemoryPerDevice"],
        None,
        "maxMemoryPerDevice: null; give bytes, a number above 0, up to 2^53 = 9007199254740992",
    ),
    (["mbsInBatch"], 4096.5, f"mbsInBatch: 4096.5; {COUNT}"),
    (["mbsInBatch"], float("nan"), f"mbsInBatch: NaN; {COUNT}"),
    (["mbsInBatch"], 2**31 + 1, f"mbsInBatch: 2147483649; {COUNT}"),
    (["devices_per_level"], [], "devices_per_level: []; give a list of fan-outs, innermost first"),
    (["devices_per_level"], [2, 2.5], f"devices_per_level[1]: 2.5; {COUNT}"),
    (["bws"], [400], "bws: 1 values, but devices_per_level has 2; give one for each level, innermost first"),
    (["bws", 0], 0, f"bws[0]: 0; {BANDWIDTH}"),
    (
        ["latency_per_level"],
        [0, 0, 0],
        "latency_per_level: 3 values, but devices_per_level has 2; give one for each level, innermost first",
    ),
    (["latency_per_level", 1], float("inf"), f"latency_per_level[1]: Infinity; {SECONDS}"),
    (["ep_degree"], 0, f"ep_degree: 0; {COUNT}"),
    (["sp_enabled"], 0, "sp_enabled: 0; give true or false"),
    (["activationRecomputation"], "yes", 'activationRecomputation: "yes"; give true or false'),
    (["optimizerAlgorithm"], "adam", 'optimizerAlgorithm: "adam"; give "SGD" or "Adam"'),
    (["optimizerAlgorithm"], GONE, 'optimizerAlgorithm: missing; give "SGD" or "Adam"'),
    (["nodes"], {}, "nodes: an empty table; give an object with a list for each tensor width"),
    (["nodes"], [], "nodes: []; give an object with a list for each tensor width"),
    (["nodes", "1"], [], 'nodes["1"]: []; give a list of layers, at least one'),
    (["nodes", "2"], INPUT["nodes"]["1"], f'edges["2"]: missing; {WIDTHS}'),
    (["edges", "2"], [], f'nodes["2"]: missing; {WIDTHS}'),
    (["nodes", "1", 3, "parameterSize"], -1, f'nodes["1"][3].parameterSize: -1; {BYTES}'),
    (["nodes", "1", 3, "parameterSize"], GONE, f'nodes["1"][3].parameterSize: missing; {BYTES}'),
    (
        ["nodes", "1", 2, "optimalLatencyFw"],
        float("inf"),
        'nodes["1"][2].optimalLatencyFw: Infinity; give milliseconds, a number from 0 to 1e12',
    ),
    (["nodes", "1", 3, "id"], 2, 'nodes["1"][3].id: 2 is used twice; ids are unique'),
    (["nodes", "1", 3, "id"], True, 'nodes["1"][3].id: true; give the id of a layer, a whole number or a string'),
    (["edges", "1", 1, "sourceId"], 77, 'edges["1"][1].sourceId: 77 is no layer; name the id of a layer'),
    (["edges", "1", 1, "destId"], "2", "edges[\"1\"][1].destId: '2' is no layer; name the id of a layer"),
    (
        ["edges", "1", 1, "destId"],
        0,
        'edges["1"]: the layers form a cycle: 1 -> 0 -> 1; remove one of these edges',
    ),
    (["edges", "1"], [], 'edges["1"]: layer 1 is not connected to layer 0; add the edges that join the parts'),
    (
        ["edges", "1", 2, "sourceId"],
        1,
        'edges["1"]: the model branches: nothing orders layers 2 and 3; '
        "preset 'paper' takes chains, with or without skip edges",
    ),
    (
        ["edges", "1", 2],
        7,
        'edges["1"][2]: 7; give a table with the keys sourceId, destId, communicationCost',
    ),
]


@pytest.mark.parametrize(("keys", "value", "want"), ARTIFACT)
def test_artifact_input(keys: list[str | int], value: object, want: str, tmp_path: Path) -> None:
    """One thing is wrong with an input of the original solver."""
    tree: Any = copy.deepcopy(INPUT)
    place = tree
    for key in keys[:-1]:
        place = place[key]
    if value is GONE:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    path = tmp_path / "input.json"
    path.write_text(json.dumps(tree))
    assert message(read_problem, path) == want


@pytest.mark.parametrize("width", ["0", "-1", "01", "1.0", "x", "", "٣", "1e400"])
def test_artifact_width(width: str, tmp_path: Path) -> None:
    """Tensor widths are positive whole numbers."""
    tree = INPUT | {name: {width: INPUT[name]["1"]} for name in ("nodes", "edges")}
    path = tmp_path / "input.json"
    path.write_text(json.dumps(tree))
    want = f"nodes[{json.dumps(width)}]: no tensor width; name each list by a whole number from 1"
    assert message(read_problem, path) == want


def test_artifact_misspelt_key(tmp_path: Path) -> None:
    """A missing key names the unknown one that it may be."""
    tree = {name.replace("maxDevices", "maxDevice"): value for name, value in INPUT.items()}
    path = tmp_path / "input.json"
    path.write_text(json.dumps(tree))
    assert message(read_problem, path) == f'maxDevices: missing (there is a key "maxDevice"); {COUNT}'
