"""Which solver takes a problem with constraints that tie stages together, what it answers, and what it says of why."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import oracle
import pytest
from random_constraints import COUPLING_KINDS, random_constraints
from random_problems import Size, random_problem, show_problem
from test_rules import PROBLEM

from nest.certify import Finding, certify_result
from nest.cli import run
from nest.constraints import Budget, CouplingConstraint, DistinctStages, MaxStages, SameSharding, Whole
from nest.dp import optimum
from nest.errors import OutOfScope, SolverUnavailable
from nest.explain import explain
from nest.files import result_document, write_problem
from nest.milp import Claim, solve_cpsat
from nest.plan import Plan
from nest.presets import ARTIFACT
from nest.problem import Problem
from nest.result import Status
from nest.solve import Disagreement, solve

SMALL = Size(layers=5, devices=12)
FREE = PROBLEM.with_choices(stages=None, replicas=None, zero_degree=frozenset({2, 4}))
"""Its best plan is four stages of one layer, four times; half of what that costs suffices for others."""


def dear(problem: Problem, part: float) -> Budget:
    """Return a budget of a part of what the best plan costs."""
    best = solve(problem)
    assert best.plan is not None
    assert best.objective_s is not None
    return Budget(part * best.objective_s * best.plan.replicas * best.plan.replica_stride, rate_per_device_s=1)


@pytest.mark.parametrize("seed", range(6000, 6060))
def test_agreement(seed: int) -> None:
    """Whoever takes it, the answer is that of the reference, proven, and the choice is told."""
    problem = random_problem(seed, SMALL)
    problem = problem.with_constraints(*random_constraints(seed, problem, COUPLING_KINDS))
    found = solve(problem)
    best = oracle.best(problem, found.time.exponent).objective
    assert found.objective_ticks == best, show_problem(problem)
    assert found.status is (Status.INFEASIBLE if best is None else Status.OPTIMAL)
    assert found.choice
    assert (found.reason is None) == (best is not None)


def test_both_solvers_are_chosen() -> None:
    """The dynamic program settles some of the problems above, and CP-SAT others, with a plan and without."""
    seen: Counter[tuple[str, Status]] = Counter()
    for seed in range(6000, 6060):
        problem = random_problem(seed, SMALL)
        found = solve(problem.with_constraints(*random_constraints(seed, problem, COUPLING_KINDS)))
        seen[found.backend, found.status] += 1
    kinds = [(backend, status) for backend in ("dp", "cpsat") for status in (Status.OPTIMAL, Status.INFEASIBLE)]
    assert min(seen[kind] for kind in kinds) >= 4, seen


def test_plan_that_keeps_the_constraints_is_the_best_of_all() -> None:
    """The dynamic program's plan, and its proof, hold for the whole problem; CP-SAT is not asked."""
    free = solve(FREE)
    found = solve(FREE.with_constraints(MaxStages(4), dear(FREE, 1)))
    assert (found.status, found.backend) == (Status.OPTIMAL, "dp")
    assert found.objective_ticks == free.objective_ticks
    assert found.choice == "the dynamic program's best plan without budget keeps that too"


def test_plan_that_breaks_them_is_replaced() -> None:
    """CP-SAT finds the best of those that keep them, from the dynamic program's bound on."""
    free = solve(FREE)
    problem = FREE.with_constraints(SameSharding(["a", "d"]), dear(FREE, 0.5))
    found = solve(problem)
    assert found.backend == "cpsat"
    assert found.status is Status.OPTIMAL
    assert free.objective_ticks is not None
    assert found.objective_ticks is not None
    assert found.objective_ticks > free.objective_ticks
    assert found.objective_ticks == solve(problem, backend="cpsat").objective_ticks
    assert "only without same_sharding, budget, and its best plan breaks that" in found.choice
    assert certify_result(problem, found, provers=("cpsat",)).finding is Finding.OPTIMAL


def test_provers_take_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What CP-SAT proves as a prover rests on nothing that the dynamic program said."""
    given = []

    def asked(problem: Problem, **known: object) -> Claim:
        given.append({name for name, value in known.items() if value is not None and name != "time_limit_s"})
        return solve_cpsat(problem)

    monkeypatch.setattr("nest.milp.solve_cpsat", asked)
    problem = FREE.with_constraints(dear(FREE, 0.5))
    certify_result(problem, solve(problem), provers=("cpsat",))
    assert given == [set()]


def test_no_plan() -> None:
    """The reason names what was asked for; without the coupling constraints it is the usual one."""
    problem = FREE.with_constraints(dear(FREE, 1e-6))
    found = solve(problem)
    assert (found.status, found.backend, found.bound_ticks) == (Status.INFEASIBLE, "cpsat", None)
    assert found.reason is not None
    assert found.reason.startswith("no plan that fits keeps the side constraints: an iteration costs at most")
    tight = replace(problem, cluster=replace(problem.cluster, hbm_bytes=1))
    found = solve(tight)
    assert (found.status, found.backend) == (Status.INFEASIBLE, "dp")
    assert found.choice == "there is no plan even without budget"
    assert found.reason is not None
    assert "needs at least" in found.reason


def test_explanation() -> None:
    """The budget is the conflict, and leaving it out helps; a budget that suffices needs no explanation."""
    cluster = replace(FREE.cluster, devices=4, levels=FREE.cluster.levels[:1])
    plain = replace(FREE, cluster=cluster).with_choices(zero=frozenset({0}))
    found = explain(plain.with_constraints(MaxStages(4), dear(plain, 1e-6)), time_limit_s=None)
    assert found is not None
    assert found.complete
    assert [part.partition(":")[0] for part in found.conflict] == ["budget"]
    assert any(relaxation.text.startswith("drop budget") for relaxation in found.relaxations)
    assert explain(plain.with_constraints(dear(plain, 1)), time_limit_s=None) is None


def test_explanation_without_cpsat(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody can decide is not said."""

    def missing(*_: object, **__: object) -> Claim:
        raise SolverUnavailable("ortools is not installed")

    monkeypatch.setattr("nest.explain.questions.solve_cpsat", missing)
    assert explain(FREE.with_constraints(dear(FREE, 1e-6)), time_limit_s=None) is None


def test_dynamic_program_alone_refuses() -> None:
    """One line that says what it cannot do, and who can."""
    with pytest.raises(OutOfScope, match=r"cannot tell which plans keep budget.*take backend 'auto' or 'cpsat'"):
        solve(FREE.with_constraints(Budget(1, rate_per_device_s=1)), backend="dp")


@dataclass(frozen=True)
class Judged(CouplingConstraint):
    """Not the best plan: a constraint that only judges."""

    best: Plan

    kind: ClassVar[str] = "judged"

    @property
    def text(self) -> str:
        """What it asks for."""
        return "another plan"

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:  # noqa: ARG002
        """Say so if it is the best plan."""
        best = tuple(stage.first_device for stage in self.best.stages)
        return "it is that one" if whole.starts == best else None


def test_constraint_that_cannot_be_posted() -> None:
    """The dynamic program answers where its plan keeps it, and nobody where it does not."""
    best = solve(FREE).plan
    assert best is not None
    other = replace(best, stages=best.stages[:1])
    assert solve(FREE.with_constraints(Judged(other))).backend == "dp"
    with pytest.raises(OutOfScope, match=r"best plan breaks judged, and CP-SAT cannot search.*Judged has no `post`"):
        solve(FREE.with_constraints(Judged(best)))


def test_no_time() -> None:
    """Without time there is no claim beyond what is proven."""
    problem = FREE.with_preset(ARTIFACT).with_constraints(dear(FREE, 0.5))
    best, found = solve(problem), solve(problem, time_limit_s=0)
    assert found.status in (Status.UNKNOWN, Status.FEASIBLE)
    assert best.objective_ticks is not None
    assert (found.bound_ticks or 0) <= best.objective_ticks


def test_value_to_beat() -> None:
    """With a value, either solver says that nothing is better, or finds what is."""
    problem = FREE.with_constraints(dear(FREE, 0.5))
    best = solve(problem).objective_ticks
    assert best is not None
    assert solve(problem, better_than=best).status is Status.NONE_BETTER
    assert solve(problem, better_than=best + 1).objective_ticks == best


def test_choice_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the JSON, and in the summary for people."""
    assert result_document(solve(FREE))["choice"] == "the dynamic program covers the problem"
    assert solve(FREE, backend="cpsat").choice == solve(FREE, backend="dp").choice == "it was asked for"
    path = tmp_path / "problem.toml"
    write_problem(FREE.with_constraints(dear(FREE, 1)), path)
    assert run(["solve", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["backend"], document["choice"].split()[-3:]) == ("dp", ["keeps", "that", "too"])
    assert run(["solve", str(path)]) == 0
    assert "best plan without budget keeps that too" in " ".join(capsys.readouterr().out.split())


def test_illegal_plan_is_a_fault_not_a_reason_to_ask_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of the dynamic program that breaks more than what it was not told is not passed over in silence."""

    def wrong(*arguments: object) -> object:
        found = optimum(*arguments)  # type: ignore[arg-type]
        assert found.plan is not None
        return replace(found, plan=replace(found.plan, replica_stride=found.plan.replica_stride + 1))

    monkeypatch.setattr("nest.solve.optimum", wrong)
    with pytest.raises(Disagreement, match="placement"):
        solve(FREE.with_constraints(DistinctStages(1)))
