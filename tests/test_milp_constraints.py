"""Side constraints in the mathematical programme: both models, the dynamic program and the reference agree."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import oracle
import oracle_constraints
import pytest
from even_ends import EvenEnds
from random_constraints import COUPLING_KINDS, LOCAL_KINDS, random_constraints
from random_problems import Size, show_problem
from seeds import seeds
from test_constraints import CASES
from test_constraints import PROBLEM as FOUR_LAYERS
from test_milp import NO_ZERO, TINY, agree, bare, both_models, drawn
from test_rules import LEGAL
from test_rules import PROBLEM as TWO_STAGES

from nest.constraints import (
    KINDS,
    AllowedDegrees,
    Budget,
    Constraint,
    CouplingConstraint,
    DistinctStages,
    LevelTraffic,
    LocalConstraint,
    Outer,
    Pin,
    Run,
    SameSharding,
    Site,
    Whole,
    WithinLevel,
)
from nest.constraints.answers import HOOKS
from nest.errors import OutOfScope
from nest.evaluate import evaluate
from nest.milp import cpsat, cpsat_model, highs, pyomo_model, solve_cpsat, solve_pyomo
from nest.milp.formulation import SIDE_BY_INDEX_SETS, Formulation
from nest.milp.side import place_clashes, stage_clashes
from nest.milp.space import Space
from nest.plan import Plan
from nest.presets import ARTIFACT, PAPER
from nest.problem import Problem
from nest.result import Status
from nest.solve import solve

ROOT = Path(__file__).resolve().parent.parent
SMALL, LARGER = Size(layers=5, devices=12), Size(layers=7, devices=16)
BOTH = LOCAL_KINDS + COUPLING_KINDS


def constrained(seed: int, size: Size, kinds: tuple[str, ...] = BOTH) -> Problem:
    """Return a random problem that has a plan, with one to three side constraints; half of them without ZeRO."""
    problem = drawn(seed, size, (PAPER, ARTIFACT)[seed % 2])
    if seed % 4 >= 2:
        problem = problem.with_choices(zero=NO_ZERO)
    if solve(problem).plan is None:
        return constrained(seed + 10_000, size, kinds)
    return problem.with_constraints(*random_constraints(seed, problem, kinds))


def covered(problem: Problem) -> bool:
    """Whether floating point can keep all constraints: a budget needs times that are few whole ticks."""
    try:
        solve_pyomo(problem, time_limit_s=0)
    except OutOfScope:
        return False
    return True


@pytest.mark.parametrize("seed", seeds(50, 60, first=4000))
def test_local(seed: int) -> None:
    """What the dynamic program filters too."""
    agree(constrained(seed, TINY, LOCAL_KINDS))


@pytest.mark.parametrize("seed", seeds(40, 60, first=4100))
def test_coupling(seed: int) -> None:
    """What ties stages together."""
    problem = constrained(seed, TINY, COUPLING_KINDS)
    agree(problem, ("cpsat", "pyomo") if covered(problem) else ("cpsat",))


@pytest.mark.parametrize("seed", seeds(50, 80, first=4200))
def test_both(seed: int) -> None:
    """Constraints of all kinds together on more layers and devices, for the faster solver."""
    agree(constrained(seed, SMALL), ("cpsat",))


def test_error_after_presolve() -> None:
    """HiGHS 1.16.0 rejects the solution that it finds after presolve here, by 1e-12; without presolve it does not."""
    agree(constrained(5239, SMALL, COUPLING_KINDS), ("pyomo",))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5000, 5200))
def test_local_on_larger_problems(seed: int) -> None:
    """More layers and devices, both models."""
    agree(constrained(seed, SMALL, LOCAL_KINDS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5200, 5400))
def test_coupling_on_larger_problems(seed: int) -> None:
    """More layers and devices, both models."""
    problem = constrained(seed, SMALL, COUPLING_KINDS)
    agree(problem, ("cpsat", "pyomo") if covered(problem) else ("cpsat",))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5400, 5700))
def test_both_on_larger_problems(seed: int) -> None:
    """Still more layers and devices, for the faster solver."""
    agree(constrained(seed, LARGER), ("cpsat",))


def test_constraints_matter() -> None:
    """Many of the problems above have another optimum without their constraints, and floating point covers most."""
    seen: Counter[str] = Counter()
    for seed in range(4100, 4160):
        problem = constrained(seed, TINY, COUPLING_KINDS)
        free, bound = (oracle.best(each, 12).objective for each in (problem.with_constraints(), problem))
        kind = "same" if free == bound else "none" if bound is None else "dearer"
        seen.update([kind])
        seen.update(["covered"] * covered(problem))
    assert min(seen["same"], seen["none"]) >= 8, seen
    assert seen["dearer"] >= 4, seen
    assert seen["covered"] >= 45, seen


@pytest.mark.parametrize("seed", range(4300, 4330))
def test_consequences_lose_nothing(seed: int) -> None:
    """What is left out for speed is in no plan that the constraints prefer."""
    problem = constrained(seed, TINY)
    made = Formulation(Space.of(problem, every=True))
    claim = cpsat.run(cpsat_model.build(made), None) if made.choices else None
    assert (None if claim is None else claim.objective) == solve_cpsat(problem).objective, show_problem(problem)


def narrowed(problem: Problem, plan: Plan) -> Problem:
    """Return a problem with the variant of a plan only, which is much smaller."""
    variant = plan.variant
    widths = {name: frozenset({getattr(variant, name)}) for name in ("tensor", "expert", "context")}
    return problem.with_choices(**widths)


@both_models
@pytest.mark.parametrize("case", range(len(CASES)))
def test_broken_constraint_is_infeasible(case: int, ask: Any) -> None:
    """A programme fixed to a plan that breaks one constraint has no solution; the judge names which; kept ones have."""
    constraint, keeping, breaking = CASES[case]
    for plan, kept in ((keeping, True), (breaking, False)):
        problem = narrowed(FOUR_LAYERS.with_constraints(constraint), plan)
        free, verdict = problem.with_constraints(), evaluate(problem, plan)
        assert {broken.rule for broken in verdict.violations} == (set() if kept else {constraint.kind})
        assert ask(little(free, plan), plan).objective == evaluate(free, plan).objective_ticks
        claim = ask(little(problem, plan), plan)
        if kept:
            assert claim.objective == verdict.objective_ticks
            assert claim.plan == bare(plan)
        else:
            assert claim.status is Status.INFEASIBLE


def little(problem: Problem, plan: Plan) -> Formulation:
    """Return a programme with nothing left out but what has nothing to do with a plan's choices."""
    degrees = frozenset(stage.sharding.degree for stage in plan.stages)
    types = frozenset(stage.sharding.zero for stage in plan.stages) | {0}
    return Formulation(Space.of(problem.with_choices(zero=types, zero_degree=degrees | {2}), every=True))


def test_every_kind_has_a_broken_plan() -> None:
    """No kind of constraint is left out above."""
    assert {constraint.kind for constraint, *_ in CASES} == set(KINDS)


def test_names_are_the_same_everywhere() -> None:
    """Hooks and kinds have one name: in the classes, in both models, and on the page, which has a line for each."""
    page = (ROOT / "docs" / "milp.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    coupling = [kind for kind, each in KINDS.items() if issubclass(each, CouplingConstraint)]
    for module in (cpsat_model, pyomo_model):
        assert [*module.SIDE] == [*HOOKS, "coupling"]
        posted = [name for name, post in module.SIDE.items() if callable(post)]
        assert posted == [post.__name__ for post in module.SIDE.values() if callable(post)]
        assert set(module.SIDE) - set(posted) == set(SIDE_BY_INDEX_SETS)
    assert named == [*HOOKS, *coupling]
    assert all("post" in vars(KINDS[kind]) for kind in coupling)


@dataclass(frozen=True)
class NoPairs(LocalConstraint):
    """No stage of two layers where there are two stages."""

    kind: ClassVar[str] = "no_pairs"

    @property
    def text(self) -> str:
        """What it asks for."""
        return "no two pairs"

    def admits_stage(self, problem: Problem, variant: object, stages: int, position: int, run: Run) -> Any:  # noqa: ARG002
        """Return stages of other sizes."""
        return (run.end - run.first != 2) | (stages != 2)


@pytest.mark.parametrize(
    ("constraint", "rule"),
    [(NoPairs(), "admits_stage"), (Pin((0, 0), stage=0), "admits_place"), (DistinctStages(1), "coupling")],
)
def test_posted_rule_is_needed(constraint: Constraint, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that breaks it is refused, and would not be if the rule were not posted."""
    free = TWO_STAGES.with_choices(zero_degree=frozenset({2, 3, 12}))
    problem = free.with_constraints(constraint)
    assert {each.rule for each in evaluate(problem, LEGAL).violations} == {constraint.kind}
    for module, run in ((cpsat_model, cpsat.run), (pyomo_model, highs.run)):
        statuses = []
        for left_out in (None, rule):
            kept = {name: post for name, post in module.SIDE.items() if name != left_out}
            monkeypatch.setattr(module, "SIDE", kept)
            model = module.build(Formulation(Space.of(problem, every=True)))
            model.fix(LEGAL)
            statuses.append(run(model, None).status)
        assert statuses[0] is Status.INFEASIBLE
        assert statuses[1] in (Status.OPTIMAL, Status.FEASIBLE)


@dataclass(frozen=True)
class OddOnes(LocalConstraint):
    """Something that looks at everything a hook may see, so that nothing can be shared."""

    kind: ClassVar[str] = "odd_ones"

    @property
    def text(self) -> str:
        """What it asks for."""
        return "odd numbers"

    def admits_stage(self, problem: Problem, variant: object, stages: int, position: int, run: Run) -> Any:  # noqa: ARG002
        """Return stages by what is odd."""
        return (run.end + stages * position) % 3 > 0

    def admits_place(self, problem: Problem, outer: Outer, run: Run, site: Site) -> Any:  # noqa: ARG002
        """Return stages by what is odd."""
        return (run.first + site.start + site.devices + site.stride + outer.replicas * site.position) % 4 > 0


def odd(case: oracle_constraints.Case) -> bool:
    """Whether a whole plan keeps that."""
    first, plan = 0, case.plan
    for at, stage in enumerate(plan.stages):
        end, position = first + len(stage.layers), len(plan.stages) - at
        place = first + stage.first_device + stage.devices + plan.replica_stride + plan.replicas * position
        if (end + len(plan.stages) * position) % 3 == 0 or place % 4 == 0:
            return False
        first = end
    return True


@pytest.mark.parametrize("seed", range(4400, 4430))
def test_class_of_ones_own(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local constraint that no kind foresees is kept by its hooks alone."""
    monkeypatch.setitem(oracle_constraints.RULES, "odd_ones", lambda _, case: odd(case))
    agree(constrained(seed, TINY).with_constraints(OddOnes()))


def test_sums_are_shared() -> None:
    """Outer choices and places that forbid the same arcs do so in one sum."""
    problem = narrowed(FOUR_LAYERS, LEGAL).with_choices(replicas=frozenset({1}))
    made = Formulation(Space.of(problem.with_constraints(WithinLevel("stage", 0))))
    clashes = place_clashes(made)
    assert len(made.places) > 50
    assert stage_clashes(made) == []
    assert 0 < len(clashes) <= 2 * max(made.places.position)
    assert max(len(clash.places) for clash in clashes) > 1


@pytest.mark.parametrize("seed", range(4500, 4530))
def test_coupling_class_of_ones_own(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constraint that posts itself is kept by both models."""
    even = lambda _, case: len(case.stages[0]) == len(case.stages[-1])  # noqa: E731
    monkeypatch.setitem(oracle_constraints.RULES, "even_ends", even)
    problem = constrained(seed, TINY, LOCAL_KINDS)
    agree(problem.with_constraints(*problem.constraints[:1], EvenEnds()))


@dataclass(frozen=True)
class Unposted(CouplingConstraint):
    """A constraint that only judges."""

    kind: ClassVar[str] = "unposted"

    @property
    def text(self) -> str:
        """What it asks for."""
        return "two stages"

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:  # noqa: ARG002
        """Return how many stages there are, unless two."""
        return None if whole.outer.stages == 2 else f"it has {whole.outer.stages} stages"


def test_class_that_cannot_be_posted() -> None:
    """Both models refuse it in one line that names it; nothing is narrowed."""
    for ask in (solve_cpsat, solve_pyomo):
        with pytest.raises(OutOfScope, match="Unposted has no `post`"):
            ask(TWO_STAGES.with_constraints(Unposted()))


def test_numbers_that_are_too_large() -> None:
    """A sum that a solver cannot keep exactly is refused by name, never rounded."""
    graphs = {
        variant: replace(graph, edges=tuple(replace(edge, bytes=7 * 10**6 + 1) for edge in graph.edges))
        for variant, graph in TWO_STAGES.graphs.items()
    }
    large = replace(TWO_STAGES, graphs=graphs).with_constraints(LevelTraffic(0, 1e8))
    with pytest.raises(OutOfScope, match=r"level_traffic.*not exact in floating point"):
        solve_pyomo(large)
    assert solve(large, backend="cpsat").status in (Status.OPTIMAL, Status.INFEASIBLE)


@pytest.mark.parametrize("constraint", [AllowedDegrees("stages", [2]), WithinLevel("tensor", 1)])
def test_what_index_sets_keep_is_not_posted(constraint: Constraint) -> None:
    """No sums where the index sets suffice."""
    made = Formulation(Space.of(TWO_STAGES.with_constraints(constraint)))
    assert stage_clashes(made) == place_clashes(made) == []


def test_dominance_stays_only_where_it_holds() -> None:
    """More replicas and slower types are kept exactly where a constraint may prefer them."""
    free = TWO_STAGES.with_choices(zero=frozenset({0, 1, 2}), replicas=None)
    kept = {}
    for name, constraint in {
        "none": None,
        "place": Pin((0, 3), stage=0),
        "budget": Budget(1e9, rate_per_device_s=1),
        "traffic": LevelTraffic(0, 1e9),
        "sharding": SameSharding(["a", "b"]),
        "shapes": DistinctStages(2),
        "unknown": Unposted(),
    }.items():
        space = Space.of(free.with_constraints(*([] if constraint is None else [constraint])))
        fits = space.variants[0].fits
        kept[name] = (max(map(len, space.variants[0].counts.values())), bool((fits.at(1)[1] & fits.at(1)[2]).any()))
    few, many = kept["none"][0], kept["place"][0]
    assert few < many
    assert kept == {
        "none": (few, False),
        "place": (many, False),
        "budget": (few, False),
        "traffic": (few, False),
        "sharding": (many, True),
        "shapes": (few, True),
        "unknown": (many, True),
    }


def test_variant_without_any_way_to_shard() -> None:
    """Where every stage must shard, a variant that is too wide to has no plan, and the others are not lost."""
    for preset in (PAPER, ARTIFACT):
        problem = drawn(4055, LARGER, preset)
        assert any(not variant.fits.shardings for variant in Space.of(problem).variants)
        agree(problem, ("cpsat",))
