"""Files that are wrong: each error is one line that names the file, the key, the value and the remedy."""

from __future__ import annotations

import copy
import errno
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nest.errors import InvalidPlan, InvalidProblem
from nest.files import read_plan, read_problem

GOOD = """\
schema = "nest.problem/1"
name = "ten layers"
preset = "paper"

[cluster]
devices = 8
hbm_bytes = 1e9
levels = [
    { name = "node", fanout = 2, bandwidth_bytes_per_s = 1e9, latency_s = 1e-6 },
    { name = "rack", fanout = 4, bandwidth_bytes_per_s = 1e8, latency_s = 1e-5 },
]

[training]
microbatches = 16
optimizer = "adam"

[choices]
stages = "2..4"

[model]
layers = [{ kind = "in" }, { kind = "block", count = 8 }, { kind = "head" }]
skips = []
costs = [
    { kind = "in", forward_s = 1, backward_s = 2, parameter_bytes = 3, activation_bytes = 4, output_bytes = 5 },
    { kind = "block", forward_s = 6, backward_s = 7, parameter_bytes = 8, activation_bytes = 9, output_bytes = 10 },
    { kind = "head", forward_s = 1, backward_s = 2, parameter_bytes = 3, activation_bytes = 4 },
]
"""

COUNT = "give a whole number from 1 to 2147483648"
BYTES = "give bytes, a number from 0 to 2^53 = 9007199254740992"
SECONDS = "give seconds, a number from 0 to 1e9"
BANDWIDTH = "give bytes per second, a number above 0, from 1e-3 to 1e18"
KINDS = "choose one of nvlink, nvlink5, xgmi, pcie, rdma, omni-path, tcp, ici, ideal"
ALLOWED = 'give whole numbers from 1, as in 4, 1,2 or 8..16 (both ends included), or "any"'
SCHEMA = "or the artifact's own keys (maxDevices, nodes, edges, devices_per_level, ...)"

OURS = [
    # Keys: missing, unknown, misspelt.
    ("devices = 8\n", "", f"cluster.devices: missing; {COUNT}"),
    ("devices = 8", "devcies = 8", 'cluster.devcies: unknown key; did you mean "devices"?'),
    (
        "devices = 8",
        "devices = 8\nx = 1",
        "cluster.x: unknown key; known keys are devices, hbm_bytes, levels, name, partial, library, technologies, "
        "class, classes",
    ),
    ("[training]", "[trainig]", 'trainig: unknown key; did you mean "training"?'),
    ("count = 8", "cuont = 8", 'model.layers[1].cuont: unknown key; did you mean "count"?'),
    ("stages =", "stage =", 'choices.stage: unknown key; did you mean "stages"?'),
    ('preset = "paper"\n', "", 'preset: missing; give a preset, "default", "paper" or "artifact"'),
    (
        'schema = "nest.problem/1"',
        'shema = "nest.problem/1"',
        f'schema: missing (there is a key "shema"); give schema = "nest.problem/1", {SCHEMA}',
    ),
    # Values: type, sign, size, not finite.
    ("devices = 8", 'devices = "8"', f'cluster.devices: "8"; {COUNT}'),
    ("devices = 8", "devices = true", f"cluster.devices: true; {COUNT}"),
    ("devices = 8", "devices = 8.0", f"cluster.devices: 8.0; {COUNT}"),
    ("devices = 8", "devices = 0", f"cluster.devices: 0; {COUNT}"),
    ("devices = 8", "devices = 2147483649", f"cluster.devices: 2147483649; {COUNT}"),
    ("devices = 8", f"devices = 0x{'f' * 5000}", f"cluster.devices: a number of 20000 bits; {COUNT}"),
    ("devices = 8", "devices = 1979-05-27", f'cluster.devices: "1979-05-27"; {COUNT}'),
    ("devices = 8", "devices = [8]", f"cluster.devices: [8]; {COUNT}"),
    ("devices = 8", "devices = { a = 8 }", f"cluster.devices: a table; {COUNT}"),
    (
        "hbm_bytes = 1e9",
        "hbm_bytes = 0",
        "cluster.hbm_bytes: 0; give bytes, a number above 0, up to 2^53 = 9007199254740992",
    ),
    (
        "hbm_bytes = 1e9",
        "hbm_bytes = 1e16",
        "cluster.hbm_bytes: 1e+16; give bytes, a number above 0, up to 2^53 = 9007199254740992",
    ),
    ("fanout = 2", "fanout = -2", f"cluster.levels[0].fanout: -2; {COUNT}"),
    ("= 1e8", "= 0", f"cluster.levels[1].bandwidth_bytes_per_s: 0; {BANDWIDTH}"),
    ("= 1e8", "= nan", f"cluster.levels[1].bandwidth_bytes_per_s: NaN; {BANDWIDTH}"),
    ("= 1e8", "= inf", f"cluster.levels[1].bandwidth_bytes_per_s: Infinity; {BANDWIDTH}"),
    ("= 1e-5", "= -1e-5", f"cluster.levels[1].latency_s: -1e-05; {SECONDS}"),
    ("= 1e-5", '= 1e-5, link = "nvlnk"', f"cluster.levels[1].link: 'nvlnk' is no kind of link we know; {KINDS}"),
    ("= 1e-5", "= 1e-5, link = 1", "cluster.levels[1].link: 1; give a string"),
    ("= 1e-5", "= 1e-5, pair_bytes_per_s = 0", f"cluster.levels[1].pair_bytes_per_s: 0; {BANDWIDTH}"),
    (
        "devices = 8",
        'devices = 8\nlibrary = "NCCL"',
        "cluster.library: 'NCCL' is no library we know; choose one of nccl, any",
    ),
    ("forward_s = 6", "forward_s = 1e10", f"model.costs[1].forward_s: 10000000000.0; {SECONDS}"),
    ("forward_s = 6", "forward_s = false", f"model.costs[1].forward_s: false; {SECONDS}"),
    ("parameter_bytes = 8", "parameter_bytes = -1", f"model.costs[1].parameter_bytes: -1; {BYTES}"),
    ("parameter_bytes = 8", "parameter_bytes = -inf", f"model.costs[1].parameter_bytes: -Infinity; {BYTES}"),
    ("microbatches = 16", "microbatches = 0", f"training.microbatches: 0; {COUNT}"),
    ('"adam"', '"Adam"', 'training.optimizer: "Adam"; give "sgd" or "adam"'),
    ('"ten layers"', "10", "name: 10; give a string"),
    (
        '"ten layers"',
        '"ten"\ntime_unit_s = 0',
        "time_unit_s: 0; give the unit of the objective in seconds, from 1e-12 to 1e9",
    ),
    # Presets and schemas.
    ('"paper"', '"naive"', 'preset: "naive" is no preset; choose one of artifact, paper, default, simulated'),
    ('"paper"', '"papr"', 'preset: "papr" is no preset; did you mean "paper"?'),
    ("problem/1", "problem/2", 'schema: "nest.problem/2"; give "nest.problem/1", the version read here'),
    ('"nest.problem/1"', "1", 'schema: 1; give "nest.problem/1", the version read here'),
    # Clusters and choices.
    (
        "devices = 8",
        "devices = 9",
        "cluster.levels: fan-outs 2 x 4 make 8 places for 9 devices; make their product the number of devices",
    ),
    (
        "devices = 8",
        "devices = 7",
        "cluster.levels: fan-outs 2 x 4 make 8 places for 7 devices; make their product the number of devices, "
        "or give partial = true if the last groups are incomplete",
    ),
    (
        "devices = 8",
        "devices = 9\npartial = true",
        "cluster.levels: fan-outs 2 x 4 make 8 places for 9 devices; make their product at least the number of devices",
    ),
    ("devices = 8", "devices = 7\npartial = 1", "cluster.partial: 1; give true or false"),
    ('"2..4"', '"4..2"', f"choices.stages: 4..2 is an empty range; {ALLOWED}"),
    ('"2..4"', '"0..2"', f"choices.stages: 0..2 is out of range; {ALLOWED}"),
    ('"2..4"', '"1..99999"', f"choices.stages: 1..99999 holds more than 65536 values; {ALLOWED}"),
    ('"2..4"', '"2-4"', f'choices.stages: "2-4"; {ALLOWED}'),
    ('"2..4"', "[]", f"choices.stages: []; {ALLOWED}"),
    ('"2..4"', "[2, 0]", f"choices.stages[1]: 0; {COUNT}"),
    ('"2..4"', "2\nzero = 4", 'choices.zero: 4; give "none", "any", or ZeRO types among 0, 1, 2, 3, as in 3 or 0,3'),
    ('"2..4"', '2\nsequence = "yes"', 'choices.sequence: "yes"; give true, false or "any"'),
    ('"2..4"', '2\nrecompute = "ful"', 'choices.recompute: "ful"; give "none" or "full"'),
    (
        '"2..4"',
        "2\ntensor = 2",
        "choices: no variant of the model is allowed; "
        "the model has (tensor=1 expert=1 context=1 sequence=false microbatch=1)",
    ),
    # Layers and costs.
    ("count = 8", "count = 10001", "model.layers[1].count: 10001; give a whole number from 1 to 10000"),
    ("count = 8", "count = 9999", "model.layers: 10001 layers; give at most 10000"),
    ('{ kind = "in" }', '{ kind = "in", id = 3 }', "model.layers[1]: id 3 is used twice; ids are unique"),
    ('{ kind = "in" }', '{ kind = "in", ids = ["a", "a"] }', 'model.layers[0]: id "a" is used twice; ids are unique'),
    (
        '{ kind = "in" }',
        '{ kind = "in", id = 3, first_id = 3 }',
        "model.layers[0]: id and first_id are both given; give one of id, ids and first_id",
    ),
    ('{ kind = "in" }', '{ kind = "in", id = 3, count = 2 }', "model.layers[0].count: 2, for 1 ids; leave count out"),
    (
        '{ kind = "in" }',
        '{ kind = "in", id = 1.0 }',
        "model.layers[0].id: 1.0; give the id of a layer, a whole number or a string",
    ),
    ('{ kind = "in" }', '"in"', 'model.layers[0]: "in"; give a table with the keys kind, id, ids, first_id, count'),
    ('kind = "head", f', 'kind = "haed", f', 'model.costs[2].kind: no layer is of kind "haed"; did you mean "head"?'),
    (
        'kind = "head", f',
        "f",
        'model.costs[2]: neither kind nor ids are given; the kinds of the layers are "block", "head", "in"',
    ),
    ('kind = "head", f', 'kind = "in", f', 'model.costs[2]: a second row for kind "in" with tensor=1; give one'),
    (
        'kind = "head", f',
        'ids = [9], kind = "head", f',
        "model.costs[2]: kind and ids are both given; give one of them",
    ),
    ('kind = "head", f', "ids = [10], f", "model.costs[2].ids: 10 is no layer; name the id of a layer"),
    ('kind = "head", f', "ids = [9, 9], f", "model.costs[2]: a second row for id 9 with tensor=1; give one"),
    (
        'kind = "head", f',
        'kind = "head", tensor = 2, f',
        'model.costs: no costs for layer 9 (kind "head") with tensor=1; add a row',
    ),
    (
        ", output_bytes = 10",
        "",
        "model.costs: no output_bytes for layer 1 with tensor=1; give what it sends to layer 2, 0 if nothing",
    ),
    # Edges.
    (
        "skips = []",
        "skips = [{ source = 0 }]",
        "model.skips[0].target: missing; give the id of a layer, or a list of ids",
    ),
    (
        "skips = []",
        "skips = [{ source = 0, target = 12 }]",
        "model.skips[0].target: 12 is no layer; name the id of a layer",
    ),
    ("skips = []", 'skips = [{ source = "0", target = 3 }]', 'model.skips[0].source: "0" is no layer; did you mean 0?'),
    (
        "skips = []",
        "skips = [{ source = 5, target = 3 }]",
        "model.skips: the layers form a cycle: 3 -> 4 -> 5 -> 3; remove one of these edges",
    ),
    (
        "skips = []",
        "skips = [{ source = 0, target = 3, bytes = [{ tensor = 2, bytes = 1 }] }]",
        "model.skips[0].bytes[0]: model.costs has no row with tensor=2; give one for each variant",
    ),
    (
        "skips = []",
        "skips = [{ source = 0, target = 3, bytes = [{ bytes = 1 }, { bytes = 1 }] }]",
        "model.skips[0].bytes[1]: a second row for tensor=1; give one for each variant",
    ),
    (
        "skips = []",
        "skips = [{ source = 0, target = 3, bytes = [{ bytes = -1 }] }]",
        f"model.skips[0].bytes[0].bytes: -1; {BYTES}",
    ),
    (
        "skips = []",
        "skips = [{ source = 0, target = 3 }]\nedges = []",
        "model.skips: edges are given as well; edges replace the chain: name all there",
    ),
    (
        "skips = []",
        "edges = []",
        "model.edges: layer 1 is not connected to layer 0; add the edges that join the parts",
    ),
    (
        "skips = []",
        "edges = [{ source = 0, target = [1, 2, 3, 4, 5, 6, 7, 8, 9] }]",
        "model.edges: the model branches: nothing orders layers 1 and 2; "
        "preset 'paper' takes chains, with or without skip edges",
    ),
]


def message(read: Callable[[Path], object], path: Path) -> str:
    """Return the message of the error that a reader raises, without the name of the file at its beginning."""
    with pytest.raises(InvalidProblem) as caught:
        read(path)
    assert type(caught.value) is (InvalidPlan if read is read_plan else InvalidProblem)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


@pytest.mark.parametrize(("old", "new", "want"), OURS)
def test_problem(old: str, new: str, want: str, tmp_path: Path) -> None:
    """One thing is wrong with a problem in our format."""
    assert old in GOOD
    path = tmp_path / "problem.toml"
    path.write_text(GOOD.replace(old, new, 1))
    assert message(read_problem, path) == want


def test_good_problem_is_good(tmp_path: Path) -> None:
    """What the tests above spoil is right before."""
    (tmp_path / "problem.toml").write_text(GOOD)
    assert read_problem(tmp_path / "problem.toml").name == "ten layers"


INPUT: dict[str, Any] = {
    "maxDevices": 4,
    "maxMemoryPerDevice": 100,
    "devices_per_level": [2, 2],
    "bws": [400, 100],
    "latency_per_level": [0, 0.5],
    "mbsInBatch": 4096.0,
    "ep_degree": 1,
    "cp_degree": 1,
    "sp_enabled": False,
    "activationRecomputation": True,
    "optimizerAlgorithm": "Adam",
    "nodes": {
        "1": [
            {"id": at, "parameterSize": 10, "activationSize": 5, "optimalLatencyFw": 2, "optimalLatencyBw": 4}
            for at in range(4)
        ]
    },
    "edges": {"1": [{"sourceId": at, "destId": at + 1, "communicationCost": 3} for at in range(3)]},
}
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


TEXTS = {
    "empty": (b"", "the file is empty; give a problem or plan in TOML or JSON"),
    "blank": (b" \n\t\n", "the file is empty; give a problem or plan in TOML or JSON"),
    "only a mark": (b"\xef\xbb\xbf", "the file is empty; give a problem or plan in TOML or JSON"),
    "UTF-16": (GOOD.encode("utf-16"), "the text is UTF-16; save it as UTF-8"),
    "UTF-32": (GOOD.encode("utf-32"), "the text is UTF-32; save it as UTF-8"),
    "UTF-16 without mark": (GOOD.encode("utf-16-le"), "byte 1 is NUL: binary data or UTF-16; give text in UTF-8"),
    "latin-1": (b'a = 1\nb = "\xe9"', "byte 11 (0xe9, in line 2) is no UTF-8; save the file as UTF-8"),
    "binary": (b"\x7fELF\x02\x01\x01\x00", "byte 7 is NUL: binary data or UTF-16; give text in UTF-8"),
    "JSON list": (b"[1, 2]", "JSON holding a list; give an object: {...}"),
    "JSON string": (b'"nest"', 'JSON holding "nest"; give an object: {...}'),
    "deep TOML": (b"a = " + b"[" * 100_000, "nested too deeply; a problem or plan is nested a few levels deep"),
    "deep JSON": (
        b'{"maxDevices": ' + b"[" * 100_000,
        "nested too deeply; a problem or plan is nested a few levels deep",
    ),
    "endless number": (
        b"a = " + b"9" * 5000,
        "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; give sane numbers",
    ),
    "half a character": (
        b'{"schema": "nest.problem/1", "name": "\\ud800"}',
        "a string holds \\ud800, which is half a character; write the character itself",
    ),
    "another JSON": (b'{"hidden_size": 4096}', f'schema: missing; give schema = "nest.problem/1", {SCHEMA}'),
    "a plan": (b'{"schema": "nest.plan/1"}', 'schema: "nest.plan/1"; give "nest.problem/1", the version read here'),
}


@pytest.mark.parametrize(("data", "want"), TEXTS.values(), ids=TEXTS.keys())
def test_text(data: bytes, want: str, tmp_path: Path) -> None:
    """The file as a whole is wrong."""
    path = tmp_path / "file"
    path.write_bytes(data)
    assert message(read_problem, path) == want


CUT_SHORT = "; the file seems to be cut short"
MEND = "; mend it there"

SYNTAX = {
    "JSON cut in a string": (json.dumps(INPUT)[:200], "no valid JSON: line 1, column 200: ", CUT_SHORT),
    "JSON cut before a brace": (
        '{"schema": "nest.problem/1",\n "cluster": {"devices": 1}',
        "no valid JSON: line 2, column 27: ",
        CUT_SHORT,
    ),
    "JSON without a comma": ('{"schema": "x"\n "name": 1}', "no valid JSON: line 2, column 2: ", MEND),
    "TOML cut in a list": (GOOD[:200], "no valid TOML: ", CUT_SHORT),
    "TOML without a value": (GOOD.replace("devices = 8", "devices ="), "(at line 6, column ", MEND),
    "TOML with equal keys": (GOOD.replace("hbm_bytes", "devices"), "(at line 7, column ", MEND),
    "YAML": ("cluster:\n  devices: 8\n", "(at line 1, column ", "or give JSON: {...}"),
}
"""Text, what the message begins with or says of the place, and how it ends; the words between are Python's own."""


@pytest.mark.parametrize(("text", "place", "remedy"), SYNTAX.values(), ids=SYNTAX.keys())
def test_syntax(text: str, place: str, remedy: str, tmp_path: Path) -> None:
    """The message says in which line and column the text goes wrong, and whether it ends too early."""
    path = tmp_path / "file"
    path.write_text(text)
    got = message(read_problem, path)
    assert place in got
    assert remedy in got


@pytest.mark.parametrize("read", [read_problem, read_plan])
class TestPaths:
    """Paths that lead to no readable file, for both readers."""

    def test_missing_file(self, read: Callable[[Path], object], tmp_path: Path) -> None:
        """A near name in the same directory is suggested, else the path is to be checked."""
        (tmp_path / "llama2_64.toml").write_text(GOOD)
        near = tmp_path / "llama2_64.toml"
        assert message(read, tmp_path / "lama2_64.toml") == f"there is no such file; did you mean {str(near)!r}?"
        assert message(read, tmp_path / "x") == "there is no such file; check the path"
        want = f"there is no such file; there is no directory {str(tmp_path / 'no')!r} either"
        assert message(read, tmp_path / "no" / "x") == want

    def test_directory(self, read: Callable[[Path], object], tmp_path: Path) -> None:
        """A directory is no file."""
        assert message(read, tmp_path) == "this is a directory; name one file in it"

    def test_no_permission(
        self, read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that may not be read; the refusal is made up, since root may read all."""

        def refuse(*_: object) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(Path, "open", refuse)
        assert message(read, tmp_path / "x") == "no permission to read it; change its permissions or run as its owner"

    def test_endless_file(self, read: Callable[[Path], object]) -> None:
        """A device that never ends is not read for ever."""
        if not Path("/dev/zero").exists():
            pytest.skip("this system has no /dev/zero")
        assert message(read, Path("/dev/zero")) == "more than 67108864 bytes; name a problem or plan file"

    def test_file_as_directory(self, read: Callable[[Path], object], tmp_path: Path) -> None:
        """A path that goes through a file."""
        (tmp_path / "x").write_text(GOOD)
        assert message(read, tmp_path / "x" / "y") == "Not a directory; name a readable file"


def test_spoilt_bytes(tmp_path: Path) -> None:
    """Whatever happens to a file, it is read or refused in one line that names it; nothing else is raised."""
    rng = random.Random(0)
    pieces = [b"", b"nan", b"1e999", b"-", b'"', b"true", b"null", b"[[", b"{", b"9" * 30, b"\\ud800", b"\xff", b"\x00"]
    path = tmp_path / "file"
    refusals: list[str] = []
    for _ in range(500):
        data = bytearray(rng.choice([GOOD, json.dumps(INPUT)]).encode())
        at = rng.randrange(len(data))
        data[at : at + rng.choice([0, 1, 1, 30])] = rng.choice(pieces)
        path.write_bytes(data)
        try:
            read_problem(path)
        except InvalidProblem as error:
            refusals.append(str(error))
    assert len(refusals) > 200
    assert [line for line in refusals if "\n" in line or not line.startswith(f"{path}: ")] == []
