"""The mathematical programme: both models, the dynamic program and the reference agree, and each rule holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import oracle
import pytest
from judging import judged
from ortools.sat.python import cp_model
from random_problems import Size, neighbours, placed_plan, random_plan, random_problem, show_plan, show_problem
from seeds import seeds
from test_rules import BROKEN, FIRST, LAST, LEGAL, NARROW, PROBLEM

from nest.errors import OutOfScope, SolverUnavailable
from nest.evaluate import evaluate
from nest.milp import Claim, cpsat, cpsat_model, formulation, highs, pyomo_model, solve_cpsat, solve_pyomo
from nest.milp.claim import NO_PATH
from nest.milp.cpsat_base import PARAMETERS
from nest.milp.formulation import Formulation
from nest.milp.plans import Solution, encode
from nest.milp.space import Space
from nest.plan import UNSHARDED, Plan, Stage
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Problem, Training
from nest.result import Status
from nest.solve import Backend, Disagreement, solve

ROOT = Path(__file__).resolve().parent.parent
TINY = Size(layers=4, devices=8)
SMALL = Size(layers=6, devices=16)
LARGER = Size(layers=9, devices=32)
NO_ZERO = frozenset({0})
BACKENDS: tuple[Backend, ...] = ("cpsat", "pyomo")

both_presets = pytest.mark.parametrize("preset", [PAPER, ARTIFACT], ids=lambda preset: preset.name)


def drawn(seed: int, size: Size, preset: Preset) -> Problem:
    """Return the random problem of a seed, with ZeRO."""
    return random_problem(seed, size).with_preset(preset)


def plain(seed: int, size: Size, preset: Preset) -> Problem:
    """Return the random problem of a seed, without ZeRO."""
    return drawn(seed, size, preset).with_choices(zero=NO_ZERO)


def agree(problem: Problem, backends: Sequence[Backend] = BACKENDS) -> None:
    """Assert that all solvers and the reference find the same optimum, as integers, or that there is none."""
    wanted = solve(problem)
    best = oracle.best(problem, wanted.time.exponent).objective
    shown = f"{show_problem(problem)}\ndp: {wanted.objective_ticks}, reference: {best}"
    assert best == wanted.objective_ticks, shown
    for backend in backends:
        found = solve(problem, backend=backend)
        said = f"{shown}\n{backend}: {found.status} {found.objective_ticks} >= {found.bound_ticks}, {found.reason}"
        assert found.backend == backend
        assert found.objective_ticks == best, f"{said}\n{show_plan(found.plan)}\n{show_plan(wanted.plan)}"
        assert (found.status is Status.INFEASIBLE) == (best is None), said
        assert found.status is wanted.status or (backend == "pyomo" and found.status is Status.FEASIBLE), said
        assert (found.reason is not None) == (found.status is not Status.OPTIMAL), said
        assert found.bound_ticks is None or (best is not None and found.bound_ticks <= best), said


@both_presets
@pytest.mark.parametrize("seed", range(25))
def test_agreement_without_zero(seed: int, preset: Preset) -> None:
    """Chains with and without skip edges, several widths, partial clusters, restricted choices."""
    agree(plain(seed, SMALL, preset))


@both_presets
@pytest.mark.parametrize("seed", range(200, 220))
def test_agreement(seed: int, preset: Preset) -> None:
    """All types and degrees of ZeRO, some of them, or types that every stage must have."""
    agree(drawn(seed, TINY, preset))


@both_presets
@pytest.mark.parametrize("seed", seeds(30, 60))
def test_agreement_of_cpsat(seed: int, preset: Preset) -> None:
    """Somewhat more layers and devices, for the faster solver."""
    agree(drawn(seed, Size(layers=5, devices=12), preset), ("cpsat",))


@pytest.mark.slow
@both_presets
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_agreement_without_zero_on_larger_problems(seed: int, preset: Preset) -> None:
    """More layers and devices."""
    agree(plain(seed, LARGER, preset))


@pytest.mark.slow
@both_presets
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_agreement_on_larger_problems(seed: int, preset: Preset) -> None:
    """More layers and devices, with ZeRO."""
    agree(drawn(seed, SMALL, preset))


@pytest.mark.slow
@both_presets
@pytest.mark.parametrize("seed", range(2000, 2300))
def test_agreement_of_cpsat_on_larger_problems(seed: int, preset: Preset) -> None:
    """More layers and devices, with ZeRO, for the faster solver."""
    agree(drawn(seed, Size(layers=7, devices=16), preset), ("cpsat",))


def test_random_problems_shard() -> None:
    """Many of the problems above have an optimum in which some stage shards."""
    best = [solve(drawn(seed, TINY, PAPER)).plan for seed in range(200, 240)]
    sharded = [plan for plan in best if plan and any(stage.sharding.degree > 1 for stage in plan.stages)]
    assert len(sharded) >= 8
    assert {stage.sharding.zero for plan in sharded for stage in plan.stages} == {0, 1, 2, 3}


@both_presets
@pytest.mark.parametrize("seed", range(200, 212))
def test_consequences_lose_nothing(seed: int, preset: Preset) -> None:
    """The programme of the rules alone, with nothing left out and no limits, has the same optimum."""
    problem = drawn(seed, TINY, preset)
    made = whole(problem)
    wanted = solve(problem).objective_ticks
    claim = cpsat.run(cpsat_model.build(made), None) if made.choices else None
    assert (None if claim is None else claim.objective) == wanted
    if wanted is not None:
        space = Space.of(problem)
        assert space.least_objective <= wanted
        below = [cpsat.run(cpsat_model.build(Formulation(space, limit)), None) for limit in (wanted + 1,)]
        assert [claim.objective for claim in below] == [wanted]
        least = Formulation(space, wanted)
        assert not least.choices or cpsat.run(cpsat_model.build(least), None).status is Status.INFEASIBLE


@both_presets
def test_programme_without_zero_has_nothing_of_it(preset: Preset) -> None:
    """No places, options or sights where no stage may shard, and one model without limits."""
    for seed in range(10):
        space = Space.of(plain(seed, SMALL, preset))
        made = Formulation(space)
        assert not made.sharded
        assert [len(each) for each in (made.places, made.options, made.sights, made.seatings, made.held)] == [0] * 5
        assert list(cpsat.limits(space)) == [None]


def test_floating_point_mostly_suffices() -> None:
    """HiGHS is tight to the tick on problems whose times are short decimals, so that agreement means something."""
    results = [solve(plain(seed, SMALL, PAPER), backend="pyomo") for seed in range(30)]
    assert sum(found.status is Status.FEASIBLE for found in results) <= 6


PLAIN = PROBLEM.with_choices(zero=NO_ZERO, zero_degree=None)
"""The problem of `test_rules`, whose plans lose their sharding here."""


def unsharded(plan: Plan) -> Plan:
    """Return a plan that breaks the same rule without sharding, as far as it can."""
    stages = []
    for stage in plan.stages:
        degree = stage.sharding.degree if stage.sharding.kind == "stage" else 1
        stages.append(replace(stage, devices=stage.devices - (degree - 1) * plan.variant.width, sharding=UNSHARDED))
    shorter = sum(old.devices - new.devices for old, new in zip(plan.stages, stages, strict=True))
    return replace(plan, replica_stride=plan.replica_stride - shorter, stages=tuple(stages))


FREE = PLAIN.with_choices(tensor=None, replicas=None, stages=None)
"""The same with nothing ruled out, so that what the rules of a case leave out is there."""

FOUR = tuple(Stage((name,), 3 - at, 1, "none" if name == "d" else "full") for at, name in enumerate("abcd"))

PLAIN_BROKEN = MappingProxyType(
    {
        case: (rule, unsharded(plan))
        for case, (rule, plan) in BROKEN.items()
        if rule not in ("sharding", "devices") and case != "block too narrow"
    }
    | {
        "stages not allowed": ("stages", Plan(NARROW, 1, 4, FOUR)),
        "sharding what must not": ("sharding", BROKEN["type not allowed"][1]),
        "too many replicas": ("devices", Plan(NARROW, 9, 2, (Stage(("a", "b"), 1, 1, "full"), LAST))),
    }
)


def fixed_cpsat(found: Formulation, plan: Plan) -> Claim:
    """Ask CP-SAT for a programme with a plan fixed."""
    if not found.choices:
        return NO_PATH
    made = cpsat_model.build(found)
    made.fix(plan)
    return cpsat.run(made, None)


def fixed_pyomo(found: Formulation, plan: Plan) -> Claim:
    """Ask HiGHS for a programme with a plan fixed."""
    if not found.choices:
        return NO_PATH
    made = pyomo_model.build(found)
    made.fix(plan)
    return highs.run(made, None)


def whole(problem: Problem) -> Formulation:
    """Return the programme of the rules alone, with nothing left out for speed."""
    return Formulation(Space.of(problem, every=True))


Ask: TypeAlias = Callable[[Formulation, Plan], Claim]

both_models = pytest.mark.parametrize("ask", [fixed_cpsat, fixed_pyomo])


@both_models
@both_presets
@pytest.mark.parametrize("case", PLAIN_BROKEN)
def test_broken_rule_is_infeasible_without_zero(case: str, preset: Preset, ask: Ask) -> None:
    """A programme fixed to a plan that breaks one rule has no solution; the judge says which rule it is."""
    rule, plan = PLAIN_BROKEN[case]
    problem = PLAIN.with_preset(preset)
    if rule == "devices":
        problem = replace(problem, training=Training(16)).with_choices(replicas=None)
    assert {broken.rule for broken in evaluate(problem, plan).violations} == {rule}
    assert ask(whole(problem), plan).status is Status.INFEASIBLE


@both_models
@both_presets
@pytest.mark.parametrize("case", BROKEN)
def test_broken_rule_is_infeasible(case: str, preset: Preset, ask: Ask) -> None:
    """The same for plans of which a stage shards."""
    rule, plan = BROKEN[case]
    problem = PROBLEM.with_preset(preset)
    assert {broken.rule for broken in evaluate(problem, plan).violations} == {rule}
    assert ask(whole(problem), plan).status is Status.INFEASIBLE


@both_models
@both_presets
def test_kept_rules_are_feasible(preset: Preset, ask: Ask) -> None:
    """The plan that the broken ones start from has a solution, at its price."""
    problem = PROBLEM.with_preset(preset)
    assert ask(whole(problem), LEGAL).objective == evaluate(problem, LEGAL).objective_ticks


def test_every_rule_has_a_broken_plan() -> None:
    """No rule is left out above but the range, which is the domain of a variable, and what other presets ask for."""
    for broken in (PLAIN_BROKEN, BROKEN):
        assert {rule for rule, _ in broken.values()} | {"range", "nesting"} == set(cpsat_model.RULES)


def changed(made: Formulation, rule: str) -> Solution:
    """Return the solution of the legal plan, changed so that it breaks one of the rules that are posted."""
    solution = encode(made, LEGAL)
    assert solution is not None
    arcs, options, places = made.arcs, made.options, made.places
    if rule == "order":
        arc = next(at for at in made.by_position[0, 2] if (arcs.first[at], arcs.end[at]) == (0, 1))
        return replace(solution, arcs=[solution.arcs[0], arc])
    if rule == "sharding":
        option = next(at for at in made.options_by_position[0, 2] if options.degree[at] == 1)
        return replace(solution, options=[solution.options[0], option])
    if rule == "placement":
        place = next(at for at in made.places_by_position[0, 2] if (places.start[at], places.degree[at]) == (2, 2))
        return replace(solution, places=[solution.places[0], place])
    found = encode(made, replace(LEGAL, stages=(replace(FIRST, layers=("a",)), replace(LAST, layers=("b", "c", "d")))))
    assert found is not None
    return found


@pytest.mark.parametrize("rule", ["order", "sharding", "placement", "memory"])
def test_posted_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solution that breaks one posted rule is refused, and would not be if the rule were not posted."""
    made = whole(PROBLEM)
    for module, run in ((cpsat_model, cpsat.run), (pyomo_model, highs.run)):
        statuses = []
        for left_out in (None, rule):
            monkeypatch.setattr(
                module, "RULES", {name: post for name, post in module.RULES.items() if name != left_out}
            )
            model = module.build(made)
            model.take(changed(made, rule))
            statuses.append(run(model, None).status)
        assert statuses[0] is Status.INFEASIBLE
        assert statuses[1] in (Status.OPTIMAL, Status.FEASIBLE)


@both_models
@both_presets
@pytest.mark.parametrize("seed", [*range(200, 204), *range(300, 303)])
def test_legal_plan_has_the_judged_price(seed: int, preset: Preset, ask: Ask) -> None:
    """A programme fixed to any legal plan takes exactly what the judge says, not only for the best one."""
    problem = (drawn if seed < 300 else plain)(seed, TINY, preset)
    best = solve(problem).plan
    near, made = list(neighbours(problem, best)) if best else [], whole(problem)
    for plan in [*(random_plan(again, problem) for again in range(6)), *near[:: 1 + len(near) // 6]]:
        verdict, claim = evaluate(problem, plan), ask(made, plan)
        if verdict.legal:
            assert show_plan(claim.plan) == show_plan(bare(plan))
            assert claim.objective == verdict.objective_ticks, show_plan(plan)
        else:
            assert claim.status is Status.INFEASIBLE, show_plan(plan)


def bare(plan: Plan) -> Plan:
    """Return a plan without the judge's figures."""
    return replace(plan, stages=tuple(replace(stage, load_s=None, memory_bytes=None) for stage in plan.stages))


@both_presets
@pytest.mark.parametrize("seed", seeds(20, 40))
def test_fewest_replicas_suffice(seed: int, preset: Preset) -> None:
    """Of the replicas with equal rounds, which the index sets drop, none is better than the fewest."""
    problem = replace(plain(seed, SMALL, preset), training=Training(3))
    for plan, verdict in judged(problem, (random_plan(again, problem) for again in range(20))):
        rounds = -(-3 // plan.replicas)
        fewest = min((d for d in range(1, plan.replicas + 1) if -(-3 // d) == rounds), default=1)
        if verdict.legal and problem.choices.replicas is None:
            cuts = [0]
            for stage in plan.stages:
                cuts.append(cuts[-1] + len(stage.layers))
            other = placed_plan(problem, plan.variant, cuts, [UNSHARDED] * len(plan.stages), fewest)
            price = evaluate(problem, other, verdict.scale).objective_ticks
            assert price is not None
            assert verdict.objective_ticks is not None
            assert price <= verdict.objective_ticks


def test_rules_have_the_names_and_the_order_of_the_formulation() -> None:
    """Both models list C1, C2, ... and D1 to D8 as the formulation does, and post the same under the same names."""
    text = (ROOT / "docs" / "formulation.md").read_text(encoding="utf-8")
    described = re.findall(r"^### C\d+ (\w+)$", text, re.MULTILINE)
    for made in (cpsat_model, pyomo_model):
        assert list(made.RULES) == described
        posted = [name for name, post in made.RULES.items() if callable(post)]
        assert posted == [post.__name__ for post in made.RULES.values() if callable(post)]
        assert set(described) - set(posted) == set(formulation.BY_INDEX_SETS)
        costs = re.findall(r"^### D\d (load|sync|objective)$", text, re.MULTILINE)
        assert list(made.COSTS) == costs == [post.__name__ for post in made.COSTS.values()]


def test_page_has_a_line_for_each_rule() -> None:
    """The page of the programme names every rule and cost, in order."""
    page = (ROOT / "docs" / "milp.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| [CD]\d+ (\w+) \|", page, re.MULTILINE)
    wanted = [*cpsat_model.RULES, *cpsat_model.COSTS]
    assert named[: len(wanted)] == wanted


def test_other_presets_are_refused() -> None:
    """A clear error where another preset prices in a way that the programme does not know."""
    for other in (
        replace(PAPER, name="other", objective="sum"),
        replace(PAPER, name="other", sharding="replicas"),
        replace(PAPER, name="other", collectives="groups"),
    ):
        with pytest.raises(OutOfScope, match="does not price as preset 'other'"):
            Space.of(PROBLEM.with_preset(other))


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OR-Tools or Pyomo, one line says what to install."""
    for package, ask in (("ortools", solve_cpsat), ("pyomo", solve_pyomo)):
        monkeypatch.setattr("nest.milp.import_module", lambda _, package=package: _missing(package))
        with pytest.raises(SolverUnavailable, match=rf"{package} is not installed; pip install {package}"):
            ask(PLAIN)


def _missing(package: str) -> None:
    raise ModuleNotFoundError(f"No module named {package!r}", name=f"{package}.sub")


def test_broken_package_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of ours that cannot be imported is a fault, not a missing package."""
    monkeypatch.setattr("nest.milp.import_module", lambda _: _missing("nest"))
    with pytest.raises(ModuleNotFoundError):
        solve_cpsat(PLAIN)


def test_presolve_that_loses_optima_is_off() -> None:
    """Its parameters are ones that CP-SAT knows, set, and told in the claim."""
    usual, claimed = cp_model.CpSolver().parameters, solve_cpsat(PLAIN).parameters
    assert usual.cp_model_presolve
    assert usual.presolve_inclusion_work_limit > 0
    assert (claimed["cp_model_presolve"], claimed["presolve_inclusion_work_limit"]) == (False, 0)


LOST, LOST_STILL = (4, 16, 41, 44, 45, 46, 50, 52), (610, 969, 1614)
"""Seeds of problems whose optimum CP-SAT 9.15.6755 misses under preset `paper`: with its default presolve, and even
with ``presolve_inclusion_work_limit = 0`` (issues 5274 and 5293 of google/or-tools)."""


def lossy(seed: int) -> Problem:
    """Return such a problem."""
    return plain(seed, Size(layers=14, devices=64, levels=4, microbatches=60), PAPER)


@pytest.mark.parametrize("seed", LOST + LOST_STILL)
def test_optimum_that_presolve_loses(seed: int) -> None:
    """CP-SAT as it is run here finds what it calls impossible with presolve."""
    result = solve(lossy(seed), backend="cpsat")
    assert result.status is Status.OPTIMAL
    assert result.objective_ticks == solve(lossy(seed)).objective_ticks


@pytest.mark.skipif(version("ortools") != "9.15.6755", reason="other versions may be right")
@pytest.mark.parametrize(
    ("seeds", "left_out"),
    [(LOST, ("cp_model_presolve", "presolve_inclusion_work_limit")), (LOST_STILL, ("cp_model_presolve",))],
    ids=["default", "work limit"],
)
def test_presolve_does_lose_them(
    seeds: tuple[int, ...], left_out: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With presolve most of these are wrong, so that the test above would notice if it came back."""
    kept = {name: value for name, value in PARAMETERS.items() if name not in left_out}
    monkeypatch.setattr("nest.milp.cpsat.PARAMETERS", kept)
    wrong = [seed for seed in seeds if solve_cpsat(lossy(seed)).bound != solve(lossy(seed)).objective_ticks]
    assert len(wrong) > len(seeds) // 2


with_and_without_zero = pytest.mark.parametrize("problem", [FREE, PROBLEM], ids=["without ZeRO", "with ZeRO"])


@with_and_without_zero
def test_time_limit(problem: Problem) -> None:
    """Without time there is no plan, no claim beyond that, and a reason."""
    result, best = solve(problem, backend="cpsat", time_limit_s=0), solve(problem).objective_ticks
    assert result.status in (Status.UNKNOWN, Status.FEASIBLE)
    assert best is not None
    assert result.bound_ticks is not None
    assert result.bound_ticks <= best
    assert result.reason == "the time limit was reached before the search was complete"


def test_wrong_claims_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound above the judged price, or a plan that is dearer than it is said to be, is no answer."""
    claim = solve_cpsat(FREE)
    assert claim.objective is not None
    assert claim.bound is not None
    for wrong in (replace(claim, bound=claim.bound + 1), replace(claim, objective=claim.objective - 1)):
        monkeypatch.setattr("nest.solve.solve_cpsat", lambda *_, wrong=wrong, **__: wrong)
        with pytest.raises(Disagreement, match="CP-SAT"):
            solve(FREE, backend="cpsat")


def test_bound_below_the_objective_is_not_optimal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that says optimal with a bound one tick short has not proven it."""
    claim = solve_pyomo(FREE)
    assert claim.bound is not None
    monkeypatch.setattr("nest.solve.solve_pyomo", lambda *_, **__: replace(claim, bound=claim.bound - 1))
    result = solve(FREE, backend="pyomo")
    assert result.status is Status.FEASIBLE
    assert result.reason is not None
    assert "floating point" in result.reason
