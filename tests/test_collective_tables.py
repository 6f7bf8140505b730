"""Tables of collectives and of memory that other planners wrote: units at the border, any order, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nest.cli.program import run
from nest.collective_tables import CollectiveTable, collectives_of, is_collective_table
from nest.errors import InvalidProblem
from nest.layer_profiles import MemoryProfile, read_memory_profile

MIB = 2**20

REDUCED = "data_size(MB),time(ms)\n4,2.0\n1,1.0\n8192,1000000000.000\n"
NNSCALER = {"all reduce": [[0.5, 1.0], [1e-4, 2e-4]], "all to all": [[2.0], [1e-3]]}
MEMORY = {
    "1_1_8_sp": {
        "layernum[1]_bsz8_seq128_rank0_ms": 90.0,
        "layernum[1]_bsz8_seq128_rank0_act": 8.0,
        "layernum[1]_bsz8_seq128_rank0_act_peak": 13.0,
        "layernum[1]_bsz8_seq128_rank7_ms": 91.0,
    },
    "1_2_4_c_sp": {"layernum[1]_bsz8_seq128_rank0_ms": 45.0},
    "layertype_0_sp": {"128": {"parameter_size": 7.0, "tp_activation_per_bsz_dict": {"1": 5.0}}},
}


def figures(table: CollectiveTable) -> list[tuple[object, ...]]:
    """Return kind, ranks, bytes and seconds of each row."""
    return [(row.kind, row.ranks, row.bytes, row.seconds) for row in table.rows]


def test_aceso_in_any_order() -> None:
    """Rows by size, MiB and milliseconds; collective and ranks are in the name alone, and placeholders no times."""
    table = collectives_of(REDUCED, "prim_gpt_13B_all_reduce_8gpus.csv")
    assert figures(table) == [("all-reduce", 8, MIB, 1e-3), ("all-reduce", 8, 4 * MIB, 2e-3)]
    assert table.rows[0].bus == pytest.approx(2 * 7 / 8 * MIB / 1e-3)
    assert table.warnings == ("1 sizes were not run, for which the file has a placeholder",)
    without = collectives_of(REDUCED, "all_reduce.csv")
    assert without.rows[0].bus is None
    assert any("no number of GPUs" in warning for warning in without.warnings)
    with pytest.raises(InvalidProblem, match="which collective this is"):
        collectives_of(REDUCED, "table.csv")


def test_aceso_parts_of_an_all_gather() -> None:
    """Its sizes are those of each rank's part; here they are of the whole."""
    (row, *_) = collectives_of(REDUCED, "prim_gpt_13B_all_gather_4gpus.csv").rows
    assert row.bytes == 4 * MIB
    assert row.bus == pytest.approx(3 * MIB / 1e-3)
    with pytest.raises(InvalidProblem, match="an all-gather of how many ranks"):
        collectives_of(REDUCED, "all_gather.csv")


def test_aceso_transposed() -> None:
    """Sizes in the first row, GiB/s in the second, no names."""
    table = collectives_of("1,2\n4.0, 8.0\n")
    assert figures(table) == [("p2p", 2, MIB, MIB / (4 * 2**30)), ("p2p", 2, 2 * MIB, 2 * MIB / (8 * 2**30))]
    assert table.rows[1].bus == pytest.approx(8 * 2**30)
    assert "transposed table without names" in table.warnings[0]


def test_galvatron_bandwidths() -> None:
    """Bandwidths by group, near and far, of no size."""
    keys = {"allreduce_size_8_consec_1": 150.0, "allreduce_size_2_consec_0": 8.0, "pp_size_4": 7.5}
    table = collectives_of(json.dumps(keys))
    assert [(row.kind, row.ranks, row.group, row.bus, row.bytes) for row in table.rows] == [
        ("all-reduce", 8, "neighbours", 150e9, None),
        ("all-reduce", 2, "ranks far apart", 8e9, None),
        ("p2p", 2, "pipeline of 4 stages", 7.5e9, None),
    ]


def test_nnscaler() -> None:
    """Two lists for each collective, units that nobody states."""
    table = collectives_of(json.dumps(NNSCALER), "intra_8.json")
    assert figures(table)[0] == ("all-reduce", 8, MIB / 2, 1e-4)
    assert figures(table)[2] == ("all-to-all", 8, 2 * MIB, 1e-3)
    assert table.rows[2].bus == pytest.approx(7 / 8 * 2 * MIB / 1e-3)
    assert "units are not in the file" in table.warnings[0]
    assert collectives_of(json.dumps(NNSCALER)).rows[0].bus is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("hello", "no table of collectives that is known"),
        ("data_size(MB),time(ms)\n1,2,3\n", "line 2: 3 cells"),
        ("data_size(MB),time(ms)\n1,fast\n", 'line 2: "fast"'),
        ("data_size(MB),time(ms)\n0,1\n", "all-reduce.bytes: 0"),
        ("data_size(MB),time(ms)\n", "without rows"),
        (json.dumps({"all reduce": [[1.0], [1.0, 2.0]]}), "give two lists of one length"),
        (json.dumps({"pp_size_2": -1.0}), "pp_size_2: -1.0"),
    ],
)
def test_what_is_refused(text: str, what: str) -> None:
    """A value that is missing or wrong is named."""
    with pytest.raises(InvalidProblem) as caught:
        collectives_of(text, "all_reduce_2gpus")
    assert what in str(caught.value)


def test_other_files_are_none(tmp_path: Path) -> None:
    """Numbers that are no sizes, and JSON of other kinds, are not taken."""
    for text in ("2,1\n3,4\n", "1,2\n3\n", "1,2\n", '{"a": [[1], [2]]}', "{}", "[1]", "layer,forward_ms\na,1\n"):
        (tmp_path / "other").write_text(text)
        assert not is_collective_table(tmp_path / "other"), text
    assert not is_collective_table(tmp_path)


def memory(tmp_path: Path, table: object) -> MemoryProfile | None:
    """Return the memory profile that a table is."""
    (tmp_path / "memory.json").write_text(json.dumps(table))
    return read_memory_profile(tmp_path / "memory.json")


def test_memory_by_widths(tmp_path: Path) -> None:
    """Keys are pipeline, tensor and data-parallel width; values MiB of a rank."""
    profile = memory(tmp_path, MEMORY)
    assert profile is not None
    first, last, cut = profile.rows
    assert (first.pipeline, first.tensor, first.data, first.rank) == (1, 1, 8, 0)
    assert (first.states_bytes, first.activation_bytes, first.peak_bytes) == (90 * MIB, 8 * MIB, 13 * MIB)
    assert (last.rank, last.states_bytes, last.activation_bytes) == (7, 91 * MIB, None)
    assert (cut.tensor, cut.options) == (2, "activation checkpoints, sequence parallel")
    assert dict(profile.derived)["layertype_0_sp.128.parameter_size"] == 7 * MIB
    assert profile.warnings == ("pipeline width 1: tensor width 4, 8 not measured",)


def test_memory_that_was_copied(tmp_path: Path) -> None:
    """The same states at two tensor widths were not measured."""
    profile = memory(tmp_path, {"1_1_2_sp": MEMORY["1_1_8_sp"], "1_2_1_sp": MEMORY["1_1_8_sp"]})
    assert profile is not None
    assert profile.warnings[0].startswith("states of 1 layers at pipeline width 1, tensor width 1 and 2 are the same")


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"bsz": {}}, "bsz: a key that says nothing of widths"),
        ({"2_1_4": {"layers": 1}}, "2_1_4.layers: a key that says nothing of a run"),
        ({"2_1_4": {"layernum[1]_bsz8_seq128_rank0_ms": -1}}, "-1"),
        ({"2_1_4": 3}, "2_1_4: 3; give a table"),
    ],
)
def test_memory_that_is_refused(more: dict[str, object], what: str, tmp_path: Path) -> None:
    """Keys without widths, and values that are no memory, are named with the file."""
    with pytest.raises(InvalidProblem) as caught:
        memory(tmp_path, {**MEMORY, **more})
    assert what in str(caught.value)
    assert "memory.json" in str(caught.value)


def test_other_json_is_no_memory(tmp_path: Path) -> None:
    """Computation times of Galvatron, and whatever is no file, are none."""
    assert memory(tmp_path, {"layernum[2]_bsz4_seq128": 1.0}) is None
    assert read_memory_profile(tmp_path) is None


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`nest show` prints both as text and JSON; neither is taken for a model, which one line says."""
    collectives, memories = tmp_path / "all_reduce_8gpus.csv", tmp_path / "memory.json"
    collectives.write_text(REDUCED)
    memories.write_text(json.dumps(MEMORY))
    for path, schema, shown, refused in (
        (collectives, "nest.collectives/1", "Bus bandwidth", "a table of collectives, and no profile of layers"),
        (memories, "nest.memory-profile/1", "Pipeline", "memory of ranks, and no times of layers"),
    ):
        assert run(["show", str(path)]) == 0
        assert shown in capsys.readouterr().out
        assert run(["show", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["schema"] == schema
        assert run(["show", str(path), "--vocab", "3"]) == 2
        assert "'--vocab' says nothing of a" in capsys.readouterr().err
        assert run(["solve", "--model", str(path), "--cluster", "dgx-h100:8", "--global-batch", "8"]) == 2
        assert refused in capsys.readouterr().err
