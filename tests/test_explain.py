"""Explanations of infeasible problems: minimal conflicts, and relaxations that help and are the least that do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from pace import SteppedClock
from random_constraints import LOCAL_KINDS, random_constraints
from random_default import random_problem as random_default_problem
from random_problems import Size, random_problem
from seeds import seeds

from nest.cli import run
from nest.cluster import Cluster, Level
from nest.constraints import Apart, EqualStages, Filters, LocalConstraint, Outer, Pin, Run, Together
from nest.explain import Explanation, explain
from nest.explain.questions import may_be_cut
from nest.families import Hyperparameters, from_hyperparameters
from nest.files import write_problem
from nest.graph import Edge, Layer, LayerGraph
from nest.hardware import cluster_named
from nest.presets import DEFAULT
from nest.problem import Choices, Problem, SideConstraint, Training, Variant
from nest.report.layout import Screen, Summary, render
from nest.report.terminal import explain_into
from nest.result import Status
from nest.runs import Run as TrainingRun
from nest.runs import problem_of
from nest.solve import solve

SMALL = Size(layers=5, devices=12)
TINY = Size(layers=4, devices=6)


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
    found = explain(problem, time_limit_s=None)
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
    assert explain(chain(1000), time_limit_s=None) is None


def test_memory_worked() -> None:
    """A layer alone takes 2 x 10 + 5 = 25 bytes in the last stage, and 5 more in each stage before it.

    Without ZeRO four stages of one layer take 25, 30, 35 and 40 bytes; two stages of two layers 50 and 60, three with
    two layers in the last 50, 30 and 35; all in one stage 100. So 40 bytes are the least. ZeRO-3 over all eight devices
    holds everything in one stage: 2 x 40 / 8 + 20 = 30. ZeRO-2 leaves 40 bytes of parameters there.
    """
    found = explained(chain(30, zero=frozenset({0})))
    assert found.conflict == ("zero=none", "memory=30")
    assert found.reason.startswith("a device needs 40 bytes at least, and has 30 bytes; ")
    texts = {relaxation.kind: relaxation.text for relaxation in found.relaxations}
    assert texts["memory"] == "give each device 40 bytes of memory (0.01 GiB)"
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


def test_chunks_that_no_layers_give() -> None:
    """What settles chunks keeps its meaning where other schedules are allowed beside: the problem stays infeasible."""
    layers = [Layer(at, 1, 2, 100, 10, "layer") for at in range(4)]
    graph = LayerGraph.sort(layers, [Edge(one.id, two.id, 8) for one, two in pairwise(layers)])
    choices = Choices(schedules=frozenset({"interleaved"}), chunks=frozenset({7}))
    cluster = Cluster(4, 10**6, (Level(4, 1e9, 1e-6),))
    problem = Problem("chunks", {Variant(1): graph}, cluster, Training(4, "sgd"), choices, DEFAULT)
    assert solve(problem).status is Status.INFEASIBLE
    found = explain(problem, time_limit_s=None)
    assert found is not None
    assert found.conflict == ("chunks=7", "schedules=interleaved")
    assert [each.text for each in found.relaxations] == [
        "drop chunks=7",
        "allow schedule 1f1b (schedules=1f1b,interleaved)",
    ]
    assert all(solve(each.problem).status is Status.OPTIMAL for each in found.relaxations)


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
            assert explain(each, time_limit_s=None) is None
        else:
            kinds = {relaxation.kind for relaxation in explained(each).relaxations}
            roomy = replace(each, cluster=each.cluster.with_memory(2**40))
            assert ("memory" in kinds) == feasible(roomy), "what is no part of a conflict was not asked for"


@pytest.mark.parametrize("seed", range(12))
def test_random_infeasible_problems_of_groups(seed: int) -> None:
    """The same under preset `default`, where each variant is asked by itself."""
    problem = random_default_problem(seed)
    tight = replace(problem, cluster=replace(problem.cluster, hbm_bytes=problem.cluster.hbm_bytes / 4))
    for each in (problem, tight):
        if feasible(each):
            assert explain(each, time_limit_s=None) is None
        else:
            kinds = {relaxation.kind for relaxation in explained(each).relaxations}
            roomy = replace(each, cluster=each.cluster.with_memory(2**40))
            assert ("memory" in kinds) == feasible(roomy), "what is no part of a conflict was not asked for"


def test_time_is_limited_with_many_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the time is over nothing further is asked, however many variants there are."""
    model = from_hyperparameters(Hyperparameters("gpt", layers=96, hidden=12288, heads=96))
    problem = problem_of(TrainingRun(model, cluster_named("dgx-h100:16"), 2048, 512)).problem
    assert len(problem.variants) > 100
    asked: list[object] = []
    clock = SteppedClock(1e-6)

    def pretend(tables: object) -> str:
        asked.append(tables)
        clock.now_s += 0.02
        return "none"

    monkeypatch.setattr("nest.explain.questions.why_infeasible", pretend)
    monkeypatch.setattr("time.perf_counter", clock)
    found = explain(problem, "it is known", time_limit_s=1)
    assert clock.now_s < 1.1
    assert found is not None
    assert not found.complete
    assert 1 < len(asked) < 100


def test_devices_that_stages_and_replicas_take_together(capsys: pytest.CaptureFixture[str]) -> None:
    """Two stages of eight devices, twice, need 32: the reason says devices, not memory."""
    shape = ("--family", "llama", "--layers", "8", "--hidden", "4096", "--heads", "32", "--vocab", "32000")
    sizes = ("--cluster", "dgx-h100:16", "--seq", "4096", "--global-batch", "128")
    assert run(["solve", *shape, *sizes, "--tensor", "8", "--pipeline", "2", "--data", "2"]) == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert "stages x replicas x width, 2 x 2 x 8, are 32 devices, the cluster has 16" in printed
    assert "use 32 devices" in printed


def test_more_devices_do_not_always_help() -> None:
    """A group of six nests with blocks of four only where it is the whole cluster: memory alone is in the conflict."""
    cluster = Cluster(6, 100, (Level(2, 1e9, 0.0), Level(3, 1e9, 0.0)))
    graph = LayerGraph((Layer("a", 1.0, 1.0, 200, 0),), ())
    training = Training(2)
    problem = Problem("six", {Variant(2, context=2): graph}, cluster, training, Choices(zero=frozenset({0})), DEFAULT)
    assert explained(problem).conflict == (f"memory={cluster.hbm_bytes}",)


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


def parts_of(problem: Problem) -> dict[str, Callable[[Problem], Problem]]:
    """Return everything that can be in a conflict, as it is spelt there, with what takes it away."""
    cluster, choices = problem.cluster, problem.choices
    found: dict[str, Callable[[Problem], Problem]] = {
        f"memory={cluster.hbm_bytes:,}": lambda each: replace(each, cluster=replace(each.cluster, hbm_bytes=2**53)),
        f"devices={cluster.devices:,}": lambda each: grown(each, 8 if problem.constraints else 2**14),
    }
    for name in ("tensor", "expert", "context", "microbatch", "sequence", "replicas", "stages", "zero", "zero_degree"):
        value = getattr(choices, name)
        if value != getattr(Choices(), name):
            spelt = "none" if value == {0} else ",".join(map(str, sorted(value))) if name != "sequence" else str(value)
            found[f"{name}={spelt.lower()}"] = partial(free, name=name)
    for constraint in problem.constraints:
        found[f"{constraint.kind}: {constraint.text}"] = partial(dropped, constraint=constraint)
    return found


def free(problem: Problem, name: str) -> Problem:
    """Return a problem with one of its choices free."""
    return problem.with_choices(**{name: getattr(Choices(), name)})


def dropped(problem: Problem, constraint: SideConstraint) -> Problem:
    """Return a problem without one of its side constraints."""
    return problem.with_constraints(*(each for each in problem.constraints if each != constraint))


def grown(problem: Problem, times: int) -> Problem:
    """Return a problem with so many times as many devices."""
    cluster = problem.cluster
    below = cluster.group_sizes[-1] // cluster.levels[-1].fanout
    devices = times * cluster.devices
    top = replace(cluster.levels[-1], fanout=-(-devices // below))
    levels = (*cluster.levels[:-1], top)
    return replace(problem, cluster=replace(cluster, devices=devices, levels=levels, partial=devices % below > 0))


@pytest.mark.parametrize("seed", range(5000, 5020))
def test_random_side_constraints(seed: int) -> None:
    """By the solver's word, a conflict with side constraints rules every plan out, and without any part does not."""
    problem = random_problem(seed, TINY)
    problem = problem.with_constraints(*random_constraints(seed, problem, LOCAL_KINDS))
    if feasible(problem):
        return
    found = explained(problem)
    assert found.complete
    parts = parts_of(problem)
    assert set(found.conflict) <= set(parts)
    for name in parts.keys() - set(found.conflict):
        problem = parts[name](problem)
    assert not feasible(problem), found
    for name in found.conflict:
        assert feasible(parts[name](problem)), (name, found)


@dataclass(frozen=True)
class Stages(LocalConstraint):
    """Constraints of this class all read alike."""

    allowed: tuple[int, ...]
    kind: ClassVar[str] = "own_stages"
    text = "a number of stages"

    def admits(self, problem: Problem, outer: Outer) -> bool:  # noqa: ARG002 - a hook
        """Whether the number is an allowed one."""
        return outer.stages in self.allowed


def test_constraints_that_read_alike() -> None:
    """Two that contradict each other are both in the conflict, and dropping either helps."""
    found = explained(chain(1000).with_constraints(Stages((1,)), Stages((2,)), Stages((1, 2))))
    assert found.conflict == ("own_stages: a number of stages",) * 2
    dropping = [each.problem.constraints for each in found.relaxations if each.kind == "constraint"]
    assert dropping == [(Stages((2,)), Stages((1, 2))), (Stages((1,)), Stages((1, 2)))]
    assert explained(chain(1000).with_constraints(Stages((9,)), Stages((9,)))).conflict == (found.conflict[0],)


def test_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hard question takes its part of the time; what is said is true, and so is that something is missing."""
    graph = LayerGraph(
        tuple(Layer(at, 1.0, 2.0, 10, 5) for at in range(10)), tuple(Edge(at, at + 1, 1) for at in range(9))
    )
    cluster = Cluster(64, 100, (Level(8, 1e3, 0.0), Level(8, 1e2, 0.0)))
    problem = Problem("pinned", {Variant(1): graph}, cluster, Training(64)).with_constraints(Pin((0, 0), stage=0))
    clock = SteppedClock(1e-3)
    monkeypatch.setattr("time.perf_counter", clock)
    found = explain(problem, "it is known", time_limit_s=1)
    assert 0.5 < clock.now_s < 1
    assert found is not None
    assert (found.reason.endswith("it is known"), found.complete) == (True, False)
    assert found.conflict[0] == "pin: stage 0 of replica 0 stands within devices 0 to 0"
    drop = next(each for each in found.relaxations if each.kind == "constraint")
    assert feasible(drop.problem)
    summary = Summary()
    explain_into(summary, found)
    assert "Unsettled" in render(Screen(), summary.table)
    assert explain(problem, time_limit_s=0) is None


def test_contradictions_of_layers_take_no_time() -> None:
    """Layers that shall share a stage and shall not, or a number of stages with no equal cut: no search is needed."""
    problem = chain(1000, devices=4096, stages=frozenset({3}))
    for constraints in ([Together([0, 1]), Apart([0, 1])], [EqualStages()]):
        found = explain(problem.with_constraints(*constraints), "it is known", time_limit_s=5)
        assert found is not None
        assert found.complete
        clash = tuple(f"{each.kind}: {each.text}" for each in constraints)
        assert found.conflict == (clash if len(clash) == 2 else ("stages=3", *clash))


@pytest.mark.parametrize("seed", seeds(60, 200))
def test_cuts_by_brute_force(seed: int) -> None:
    """Whether the layers can be cut as side constraints ask agrees with trying every cut."""
    problem = random_problem(seed, SMALL)
    kinds = ("together", "apart", "cuts_at", "equal_stages", "cuts_at")
    filters = Filters(problem.with_constraints(*random_constraints(seed, problem, kinds)))
    assert may_be_cut(filters) == any(map(partial(keeps, filters), problem.variants))


def keeps(filters: Filters, variant: Variant) -> bool:
    """Whether some cut of the layers of a variant keeps the side constraints."""
    layers, asked = len(filters.problem.graphs[variant]), filters.problem.choices.stages
    for count in range(1, layers + 1) if asked is None else sorted(asked):
        for inner in combinations(range(1, layers), count - 1):
            ends = [0, *inner, layers]
            runs = [Run(np.array([first]), np.array([end])) for first, end in pairwise(ends)]
            stages = [
                (filters.run(variant, run), filters.stage(variant, count, count - at, run))
                for at, run in enumerate(runs)
            ]
            if all(mask is None or mask.all() for stage in stages for mask in stage):
                return True
    return False


def llama(cluster: str, **choices: object) -> Problem:
    """Return a run of 70 billion parameters with a batch of 16 on some devices."""
    numbers = Hyperparameters("llama", layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocab=128256, seq=2048)
    model = from_hyperparameters(numbers)
    asked = Choices(**choices)  # type: ignore[arg-type]
    return problem_of(TrainingRun(model, cluster_named(cluster), 2048, 16, choices=asked)).problem


def test_the_reason_says_how_much_memory_is_needed() -> None:
    """A model that is far too large: bytes needed against bytes there, of the variant that needs the least."""
    problem = llama("dgx-h100:2", microbatch=frozenset({1}))
    found = explain(problem, time_limit_s=None)
    assert found is not None
    said = re.match(
        r"a device needs ([\d.]+) GiB at least with the reserve of 3\.95 GiB \((.*?\))\), and has 79\.1", found.reason
    )
    assert said is not None, found.reason
    memory = next(each for each in found.relaxations if each.kind == "memory")
    assert f"({said[1]} GiB)" in memory.text
    assert said[2] == f"variant {next(each for each in problem.variants if each.tensor == 2 and each.sequence)}"
    assert solve(memory.problem).status is Status.OPTIMAL
    assert not feasible(smaller(memory.problem, "memory"))
    assert "though each layer alone does" in found.reason
    assert "closer" not in found.reason, "no variant is named where all are alike"


def test_more_than_eight_times_as_many_devices() -> None:
    """The fewest devices are found far away, too, where variants decide by themselves."""
    problem = llama("l4:1", microbatch=frozenset({1}))
    found = explain(problem, time_limit_s=None)
    assert found is not None
    devices = next(each for each in found.relaxations if each.kind == "devices")
    assert devices.problem.cluster.devices > 8
    assert feasible(devices.problem)
    assert not feasible(smaller(devices.problem, "devices"))


def test_widths_that_leave_nothing_out_are_in_no_conflict() -> None:
    """A run that tries all widths names them; nobody asked for that."""
    free = llama("dgx-h100:2")
    named = {name: frozenset(getattr(each, name) for each in free.variants) for name in ("context", "microbatch")}
    found = explain(free.with_choices(**named), "it is known", time_limit_s=None)
    assert found is not None
    assert [part.split("=")[0] for part in found.conflict] == ["devices", "memory"]


def test_interleaving_on_one_device() -> None:
    """The reason is that there is room for one stage, not what divides the layers."""
    layers = [Layer(at, 1, 2, 100, 10, "layer") for at in range(4)]
    graph = LayerGraph.sort(layers, [Edge(one.id, two.id, 8) for one, two in pairwise(layers)])
    choices, cluster = Choices(schedules=frozenset({"interleaved"})), Cluster(1, 10**6, (Level(1, 1e9, 1e-6),))
    found = solve(Problem("one", {Variant(1): graph}, cluster, Training(4, "sgd"), choices, DEFAULT))
    assert found.status is Status.INFEASIBLE
    assert "interleaved takes 2 stages at least, and there are 4 layers and room for 1" in (found.reason or "")
