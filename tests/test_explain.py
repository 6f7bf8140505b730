"""Explanations of infeasible problems: minimal conflicts, and relaxations that help and are the least that do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from random_problems import Size, random_problem

from nest.cli import run
from nest.cluster import Cluster, Level
from nest.explain import Explanation, explain
from nest.files import write_problem
from nest.graph import Edge, Layer, LayerGraph
from nest.problem import Choices, Problem, Training, Variant
from nest.result import Status
from nest.solve import solve

SMALL = Size(layers=5, devices=12)


def chain(memory: int, devices: int = 8, **choices: object) -> Problem:
    """Return four layers of 10 bytes of parameters and 5 of activations, on one level."""
    graph = LayerGraph(
        tuple(Layer(at, 1.0, 2.0, 10, 5) for at in range(4)), tuple(Edge(at, at + 1, 1) for at in range(3))
    )
    cluster = Cluster(devices, memory, (Level(devices, 1e3, 0.0),))
    return Problem("chain", {Variant(1): graph}, cluster, Training(8), Choices(**choices))  # type: ignore[arg-type]


def feasible(problem: Problem) -> bool:
    """Whether the solver finds a plan."""
    return solve(problem).status is Status.OPTIMAL


def smaller(problem: Problem, kind: str) -> Problem:
    """Return a relaxed problem with one byte, or one device, less."""
    cluster = problem.cluster
    if kind == "memory":
        return replace(problem, cluster=replace(cluster, hbm_bytes=cluster.hbm_bytes - 1))
    below = cluster.group_sizes[-1] // cluster.levels[-1].fanout
    top = replace(cluster.levels[-1], fanout=-(-(cluster.devices - 1) // below))
    less = replace(cluster, devices=cluster.devices - 1, levels=(*cluster.levels[:-1], top), partial=True)
    return replace(problem, cluster=less)


def explained(problem: Problem) -> Explanation:
    """Return the explanation of a problem that has none of its own plans, after checking all that it says."""
    found = explain(problem)
    assert found is not None
    assert found.reason
    assert found.conflict
    for relaxation in found.relaxations:
        assert feasible(relaxation.problem), relaxation.text
        if relaxation.kind in ("memory", "devices"):
            assert not feasible(smaller(relaxation.problem, relaxation.kind)), relaxation.text
    return found


def test_feasible_problem_has_no_explanation() -> None:
    """What has a plan needs no excuse."""
    assert explain(chain(1000)) is None


def test_memory_worked() -> None:
    """A layer alone takes 2 x 10 + 5 = 25 bytes in the last stage, and 5 more in each stage before it.

    Without ZeRO four stages of one layer take 25, 30, 35 and 40 bytes; two stages of two layers 50 and 60, three with
    two layers in the last 50, 30 and 35; all in one stage 100. So 40 bytes are the least. ZeRO-3 over all eight devices
    holds everything in one stage: 2 x 40 / 8 + 20 = 30. ZeRO-2 leaves 40 bytes of parameters there.
    """
    found = explained(chain(30, zero=frozenset({0})))
    assert found.conflict == ("zero=none", "memory=30")
    texts = {relaxation.kind: relaxation.text for relaxation in found.relaxations}
    assert texts["memory"].startswith("give each device 40 bytes")
    assert texts["zero"] == "allow ZeRO-3 (zero=0,3)"
    assert texts["constraint"] == "drop zero=none"


def test_devices_worked() -> None:
    """Four stages of a layer each, for three replicas, need twelve devices."""
    found = explained(chain(40, replicas=frozenset({3}), zero=frozenset({0})))
    assert found.conflict == ("replicas=3", "devices=8", "memory=40")
    assert "use 12 devices" in {relaxation.text for relaxation in found.relaxations}


def test_choices_that_nothing_can_deliver() -> None:
    """Nine stages of four layers: no memory and no device helps, dropping the constraint does."""
    found = explained(chain(1000, stages=frozenset({9})))
    assert found.conflict == ("stages=9",)
    assert [relaxation.text for relaxation in found.relaxations] == ["drop stages=9"]


def test_recomputation_helps() -> None:
    """With recomputation a stage stashes 1 byte for each further microbatch instead of 5: 25 to 28 bytes suffice."""
    found = explained(chain(28, zero=frozenset({0})))
    assert {"memory", "zero", "recompute", "constraint"} == {relaxation.kind for relaxation in found.relaxations}


@pytest.mark.parametrize("seed", range(25))
def test_random_infeasible_problems(seed: int) -> None:
    """Whatever is said of a random infeasible problem is true, by the solver's word; and its conflict is minimal."""
    problem = random_problem(seed, SMALL)
    tight = replace(problem, cluster=replace(problem.cluster, hbm_bytes=problem.cluster.hbm_bytes / 4))
    for each in (problem, tight, tight.with_choices(zero=frozenset({0}), stages=frozenset({2}))):
        if feasible(each):
            assert explain(each) is None
        else:
            explained(each)


def test_command_line_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An infeasible problem's conflict and relaxations are in the JSON, and in the summary for people."""
    path = tmp_path / "problem.toml"
    write_problem(chain(30, zero=frozenset({0})), path)
    assert run(["solve", str(path), "--json"]) == 3
    explanation = json.loads(capsys.readouterr().out)["explanation"]
    assert explanation["conflict"] == ["zero=none", "memory=30"]
    assert {"kind": "zero", "text": "allow ZeRO-3 (zero=0,3)"} in explanation["relaxations"]
    assert run(["solve", str(path)]) == 3
    shown = capsys.readouterr().out
    assert "Conflict" in shown
    assert "allow ZeRO-3" in shown
