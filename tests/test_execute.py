"""Plans that run: real PyTorch on a few processes, equal to one process, with as many bytes kept as predicted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from executed_plans import plan_of, problem_of

from nest.cli import run
from nest.execute import Asked, Outcome, execute, prepare
from nest.files import write_plan, write_problem
from nest.plan import Plan
from nest.problem import Recompute, Variant

pytest.importorskip("torch", reason="plans run in PyTorch: pip install torch")

LIMIT_S = 240.0


def executed(plan: Plan, **asked: int | str) -> Outcome:
    """Execute a plan of a chain as long as its stages."""
    layers = sum(len(stage.layers) for stage in plan.stages)
    prepared = prepare(problem_of(layers, plan.variant), plan, Asked(**asked))  # type: ignore[arg-type]
    return execute(prepared.job, LIMIT_S)


def check(outcome: Outcome) -> None:
    """Assert that losses and weights are those of one process, and that every byte is where it was predicted."""
    assert outcome.loss_difference <= 1e-5
    assert outcome.difference <= 1e-5
    assert outcome.equal
    assert len(set(outcome.losses)) == outcome.job.steps, "weights change from step to step"
    for stage in outcome.stages:
        assert stage.in_flight == stage.in_flight_formula
        assert stage.peak_bytes == stage.predicted_bytes > 0
        assert (stage.weight_bytes, stage.optimizer_bytes) == (stage.weight_predicted, stage.optimizer_predicted)
        assert stage.single_bytes in (None, stage.costing_bytes + stage.runtime_bytes)


def test_pipeline_of_uneven_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1F1B over two stages of 2 and 4 layers, from the files to the JSON of the command."""
    plan, variant = plan_of((2, 4), Variant(1)), Variant(1)
    write_problem(problem_of(6, variant), tmp_path / "problem.toml")
    write_plan(plan, tmp_path / "plan.json")
    arguments = ["run", str(tmp_path / "plan.json"), "--problem", str(tmp_path / "problem.toml")]
    assert run([*arguments, "--microbatches", "5", "--steps", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    assert (found["processes"], found["microbatches"], len(found["losses"])) == (2, 5, 2)
    assert max(abs(a - b) for a, b in zip(found["losses"], found["single_losses"], strict=True)) < 1e-5
    stages = found["stages"]
    assert [stage["layers"] for stage in stages] == [2, 4]
    assert [stage["in_flight"] for stage in stages] == [2, 1]
    assert [stage["peak_bytes"] - stage["predicted_bytes"] for stage in stages] == [0, 0]
    assert [stage["peak_bytes"] for stage in stages] == [2 * stages[0]["single_bytes"], stages[1]["single_bytes"]]


def test_replicas_with_everything_spread() -> None:
    """FSDP2 over two replicas: weights, gradients and moments of each layer are spread (ZeRO-3)."""
    outcome = executed(plan_of((5,), Variant(1), replicas=2, zero=[3]))
    check(outcome)
    whole = outcome.weights // 2  # both ranks compare all of them
    assert [(stage.weight_bytes, stage.optimizer_bytes) for stage in outcome.stages] == [
        (4 * whole // 2, 8 * whole // 2)
    ]


def test_stages_and_replicas_with_recomputation() -> None:
    """Two stages of two replicas, the optimizer spread (ZeRO-1), and the first stage computing its layers again."""
    plan = plan_of((3, 3), Variant(1), replicas=2, zero=[1, 1], again=["full", "none"])
    outcome = executed(plan)
    check(outcome)
    rows = 32 * 64 * 4  # fp32 numbers that enter a block
    assert outcome.stages[0].peak_bytes == 2 * 2 * rows, "two microbatches in flight, and of both blocks the input only"


def test_recomputation_of_some_layers() -> None:
    """Of a stage of three blocks the first two compute again, and the third keeps all."""
    outcome = executed(plan_of((4, 3), Variant(1), again=["full", "none"], layers_again=[2, None]))
    check(outcome)
    first = outcome.job.shape.stages[0]
    assert first.again == ("none", "full", "full", "none")
    rows, whole = 32 * 64 * 4, outcome.stages[1].costing_bytes
    assert outcome.stages[0].peak_bytes > 2 * 2 * rows + whole // 2, "the third block keeps more than its input"


def test_groups_of_replicas_that_share_weights() -> None:
    """FSDP2 over a mesh of two axes: weights are spread within pairs of replicas, and gradients summed across them."""
    outcome = executed(plan_of((4,), Variant(1), replicas=4, zero=[3], together=2))
    check(outcome)
    whole = outcome.weights // 4  # each rank compares all of them
    assert [(stage.weight_bytes, stage.optimizer_bytes) for stage in outcome.stages] == [
        (4 * whole // 2, 8 * whole // 2)
    ]


def test_tensor_ranks_that_share_the_sequence() -> None:
    """Matrices cut between two processes, and the sequence between the matrices."""
    check(executed(plan_of((4,), Variant(2, sequence=True))))


def test_command_that_takes_too_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends in time, and says what each rank was at."""
    write_problem(problem_of(4, Variant(1)), tmp_path / "problem.toml")
    write_plan(plan_of((2, 2), Variant(1)), tmp_path / "plan.json")
    arguments = ["run", str(tmp_path / "plan.json"), "--problem", str(tmp_path / "problem.toml"), "--timeout", "0.2"]
    assert run(arguments) == 4
    assert capsys.readouterr().err == "nest: stopped after 0.2 s: rank 0 starting; rank 1 starting\n"


OTHERS = {
    "one process": plan_of((4,), Variant(1)),
    "three stages": plan_of((2, 1, 3), Variant(1), again=["none", "full", "none"]),
    "whole copies": plan_of((4,), Variant(1, microbatch=2), replicas=2, again=["selective"]),
    "tensor": plan_of((4,), Variant(2)),
    "tensor, spread": plan_of((4,), Variant(2), replicas=2, zero=[3]),
    "sequence, sharded": plan_of((4,), Variant(2, sequence=True), replicas=2, zero=[1], again=["selective"]),
    "sequence in stages": plan_of((2, 3), Variant(2, sequence=True, microbatch=2), again=["none", "full"]),
    "spread in stages": plan_of((2, 3), Variant(1), replicas=2, zero=[2, 3], again=["none", "full"]),
    "context": plan_of((4,), Variant(1, context=2), zero=[2]),
    "moments spread within pairs": plan_of((4,), Variant(1), replicas=4, zero=[1], together=2),
    "gradients spread within pairs": plan_of((4,), Variant(1), replicas=4, zero=[2], together=2),
    "pairs of tensor ranks": plan_of((4,), Variant(2), replicas=4, zero=[3], together=2),
    "pairs in stages": plan_of((2, 3), Variant(1), replicas=4, zero=[3, 1], together=2, again=["none", "selective"]),
    "context ranks of each replica": plan_of((4,), Variant(1, context=2), replicas=2, zero=[1], together=1),
    "context in stages": plan_of((2, 3), Variant(1, context=2), zero=[1, 2], again=["none", "selective"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("plan", OTHERS.values(), ids=OTHERS)
def test_other_shapes(plan: Plan) -> None:
    """Every width with and without ZeRO, recomputation and stages."""
    check(executed(plan))


@pytest.mark.slow
def test_gpipe_keeps_all_microbatches() -> None:
    """Under GPipe every stage keeps as many microbatches as there are."""
    outcome = executed(plan_of((2, 3), Variant(1)), schedule="gpipe", microbatches=3)
    check(outcome)
    assert [stage.in_flight for stage in outcome.stages] == [3, 3]


EXPERTS: list[tuple[Sequence[int], Variant, int, Sequence[int], Sequence[Recompute]]] = [
    ((4,), Variant(1, expert=2), 1, [0], ["none"]),
    ((3,), Variant(1, expert=2), 2, [1], ["full"]),
    ((4,), Variant(1, expert=2), 1, [3], ["none"]),
    ((3,), Variant(1, expert=2), 2, [2], ["none"]),
    ((2, 2), Variant(1, expert=2, context=2), 1, [2, 1], ["none", "selective"]),
]

EXPERT_GROUPS = [(zero, together) for zero in (1, 3) for together in (1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("cuts", "variant", "replicas", "zero", "again"), EXPERTS)
def test_experts(
    cuts: Sequence[int], variant: Variant, replicas: int, zero: Sequence[int], again: Sequence[Recompute]
) -> None:
    """Experts on other ranks get their rows and give them back; bytes depend on where the router sends them."""
    outcome = executed(plan_of(cuts, variant, replicas=replicas, zero=zero, again=again))
    assert outcome.equal
    assert outcome.job.model.experts == 4
    for stage in outcome.stages:
        assert (stage.weight_bytes, stage.optimizer_bytes) == (stage.weight_predicted, stage.optimizer_predicted)
        assert stage.peak_bytes < 1.6 * stage.predicted_bytes


@pytest.mark.slow
@pytest.mark.parametrize(("zero", "together"), EXPERT_GROUPS)
def test_experts_in_groups_of_replicas(zero: int, together: int) -> None:
    """Dense weights are spread over twice as many ranks as experts, which one replica alone has whole."""
    outcome = executed(plan_of((3,), Variant(1, expert=2), replicas=4, zero=[zero], together=together))
    assert outcome.equal
    for stage in outcome.stages:
        assert (stage.weight_bytes, stage.optimizer_bytes) == (stage.weight_predicted, stage.optimizer_predicted)
