"""Tensor widths of single stages: rules, files, what refuses them, and what is shown of such plans."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from random_uneven import random_plan, random_problem
from rich.console import Console
from seeds import seeds
from uneven_checks import bounds_hold, parts_add_up

from nest.certificate import check as claimed
from nest.cluster import Cluster, DeviceClass, Level
from nest.constraints import EqualStages, MaxDevices
from nest.errors import InvalidPlan, InvalidProblem, OutOfScope
from nest.evaluate import evaluate
from nest.execute.shape import shape_of
from nest.export.base import Inexpressible, require_order
from nest.export.ranks import ranks_of
from nest.files import apply_settings, read_plan, read_problem, write_plan, write_problem
from nest.graph import Collective, Edge, Layer, LayerGraph
from nest.milp import solve_cpsat
from nest.plan import Plan, Stage
from nest.presets import DEFAULT, PAPER
from nest.problem import Choices, Problem, Training, Variant
from nest.report.figures import PricedPlan
from nest.report.stage_table import stage_table
from nest.solve import solve

CLUSTER = Cluster(8, 10**9, (Level(4, 1e9, 0.0), Level(2, 1e8, 0.0)))
HEAVY = 4.0


def model(tensor: int) -> LayerGraph:
    """Return three layers, the last of which takes much longer, and is the only one that tensor ranks share."""
    exchanged = (Collective("all-reduce", 10**6, "tensor", "forward"),) if tensor > 1 else ()
    seconds = (1.0, 1.0, HEAVY / tensor)
    layers = (Layer(at, each, 2 * each, 10**6 // tensor, 10**5, "", 0, 0, exchanged) for at, each in enumerate(seconds))
    return LayerGraph(tuple(layers), (Edge(0, 1, 10**5), Edge(1, 2, 10**5)))


def problem(**choices: object) -> Problem:
    """Return a problem whose best plan has a wider last stage."""
    graphs = {Variant(tensor): model(tensor) for tensor in (1, 2, 4)}
    found = Problem(
        "head", graphs, CLUSTER, Training(16), Choices(replicas=frozenset({1}), zero=frozenset({0})), DEFAULT
    )
    return found.with_choices(**{"stage_tensor": frozenset({1, 2, 4}), **choices})


def plan_of(*widths: int, starts: tuple[int, ...], variant: int, **more: object) -> Plan:
    """Return a plan with a layer on each stage but the last, which has the others."""
    layers = [tuple(range(at, at + 1)) for at in range(len(widths) - 1)] + [tuple(range(len(widths) - 1, 3))]
    stages = (
        Stage(each, start, width, tensor=None if width == variant else width)
        for each, width, start in zip(layers, widths, starts, strict=True)
    )
    made = Plan(Variant(variant), 1, variant, tuple(stages), "stage-major")
    return replace(made, **more)  # type: ignore[arg-type]


def rules(asked: Problem, plan: Plan) -> set[str]:
    """Return the names of the rules that a plan breaks."""
    return {violation.rule for violation in evaluate(asked, plan).violations}


def test_a_wider_stage_wins() -> None:
    """The heavy layer takes four devices, the others one or two, which no single width can have."""
    free, even = solve(problem()), solve(problem(stage_tensor=None))
    assert free.plan is not None
    assert free.plan.uneven
    assert free.plan.stages[-1].devices == 4
    assert free.objective_ticks is not None
    assert even.objective_ticks is not None
    assert free.objective_ticks < even.objective_ticks


def test_rules() -> None:
    """Widths out of the list, blocks at multiples of their width, replicas apart by a multiple of all widths."""
    asked = problem()
    good = plan_of(2, 2, 4, starts=(0, 2, 4), variant=4)
    assert rules(asked, good) == set()
    assert rules(asked, plan_of(1, 1, 4, starts=(0, 1, 4), variant=4)) == set()
    assert rules(asked, plan_of(1, 1, 4, starts=(0, 4, 8), variant=4)) == {"devices"}
    assert rules(asked, plan_of(1, 1, 4, starts=(0, 2, 4), variant=4)) == {"placement"}
    assert rules(asked, replace(good, replica_stride=2)) == {"placement"}
    assert rules(asked, replace(good, arrangement="replica-major", replica_stride=8)) == set()
    assert rules(asked, replace(good, arrangement="replica-major", replica_stride=6)) == {"placement"}
    assert rules(problem(stage_tensor=frozenset({2})), good) == {"variant"}
    assert rules(problem(stage_tensor=None), good) == {"variant"}
    narrow = replace(good.stages[0], devices=4)
    assert rules(asked, replace(good, stages=(narrow, *good.stages[1:]))) >= {"block"}


def test_a_width_that_the_problem_has_no_costs_for() -> None:
    """A plan may name a tensor width that the model does not have."""
    with pytest.raises(InvalidPlan, match=r"no costs for .*tensor=3"):
        evaluate(problem(), plan_of(3, 4, starts=(0, 4), variant=4))


def test_files(tmp_path: Path) -> None:
    """Problems and plans are read as they were written, with the widths of stages."""
    asked, result = problem(), solve(problem())
    assert result.plan is not None
    write_problem(asked, tmp_path / "problem.toml")
    assert read_problem(tmp_path / "problem.toml").choices == asked.choices
    write_plan(result.plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == result.plan


@pytest.mark.parametrize(("text", "widths"), [("1,2", {1, 2}), ("1..4", {1, 2, 3, 4}), ("none", None)])
def test_settings(text: str, widths: set[int] | None) -> None:
    """The command line takes lists and ranges, and none to settle it."""
    found = apply_settings(problem(), [f"stage_tensor={text}"]).choices.stage_tensor
    assert found == (None if widths is None else frozenset(widths))


@pytest.mark.parametrize("text", ["any", "0", "wide"])
def test_bad_settings(text: str) -> None:
    """There is no ``any``: what is opt-in is named."""
    with pytest.raises(InvalidProblem, match="stage_tensor"):
        apply_settings(problem(), [f"stage_tensor={text}"])


def test_refused_problems() -> None:
    """Presets that place no such stages, devices of several classes, models that branch, variants of other layers."""
    mixed = replace(CLUSTER, own_class="new", classes=(DeviceClass("old", ((4, 8),), 10**9),))
    with pytest.raises(InvalidProblem, match="classes"):
        replace(problem(), cluster=mixed)
    with pytest.raises(InvalidProblem, match="preset 'paper'"):
        problem().with_preset(PAPER)
    branched = LayerGraph(model(1).layers, (Edge(0, 2, 1), Edge(1, 2, 1)))
    graphs = {Variant(1): branched, Variant(2): branched}
    with pytest.raises(InvalidProblem, match="branches"):
        replace(problem(), graphs=graphs)
    with pytest.raises(InvalidProblem, match="different layers"):
        replace(problem(), graphs={Variant(1): model(1), Variant(2): LayerGraph(model(2).layers[:1], ())})


def test_the_programme_agrees() -> None:
    """CP-SAT has the same optimum, and the checker covers such problems."""
    assert solve_cpsat(problem()).objective == solve(problem()).objective_ticks
    assert claimed(problem(), 1).holds


def test_side_constraints() -> None:
    """Limits of devices hold; what looks at stages of one width is refused, by judge and solver."""
    limited = problem().with_constraints(MaxDevices(6))
    found = solve(limited).plan
    assert found is not None
    assert found.used_devices <= 6
    equal = problem().with_constraints(EqualStages())
    with pytest.raises(OutOfScope, match="equal_stages"):
        solve(equal)
    with pytest.raises(OutOfScope, match="equal_stages"):
        evaluate(equal, plan_of(2, 2, 4, starts=(0, 2, 4), variant=4))


def test_frameworks_refuse() -> None:
    """No framework has stages of different tensor widths, and no tiny model runs them."""
    plan = solve(problem()).plan
    assert plan is not None
    with pytest.raises(Inexpressible, match="tensor widths"):
        require_order(plan, "Megatron-LM")
    with pytest.raises(InvalidPlan, match="tensor widths"):
        shape_of(problem(), plan)


def test_ranks() -> None:
    """Each device is one rank, with its place among the tensor ranks of its own stage."""
    plan = plan_of(1, 1, 4, starts=(0, 2, 8), variant=4, replicas=2)
    ranks = ranks_of(plan, Cluster(16, 1, (Level(4, 1, 0), Level(4, 1, 0))))
    assert [rank.place for rank in ranks] == [0, 1, 2, 3, *range(8, 16)]
    assert [rank.tensor for rank in ranks] == [0] * 4 + [0, 1, 2, 3] * 2
    assert [rank.replica for rank in ranks] == [0, 1, 0, 1, *[0] * 4, *[1] * 4]


def test_shown() -> None:
    """The table of stages has a column for the tensor width, which plans of one width have not."""
    text = {}
    for name, asked in (("uneven", problem()), ("even", problem(stage_tensor=None))):
        plan = solve(asked).plan
        assert plan is not None
        out = io.StringIO()
        priced = PricedPlan.judged(asked, plan)
        assert priced is not None
        Console(file=out, width=120).print(stage_table(priced))
        text[name] = out.getvalue()
    assert "Tensor" in text["uneven"]
    assert "Tensor" not in text["even"]


@pytest.mark.parametrize("seed", range(60))
def test_parts_add_up(seed: int) -> None:
    """What loads, memory and an iteration consist of is the judge's, and the pipeline that is played has its loads."""
    asked = random_problem(seed)
    plan = random_plan(seed, asked)
    if plan is not None:
        parts_add_up(asked, plan)


@pytest.mark.parametrize("seed", seeds(50, 80))
def test_bounds(seed: int) -> None:
    """No outer choice has a plan below its bound, nor any below the bound of all, nor below what computing takes."""
    bounds_hold(random_problem(seed))


def test_time_limit() -> None:
    """Without time there is no proof, and the bound is below every plan."""
    result = solve(problem(), time_limit_s=0.0)
    best = solve(problem()).objective_ticks
    assert best is not None
    assert result.bound_ticks is None or result.bound_ticks <= best
