"""Files that are wrong: each error is one line that names the file, the key, the value and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from bad_files import BANDWIDTH, BYTES, COUNT, GOOD, SCHEMA, SECONDS, message

from nest.files import read_problem

KINDS = "choose one of nvlink, nvlink5, xgmi, pcie, rdma, omni-path, tcp, ici, ideal"
ALLOWED = 'give whole numbers from 1, as in 4, 1,2 or 8..16 (both ends included), or "any"'

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
