"""The programme under the objective `simulated` in Pyomo, run by HiGHS in floating point; see `played_search`."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.metadata import version

import pyomo.environ as pyo

from nest.milp.claim import Claim
from nest.milp.highs import ENDED, PARAMETERS, bound_of, solved
from nest.milp.played_arcs import Stages
from nest.milp.played_search import Answer, Engine, PlayedSearch
from nest.milp.pyomo_base import Expression, InUnits
from nest.problem import Problem
from nest.result import Status
from nest.tables import Tables
from nest.units import NEVER, Ints, distinct


class Scale:
    """What `InUnits` and `bound_of` ask of a formulation.

    Parameters
    ----------
    stages
        The arcs.

    Attributes
    ----------
    common_tick, largest_objective
        Ticks of which all times are multiples, and that no iteration exceeds.
    """

    def __init__(self, stages: Stages) -> None:
        self.choices, self.arcs = [stages.choice], stages.arcs.stage
        every = distinct(stages.arcs.ticks.ravel()).tolist() + distinct(stages.arcs.sync).tolist()
        self.common_tick, self.largest_objective = math.gcd(*every) or 1, max(stages.longest, 1)


class PlayedPyomo(InUnits):
    """The programme of an outer choice.

    Parameters
    ----------
    stages
        Its arcs.

    Attributes
    ----------
    ticks
        Units of the passes of each stage, by stage and column: sums over its arcs.
    sync
        Units of the synchronisation.
    """

    def __init__(self, stages: Stages) -> None:
        super().__init__(Scale(stages))
        self.stages, arcs, each = stages, stages.arcs, range(stages.choice.stages)
        self.use[0].fix(1)
        self.model.sync = pyo.Var(bounds=(0, int(arcs.sync.max()) / self.unit))
        self.model.objective = pyo.Var(bounds=(0, stages.longest / self.unit))
        self.sync, self.objective = self.model.sync, self.model.objective
        self.ticks = [[self._sum(at, ticks) for ticks in arcs.ticks.T] for at in each]
        for at in each:  # C2, C5: one arc of each stage; D13
            self.post(self.arcs(stages.of(at).tolist()) == 1)
            self.post(self.sync >= self._sum(at, arcs.sync))
        for ending, beginning in stages.states:  # C3
            self.post(self.arcs(ending) == self.arcs(beginning))
        self.model.minimised = pyo.Objective(expr=self.objective)

    def _sum(self, at: int, ticks: Ints) -> Expression:
        among = self.stages.of(at)
        return self.arcs(among.tolist(), self.in_units(ticks[among].tolist()))

    def post_path(self, counts: Ints) -> None:
        """D15: state that an iteration is no shorter than a path."""
        pairs = zip(counts.ravel().tolist(), (each for row in self.ticks for each in row), strict=True)
        self.post(self.objective >= pyo.quicksum(count * each for count, each in pairs if count) + self.sync)

    def ask(self, limit: int, time_limit_s: float | None) -> Answer:  # noqa: ARG002 - limits are no rule here
        """Return the solution with the least objective; a limit would meet the tolerances of the solver."""
        found, _ = solved(self, time_limit_s)
        status = ENDED[found.termination_condition]
        if status is Status.INFEASIBLE:
            return Answer(NEVER, [], complete=True)
        most = self.stages.shape.microbatches * self.stages.shape.stages + 1
        bound = bound_of(self, found.best_objective_bound, most) or 0
        if found.best_feasible_objective is None:
            return Answer(bound, [], complete=False)
        found.solution_loader.load_vars()
        taken = [at for at in self.arc if self.arc[at].value > 0.5]
        return Answer(bound, taken, complete=status is Status.OPTIMAL)


def solve(problem: Problem, time_limit_s: float | None) -> Claim:
    """Solve the programme of a problem."""
    versions = f"{version('highspy')}, {version('pyomo')}"
    said = Claim(Status.UNKNOWN, None, None, None, "HiGHS through Pyomo", versions, dict(PARAMETERS), 0.0, exact=False)
    return replace(PlayedSearch(Tables.of(problem), Engine(PlayedPyomo, said), time_limit_s).run(), exact=False)
