"""Tables and profiles of layers that are wrong in ways of spreadsheets, editors and other programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nest.cli.program import run

TABLE = """layer,tensor,microbatch,forward_ms,backward_ms,parameters,kept_mib,output_mib
embed,2,1,0.25,0.5,1000,1,4
block,2,1,2,4,2000,8,
"""
ROW = {"layer": "a", "forward_ms": 1, "backward_ms": 2, "parameters": 8, "kept_kib": 1}
JSON = json.dumps({"schema": "nest.layers/1", "rows": [ROW]})
GRAPH = "".join(
    f"node{at} -- L -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=8.0, parameter_size=8.0\n"
    for at in (1, 2)
)
EDGE = "\tnode1 -- node2\n"
OPERATORS = "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations\n"
ACESO = f"{OPERATORS}emb,1,2,1,1,1,1\nenc-a,1,2,1,1,1,1\n"
SOLVED = ("--cluster", "dgx-h100:8", "--global-batch", "16")


def refused(capsys: pytest.CaptureFixture[str], *typed: str) -> str:
    """Return the one line with which a command refuses something."""
    assert run(typed) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (TABLE.replace(",", ";"), "separated by semicolons; separate them by commas, and write decimals with a point"),
        (TABLE.replace(".", "_").replace(",", ";").replace("_", ","), "separated by semicolons"),
        (TABLE.replace(",", "\t"), "separated by tabs"),
        (TABLE.replace("layer", "LAYER"), "no column 'LAYER'; did you mean \"layer\"?"),
        (TABLE.replace("block", "b" * 200_000), "line 3: no table in CSV"),
        (JSON[:-9], "no valid JSON"),
        (f"{JSON}x", "no valid JSON: line 1, column"),
        (JSON.replace("layers/1", "layers/2"), '"nest.layers/2"; give "nest.layers/1"'),
        (JSON.replace("[{", "[" * 100_000), "nested too deeply"),
        ('schema = "nest.layers/1"\nrows = []\n[[rows]]\n', "no valid TOML"),
    ],
)
@pytest.mark.parametrize("typed", [("show",), ("show", "-o"), ("solve", *SOLVED, "--model")])
def test_what_is_wrong_is_said(
    text: str, what: str, typed: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that is broken is one all the same, whatever command reads it, and nothing is written."""
    path, written = tmp_path / "layers.csv", tmp_path / "out.csv"
    path.write_text(text)
    said = refused(capsys, *typed, *([str(written)] if typed[-1] == "-o" else []), str(path))
    assert f"{path}: " in said
    assert what in said
    assert not written.exists()


def test_a_file_that_is_none_is_named_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That ``-o`` does not go with a file is said only of one that can be read."""
    for name, data, what in (("a.csv", b"", "empty"), ("b.csv", b"\x00\x01", "NUL"), ("c.csv", None, "no such file")):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        assert what in refused(capsys, "show", str(tmp_path / name), "-o", str(tmp_path / "out.csv"))


def test_an_estimate_of_the_only_width(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Replicas are those of the width that the table has, also where nobody types it."""
    path = tmp_path / "layers.csv"
    path.write_text(TABLE)
    found = []
    for typed in ([], ["--tensor", "2"], ["--data", "4"]):
        assert run(["estimate", "--model", str(path), *SOLVED, *typed, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["iteration_s"])
    assert found[0] == found[1] == found[2]


def test_recomputation_that_no_layer_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said, and not that there is no variant."""
    path = tmp_path / "layers.csv"
    path.write_text(TABLE)
    said = refused(capsys, "solve", "--model", str(path), *SOLVED, "--recompute", "selective")
    assert "recompute: selective: no layer of the table can" in said


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("graph.txt", GRAPH + EDGE + EDGE, "line 4: a second edge 'node1 -- node2'"),
        ("graph.txt", GRAPH.replace("activation_size=8.0", "activation_size=1e300"), "line 1: activation_size"),
        ("mbs1_tp1.csv", f"{ACESO}emb,1,2,1,1,1,1\n", "layer 'emb' again at tensor 1, microbatch 1; give"),
        ("mbs1.csv", ACESO, "of which tensor width it is, is not said (--tensor)"),
        ("mbs1_tp1.csv", ACESO.replace("emb", f'"{"b" * 200_000}"'), "no table in CSV"),
    ],
)
def test_profiles(name: str, text: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of other planners that contradict themselves, or leave out what decides."""
    (tmp_path / name).write_text(text)
    more = ("--layers", "2") if name.endswith("csv") else ("--microbatch", "1")
    assert what in refused(capsys, "solve", "--model", str(tmp_path / name), *SOLVED, *more)


@pytest.mark.parametrize(
    ("typed", "what"),
    [
        (["--reserve", "1e300"], "--reserve 1e+300: give a number of GiB from 0"),
        (["--global-batch", "99999999999999999999"], "is not in the range 1<=x<=2147483648"),
    ],
)
@pytest.mark.parametrize("command", ["solve", "estimate"])
def test_numbers_beyond_reason(
    command: str, typed: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused, and nothing is searched or counted with them."""
    path = tmp_path / "layers.csv"
    path.write_text(TABLE)
    assert what in refused(capsys, command, "--model", str(path), *SOLVED, *typed)


def test_plans_that_have_no_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As with models, replicas without a sequence are refused; and what plays passes that were timed together."""
    path, together = tmp_path / "layers.csv", tmp_path / "together.csv"
    path.write_text(TABLE)
    together.write_text("layer,together_ms,parameters,kept_mib,output_mib\na,3,8,1,1\nb,3,8,1,\n")
    typed = ("estimate", "--cluster", "dgx-h100:8", "--pipeline", "2", "--model")
    said = refused(capsys, *typed, str(path), "--global-batch", "1")
    assert "1 sequences, and data x expert x microbatch take 2 at a time; give a larger batch" in said
    asked = (*typed, str(together), "--global-batch", "8")
    assert run(asked) == 0
    capsys.readouterr()
    said = refused(capsys, *asked, "--schedule", "zb-h1")
    assert "timed together, and preset 'simulated' plays them apart" in said
