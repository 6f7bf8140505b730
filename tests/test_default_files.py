"""Preset `default` in files and on the command line: what it reads, what is written, and who refuses it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from random_default import random_plan, random_problem

from nest.cli import run
from nest.errors import InvalidProblem, OutOfScope
from nest.files import apply_settings, read_plan, read_problem, write_plan, write_problem
from nest.graph import Collective, Recomputed
from nest.presets import DEFAULT, PAPER
from nest.problem import Choices, Copies, Training, Variant
from nest.solve import solve
from nest.tables import Tables

TEXT = """
schema = "nest.problem/1"
preset = "default"

[cluster]
devices = 8
hbm_bytes = 2e9
levels = [
    { fanout = 4, bandwidth_bytes_per_s = 1e11, latency_s = 1e-6 },
    { fanout = 2, bandwidth_bytes_per_s = 1e10, latency_s = 1e-5 },
]

[training]
global_batch = 64
optimizer = "adam"
copies = { optimizer = 6, gradients = 2, gathered = 0.5, reduced = 1, stepped = 3 }
hides_gradients = true
holds_gathered = true
blocking_sends = true
step_s_per_byte = 2e-12
overlap_tax = 0.1
overhead_bytes = 1e8

[choices]
stage_recompute = ["none", "full"]

[model]
layers = [{ kind = "block", count = 6 }]

[[model.costs]]
kind = "block"
tensor = 2
microbatch = 2
forward_s = 0.01
backward_s = 0.02
parameter_bytes = 1e7
expert_parameter_bytes = 4e6
activation_bytes = 1e6
working_bytes = 3e7
output_bytes = 1e6
collectives = [{ kind = "all-reduce", bytes = 2e6, axis = "tensor", when = "forward", hidden_s = 1e-5 }]
[[model.costs.recomputed]]
kind = "full"
repeated_s = 0.01
activation_bytes = 1e5
working_bytes = 4e7
collectives = [{ kind = "all-gather", bytes = 2e6, axis = "tensor", when = "recompute" }]

[[model.costs]]
kind = "block"
tensor = 1
microbatch = 2
forward_s = 0.02
backward_s = 0.04
parameter_bytes = 2e7
activation_bytes = 1e6
output_bytes = 1e6
recomputed = [{ kind = "selective", repeated_s = 0.01, activation_bytes = 5e5 }]
"""

FORMER = """
[[model.costs]]
kind = "block"
recompute = "full"
forward_s = 0.02
backward_s = 0.04
recompute_s = 0.015
parameter_bytes = 2e7
activation_bytes = 2e5
working_bytes = 1e6
output_bytes = 1e6
microbatch = 2
collectives = [{ kind = "ring", bytes = 1e6, axis = "tensor", when = "recompute" }]
"""
"""Figures of recomputation in rows of their own, as before stages chose for themselves."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the file above."""
    (tmp_path / "problem.toml").write_text(TEXT)
    return tmp_path / "problem.toml"


def test_what_a_file_says(path: Path) -> None:
    """Every key of preset `default` arrives where it belongs."""
    problem = read_problem(path)
    assert problem.preset == DEFAULT
    assert problem.training == Training(
        0, "adam", 64, Copies(6, 2, 0.5, 1, 3), True, True, False, False, True, 0.1, 2e-12, 1e8
    )
    wide, narrow = Variant(2, microbatch=2), Variant(1, microbatch=2)
    assert set(problem.graphs) == {wide, narrow}
    assert (problem.recomputes(wide), problem.recomputes(narrow)) == (("none", "full"), ("none",))
    layer = problem.graphs[wide].layers[0]
    assert (layer.expert_parameter_bytes, layer.working_bytes) == (4e6, 3e7)
    repeated = Collective("all-gather", 2e6, "tensor", "recompute")
    assert layer.recomputed == (Recomputed("full", 0.01, 1e5, 4e7, (repeated,)),)
    (collective,) = layer.collectives
    assert (collective.kind, collective.bytes, collective.axis) == ("all-reduce", 2e6, "tensor")
    assert (collective.when, collective.hidden_s) == ("forward", 1e-5)


def test_files_of_before_stages_chose(path: Path) -> None:
    """Rows of their own and the former name of the choice are read; rows that say nothing else add nothing."""
    text = TEXT.replace("stage_recompute", "variant_recompute") + FORMER
    path.write_text(text)
    problem = read_problem(path)
    narrow = Variant(1, microbatch=2)
    selective, full = problem.graphs[narrow].layers[0].recomputed
    assert full == Recomputed("full", 0.015, 2e5, 1e6, (Collective("ring", 1e6, "tensor", "recompute"),))
    assert selective.kind == "selective"
    assert problem.recomputes(narrow) == ("none", "full")
    for old, new, fault in (
        ("backward_s = 0.04\nrecompute", "backward_s = 0.05\nrecompute", "backward_s of layer 0 with tensor=1"),
        ('when = "recompute" }]\n', 'when = "forward" }]\n', "collectives of layer 0 with tensor=1 microbatch=2 are"),
        (
            "microbatch = 2\ncoll",
            "microbatch = 4\ncoll",
            "microbatch=4 there are only rows that recompute",
        ),
    ):
        path.write_text(text[: -len(FORMER)] + FORMER.replace(old, new))
        with pytest.raises(InvalidProblem, match=fault):
            read_problem(path)


@pytest.mark.parametrize("seed", range(40))
def test_problems_survive_a_file(seed: int, tmp_path: Path) -> None:
    """What is written is read back equal."""
    problem = random_problem(seed, ugly=seed % 2 == 1)
    write_problem(problem, tmp_path / "problem.toml")
    again = read_problem(tmp_path / "problem.toml")
    assert again.graphs == dict(sorted(problem.graphs.items()))
    assert replace(again, graphs=problem.graphs) == problem


@pytest.mark.parametrize("seed", range(40))
def test_plans_survive_a_file(seed: int, tmp_path: Path) -> None:
    """What a plan recomputes, its arrangement and its sharding are read back."""
    plan = random_plan(seed, random_problem(seed))
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("global_batch = 64", "global_batch = 0", "training.global_batch: 0; give a whole number from 1"),
        ("global_batch = 64", "", "training.microbatches: missing; give it, or global_batch"),
        (
            "global_batch = 64",
            "global_batch = 64\nmicrobatches = 4",
            "training: microbatches and global_batch are both",
        ),
        ("hides_gradients = true", "hides_gradients = 1", "training.hides_gradients: 1; give true or false"),
        ("step_s_per_byte = 2e-12", "step_s_per_byte = -1.0", "training.step_s_per_byte: -1.0; give seconds"),
        ("gathered = 0.5", "gathered = 0.3", "training.copies.gathered: 0.3; give a multiple of 1/64 from 0 to 64"),
        ("gradients = 2", "gradients = -1", "training.copies.gradients: -1; give a whole number from 0 to 64"),
        ("gradients = 2", "gradient = 2", 'training.copies.gradient: unknown key; did you mean "gradients"?'),
        ("overhead_bytes = 1e8", 'overhead_bytes = "x"', 'training.overhead_bytes: "x"; give bytes'),
        ('"all-reduce"', '"reduce"', 'model.costs[0].collectives[0].kind: "reduce"; give "all-reduce"'),
        ('"tensor"', '"data"', 'model.costs[0].collectives[0].axis: "data"; give "tensor"'),
        ("hidden_s = 1e-5", "hidden_s = -1", "model.costs[0].collectives[0].hidden_s: -1; give seconds"),
        ("= 4e6", "= 4e7", "expert_parameter_bytes of layer 0 is 40000000.0; give a part of its parameter_bytes"),
        ('= "full"\nrepeated', '= "all"\nrepeated', 'model.costs[0].recomputed[0].kind: "all"; give "selective"'),
        ('["none", "full"]', '["some"]', 'choices.stage_recompute[0]: "some"'),
        (
            "[choices]",
            '[choices]\nrecompute = "full"',
            "choices.recompute: 'full' under preset 'default'; each stage",
        ),
        ('"default"', '"paper"', "training.global_batch: 64 under preset 'paper'; this preset counts training.micro"),
    ],
)
def test_bad_values(path: Path, old: str, new: str, fault: str) -> None:
    """The error names the key, the value and what would be right."""
    assert old in TEXT
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(InvalidProblem) as caught:
        read_problem(path)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_setting(path: Path) -> None:
    """What stages may recompute is a choice like the others; variants without figures of any such kind drop out."""
    problem = read_problem(path)
    assert problem.with_choices(stage_recompute=None).recomputes(Variant(1, microbatch=2)) == ("none", "selective")
    assert apply_settings(problem, ["stage_recompute=selective"]).variants == (Variant(1, microbatch=2),)
    with pytest.raises(InvalidProblem, match='stage_recompute=half: "half" is no kind of recomputation'):
        apply_settings(problem, ["stage_recompute=half"])


def test_command_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A problem is solved, its plan judged, and both say the same."""
    assert run(["solve", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["status"] == "optimal"
    assert [stage["recompute"] for stage in result["plan"]["stages"]] == ["none"]
    plan = path.with_name("plan.json")
    plan.write_text(json.dumps(result))
    assert run(["evaluate", str(path), str(plan), "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)
    assert judged["objective"] == result["objective"]
    for command in (["solve", str(path)], ["show", str(path)], ["evaluate", str(path), str(plan)]):
        assert run(command) == 0
        assert capsys.readouterr().out


def test_text_adds_up(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The iteration is spelt as the sum that it is under this preset."""
    run(["solve", str(path)])
    assert "for the first microbatch + " in capsys.readouterr().out


@pytest.mark.parametrize("backend", ["cpsat", "pyomo"])
def test_other_solvers_answer_the_same(backend: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mathematical programme finds a plan that is as fast as the dynamic program's."""
    assert run(["solve", str(path), "--backend", backend, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["objective_ticks"] == solve(read_problem(path)).objective_ticks


def test_provers_confirm(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checker and both solvers prove the optimum, each by itself."""
    plan = path.with_name("plan.json")
    solved = solve(read_problem(path)).plan
    assert solved is not None
    write_plan(solved, plan)
    for prover in ("checker", "cpsat", "pyomo"):
        assert run(["certify", str(path), str(plan), "--with", prover]) == 0, prover
        assert f"confirmed by {prover}" in capsys.readouterr().out


def test_tables_of_the_other_presets_are_refused(path: Path) -> None:
    """Whoever reads the tables of the other presets is told that it does not cover this one."""
    problem = read_problem(path)
    with pytest.raises(OutOfScope, match="'default' is not covered"):
        _ = Tables.of(problem).variants
    assert Tables.of(random_problem(0)).grouped


@pytest.mark.parametrize("seed", range(12))
def test_presets_of_one_problem(seed: int) -> None:
    """What `default` alone knows does not disturb `paper`: a problem that counts microbatches is solved under both."""
    problem = random_problem(seed)
    plain = replace(problem, training=Training(3), choices=Choices())
    for preset in (PAPER, DEFAULT):
        solve(plain.with_preset(preset))
