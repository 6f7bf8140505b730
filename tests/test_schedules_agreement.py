"""Solver, judge, checker and reference agree on schedules: as integers, on problems small enough to try all plans."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import oracle_default as oracle
import oracle_schedules as schedules
import pytest
from played_checks import check
from random_branches import BRANCHED, random_branched
from random_default import Size, random_plan
from random_problems import show_plan, show_problem
from random_schedules import SMALL, scheduled, scheduled_problem
from seeds import seeds

from nest.cli import run
from nest.cost.schedule import summed
from nest.cost.schedules import Schedule, bubble, in_flight
from nest.dp.makespans import Played, Shape, makespans
from nest.errors import InvalidProblem
from nest.evaluate import evaluate, pipeline_of, sync_of
from nest.files import apply_settings, read_plan, read_problem, write_plan, write_problem
from nest.pipeline import Pipeline, StageTimes, simulate
from nest.presets import DEFAULT, PAPER, SIMULATED, Preset, ScheduleName
from nest.problem import Choices
from nest.solve import solve

LARGER = Size(layers=5, devices=10, levels=3, variants=2, batch=12)
NAMES: tuple[ScheduleName, ...] = ("1f1b", "gpipe", "zb-h1")


@pytest.mark.parametrize("seed", seeds(20, 100))
def test_small(seed: int) -> None:
    """Every plan of a few layers on a few devices, under every schedule that is allowed."""
    check(scheduled_problem(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(400))
def test_larger(seed: int) -> None:
    """More layers and devices."""
    check(scheduled_problem(10_000 + seed, LARGER))


@pytest.mark.parametrize("seed", seeds(30, 60))
def test_branches(seed: int) -> None:
    """Every chain of downsets of a few layers, and the bound of all of them from one order of the layers."""
    problem = scheduled(seed, random_branched(seed, replace(BRANCHED, layers=4)))
    result, ordered = check(problem), solve(problem, cuts="order")
    if result.objective_ticks is None:
        assert ordered.plan is None
        return
    assert ordered.bound_ticks is not None
    assert ordered.bound_ticks <= result.objective_ticks
    assert ordered.objective_ticks is None or ordered.objective_ticks >= result.objective_ticks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_more_branches(seed: int) -> None:
    """More layers."""
    check(scheduled(seed, random_branched(seed)))


@pytest.mark.parametrize("seed", seeds(50, 120))
def test_price_of_a_plan(seed: int) -> None:
    """Judge, player and reference say the same of a random plan, also of its memory."""
    problem = scheduled_problem(seed, LARGER)
    plan = replace(random_plan(seed, problem), schedule=NAMES[seed % 3])
    try:
        verdict = evaluate(problem, plan)
    except InvalidProblem:
        return
    if verdict.objective_ticks is None:
        return
    assert ("schedule" in {each.rule for each in verdict.violations}) == (
        plan.schedule not in problem.choices.schedules
    )
    if problem.preset is SIMULATED:
        played = simulate(pipeline_of(problem, plan, verdict), Schedule(plan.schedule))
        assert played.makespan + sync_of(problem, verdict) == verdict.objective_ticks
    rounding = oracle.Rounding(verdict.scale.time.exponent)
    expected = schedules.price(problem, plan, rounding)
    assert rounding.doubtful or expected == verdict.objective_ticks, f"{show_problem(problem)}\n{show_plan(plan)}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(25))
def test_many_pipelines_at_once(seed: int, name: ScheduleName) -> None:
    """Pipelines played as waves take what they take event by event, and keep as much as the formula says."""
    rng = random.Random(seed)
    stages, microbatches, most = rng.randint(1, 7), rng.randint(1, 20), rng.choice([1, 3, 100])
    forward, weight, rest = np.array(
        [[[rng.randint(0, most) for _ in range(stages)] for _ in range(9)] for _ in range(3)]
    )
    found = makespans(Shape(name, stages, microbatches), Played(forward, rest + weight, weight)).tolist()
    rows = zip(found, forward.tolist(), (rest + weight).tolist(), weight.tolist(), strict=True)
    for ticks, *row in rows:
        played = simulate(Pipeline(tuple(map(StageTimes, *row)), microbatches), Schedule(name))
        assert played.makespan == ticks
        times = [schedules.Times(ahead, back, 0, late) for ahead, back, late in zip(*row, strict=True)]
        assert schedules.played(name, times, microbatches) == ticks
    for at in range(stages):
        assert in_flight(Schedule(name), stages, at, microbatches) == schedules.kept(name, at, stages, microbatches)


@pytest.mark.parametrize("seed", range(60))
def test_gpipe_in_closed_form(seed: int) -> None:
    """GPipe takes all loads and, for each further microbatch, the longest pass forward and the longest one backward."""
    rng = random.Random(seed)
    stages, microbatches = rng.randint(1, 6), rng.randint(1, 12)
    times = tuple(StageTimes(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(stages))
    longest = max(each.forward for each in times) + max(each.backward for each in times)
    loads = [each.load for each in times]
    taken = simulate(Pipeline(times, microbatches), Schedule("gpipe")).makespan
    assert taken == sum(loads) + (microbatches - 1) * longest
    assert taken >= summed(sum(loads), max(loads), microbatches, 0)


def test_zero_bubbles_of_uneven_stages() -> None:
    """The closed formula of ZB-H1 is exact for equal stages; of uneven ones it can say too little."""
    uneven = (StageTimes(2, 4, 2), StageTimes(4, 2, 1), StageTimes(1, 6, 3))
    schedule, microbatches = Schedule("zb-h1"), 6
    equal = (uneven[0],) * 3
    idle = bubble(schedule, 3, microbatches, forward=2, backward=4, weight=2)
    assert simulate(Pipeline(equal, microbatches), schedule).makespan == microbatches * 6 + idle
    longest = max(each.load for each in uneven)
    least = bubble(schedule, 3, microbatches, forward=1, backward=6, weight=3)
    assert simulate(Pipeline(uneven, microbatches), schedule).makespan > microbatches * longest + least


def test_all_schedules_are_optimal_somewhere() -> None:
    """Each schedule is that of the best plan of some problem in which others are allowed."""
    seen = set[str]()
    for seed in range(100):
        problem = scheduled_problem(seed)
        plan = solve(problem).plan
        if plan is not None and len(problem.choices.schedules) > 1 and len(plan.stages) > 1:
            seen.add(plan.schedule)
    assert {"1f1b", "zb-h1"} <= seen


@pytest.mark.parametrize(("preset", "schedule"), [(PAPER, "gpipe"), (DEFAULT, "zb-h1"), (PAPER, "interleaved")])
def test_schedules_without_a_price(preset: Preset, schedule: ScheduleName) -> None:
    """A problem that allows what its preset does not price is refused, naming the schedule."""
    problem = scheduled_problem(1).with_choices(schedules=frozenset({"1f1b"}))
    with pytest.raises(InvalidProblem, match=f"choices.schedules: '{schedule}' under preset '{preset.name}'"):
        replace(problem, preset=preset, choices=replace(problem.choices, schedules=frozenset({schedule})))


def test_schedules_and_shares_in_files(tmp_path: Path) -> None:
    """Allowed schedules, shares of gradients of weights and the schedule of a plan survive a file each."""
    problem = scheduled_problem(7, SMALL)
    shares = [[layer.weight_share for layer in problem.graphs[variant].layers] for variant in sorted(problem.graphs)]
    problem = problem.with_preset(SIMULATED).with_choices(schedules=frozenset({"gpipe", "zb-h1"}))
    write_problem(problem, tmp_path / "problem.toml")
    read = read_problem(tmp_path / "problem.toml")
    assert read.choices.schedules == {"gpipe", "zb-h1"}
    found = [[layer.weight_share for layer in read.graphs[variant].layers] for variant in sorted(read.graphs)]
    assert found == shares
    assert apply_settings(read, ["schedules=1f1b,zb-h1"]).choices.schedules == {"1f1b", "zb-h1"}
    plan = replace(random_plan(1, problem), schedule="zb-h1")
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json").schedule == "zb-h1"


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The objective and the schedules that are asked for are those of the answer."""
    problem = replace(scheduled_problem(7, SMALL), choices=Choices(), preset=DEFAULT)
    problem = replace(problem, cluster=replace(problem.cluster, hbm_bytes=10**15))
    write_problem(problem, tmp_path / "problem.toml")
    asked = ["solve", str(tmp_path / "problem.toml"), "--json", "--objective", "simulated", "--set"]
    for schedule in ("1f1b", "gpipe", "zb-h1"):
        assert run([*asked, f"schedules={schedule}"]) == 0
        answer = json.loads(capsys.readouterr().out)
        expected = solve(problem.with_preset(SIMULATED).with_choices(schedules=frozenset({schedule})))
        assert answer["objective_ticks"] == expected.objective_ticks
        assert answer["plan"]["schedule"] == schedule
    assert run([*asked, "schedules=interleaved"]) == 3  # all devices make one stage
    reason = json.loads(capsys.readouterr().out)["reason"]
    assert "interleaved takes 2 stages at least, and there are 4 layers and room for 1" in reason
    assert run([*asked[:3], "--preset", "paper", "--objective", "simulated"]) == 2
