"""Certificates: what `nest certify` and `nest solve --certify` say, and how they exit."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from commands import best_plan, chain, complaint, hopeless_path, one_object, plan_path, problem_path
from random_problems import Size, random_problem

from nest.certificate import Outcome
from nest.certify import MODELS, Finding, certify, certify_result, confirm, require
from nest.cli import run
from nest.constraints import DistinctStages
from nest.errors import InvalidProblem
from nest.evaluate import evaluate
from nest.files import read_plan, write_plan
from nest.plan import Plan
from nest.presets import SIMULATED
from nest.result import Result, Status
from nest.solve import Disagreement, solve

__all__ = ["hopeless_path", "plan_path", "problem_path"]  # fixtures

KEYS = {
    "schema",
    "problem",
    "preset",
    "objective",
    "objective_ticks",
    "tick_s",
    "verdict",
    "provers",
    "violations",
    "plan",
    "better",
    "better_ticks",
    "provenance",
}


def worse_plan() -> Plan:
    """Return a legal plan that is slower than the best: the whole model on one device."""
    stage = replace(best_plan().stages[0], layers=(0, 1, 2, 3), first_device=0, load_s=None, memory_bytes=None)
    return replace(best_plan(), replicas=1, replica_stride=1, stages=(stage,))


@pytest.fixture
def worse_path(tmp_path: Path) -> Path:
    """Return a file with a plan that is legal and not the best."""
    path = tmp_path / "worse.json"
    write_plan(worse_plan(), path)
    return path


def document_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Run a command with --json, and return its exit code and the object it prints."""
    code = run([*arguments, "--json"])
    return code, one_object(capsys.readouterr().out)


def test_optimum_is_certified(problem_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a plan the problem is solved first, and its optimum is confirmed, for people and for programs."""
    assert run(["certify", str(problem_path)]) == 0
    assert "Verdict    optimal: proven" in (text := capsys.readouterr().out)
    assert "Proof      confirmed by checker" in text
    code, document = document_of(["certify", str(problem_path)], capsys)
    assert (code, document["verdict"], document["schema"]) == (0, "optimal", "nest.certificate/1")
    assert document.keys() == KEYS
    assert document["objective_ticks"] == solve(chain()).objective_ticks
    assert (document["problem"], document["preset"], document["better"]) == ("small", "paper", None)
    assert {"nest", "python", "numpy", "platform"} <= document["provenance"].keys()
    [prover] = document["provers"]
    assert prover.keys() == {"name", "version", "verdict", "bound_ticks", "wall_s", "parameters", "detail"}
    assert (prover["name"], prover["verdict"], prover["bound_ticks"]) == (
        "checker",
        "proven",
        document["objective_ticks"],
    )


def test_a_given_optimum_is_certified(problem_path: Path, plan_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan from a file is judged, not solved for, and confirmed if nothing is better."""
    code, document = document_of(["certify", str(problem_path), str(plan_path)], capsys)
    assert (code, document["verdict"]) == (0, "optimal")
    assert len(document["plan"]["stages"]) == len(best_plan().stages)


def test_a_worse_plan_is_refuted(
    problem_path: Path, worse_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan made worse by hand exits with 1; the better plan is printed, with by how much, and written."""
    target = tmp_path / "better.json"
    assert run(["certify", str(problem_path), str(worse_path), "-o", str(target)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"Verdict refuted: the plan above is [\d.]+ s \([\d.]+ %\) faster", text)
    judged = evaluate(chain(), read_plan(target))
    assert judged.legal
    slow = evaluate(chain(), worse_plan()).objective_ticks
    assert slow is not None
    assert judged.objective_ticks is not None
    assert judged.objective_ticks < slow
    code, document = document_of(["certify", str(problem_path), str(worse_path)], capsys)
    assert (code, document["verdict"], document["objective_ticks"]) == (1, "refuted", slow)
    assert document["better_ticks"] == judged.objective_ticks
    assert document["better"]["stages"]


def test_settings_and_preset_count(problem_path: Path, worse_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that is not the best of all is the best of those that are left when the choices are restricted."""
    arguments = ["certify", str(problem_path), str(worse_path), "--set", "stages=1", "--set", "replicas=1"]
    code, document = document_of([*arguments, "--set", "zero=none", "--preset", "artifact"], capsys)
    assert (code, document["verdict"], document["preset"]) == (0, "optimal", "artifact")


def test_illegal_plan(problem_path: Path, plan_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that breaks a rule exits with 3 and the rule's name, and no prover is asked."""
    arguments = ["certify", str(problem_path), str(plan_path), "--set", "replicas=3"]
    assert run(arguments) == 3
    text = capsys.readouterr().out
    assert "Verdict    illegal: " in text
    assert "Broken     replicas: " in text
    code, document = document_of(arguments, capsys)
    assert (code, document["verdict"], document["provers"]) == (3, "illegal", [])
    assert [violation["rule"] for violation in document["violations"]] == ["replicas"]


def test_infeasible_problem(hopeless_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That no plan is legal is confirmed by the checker, and exits with 3."""
    assert run(["certify", str(hopeless_path)]) == 3
    text = capsys.readouterr().out
    assert "infeasible: proven" in text
    assert "confirmed by checker" in text
    code, document = document_of(["certify", str(hopeless_path)], capsys)
    assert (code, document["verdict"], document["plan"], document["objective"]) == (3, "infeasible", None, None)
    assert [prover["verdict"] for prover in document["provers"]] == ["proven"]


def test_a_wrong_infeasible_is_refuted() -> None:
    """A problem that only a faulty solver calls infeasible has a plan, which is shown."""
    answer = replace(solve(chain()), status=Status.INFEASIBLE, objective_ticks=None, bound_ticks=None, plan=None)
    certificate = certify_result(chain(), answer)
    assert certificate.finding is Finding.REFUTED
    assert certificate.better is not None
    assert evaluate(chain(), certificate.better).legal


def test_time_limit(problem_path: Path, worse_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit too short for any prover exits with 4 and says what was settled."""
    arguments = ["certify", str(problem_path), str(worse_path), "--time-limit", "1e-9"]
    assert run(arguments) == 4
    text = capsys.readouterr().out
    assert "Verdict    undecided" in text
    assert "not settled" in text
    code, document = document_of(arguments, capsys)
    assert (code, document["verdict"], document["provers"][0]["bound_ticks"]) == (4, "undecided", None)
    assert document["provers"][0]["parameters"] == {"time_limit_s": 1e-9}


def test_unknown_answer_claims_nothing(problem_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the solver ran out of time without a plan there is nothing to prove: exit 4."""
    unknown = replace(solve(chain()), status=Status.UNKNOWN, objective_ticks=None, bound_ticks=None, plan=None)
    monkeypatch.setattr("nest.solve.solve", lambda *_, **__: unknown)
    assert run(["certify", str(problem_path)]) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["PROBLEM", "no/such/plan.json"],
        ["PROBLEM", "PROBLEM"],
        ["no/such/file.toml"],
        ["PROBLEM", "--with", "nonsense"],
        ["PROBLEM", "--with", "checker,"],
        ["PROBLEM", "--time-limit", "0"],
        ["PROBLEM", "-o", "PROBLEM"],
    ],
    ids=" ".join,
)
def test_invalid_input(arguments: list[str], problem_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is wrong with what was typed or read: exit 2 and one line on standard error."""
    assert run(["certify", *[str(problem_path) if word == "PROBLEM" else word for word in arguments]]) == 2
    assert "internal" not in complaint(capsys)


@pytest.mark.parametrize("name", MODELS)
def test_prover_that_is_not_installed(
    name: str, problem_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking for a prover whose package is missing is one clear line, before anything is solved."""
    monkeypatch.setitem(sys.modules, "nest.milp", None)
    monkeypatch.setattr("nest.solve.solve", lambda *_, **__: pytest.fail("it was solved first"))
    assert run(["certify", str(problem_path), "--with", f"checker,{name}"]) == 2
    assert f"prover '{name}' is not available" in complaint(capsys)


def test_prover_that_does_not_cover_the_problem() -> None:
    """It says what of the problem it does not cover, not the preset alone."""
    problem = chain().with_preset(SIMULATED).with_constraints(DistinctStages(1))
    said = r"prover 'cpsat' does not cover the problem: constraints: .* \(distinct_stages\)"
    with pytest.raises(InvalidProblem, match=said):
        require(["checker", "cpsat"], problem)


def model_that_says(monkeypatch: pytest.MonkeyPatch, **claim: object) -> None:
    """Put a solver in the place of CP-SAT that makes a certain claim."""
    answer = SimpleNamespace(solver="Model", version="1.2", parameters={"workers": 1}, **claim)
    package = ModuleType("nest.milp")
    package.solve_cpsat = lambda *_, **__: answer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nest.milp", package)


def test_model_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose bound reaches the objective proves the plan; solver, version and parameters are kept."""
    ticks = solve(chain()).objective_ticks
    model_that_says(monkeypatch, status="optimal", objective=ticks, bound=ticks, plan=best_plan())
    certificate = certify(chain(), best_plan(), provers=["checker", "cpsat"])
    assert certificate.finding is Finding.OPTIMAL
    assert [proof.outcome for proof in certificate.proofs] == [Outcome.PROVEN, Outcome.PROVEN]
    assert certificate.proofs[1].version == "Model 1.2"
    assert certificate.proofs[1].parameters == {"workers": 1}


def test_model_with_a_bound_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound below the objective proves nothing."""
    ticks = solve(chain()).objective_ticks
    assert ticks is not None
    model_that_says(monkeypatch, status="feasible", objective=ticks, bound=ticks - 1, plan=best_plan())
    assert certify(chain(), best_plan(), provers=["cpsat"]).finding is Finding.UNDECIDED


def test_provers_that_contradict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prover that calls a worse plan optimal is exposed by one that has a better plan."""
    slow = evaluate(chain(), worse_plan()).objective_ticks
    model_that_says(monkeypatch, status="optimal", objective=slow, bound=slow, plan=worse_plan())
    with pytest.raises(Disagreement, match="cpsat"):
        certify(chain(), worse_plan(), provers=["checker", "cpsat"])


def test_claims_without_a_better_plan_refute_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that claims less than its plan costs is not believed: the judge prices the plan."""
    model_that_says(monkeypatch, status="optimal", objective=1, bound=1, plan=best_plan())
    certificate = certify(chain(), best_plan(), provers=["cpsat"])
    assert certificate.finding is Finding.UNDECIDED
    assert certificate.better is None


def test_solve_and_certify(problem_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`solve --certify` says which prover confirmed the plan; without it nothing does."""
    assert run(["solve", str(problem_path), "--certify"]) == 0
    assert "\nProof      confirmed by checker" in capsys.readouterr().out
    assert run(["solve", str(problem_path)]) == 0
    assert "Proof" not in capsys.readouterr().out
    code, document = document_of(["solve", str(problem_path), "--certify"], capsys)
    assert (code, document["certificate"]["verdict"]) == (0, "optimal")
    assert document["certificate"]["provers"][0]["name"] == "checker"
    assert document_of(["solve", str(problem_path)], capsys)[1]["certificate"] is None


def test_solve_and_certify_an_infeasible_problem(hopeless_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That there is no plan is confirmed as well."""
    code, document = document_of(["solve", str(hopeless_path), "--certify"], capsys)
    assert (code, document["certificate"]["verdict"]) == (3, "infeasible")


def test_a_wrong_solver_is_an_internal_error(
    problem_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solver that calls a worse plan optimal: exit 5, one line, and no plan is written."""
    monkeypatch.setattr("nest.solve.solve", lambda *_, **__: wrong_answer())
    target = tmp_path / "out.json"
    assert run(["solve", str(problem_path), "--certify", "-o", str(target)]) == 5
    line = complaint(capsys)
    assert "the solver says optimal" in line
    assert "a prover has a plan" in line
    assert not target.exists()


def test_an_unproven_plan_may_be_refuted() -> None:
    """A solver that claims nothing is not at fault when the checker has a better plan."""
    answer = replace(wrong_answer(), status=Status.FEASIBLE, bound_ticks=None)
    assert confirm(chain(), answer).finding is Finding.REFUTED


def wrong_answer() -> Result:
    """Return the answer of a solver that takes a worse plan for the best."""
    ticks = evaluate(chain(), worse_plan()).objective_ticks
    return replace(solve(chain()), plan=worse_plan(), objective_ticks=ticks, bound_ticks=ticks)


def test_result_with_a_certificate_is_read(problem_path: Path, tmp_path: Path) -> None:
    """Where a plan is expected, a result with its certificate will do, and so will none."""
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"schema": "nest.result/1", "certificate": None, "plan": None}))
    with pytest.raises(InvalidProblem, match="holds none"):
        read_plan(path)
    assert run(["certify", str(problem_path), str(path)]) == 2


def test_coupling_constraints_are_confirmed_by_the_programme() -> None:
    """Where side constraints tie stages together the checker may have to leave a claim open; CP-SAT settles it."""
    for seed in range(25):
        problem = random_problem(seed, Size(layers=5, devices=12)).with_constraints(DistinctStages(1))
        certificate = confirm(problem, solve(problem))
        assert certificate.finding in (Finding.OPTIMAL, Finding.INFEASIBLE), (seed, certificate)
