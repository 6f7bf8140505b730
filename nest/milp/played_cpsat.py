"""The programme under the objective `simulated` in CP-SAT, in whole ticks; see `played_search`."""

from __future__ import annotations

from importlib.metadata import version

from ortools.sat.python import cp_model

from nest.errors import OutOfScope
from nest.milp.claim import Claim
from nest.milp.cpsat_base import PARAMETERS, STATUSES, parts, require_counted, solver_with
from nest.milp.played_arcs import Stages
from nest.milp.played_search import Answer, Engine, PlayedSearch
from nest.plan import Plan
from nest.problem import Problem
from nest.result import Status
from nest.tables import Tables
from nest.units import NEVER, Ints


class PlayedCpSat:
    """The programme of an outer choice.

    Parameters
    ----------
    stages
        Its arcs.

    Attributes
    ----------
    arc
        Whether each is taken.
    ticks
        Of the passes of each stage, by stage and column.
    sync, objective
        Ticks.
    """

    def __init__(self, stages: Stages) -> None:
        self.stages, self.model, arcs = stages, cp_model.CpModel(), stages.arcs
        self.arc = [self.model.new_bool_var(f"arc{at}") for at in range(len(arcs.stage))]
        self.sync = self.model.new_int_var(0, int(arcs.sync.max()), "sync")
        require_counted(stages.longest)
        self.objective = self.model.new_int_var(0, stages.longest, "objective")
        self.ticks = [
            [self._at_least(stages.of(at), arcs.ticks[:, column]) for column in range(stages.shape.columns)]
            for at in range(stages.choice.stages)
        ]
        self._post_rules()
        for at in range(stages.choice.stages):
            self._hold(self.sync, stages.of(at), arcs.sync)
        self.model.minimize(self.objective)

    def _post_rules(self) -> None:
        """C2, C3, C5: one arc of each stage, each beginning where the one before it ends."""
        for at in range(self.stages.choice.stages):
            self.model.add_exactly_one([self.arc[arc] for arc in self.stages.of(at).tolist()])
        for ending, beginning in self.stages.states:
            literals = [[self.arc[at] for at in each] for each in (ending, beginning)]
            self.model.add(cp_model.LinearExpr.sum(literals[0]) == cp_model.LinearExpr.sum(literals[1]))

    def _at_least(self, among: Ints, ticks: Ints) -> cp_model.IntVar:
        made = self.model.new_int_var(0, int(ticks[among].max()), "")
        self._hold(made, among, ticks)
        return made

    def _hold(self, variable: cp_model.IntVar, among: Ints, ticks: Ints) -> None:
        """D11, D13: the variable is no less than what the arc takes that is taken of some."""
        for part in parts(ticks[among].tolist()):
            taken = [self.arc[at] for at in among[part].tolist()]
            self.model.add(variable >= cp_model.LinearExpr.weighted_sum(taken, ticks[among[part]].tolist()))

    def post_path(self, counts: Ints) -> None:
        """D15: state that an iteration is no shorter than a path."""
        times, variables = list[int](), list[cp_model.IntVar]()
        for row, each in zip(counts.tolist(), self.ticks, strict=True):
            for count, variable in zip(row, each, strict=True):
                if count:
                    times.append(count)
                    variables.append(variable)
        self.model.add(self.objective >= cp_model.LinearExpr.weighted_sum(variables, times) + self.sync)

    def ask(self, limit: int, time_limit_s: float | None) -> Answer:
        """Return the solution with the least objective, as far as it is below a limit."""
        self.objective.with_domain(cp_model.Domain(0, min(self.stages.longest, limit - 1)))
        solver = solver_with(PARAMETERS, time_limit_s)
        found = solver.solve(self.model)
        if found not in STATUSES:
            raise RuntimeError(f"CP-SAT says {solver.status_name(found)}: {self.model.validate()}")
        status = STATUSES[found]
        if status is Status.INFEASIBLE:
            return Answer(NEVER, [], complete=True)
        bound = int(solver.response_proto.inner_objective_lower_bound)
        if found == cp_model.UNKNOWN:
            return Answer(bound, [], complete=False)
        taken = [at for at, literal in enumerate(self.arc) if solver.boolean_value(literal)]
        return Answer(bound, taken, complete=status is Status.OPTIMAL)


def solve(
    problem: Problem,
    time_limit_s: float | None,
    hint: Plan | None = None,
    at_least: int | None = None,
    *,
    first: bool = False,
) -> Claim:
    """Solve the programme of a problem.

    Raises
    ------
    OutOfScope
        If a plan is given to start from.
    """
    if hint is not None:
        raise OutOfScope("hint", "no plan to start from is known to the programme that is played", "leave it out")
    said = Claim(Status.UNKNOWN, None, None, None, "CP-SAT", version("ortools"), PARAMETERS, 0.0, exact=True)
    return PlayedSearch(Tables.of(problem), Engine(PlayedCpSat, said), time_limit_s).run(at_least or 0, first=first)
