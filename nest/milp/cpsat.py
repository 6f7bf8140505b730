"""Runs CP-SAT: its parameters, its solutions, its claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from ortools.sat.python import cp_model

from nest.milp.claim import NO_PATH, Claim
from nest.milp.cpsat_base import COUNTED, PARAMETERS, STATUSES, solver_with
from nest.milp.cpsat_model import CpSatModel, build
from nest.milp.formulation import Formulation
from nest.milp.hints import alone
from nest.milp.plans import Solution, decode
from nest.milp.space import Space
from nest.milp.stopwatch import Stopwatch
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Status
from nest.tables import Tables
from nest.units import HARD_LIMIT

BELOW_LIMITS: Mapping[str, int] = {"linearization_level": 0}
"""What CP-SAT runs with besides, where it is asked below limits: there is little left for a linear relaxation."""

FIRST_STEP = 0.001
"""By which part the first limit is above what any plan takes at least. The next steps are twice as long, each."""

STEADY, LITTLE = 1.25, 1.25
"""Beyond so many times that, a limit is passed over if it adds little: less than a quarter to the index sets of the
limit asked before, which is more than half of it. If nothing is left out any more, no further limits are asked."""

LONGEST_STEP, FAR = 6, 16
"""Steps are at most a sixth of the limit, up to 16 times what any plan takes at least; then each doubles the limit."""


@dataclass(frozen=True, slots=True)
class Start:
    """A legal plan that is known from the start, and the ticks that it takes."""

    plan: Plan
    objective: int


class _Incumbent(cp_model.CpSolverSolutionCallback):
    """The best solution so far, kept here because a solver can lose one at its time limit."""

    def __init__(self, made: CpSatModel, start: Start | None) -> None:
        super().__init__()
        self.made = made
        self.objective = None if start is None else start.objective
        self.plan = None if start is None else start.plan

    def on_solution_callback(self) -> None:
        """Keep a solution if it is better."""
        objective = self.value(self.made.objective)
        if self.objective is None or objective < self.objective:
            made = self.made
            solution = Solution(self._taken(made.use)[0], *map(self._taken, (made.arc, made.option, made.place)))
            self.objective, self.plan = objective, decode(made.formulation, solution)

    def _taken(self, variables: Sequence[cp_model.IntVar]) -> list[int]:
        """Return the places of the variables that are true."""
        return [at for at, taken in enumerate(variables) if self.boolean_value(taken)]


def solve(
    problem: Problem,
    time_limit_s: float | None,
    hint: Plan | None = None,
    at_least: int | None = None,
    *,
    first: bool = False,
) -> Claim:
    """Solve the programme of a problem.

    Where stages may shard the programme grows fast with what a plan may take, so that it is asked below one limit after
    the other: if there is no plan below a limit, none takes less; if there is, the best of them is the best of all. A
    plan that is known takes part from the first limit on that is above it, which is the last one, and is claimed where
    nothing better is found.

    Raises
    ------
    RuntimeError
        If CP-SAT finds no plan where there is one: a fault of its own, or of ours.
    """
    watch, space = Stopwatch(time_limit_s), Space.of(problem)
    start = None if hint is None else start_of(space.tables, hint)
    proven, claim = at_least, NO_PATH
    for below, formulation in _programmes(space, at_least or 0, None if start is None else start.objective):
        claim = NO_PATH
        if formulation.choices:
            made = build(formulation, proven)
            if start is not None:
                complete_hint(made, start.plan, watch.left_s)
            claim = run(made, watch.left_s, start, first=first)
        if claim.status is not Status.INFEASIBLE:
            break
        if start is not None and (below is None or below > start.objective):
            raise RuntimeError(f"CP-SAT finds no plan of {start.objective} ticks or less, and there is one")
        proven = below
    bound = max(claim.bound or 0, proven or 0) if claim.status is not Status.INFEASIBLE else None
    return replace(claim, bound=bound, wall_s=watch.used_s)


def _programmes(space: Space, at_least: int, known: int | None) -> Iterator[tuple[int | None, Formulation]]:
    """Yield the limits to ask below, and the programmes with what they leave.

    Parameters
    ----------
    known
        Ticks of a plan: the last limit is just above it.
    """
    asked, size, whole = 0, 0, None
    for limit in limits(space, at_least):
        if known is not None and (limit is None or limit > known):
            yield known + 1, Formulation(space, known + 1)
            return
        made = Formulation(space, limit)
        if limit is not None and limit > STEADY * space.least_objective:
            whole = whole or Formulation(space)
            if made.size == whole.size:
                yield None, whole
                return
            if limit < 2 * asked and sum(made.size) < LITTLE * size:
                continue
        asked, size = limit or 0, sum(made.size)
        yield limit, made


def start_of(tables: Tables, plan: Plan) -> Start | None:
    """Return what a plan takes, the least with its choices; None where it is not legal."""
    formulation = alone(tables, plan)
    if formulation is None:
        return None
    made = build(formulation)
    made.fix(plan)
    claim = run(made, None)
    return None if claim.plan is None or claim.objective is None else Start(claim.plan, claim.objective)


def complete_hint(made: CpSatModel, plan: Plan, time_limit_s: float | None) -> None:
    """Tell CP-SAT to start from a plan, if the programme has it: give every variable the value that goes with it.

    A hint that leaves out what follows from it, such as sights and ranks, has to be searched for, and is often lost.
    """
    if not made.hint(plan):
        return
    solver = solver_with(PARAMETERS, time_limit_s)
    solver.parameters.fix_variables_to_their_hinted_value = True
    found = solver.solve(made.model)
    if found in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        made.model.clear_hints()  # type: ignore[no-untyped-call]
        for at, value in enumerate(solver.response_proto.solution):
            made.model.add_hint(made.model.get_int_var_from_proto_index(at), value)


def limits(space: Space, at_least: int = 0) -> Iterator[int | None]:
    """Yield the limits on the objective to ask below, ascending; the last one is none.

    Parameters
    ----------
    at_least
        Ticks that every plan is known to take at least.
    """
    least = max(space.least_objective, at_least) if space.sharded else HARD_LIMIT
    step = max(1, int(least * FIRST_STEP))
    limit = least + step
    while limit < COUNTED // 2:
        yield limit
        step = limit if limit > FAR * least else min(2 * step, max(1, limit // LONGEST_STEP))
        limit += step
    yield None


def run(made: CpSatModel, time_limit_s: float | None, start: Start | None = None, *, first: bool = False) -> Claim:
    """Run CP-SAT on a programme.

    Parameters
    ----------
    start
        What to claim where nothing better is found; it need not be in the programme.
    first
        Be content with the first plan.

    Raises
    ------
    RuntimeError
        If CP-SAT refuses the model, which is a fault of ours.
    """
    limited = made.formulation.sharded and made.formulation.below is not None
    parameters = {**PARAMETERS, **(BELOW_LIMITS if limited else {})}
    solver, incumbent = solver_with(parameters, time_limit_s), _Incumbent(made, start)
    solver.parameters.stop_after_first_solution = first
    found = solver.solve(made.model, incumbent)
    if found not in STATUSES:
        raise RuntimeError(f"CP-SAT says {solver.status_name(found)}: {made.model.validate()}")
    status = STATUSES[found]
    bounded, plan = status in (Status.OPTIMAL, Status.FEASIBLE, Status.UNKNOWN), incumbent.plan
    return Claim(
        status=Status.FEASIBLE if status is Status.UNKNOWN and plan is not None else status,
        plan=plan if bounded else None,
        objective=incumbent.objective if bounded else None,
        bound=int(solver.response_proto.inner_objective_lower_bound) if bounded else None,
        solver="CP-SAT",
        version=version("ortools"),
        parameters=parameters,
        wall_s=solver.wall_time,
        exact=True,
    )
