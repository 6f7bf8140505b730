"""Measured times of layers: how they are read, and that they override what is modelled and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nest.cli.program import run
from nest.costing import LayerCost, LayerProfile, Measurement, Setting, layer_costs
from nest.errors import InvalidProblem
from nest.families import Hyperparameters, from_hyperparameters
from nest.files.profile_file import profile_document, read_profile
from nest.hardware import device_named
from nest.runs import problem_of, read_run
from nest.runs.run_document import run_file_document

MODEL = from_hyperparameters(Hyperparameters("gpt", 4, 1024, 16, vocab=51200, seq=2048))
SETTING = Setting(2048, 1, 2, flash=False)
LAYER = "attention+mlp"

TABLE = """# times of my layers
kind,microbatch,tensor,context,sequence,dtype,forward_ms,backward_ms,kept_bytes,source
attention+mlp,1,2,1,2048,bf16,10,20.5,200000000,A100
attention+mlp,2,2,,,,20,41,,
"""

TYPED = "--family gpt --layers 4 --hidden 1024 --heads 16 --cluster selene:8 --seq 2048 --global-batch 8 --tensor 2"


def costs(profile: LayerProfile | None = None, setting: Setting = SETTING) -> tuple[LayerCost, ...]:
    """Return the costs of the model's blocks on an A100."""
    return layer_costs(MODEL, device_named("a100"), setting, profile)["text"]


def written(tmp_path: Path, text: str, name: str = "layers.csv") -> Path:
    """Return the path of a file with a text."""
    path = tmp_path / name
    path.write_text(text)
    return path


def test_measured_times_stand_for_modelled_ones(tmp_path: Path) -> None:
    """Both passes take what was measured; what is computed again and hidden behind grows alike, the rest stays."""
    before, after = costs(), costs(read_profile(written(tmp_path, TABLE)))
    layer, measured = before[1], after[1]
    assert (measured.forward_s, measured.backward_s) == pytest.approx((10e-3, 20.5e-3))
    factor = 10e-3 / layer.forward_s
    assert measured.repeated_s("full") == pytest.approx(10e-3)
    assert measured.repeated_s("selective") == pytest.approx(factor * layer.repeated_s("selective"))
    assert (measured.parameters, measured.working_bytes) == (layer.parameters, layer.working_bytes)
    assert [each.size for each in measured.exchanged] == [each.size for each in layer.exchanged]
    hidden = [(old.hidden_s, new.hidden_s) for old, new in zip(layer.exchanged, measured.exchanged, strict=True)]
    assert any(old for old, _ in hidden)
    assert all(new == pytest.approx(20.5e-3 / layer.backward_s * old) for old, new in hidden if old)
    assert measured.kept.none == 200_000_000
    assert measured.kept.selective == 200_000_000 - (layer.kept.none - layer.kept.selective)
    assert measured.kept.full == layer.kept.full
    assert (before[0], before[-1]) == (after[0], after[-1])


def test_equal_blocks_stay_one() -> None:
    """Layer graphs of a thousand layers are made from one cost."""
    after = costs(LayerProfile((Measurement(LAYER, 1, 2, 1.0, 2.0),)))
    assert len({id(cost) for cost in after[1:-1]}) == 1


@pytest.mark.parametrize(
    "other",
    [{"microbatch": 2}, {"tensor": 4}, {"context": 2}],
    ids=str,
)
def test_other_widths_stay_modelled(other: dict[str, int]) -> None:
    """A row counts under the widths at which it was measured, and nowhere else."""
    setting = replace(SETTING, **other)  # type: ignore[arg-type]
    profile = LayerProfile((Measurement(LAYER, 1, 2, 1.0, 2.0),))
    assert costs(profile, setting) == costs(None, setting)
    with pytest.raises(InvalidProblem, match="nothing has microbatch 1, tensor width 2"):
        profile.require_used([setting])


def test_blocks_that_nothing_is_modelled_of() -> None:
    """A pass that the model has for free takes what was measured all the same."""
    free = replace(costs()[0], operators=())
    found = Measurement("embedding", 1, 2, 1.0, 2.0).replacing(free)
    assert (found.forward_s, found.backward_s) == (1.0, 2.0)


def test_stacks_have_names() -> None:
    """Rows of a stack that is named leave the others alone."""
    model = from_hyperparameters(Hyperparameters("t5", 2, 512, 8, vocab=32128, seq=512))
    setting = Setting(512)
    plain = layer_costs(model, device_named("a100"), setting)
    stack, blocks = next(iter(plain.items()))
    kind = next(block.kind for block in blocks if block.repeats)
    both = layer_costs(
        model, device_named("a100"), setting, LayerProfile((Measurement(f"{stack}.{kind}", 1, 1, 1, 2),))
    )
    assert sum(block.forward_s == pytest.approx(1.0) for blocks in both.values() for block in blocks) == 2
    assert all(both[name] == plain[name] for name in plain if name != stack)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("attention+mlp,1", "attn,1", r"line 3: the model has no block 'attn'; one of embedding, attention\+mlp, head"),
        ("1,2048", "1,4096", "line 3: measured with sequence 4096, and the run has 2048"),
        ("bf16", "fp16", "line 3: measured with dtype fp16, and the run has bf16"),
        ("20.5", "long", 'line 3.backward_ms: "long"; give a number from 0'),
        ("20.5", "-1", "line 3.backward_ms: -1"),
        ("20.5,", ",", "line 3: no time of the backward pass; give one of backward_s, backward_ms, backward_us"),
        ("forward_ms", "forward", "line 2: there is no column 'forward'; did you mean"),
        (",A100", "", "line 3: 9 cells for 10 columns"),
        ("mlp,2,2", "mlp,1,2", "line 4: 'attention.mlp' again, as in line 3"),
        ("microbatch,tensor", "microbatch,microbatch", "line 2: two columns 'microbatch'"),
        ("mlp,1,2", "mlp,,2", "line 3: missing microbatch|line 3.microbatch"),
    ],
)
def test_wrong_rows_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    """One line names file, row and remedy."""
    path = written(tmp_path, TABLE.replace(old, new, 1))
    with pytest.raises(InvalidProblem, match=message) as caught:
        costs(read_profile(path))
    assert str(caught.value).startswith(str(path))


def test_a_table_on_its_side(tmp_path: Path) -> None:
    """Columns below each other are rows beside each other."""
    rows = [line.split(",") for line in TABLE.strip().splitlines() if not line.startswith("#")]
    aside = "\n".join(",".join(cells) for cells in zip(*rows, strict=True))
    upright, lying = read_profile(written(tmp_path, TABLE)), read_profile(written(tmp_path, aside))
    assert [replace(row, where="") for row in lying.rows] == [replace(row, where="") for row in upright.rows]


def test_formats_say_the_same(tmp_path: Path) -> None:
    """CSV, TOML and JSON, each unit: the same measurements; plan files carry them whole."""
    toml = """schema = "nest.profile/1"
[[rows]]
kind = "attention+mlp"
microbatch = 1
tensor = 2
sequence = 2048
dtype = "bf16"
forward_s = 0.01
backward_us = 20500.0
kept_kib = 195312.5
source = "A100"
[[rows]]
kind = "attention+mlp"
microbatch = 2
tensor = 2
forward_s = 0.02
backward_s = 0.041
"""
    first = read_profile(written(tmp_path, TABLE))
    second = read_profile(written(tmp_path, toml, "layers.toml"))
    document = profile_document(first)
    third = read_profile(written(tmp_path, json.dumps(document), "layers.json"))
    assert [row.where for row in second.rows] == ["rows[0]", "rows[1]"]
    plain = [[replace(row, where="") for row in profile.rows] for profile in (first, second, third)]
    assert plain[0] == plain[2]
    for row, other in zip(plain[0], plain[1], strict=True):
        assert (row.forward_s, row.backward_s) == pytest.approx((other.forward_s, other.backward_s))
        assert replace(row, forward_s=0, backward_s=0) == replace(other, forward_s=0, backward_s=0)
    assert third.source == first.source


@pytest.mark.parametrize("command", ["estimate", "solve"])
def test_commands_take_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """With every block seconds long, an iteration takes seconds; a profile of other widths is refused."""
    rows = "".join(f"{kind},1,2,1,2\n" for kind in ("embedding", LAYER, "head"))
    path = written(tmp_path, f"kind,microbatch,tensor,forward_s,backward_s\n{rows}")
    typed = [*TYPED.split(), "--microbatch", "1", "--context", "1", "--pipeline", "1", "--data", "4", "--json"]
    assert run([command, *typed, "--profile", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    seconds = found["iteration_s"] if command == "estimate" else found["objective"]
    assert seconds == pytest.approx(2 * 6 * 3.0, rel=0.01)
    other = written(tmp_path, TABLE.replace(",2,", ",4,"))
    assert run([command, *typed, "--profile", str(other)]) == 2
    assert "line 3: nothing has microbatch 1, tensor width 4" in capsys.readouterr().err


def test_run_files_and_plan_files_carry_profiles(tmp_path: Path) -> None:
    """A run file names a profile beside it; its document has the rows, and is read back as the same run."""
    written(tmp_path, TABLE)
    lines = ('schema = "nest.run/1"', 'cluster = "selene:8"', "sequence = 2048", "global_batch = 8")
    model = 'model = {family = "gpt", layers = 4, hidden = 1024, heads = 16}'
    path = written(tmp_path, "\n".join((*lines, model, 'profile = "layers.csv"')), "run.toml")
    posed = read_run(path)
    assert posed.profile == read_profile(tmp_path / "layers.csv")
    again = written(tmp_path, json.dumps(run_file_document(path)), "again.json")
    carried = read_run(again).profile
    assert carried is not None
    assert posed.profile is not None
    assert [replace(row, where="") for row in carried.rows] == [replace(row, where="") for row in posed.profile.rows]
    assert problem_of(read_run(again)).problem.graphs == problem_of(posed).problem.graphs
