"""Plans as they are simulated: with the judge's loads and transfers, on the command line, and the best of all plans."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import oracle_plans
import pytest
import random_default
import random_problems
from judging import judged
from seeds import seeds

from nest.cli import run as run_cli
from nest.cluster import Cluster, Level
from nest.cost.schedule import summed
from nest.cost.schedules import Schedule, least_by_load, least_by_wait
from nest.errors import InvalidPlan, InvalidProblem
from nest.evaluate import evaluate
from nest.files import write_plan, write_problem
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan
from nest.presets import ARTIFACT, DEFAULT, PAPER, Preset
from nest.problem import Choices, Problem, Recompute, Training, Variant
from nest.simulate import best_simulated, pipeline_of, simulate, sync_of
from nest.solve import solve

ONE = Schedule("1f1b")
VARIANT = Variant(1, 1, 1)
ROOT = Path(__file__).resolve().parents[1]


def by_hand(preset: Preset) -> Problem:
    """Return two layers on two devices: 1 s and 2 s forward, 3 s and 4 s backward, a tensor of half a second."""
    layers = Layer(0, 1.0, 3.0, 8, 8), Layer(1, 2.0, 4.0, 8, 8)
    graph = LayerGraph.sort(layers, (Edge(0, 1, 50),))
    recompute: Recompute = "full" if preset is not DEFAULT else "none"
    choices = Choices(zero=frozenset({0}), stages=frozenset({2}), replicas=frozenset({1}), recompute=recompute)
    cluster = Cluster(2, 10**6, (Level(2, 100, 0),))
    return Problem("by hand", {VARIANT: graph}, cluster, Training(3, "sgd"), choices, preset)


def some_plan(seed: int) -> tuple[Problem, Plan]:
    """Return a random problem and a random plan of it, under each preset in turn."""
    if seed % 3 == 2:
        problem = random_default.random_problem(seed)
        return problem, random_default.random_plan(seed, problem)
    problem = replace(random_problems.random_problem(seed), preset=(PAPER, ARTIFACT)[seed % 3])
    return problem, random_problems.random_plan(seed, problem)


def solved(problem: Problem) -> Plan:
    """Return the best plan of a problem by its own objective."""
    plan = solve(problem).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize("preset", [PAPER, DEFAULT], ids=lambda preset: str(preset.name))
def test_times_by_hand(preset: Preset) -> None:
    """Passes, transfers and recomputation of two stages, in seconds, and the iteration that follows."""
    problem = by_hand(preset)
    plan = solved(problem)
    evaluation = evaluate(problem, plan)
    first, second = pipeline_of(problem, plan, evaluation).stages
    seconds = evaluation.scale.time.seconds
    if preset is DEFAULT:
        assert seconds(first.recompute) == 0
        assert seconds(first.receive_gradient) == 0.5
    else:  # the transfer of the gradient hides behind the second of recomputation
        assert seconds(first.recompute) == 1
        assert seconds(first.receive_gradient) == 0
    assert [seconds(each) for each in (first.receive, first.forward, first.backward)] == [0, 1, 3]
    parts = second.receive, second.forward, second.recompute, second.receive_gradient, second.backward
    assert [seconds(each) for each in parts] == [0.5, 2, 0, 0, 4]


@pytest.mark.parametrize("seed", range(240))
def test_loads_are_the_judges(seed: int) -> None:
    """No tick is lost between judge and simulator, and the bounds hold for plans as they hold for pipelines."""
    problem, plan = some_plan(seed)
    evaluation = evaluate(problem, plan)
    if not evaluation.stages:
        return
    pipeline = pipeline_of(problem, plan, evaluation)
    loads = [stage.load for stage in evaluation.stages]
    assert list(pipeline.loads) == loads
    if problem.preset.objective == "sum":
        whole = summed(sum(loads), max(loads), pipeline.microbatches, sync_of(problem, evaluation))
        assert whole == evaluation.objective_ticks
    taken = simulate(pipeline, ONE).makespan
    forwards = [stage.forward_pass for stage in pipeline.stages]
    tight = least_by_wait(forwards, loads, pipeline.microbatches)
    assert least_by_load(loads, pipeline.microbatches) <= tight <= taken
    overlapped = pipeline_of(problem, plan, evaluation, overlapped=True)
    assert simulate(overlapped, ONE).makespan <= taken
    if len(loads) == 1:
        assert taken == pipeline.microbatches * loads[0]


def test_random_plans_have_everything() -> None:
    """Among them are transfers, recomputation and sharding of every type, or the test above would say little."""
    sharded: set[tuple[str, int]] = set()
    timed: set[str] = set()
    for problem, plan in map(some_plan, range(240)):
        evaluation = evaluate(problem, plan)
        for stage, figures in zip(plan.stages, evaluation.stages, strict=False):
            sharded |= {(problem.preset.name, stage.sharding.zero)} if figures.sharding else set()
        for times in pipeline_of(problem, plan, evaluation).stages if evaluation.stages else ():
            timed |= {name for name in ("receive", "receive_gradient", "recompute") if getattr(times, name)}
    assert sharded >= {(name, zero) for name in ("artifact", "paper", "default") for zero in (2, 3)}
    assert timed == {"receive", "receive_gradient", "recompute"}


def test_weight_share() -> None:
    """It divides the backward pass of the layers, and nothing but a part is one."""
    problem = by_hand(DEFAULT)
    plan = solved(problem)
    evaluation = evaluate(problem, plan)
    shares = [pipeline_of(problem, plan, evaluation, weight_share=share).stages[0] for share in (0, 0.25, 1)]
    assert [evaluation.scale.time.seconds(times.weight) for times in shares] == [0, 0.75, 3]
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidProblem, match="from 0 to 1"):
            pipeline_of(problem, plan, evaluation, weight_share=share)


def test_plan_without_a_price() -> None:
    """A plan that leaves out a layer has no loads to play."""
    problem = by_hand(PAPER)
    plan = solved(problem)
    broken = replace(plan, stages=plan.stages[:1])
    with pytest.raises(InvalidPlan, match="cover"):
        pipeline_of(problem, broken, evaluate(problem, broken))


def simulated(problem: Problem, plans: Iterable[Plan]) -> list[int]:
    """Return the iterations of plans as simulated, of those that are legal."""
    legal = ((plan, verdict) for plan, verdict in judged(problem, plans) if verdict.legal)
    return [
        simulate(pipeline_of(problem, plan, verdict), ONE).makespan + sync_of(problem, verdict)
        for plan, verdict in legal
    ]


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_best_of_all_plans(seed: int) -> None:
    """By order of the bound as by trying all plans; and never worse than the best plan by `sum`."""
    problem = random_default.random_problem(
        seed, random_default.Size(layers=4, devices=8, levels=2, variants=1, batch=9)
    )
    plans = list(oracle_plans.plans(problem))
    best = best_simulated(problem, plans)
    times = simulated(problem, plans)
    if best is None:
        assert not times
        return
    assert (best.ticks, best.legal) == (min(times), len(times))
    assert 1 <= best.simulated <= len(times)
    again, other = simulated(problem, [best.plan, solved(problem)])
    assert again == best.ticks <= other


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Return the files of a plan and its problem."""
    problem = by_hand(PAPER)
    write_problem(problem, tmp_path / "problem.toml")
    write_plan(solved(problem), tmp_path / "plan.json")
    return str(tmp_path / "plan.json"), str(tmp_path / "problem.toml")


def test_text(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A table, a picture in which every stage has a row, and the iteration beside its formulas."""
    assert run_cli(["simulate", files[0], "--problem", files[1]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("0  0") for line in lines)
    assert any(line.startswith("1  ...") for line in lines)
    found = [line for line in lines if line.startswith(("Schedule", "Simulated", "Formula", "Bound"))]
    assert found[0] == "Schedule   1f1b, 3 microbatches"
    assert found[1] == "Simulated  24.5 s = 24.5 s for the pipeline"
    assert found[2].startswith("Formula    bottleneck 26 s, +6.12 % (the objective of the preset)")


def test_json(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The same as one object, for every schedule."""
    for schedule, chunks in (("1f1b", 1), ("gpipe", 1), ("zb-h1", 1), ("interleaved", 2)):
        assert run_cli(["simulate", files[0], "--problem", files[1], "--schedule", schedule, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["schedule"], document["chunks"], document["microbatches"]) == (schedule, chunks, 3)
        for stage in document["stages"]:
            assert stage["in_flight"] == stage["in_flight_formula"]
            assert stage["busy_s"] + stage["idle_s"] == pytest.approx(document["makespan_s"])
        assert bool(document["bounds_s"]) == (schedule == "1f1b")


@pytest.mark.parametrize("overlap", [[], ["--overlap"]])
def test_trace(files: tuple[str, str], tmp_path: Path, overlap: list[str]) -> None:
    """A trace is JSON that Perfetto reads: bars that end when the pipeline does, none over another on its thread."""
    target = tmp_path / "trace.json"
    assert run_cli(["simulate", files[0], "--problem", files[1], "--trace", str(target), *overlap]) == 0
    events = json.loads(target.read_text())["traceEvents"]
    bars = [event for event in events if event["ph"] == "X"]
    named = {event["tid"] for event in events if event["ph"] == "M"}
    assert {event["tid"] for event in bars} <= named
    assert max(event["ts"] + event["dur"] for event in bars) == pytest.approx(23.5e6 if overlap else 24.5e6)
    for thread in named:
        ends = 0.0
        for event in sorted((event for event in bars if event["tid"] == thread), key=lambda event: float(event["ts"])):
            assert event["ts"] >= ends - 1e-6
            ends = event["ts"] + event["dur"]


def test_bad_input(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is one line and exit code 2."""
    plan, problem = files
    for arguments, what in (
        ([plan], "--problem"),
        ([plan, "--problem", problem, "--chunks", "3"], "--chunks goes with --schedule interleaved"),
        ([plan, "--problem", problem, "--schedule", "zbv"], "'zbv'"),
        ([plan, "--problem", problem, "--weight-share", "2"], "--weight-share"),
        ([plan, "--problem", problem, "--trace", problem], "the problem itself"),
        ([str(tmp_path / "none.json"), "--problem", problem], "none.json"),
    ):
        assert run_cli(["simulate", *arguments]) == 2, arguments
        streams = capsys.readouterr()
        assert streams.out == ""
        assert what in streams.err
        assert len(streams.err.splitlines()) == 1


def test_chunks_of_another_schedule(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan with chunks under 1F1B was answered with an option that nobody typed."""
    plan, path = json.loads(Path(files[0]).read_text()), tmp_path / "edited.json"
    path.write_text(json.dumps(plan | {"chunks": 2}))
    assert run_cli(["simulate", str(path), "--problem", files[1]]) == 2
    said = f'nest: {path}: chunks: 2 in a plan whose schedule is 1f1b; give the plan "schedule": "interleaved", or'
    assert capsys.readouterr().err.startswith(said)


def test_illegal_plan(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that breaks a rule is played if it has a price, and the exit code says so."""
    text = Path(files[0]).read_text()
    assert '"replicas": 1' in text
    broken = tmp_path / "broken.json"
    document = json.loads(text)
    document["stages"][0]["recompute"] = "none"
    broken.write_text(json.dumps(document))
    assert run_cli(["simulate", str(broken), "--problem", files[1]]) == 3
    assert "Broken     recompute" in capsys.readouterr().out
