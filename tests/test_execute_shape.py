"""What of a plan is executed, what is made smaller, and what is refused; nothing here starts a process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from executed_plans import plan_of, problem_of

from nest.cli import run
from nest.errors import InvalidProblem
from nest.execute import Asked, Outcome, Prepared, StageOutcome, outcome, prepare
from nest.execute.job import Job
from nest.execute.predict import kept_bytes
from nest.execute.tiny import Tiny
from nest.files import write_plan, write_problem
from nest.graph import LayerGraph
from nest.line import Line
from nest.plan import Plan, inside_stage, over_replicas
from nest.problem import Variant
from nest.report.executed import executed_text
from nest.report.layout import Screen

ONE = Variant(1)
AROUND = Line(((2, 3),))


def prepared(plan: Plan, **asked: Any) -> Prepared:
    """Prepare a plan of a chain as long as its stages."""
    return prepare(problem_of(sum(len(stage.layers) for stage in plan.stages), plan.variant), plan, Asked(**asked))


def reaches(found: Prepared) -> list[tuple[int, int]]:
    """Return the layers of each stage."""
    return [(stage.first, stage.end) for stage in found.job.shape.stages]


def test_shape_is_the_plans() -> None:
    """Cuts, ZeRO types, recomputation, replicas and widths are those of the plan."""
    plan = plan_of((2, 4), Variant(2, sequence=True, microbatch=3), replicas=2, zero=[0, 3], again=["none", "full"])
    found = prepared(plan)
    shape = found.job.shape
    assert reaches(found) == [(0, 2), (2, 6)]
    assert [(stage.zero, set(stage.again)) for stage in shape.stages] == [(0, {"none"}), (3, {"full", "none"})]
    assert (shape.replicas, shape.tensor, shape.sequence, shape.microbatch, shape.processes) == (2, 2, True, 3, 8)
    assert found.job.model.layers == 6
    assert found.job.sequences == 2 * 4 * 3


def test_recomputation_of_the_first_layers() -> None:
    """Of a stage the first layers recompute that can; embedding and head never do."""
    plan = plan_of((4, 3, 3), ONE, again=["full", "selective", "full"], layers_again=[2, 2, None])
    none, full, core = "none", "full", "selective"
    expected = [(none, full, full, none), (core, core, none), (full, full, none)]
    assert [stage.again for stage in prepared(plan).job.shape.stages] == expected


def test_groups_of_replicas() -> None:
    """Over how many replicas weights are spread follows from the degree; fewer replicas are in smaller groups."""
    plan = plan_of((2, 2), Variant(1, context=2), replicas=8, zero=[2, 0], together=4)
    shape = prepared(plan, processes=32).job.shape
    assert [stage.together for stage in shape.stages] == [4, 8]
    assert shape.sharing(0) == (8, 8)
    small = prepared(plan, scale_down=True)
    assert small.notes[:2] == ("replicas 8 -> 2", "ZeRO over groups of replicas, 4 -> 2")
    assert [stage.together for stage in small.job.shape.stages] == [2, 2]
    odd = replace(plan.stages[0], sharding=over_replicas(2, 3))
    with pytest.raises(InvalidProblem, match=r"^stages\[0\].sharding: 3 ranks, of 8 replicas with 2 each"):
        prepared(replace(plan, stages=(odd, plan.stages[1])), processes=32)


@pytest.mark.parametrize(
    ("cuts", "blocks", "expected"),
    [
        ((10, 22), 6, [(0, 2), (2, 8)]),
        ((1, 1, 30), 4, [(0, 1), (1, 2), (2, 6)]),
        ((30, 1, 1), 1, [(0, 1), (1, 2), (2, 3)]),
        ((1, 1), 6, [(0, 4), (4, 8)]),
    ],
)
def test_other_numbers_of_layers(cuts: Sequence[int], blocks: int, expected: list[tuple[int, int]]) -> None:
    """Cuts are as near to proportional as leaves each stage a layer."""
    found = prepared(plan_of(cuts, ONE), blocks=blocks)
    assert reaches(found) == expected
    assert f"layers {sum(cuts)} -> {blocks + 2}" in found.notes


def test_scaling_down() -> None:
    """Replicas go down first, then widths as far as is needed; stages never do, and everything is said."""
    plan = plan_of((2, 4), Variant(4, context=2, sequence=True), replicas=8, zero=[1, 1])
    found = prepared(plan, scale_down=True)
    shape = found.job.shape
    assert (shape.replicas, shape.tensor, shape.context, shape.processes) == (2, 2, 1, 8)
    assert found.notes[:3] == ("replicas 8 -> 2", "tensor 4 -> 2", "context 2 -> 1")
    alone = prepared(plan, scale_down=True, processes=2)
    assert (alone.job.shape.processes, alone.job.shape.sequence) == (2, False)
    assert "no sequence parallel, which takes tensor ranks" in alone.notes
    assert "no copies are left over which ZeRO could spread anything" in alone.notes


@pytest.mark.parametrize(
    ("batch", "asked", "expected"), [(64, {}, 4), (3, {}, 3), (1, {}, 2), (64, {"microbatches": 7}, 7)]
)
def test_microbatches(batch: int, asked: dict[str, int], expected: int) -> None:
    """As many as show the schedule, at most those of the plan, at least one for each stage."""
    problem = problem_of(4, ONE)
    problem = replace(problem, training=replace(problem.training, global_batch=batch))
    found = prepare(problem, plan_of((2, 2), ONE), Asked(**asked))  # type: ignore[arg-type]
    assert found.job.microbatches == expected
    assert (f"microbatches of a replica {batch} -> {expected}" in found.notes) == (batch != expected)


def test_edges_over_layers_are_said() -> None:
    """The tiny model is a chain; whatever else the plan's model is does not go unsaid."""
    plan = plan_of((2, 2), ONE)
    assert (
        "the model has 1 edges over layers; the tiny one is a chain"
        in prepare(problem_of(4, ONE, skips=True), plan, Asked(microbatches=64)).notes
    )
    graph = problem_of(4, ONE).graphs[ONE]
    routed = tuple(replace(layer, expert_parameter_bytes=5) for layer in graph.layers)
    moe = replace(problem_of(4, ONE), graphs={ONE: LayerGraph(routed, graph.edges)})
    assert prepare(moe, plan, Asked(microbatches=64)).notes == (
        "the model has experts; the tiny one has none, since no ranks share them",
    )


@pytest.mark.parametrize(("changes", "said"), [({}, False), ({"replica_stride": 2}, True), ({"line": AROUND}, True)])
def test_devices_without_work_are_said(changes: dict[str, Any], said: bool) -> None:
    """Processes stand for ranks: devices that a plan leaves out or idle have none."""
    plan = replace(plan_of((4,), ONE, replicas=4), **changes)
    notes = prepare(problem_of(4, ONE), plan, Asked(microbatches=16)).notes
    assert any("have no process" in note for note in notes) == said


REFUSED: dict[str, tuple[Plan, dict[str, Any]]] = {
    r"processes: 4 replicas x 2 stages x 4 tensor = 32, more than 8; give --scale-down, .* or --processes 32": (
        plan_of((2, 2), Variant(4), replicas=4),
        {},
    ),
    r"processes: 9 stages = 9, more than 8; give --processes 9": (plan_of((1,) * 9, ONE), {"scale_down": True}),
    r"expert: 2 expert ranks with 2 tensor ranks; nest run takes one of the two": (plan_of((3,), Variant(2, 2)), {}),
    r"tensor: width 3, and the tiny model has 4 heads": (plan_of((3,), Variant(3)), {}),
    r"context: width 3, and the tiny model has sequences of 32 tokens": (plan_of((3,), Variant(1, context=3)), {}),
    r"layers: 2, and the tiny model has an embedding, .*; give .* --layers": (plan_of((1, 1), ONE), {}),
    r"stages: 3 layers, .*, for 4 stages; give at least --layers 2": (plan_of((2, 2, 2, 2), ONE), {"blocks": 1}),
    r"microbatches: 1 for 2 stages; 1F1B": (plan_of((2, 2), ONE), {"microbatches": 1}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    """What is not executed is refused in one line that says what and why, never passed over."""
    plan, asked = REFUSED[message]
    with pytest.raises(InvalidProblem, match=f"^{message}"):
        prepared(plan, **asked)


def test_sharding_inside_a_stage_is_refused() -> None:
    """The presets of the original's plans have stages of different widths, which nothing here runs."""
    plan = plan_of((2, 2), ONE)
    stage = replace(plan.stages[1], devices=2, sharding=inside_stage(1, 2))
    with pytest.raises(InvalidProblem, match=r"^stages\[1\].sharding: 2 groups .*--set shard_inside=none$"):
        prepared(replace(plan, stages=(plan.stages[0], stage)))


def test_plan_of_another_problem_is_refused() -> None:
    """Layers that are not the problem's have no meaning, nor have variants that it does not know."""
    with pytest.raises(InvalidProblem, match="4 layers, which are not the 5 of the problem"):
        prepare(problem_of(5, ONE), plan_of((2, 2), ONE), Asked())
    with pytest.raises(InvalidProblem, match="the problem has no such variant"):
        prepare(problem_of(4, Variant(2)), plan_of((2, 2), ONE), Asked())


def test_kept_bytes_by_hand() -> None:
    """A block keeps, for each token, 4 inputs of products and norms, 4 tensors of attention, 2 of the MLP, in fp32."""
    job = prepared(plan_of((4,), ONE)).job
    numbers = 4 * 64 + 4 * 64 + 2 * 256 + 4  # the last: one for each head of fused attention
    norms = 2 * 2 * 4  # mean and deviation of each
    head = 2 * 64 + 128
    block = 32 * 4 * numbers, 32 * norms
    assert kept_bytes(job) == ((0, 0), block, block, (32 * 4 * head, 32 * norms // 2 + 4))


def test_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A refusal names the plan's file and exits with 2."""
    write_problem(problem_of(4, Variant(4)), tmp_path / "problem.toml")
    write_plan(plan_of((2, 2), Variant(4), replicas=4), tmp_path / "plan.json")
    assert run(["run", str(tmp_path / "plan.json"), "--problem", str(tmp_path / "problem.toml")]) == 2
    assert re.fullmatch(r"nest: \S+plan.json: processes: .* = 32, more than 8; give .*\n", capsys.readouterr().err)


def test_command_without_torch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has not installed PyTorch is told how to."""
    monkeypatch.setattr(outcome, "find_spec", lambda _name: None)
    write_problem(problem_of(4, ONE), tmp_path / "problem.toml")
    write_plan(plan_of((2, 2), ONE), tmp_path / "plan.json")
    assert run(["run", str(tmp_path / "plan.json"), "--problem", str(tmp_path / "problem.toml")]) == 2
    assert capsys.readouterr().err == "nest: torch is not installed; pip install torch\n"


def test_command_that_finds_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs a plan in a script sees from the exit code that it does not train as one process does."""

    def apart(job: Job, _timeout_s: float) -> Outcome:
        return Outcome(job, (5.0,), (5.1,), 10, 0.0, (StageOutcome(4, 1, 1, 8, 0, 8, 8, 4, 4, 8, 8),), 1.0)

    monkeypatch.setattr("nest.execute.execute", apart)
    write_problem(problem_of(4, ONE), tmp_path / "problem.toml")
    write_plan(plan_of((4,), ONE), tmp_path / "plan.json")
    assert run(["run", str(tmp_path / "plan.json"), "--problem", str(tmp_path / "problem.toml")]) == 1
    assert "no: more than 1e-05 apart" in capsys.readouterr().out


@pytest.mark.parametrize(("loss", "weight", "equal"), [(0.0, 9e-6, True), (2e-5, 0.0, False), (0.0, 2e-5, False)])
def test_equality(loss: float, weight: float, equal: bool) -> None:
    """A loss or a weight that is further off than the tolerance is not equal, and the text says so."""
    job = prepared(plan_of((4,), ONE), steps=2).job
    stage = StageOutcome(4, 2, 1, 1000, 24, None, 2048, 4, 4, 8, 9)
    found = Outcome(job, (5.0, 4.0 + loss), (5.0, 4.0), 10, weight, (stage,), 1.0)
    assert found.equal == equal
    text = executed_text(found, "chain", ("replicas 8 -> 2",), Screen())
    assert ("Equal" in text and "yes" in text) == equal
    assert "2, not 1" in text
    assert "moments 8 B on the fullest device, not weights 4 B, moments 9 B" in " ".join(text.split())
    assert "+100.0 %" in text
    assert "replicas 8 -> 2" in text


def test_more_layers_than_can_be_trained() -> None:
    """A model of millions of layers was built for hours before anything was said."""
    with pytest.raises(InvalidProblem, match="layers: 2001 between embedding and head; give at most 2000"):
        Tiny(2001)
