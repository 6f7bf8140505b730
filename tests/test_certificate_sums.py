"""The optimality checker under preset `default`: it confirms optima, refutes what is above, and notices its faults.

That optima of small problems are those of all plans is in `test_default_agreement`, where the checker is asked as well.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import oracle_plans
import pytest
from injected import Fault, noticed, plus, tight, time_is_up_after, with_more, without_last
from pace import is_within
from random_branches import random_branched, random_branched_plan
from random_default import SMALL, Size, random_plan, random_problem
from random_places import roomy
from seeds import seeds

from nest.certificate import Outcome, check, sum_check, sum_choices, sum_memory, sum_stages, sum_trade
from nest.certificate.sum_boxes import Boxes
from nest.certificate.sum_choices import by_mean, by_memory, schedule_of, too_slow
from nest.certificate.sum_memory import Memory
from nest.certificate.sum_stages import SumStages
from nest.certify import Finding, certify, confirm
from nest.constraints import CouplingConstraint, Whole
from nest.evaluate import evaluate
from nest.presets import DEFAULT, Preset
from nest.problem import Problem
from nest.runs import problem_of, read_run
from nest.solve import solve
from nest.tables import Tables
from nest.units import HARD_LIMIT

INSTANCES = Path(__file__).resolve().parents[1] / "instances"
RUNS = [each for each in json.loads((INSTANCES / "index.json").read_text()) if each["optimum"].get("default")]
MIXED = "llama3-70b_a100-h100_512.toml"
LARGE = Size(layers=14, devices=120, levels=4, variants=4, batch=200)
BROAD = Size(layers=9, devices=60, levels=3, variants=2, batch=40)


def claim_of(optimum: int | None) -> int:
    """Return what no plan takes less than: the end of the range where there is none."""
    return HARD_LIMIT if optimum is None else optimum


def confirmed(problem: Problem) -> int | None:
    """Assert that the solver's optimum is confirmed, and one tick more refuted by a plan that has it; return it."""
    optimum = solve(problem).objective_ticks
    verdict = check(problem, claim_of(optimum))
    assert verdict.holds
    assert verdict.settled == verdict.choices
    if optimum is not None:
        refuted = check(problem, optimum + 1)
        assert refuted.outcome is Outcome.REFUTED
        assert refuted.better is not None
        judged = evaluate(problem, refuted.better)
        assert judged.legal
        assert judged.objective_ticks == optimum
    return optimum


@pytest.mark.parametrize("seed", seeds(20, 40))
def test_larger(seed: int) -> None:
    """Problems of which no reference lists all plans."""
    confirmed(random_problem(seed, LARGE))


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_larger_that_branch(seed: int) -> None:
    """The same of models whose stages are differences of downsets."""
    confirmed(random_branched(seed, BROAD))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10_000, 13_000))
def test_many(seed: int) -> None:
    """Small ones, by the thousand."""
    confirmed(random_problem(seed, SMALL, ugly=seed % 4 == 3))


def outer_choices(problem: Problem) -> int:
    """Return how many there are; with one replica all arrangements are the same."""
    found = set()
    for each in oracle_plans.outer_choices(problem):
        found.add((each.variant, each.stages, each.replicas, each.arrangement if each.replicas > 1 else ""))
    return len(found)


def test_accounts_for_every_outer_choice() -> None:
    """Of a proof every outer choice is accounted for, as many as the reference counts, and none is closed twice."""
    drawn = (lambda seed: random_problem(seed, SMALL), roomy, random_branched)
    for problem in (draw(seed) for draw in drawn for seed in range(25)):
        verdict = check(problem, claim_of(solve(problem).objective_ticks))
        assert verdict.settled == verdict.choices == outer_choices(problem)
        assert len(set(verdict.closed)) == len(verdict.closed)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_first_arguments_are_admissible(size: Size) -> None:
    """No argument that looks at no stage rules out the outer choice of a legal plan that is faster than the value."""
    legal = Counter[int]()
    for seed in range(40):
        problem = random_problem(seed, size)
        for again in range(4):
            plan = random_plan(again, problem)
            verdict = evaluate(problem, plan)
            if verdict.legal and verdict.objective_ticks is not None:
                legal[max(stage.sharding.zero for stage in plan.stages)] += 1
                _assert_left(problem, (len(plan.stages), plan.replicas), plan.variant, verdict.objective_ticks + 1)
    assert set(legal) == {0, 1, 2, 3}


def test_first_arguments_are_admissible_where_layers_branch() -> None:
    """Nor where stages take layers of several branches."""
    legal = 0
    for seed in range(150):
        problem = random_branched(seed)
        plan = random_branched_plan(seed, problem)
        verdict = evaluate(problem, plan)
        if verdict.legal and verdict.objective_ticks is not None:
            legal += 1
            _assert_left(problem, (len(plan.stages), plan.replicas), plan.variant, verdict.objective_ticks + 1)
    assert legal > 30


def _assert_left(problem: Problem, pair: tuple[int, int], variant: Any, value: int) -> None:
    tables, schedule = Tables.of(problem), schedule_of(problem)
    assert schedule is not None
    assert not too_slow(tables, variant, value)
    found = by_mean(tables.of_variant(variant), np.array(pair[:1]), np.array(pair[1:]), value)
    assert len(found.stages) == 1
    assert len(by_memory(tables.of_variant(variant), schedule, found, value).stages) == 1


@dataclass(frozen=True)
class FewStages(CouplingConstraint):
    """No more than ``most`` stages: said in a way that no solver can filter by."""

    most: int
    kind: ClassVar[str] = "few_stages"

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"at most {self.most} stages"

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:  # noqa: ARG002 - a hook
        """Return how a plan breaks it."""
        return f"{len(whole.runs)} stages" if len(whole.runs) > self.most else None


def test_what_ties_stages_together() -> None:
    """No plan that breaks it refutes a claim, and none that is too high is proven."""
    outcomes = Counter[Outcome]()
    for seed in range(100):
        problem = random_problem(seed, SMALL)
        if problem.choices.stages is not None or seed % 2:
            continue
        optimum, tied = solve(problem), problem.with_constraints(FewStages(1))
        best = solve(problem.with_choices(stages=frozenset({1}))).objective_ticks
        verdict = check(tied, claim_of(best))
        assert verdict.outcome is not Outcome.REFUTED
        outcomes[verdict.outcome] += 1
        if best is not None:
            above = check(tied, best + 1)
            assert above.outcome is not Outcome.PROVEN
            assert above.better is None or len(above.better.stages) == 1
        if best is not None and best == optimum.objective_ticks:
            assert verdict.holds
    assert outcomes[Outcome.PROVEN] > 10
    assert outcomes[Outcome.UNDECIDED] > 5


def test_deadline() -> None:
    """A deadline that has passed settles nothing; one that never comes changes nothing."""
    problem = random_problem(44, LARGE)
    optimum = solve(problem).objective_ticks
    assert optimum is not None
    stopped = check(problem, optimum, deadline=time.perf_counter())
    assert (stopped.outcome, stopped.settled, stopped.better) == (Outcome.UNDECIDED, 0, None)
    assert stopped.choices == outer_choices(problem)
    assert check(problem, optimum, deadline=time.perf_counter() + 3600).holds


def test_deadline_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the deadline comes, no claim is called proven, and what was settled before is still known."""
    problem = random_problem(44, LARGE)
    optimum = solve(problem).objective_ticks
    assert optimum is not None
    outcomes, settled = Counter[Outcome](), set()
    for patience in (0, 1, 2, 5, 9, 20, 40, 80, 160, 600):
        monkeypatch.setattr(sum_check.Claim, "watch", time_is_up_after(patience))
        verdict = check(problem, optimum)
        outcomes[verdict.outcome] += 1
        assert verdict.holds == (verdict.settled == verdict.choices)
        settled.add(verdict.settled)
    assert outcomes.keys() == {Outcome.UNDECIDED, Outcome.PROVEN}
    assert len(settled) > 2


def _more_before(method: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Boxes, *arguments: Any) -> None:
        method(self, *arguments)
        self.before = self.before + 10**12

    return wrong


def _in_the_order_given(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tables: np.cumsum(tables.work[::-1])[::-1]


MUTATIONS: dict[str, Fault] = {
    "an arrangement is forgotten": (sum_check, "apart", without_last),
    "a placing is forgotten": (sum_check, "standings", without_last),
    "an option is forgotten": (SumStages, "_for_loads", without_last),
    "every stage takes one tick longer": (SumStages, "loads", with_more("load")),
    "the least sum is one tick too high": (Boxes, "path", with_more("loads")),
    "the cap on loads is one tick too low": (sum_choices, "_cap", plus(-1)),
    "types 2 and 3 take more than they do": (sum_stages, "least_extra", plus(10**17)),
    "ranks send more than they do": (sum_trade, "_rate", lambda method: lambda *arguments: 10 * method(*arguments)),
    "boxes stop at the first path": (Boxes, "path", lambda _: lambda *_: None),
    "memory is a quarter too small": (Memory, "spared", tight),
    "the work before a stage is too much": (Boxes, "__init__", _more_before),
    "more waits for a layer than does": (sum_memory, "_behind", _in_the_order_given),
}
"""Faults that make the checker rule out too much."""


@pytest.mark.parametrize("fault", MUTATIONS)
def test_a_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that rules out too much confirms what is too high, or shows a plan that the judge prices otherwise."""
    noticed(MUTATIONS[fault], monkeypatch, _confirm_all)


def _confirm_all() -> None:
    for seed in range(160):
        confirmed(random_problem(seed, SMALL))
        confirmed(roomy(seed))
        confirmed(random_branched(seed))


def test_a_table_that_is_too_cheap_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge prices what the checker finds."""
    problem = random_problem(0, SMALL)
    optimum = solve(problem).objective_ticks
    assert optimum is not None
    sums = SumStages.loads

    def cheap(*arguments: Any) -> Any:
        found = sums(*arguments)
        return found._replace(load=np.where(found.load < 2**61, found.load // 2, found.load))

    monkeypatch.setattr(SumStages, "loads", cheap)
    with pytest.raises(AssertionError, match="by the tables"):
        check(problem, optimum)


def certified_and_refuted(problem: Problem) -> None:
    """Assert that the best plan is certified, another refuted by a better one, and the answer confirmed."""
    result = solve(problem)
    assert result.plan is not None
    assert confirm(problem, result).finding is Finding.OPTIMAL
    assert certify(problem, result.plan).finding is Finding.OPTIMAL
    worse = next(
        plan
        for plan in (random_plan(seed, problem) for seed in range(1000))
        if (verdict := evaluate(problem, plan)).legal and verdict.objective_ticks != result.objective_ticks
    )
    assert certify(problem, worse).finding is Finding.REFUTED


def test_certificates() -> None:
    """Whoever asks for a certificate gets the checker's word."""
    certified_and_refuted(random_problem(0, SMALL))


def run_problem(file: str, preset: Preset = DEFAULT) -> tuple[Problem, int]:
    """Return the problem of a run file, and its optimum in ticks."""
    problem = problem_of(read_run(INSTANCES / file)).problem.with_preset(preset)
    if problem.cluster.menus:
        pytest.skip("a claim is about given links: `nest.certify` makes one for each choice")
    optimum = solve(problem).objective_ticks
    assert optimum is not None
    return problem, optimum


@pytest.mark.parametrize("file", ["llama3-8b_h100_64.toml", "mixtral-8x7b_h100_256.toml", "bertlarge_a100_64.toml"])
def test_run(file: str) -> None:
    """Optima of runs are proven, and nothing above them."""
    problem, optimum = run_problem(file)
    assert check(problem, optimum).holds
    assert check(problem, optimum + 1).outcome is Outcome.REFUTED


def proven(problem: Problem, optimum: int) -> None:
    """Assert that an optimum is proven."""
    assert check(problem, optimum).holds


@pytest.mark.slow
@pytest.mark.parametrize("file", [each["file"] for each in RUNS if each["file"] != MIXED])
def test_all_runs(file: str) -> None:
    """The same for all of the index, each within forty seconds of the processor's time."""
    problem, optimum = run_problem(file)
    assert is_within(40, lambda: proven(problem, optimum))
    assert check(problem, optimum + 1).outcome is Outcome.REFUTED


@pytest.mark.slow
def test_two_classes_of_devices_at_full_size() -> None:
    """The checker takes minutes there: until its deadline nothing contradicts the optimum, and some is settled."""
    problem, optimum = run_problem(MIXED)
    stopped = check(problem, optimum, deadline=time.perf_counter() + 20)
    assert stopped.outcome in (Outcome.PROVEN, Outcome.UNDECIDED)
    assert 0 < stopped.settled <= stopped.choices
