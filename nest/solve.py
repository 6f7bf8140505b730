"""Solve a problem: pick the solver, run it, judge its plan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from nest.constraints import none_keeps
from nest.cost.scale import scale_of
from nest.dp import Outcome, along_one_order, optimum, why_infeasible
from nest.errors import InvalidProblem, NestError, OutOfScope
from nest.evaluate import Evaluation, evaluate
from nest.milp import Claim, solve_cpsat, solve_pyomo
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Report, Result, Status
from nest.tables import Tables
from nest.technologies import affordable, best_of, why_none_affordable

Backend: TypeAlias = Literal["auto", "dp", "cpsat", "pyomo"]
"""Which solver: the dynamic program, or the mathematical programme by CP-SAT or by HiGHS through Pyomo."""


Cuts: TypeAlias = Literal["all", "order"]
"""Which cuts of a model that branches: all of them, or those along the order in which its layers are given."""


class Disagreement(NestError):
    """The judge does not confirm what a solver claims: a fault of ours, never of the problem."""


def solve(
    problem: Problem,
    *,
    backend: Backend = "auto",
    time_limit_s: float | None = None,
    report: Report | None = None,
    better_than: int | None = None,
    cuts: Cuts = "all",
    within: float = 0.0,
) -> Result:
    """Find the best plan of a problem.

    Parameters
    ----------
    backend
        Which solver to ask. ``"auto"`` takes the dynamic program, which covers everything but side constraints that tie
        stages together: it solves the problem without these, and where its plan breaks one CP-SAT takes over.
    time_limit_s
        Give up proving after this many seconds and return the best plan so far with its bound.
    report
        Called now and then with the progress of the dynamic program.
    better_than
        Plans of so many ticks or more are of no interest, which makes the search faster. Where none takes less, the
        status is ``NONE_BETTER`` and the bound, at least this value, is proven; that some plan exists is not.
    cuts
        With ``"order"`` a model that branches is cut along one order of its layers only, by the dynamic program. The
        bound holds for all plans, so that the status is seldom more than ``FEASIBLE``. A chain has one order anyway.
    within
        Part of a plan's time: the dynamic program ends with the first plan that is proven to be slower than the best
        by no more than this. With 0, the default, the plan is the best.

    Returns
    -------
    Result
        With a judged plan, or the reason why there is none.

    Raises
    ------
    InvalidProblem
        If the times of the problem lie too far apart to be counted.
    OutOfScope
        If the solver that was asked for does not cover the problem.
    SolverUnavailable
        If the package of that solver is not installed.
    LimitReached
        If a model branches so much that its cuts are too many; ``cuts="order"`` takes it.
    Disagreement
        If the judge prices the plan differently from the solver, or finds a broken rule.
    """
    begin = time.perf_counter()
    end = None if time_limit_s is None else begin + time_limit_s

    def ask(built: Problem, most: int | None) -> Result:
        """Return the best plan of a problem below so many ticks, if there is a limit."""
        return _solve(_Request(built, Tables.of(built), end, report, most, within), backend, cuts)

    if problem.cluster.menus and not affordable(problem):
        return _unaffordable(problem, backend)
    found = best_of(problem, ask, end, better_than) if problem.cluster.menus else ask(problem, better_than)
    return replace(found, wall_s=time.perf_counter() - begin)


def _unaffordable(problem: Problem, backend: Backend) -> Result:
    reason, time = why_none_affordable(problem), scale_of(problem).time
    return Result(Status.INFEASIBLE, None, None, time, problem.time_unit_s, backend, 0.0, reason)


def _solve(request: _Request, backend: Backend, cuts: Cuts) -> Result:
    """Find the best plan of a problem whose cluster is built."""
    begin, problem = time.perf_counter(), request.problem
    answer = request.along_one_order() if cuts == "order" and problem.branches else request.answer(backend)
    found = answer.found
    if found.complete and found.plan is None and found.reason is None:
        raise InvalidProblem(
            "times",
            "no plan takes less time than ticks can count, and a slower one may exist",
            "check layer times, bandwidths, latencies and the number of microbatches",
        )
    plan = found.plan
    if plan is not None:
        verdict = _judge(request.tables, plan, found.objective_ticks)
        plan = plan.with_figures(verdict.loads_s, verdict.memory_bytes)
    return Result(
        status=_status(found.objective_ticks, found.bound_ticks, found.complete),
        objective_ticks=found.objective_ticks,
        bound_ticks=found.bound_ticks,
        time=request.tables.scale.time,
        time_unit_s=problem.time_unit_s,
        backend=answer.backend,
        wall_s=time.perf_counter() - begin,
        reason=found.reason,
        plan=plan,
        choice=answer.choice,
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a solver found, which one it was, and why it was that one."""

    found: Outcome
    backend: str
    choice: str


@dataclass(frozen=True)
class _Request:
    """A problem, what is wanted of its solution, and until when."""

    problem: Problem
    tables: Tables
    end: float | None
    report: Report | None
    better_than: int | None
    within: float = 0.0

    @cached_property
    def kinds(self) -> str:
        """Names of the side constraints that tie stages together."""
        return ", ".join(dict.fromkeys(each.kind for each in self.tables.filters.coupling))

    def answer(self, backend: Backend) -> _Answer:
        """Ask a solver, for ``"auto"`` the one that suits the problem."""
        asked = "it was asked for"
        if backend in ("cpsat", "pyomo"):
            ask = solve_cpsat if backend == "cpsat" else solve_pyomo
            return _Answer(self._settled(ask(self.problem, time_limit_s=self._left())), backend, asked)
        if not self.kinds:
            found = optimum(self.tables, self.end, self.report, self.better_than, within=self.within)
            return _Answer(found, "dp", asked if backend == "dp" else "the dynamic program covers the problem")
        if backend == "dp":
            what = f"the dynamic program cannot tell which plans keep {self.kinds}: that ties stages together"
            raise OutOfScope("constraints", what, "take backend 'auto' or 'cpsat'")
        return self._coupled()

    def along_one_order(self) -> _Answer:
        """Ask the dynamic program, which does not see what ties stages together, along one order of the layers."""
        found = along_one_order(self.tables, self.end, self.report, self.better_than)
        if self.kinds and found.plan and not evaluate(self.problem, found.plan, self.tables.scale).legal:
            what = f"the best plan along one order of the layers breaks {self.kinds}, which nobody searches along one"
            raise OutOfScope("constraints", what, "take cuts 'all', or leave that out")
        return _Answer(found, "dp", "the dynamic program covers one order of the layers")

    def _coupled(self) -> _Answer:
        """Ask the dynamic program without what ties stages together, and CP-SAT where that rules its plan out.

        The programme without has all plans of the one with it, and more. So its bound holds, and its best plan is the
        best of all if it keeps what was left out.
        """
        local, scale = self.problem.with_constraints(*self.tables.filters.local), self.tables.scale
        found = optimum(Tables(local, scale), self._middle(), self.report, self.better_than)
        if found.plan is None and found.complete:
            return _Answer(found, "dp", f"there is no plan even without {self.kinds}")
        kept = None
        if found.plan is not None:
            _judge(Tables(local, scale), found.plan, found.objective_ticks)
            kept = found.plan if evaluate(self.problem, found.plan, scale).legal else None
        if kept is not None and found.complete:
            return _Answer(found, "dp", f"the dynamic program's best plan without {self.kinds} keeps that too")
        start = self._start(local) if kept is None else kept
        claim = self._programme(start, found.bound_ticks)
        why = "the dynamic program ran out of time" if kept or not found.complete else "its best plan breaks that"
        choice = f"the dynamic program solves the problem only without {self.kinds}, and {why}"
        return _Answer(self._settled(claim), "cpsat", choice)

    def _programme(self, start: Plan | None, at_least: int | None) -> Claim:
        """Ask CP-SAT, which knows a bound and perhaps a plan."""
        try:
            return solve_cpsat(self.problem, time_limit_s=self._left(), hint=start, at_least=at_least)
        except OutOfScope as fault:
            what = f"the dynamic program's best plan breaks {self.kinds}, and CP-SAT cannot search for another"
            remedy = "leave that out, and have plans judged"
            raise OutOfScope("constraints", f"{what}: {fault.where}: {fault.problem}", remedy) from None

    def _start(self, local: Problem) -> Plan | None:
        """Return the best plan of a few smaller problems that keeps all side constraints; None where none does."""
        found = [optimum(Tables(each, self.tables.scale), self._middle(), None) for each in _smaller(local)]
        kept = [
            (each.objective_ticks, at)
            for at, each in enumerate(found)
            if each.plan is not None
            and each.objective_ticks
            and evaluate(self.problem, each.plan, self.tables.scale).legal
        ]
        return found[min(kept)[1]].plan if kept else None

    def _settled(self, claim: Claim) -> Outcome:
        return _below(_settle(claim, self.tables), self.better_than)

    def _left(self) -> float | None:
        return None if self.end is None else max(self.end - time.perf_counter(), 0.0)

    def _middle(self) -> float | None:
        """Return when half of the time that is left has passed."""
        now = time.perf_counter()
        return None if self.end is None else (now + max(self.end, now)) / 2


def _smaller(problem: Problem) -> Iterator[Problem]:
    """Yield the problem without ZeRO, and with one stage: such plans keep much of what ties stages together."""
    choices = problem.choices
    if 0 in choices.zero and len(choices.zero) > 1:
        yield problem.with_choices(zero=frozenset({0}))
    if choices.stages is None or 1 in choices.stages:
        yield problem.with_choices(stages=frozenset({1}))


def _settle(claim: Claim, tables: Tables) -> Outcome:
    """Return what a claim is worth: its plan at the judge's price, and its bound as far as that price confirms it.

    An incumbent may be priced too high by the solver, never too low; solvers in floating point are a little off.
    """
    complete = claim.status in (Status.OPTIMAL, Status.INFEASIBLE)
    if claim.plan is None:
        reason = (why_infeasible(tables) or none_keeps(tables.problem)) if complete else TIME_LIMIT
        return Outcome(None, None, claim.bound, complete, reason)
    judged = evaluate(tables.problem, claim.plan, tables.scale).objective_ticks
    dearer = claim.objective is None or judged is None or judged > claim.objective
    if (claim.exact and dearer) or (claim.bound is not None and judged is not None and claim.bound > judged):
        raise Disagreement(
            f"{claim.solver} says {claim.objective} ticks and no less than {claim.bound}, the judge {judged}"
        )
    reason = None if claim.bound == judged else INEXACT if complete else TIME_LIMIT
    return Outcome(claim.plan, judged, claim.bound, complete, reason)


def _below(found: Outcome, better_than: int | None) -> Outcome:
    """Leave out a plan that is not better than a value; what is proven stays."""
    if better_than is None or found.objective_ticks is None or found.objective_ticks < better_than:
        return found
    settled = found.bound_ticks is not None and found.bound_ticks >= better_than
    reason = f"no plan takes less than {better_than} ticks" if settled else found.reason
    return Outcome(None, None, found.bound_ticks, settled, reason)


TIME_LIMIT = "the time limit was reached before the search was complete"
INEXACT = "the solver computes in floating point, and its bound does not reach the objective to the tick"


def _judge(tables: Tables, plan: Plan, claimed: int | None) -> Evaluation:
    """Return the judge's verdict on a plan, if it is legal and costs what the solver says."""
    verdict = evaluate(tables.problem, plan, tables.scale)
    if not verdict.legal or verdict.objective_ticks != claimed:
        broken = "; ".join(f"{violation.rule}: {violation.message}" for violation in verdict.violations)
        judged = verdict.objective_ticks
        raise Disagreement(f"the solver says {claimed} ticks, the judge {judged} ({broken or 'legal'})")
    return verdict


def _status(objective: int | None, bound: int | None, complete: bool) -> Status:
    if objective is None and complete:
        return Status.INFEASIBLE if bound is None else Status.NONE_BETTER
    if objective is None:
        return Status.UNKNOWN
    return Status.OPTIMAL if objective == bound else Status.FEASIBLE
