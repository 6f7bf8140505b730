"""The programme under the objective `sum` in Pyomo: a function for each rule and cost, as the formulation names them.

Solvers behind Pyomo compute in floating point. Times are counted in units that keep the numbers small, and what such a
solver proves is its claim: `nest.milp` rounds it to whole ticks only where its tolerance is finer than a tick.
"""

from __future__ import annotations

import numpy as np
import pyomo.environ as pyo

from nest.milp.assembly import RULE_ORDER, SIDE_ORDER, assembled, in_order
from nest.milp.coupled import SumTerms, coupling
from nest.milp.pyomo_base import PyomoBase, least, variant
from nest.milp.sum_formulation import SUM_BY_INDEX_SETS, SUM_SIDE_BY_INDEX_SETS, SumFormulation
from nest.milp.sum_plans import SumSolution


class SumPyomo(PyomoBase, SumTerms):
    """Variables of the programme.

    Attributes
    ----------
    use, arc
        Whether an outer choice and an arc are taken, by their index in the formulation.
    load, loads, sync, objective
        In units: largest load, sum of all loads as far as they count, slowest synchronisation, and an iteration.
    unit
        Ticks of a unit.
    """

    def __init__(self, formulation: SumFormulation) -> None:
        super().__init__(formulation)
        model = self.model
        model.largest = pyo.Var(bounds=(0, formulation.largest_load / self.unit))
        model.loads = pyo.Var(bounds=(0, formulation.largest_loads / self.unit))
        model.sync = pyo.Var(bounds=(0, formulation.largest_sync / self.unit))
        model.objective = pyo.Var(bounds=(0, formulation.largest_objective / self.unit))
        self.load, self.loads, self.sync, self.objective = model.largest, model.loads, model.sync, model.objective

    def take(self, solution: SumSolution) -> None:
        """Allow no other solution than this one."""
        for variables, chosen in ((self.use, [solution.choice]), (self.arc, solution.arcs)):
            for at in variables:
                variables[at].fix(int(at in chosen))


def cover(made: SumPyomo) -> None:
    """C2: the path of the outer choice that is used, and no other, starts behind the last layer."""
    for at, arcs in enumerate(made.formulation.last):
        made.post(made.arcs(arcs) == made.use[at])


def order(made: SumPyomo) -> None:
    """C3: as many arcs enter a state as leave it."""
    for entering, leaving in made.formulation.states:
        made.post(made.arcs(entering) == made.arcs(leaving))


def stages(made: SumPyomo) -> None:
    """C5: the path has as many arcs as the outer choice has stages."""
    for at, arcs in enumerate(made.formulation.closing):
        made.post(made.arcs(arcs) == made.use[at])


def load(made: SumPyomo) -> None:
    """D11: no load of an arc is above the largest; ``loads`` is their sum, with ``v`` chunks a ``v``-th of it."""
    ticks = made.formulation.arcs.load
    for arcs in made.formulation.by_position.values():
        made.post(made.load >= made.arcs(arcs, made.in_units(ticks[arcs].tolist())))
    each = (ticks / made.formulation.chunks).tolist()
    made.post(made.loads == made.arcs(list(range(len(ticks))), made.in_units(each)))


def sync(made: SumPyomo) -> None:
    """D13: no synchronisation of an arc is above the slowest."""
    ticks = made.formulation.arcs.sync
    for arcs in made.formulation.by_position.values():
        made.post(made.sync >= made.arcs(arcs, made.in_units(ticks[arcs].tolist())))


def objective(made: SumPyomo) -> None:
    """D14: all loads over ``v``, the largest ``m - 1 / v`` times more, and synchronisation, minimised.

    Where some choices have more stages than microbatches, also all loads and the largest ``(m - 1) / v`` times more.

    The largest load is split over the possible ``m`` and ``v``, of which one pair is chosen, so that the linear
    relaxation is tight. What the judge rounds up is not rounded here: of two plans the better one is no worse before.
    """
    formulation, model = made.formulation, made.model
    most = formulation.largest_load / made.unit
    model.load_in = pyo.Var(list(formulation.by_pace), domain=pyo.NonNegativeReals)
    for pace, choices in formulation.by_pace.items():
        made.post(model.load_in[pace] <= most * made.literal(choices))
    made.post(made.load == pyo.quicksum(model.load_in.values()))
    times = {(further, chunks): further + 1 - 1 / chunks for further, chunks in formulation.by_pace}
    further = pyo.quicksum(times[pace] * model.load_in[pace] for pace in formulation.by_pace)
    made.post(made.objective >= made.loads + further + made.sync)
    if formulation.short_paces:
        _in_turn(made, times)
    model.minimised = pyo.Objective(expr=made.objective)


def _in_turn(made: SumPyomo, times: dict[tuple[int, int], float]) -> None:
    """Post the second of what bounds the objective; the first again for choices of which that is never the larger."""
    formulation, short = made.formulation, made.formulation.short_paces
    whole = np.array([choice.pace in short for choice in formulation.choices])[formulation.arcs.choice]
    loads = np.where(whole, formulation.arcs.load, formulation.arcs.load / formulation.chunks).tolist()
    factors = {pace: pace[0] / pace[1] if pace in short else each for pace, each in times.items()}
    further = pyo.quicksum(each * made.model.load_in[pace] for pace, each in factors.items())
    made.post(made.objective >= made.arcs(list(range(len(loads))), made.in_units(loads)) + further + made.sync)


RULES = in_order(RULE_ORDER, SUM_BY_INDEX_SETS, variant, cover, order, stages)
"""Every rule of the formulation: the function that posts it, or where the index sets keep it."""

SIDE = in_order(SIDE_ORDER, SUM_SIDE_BY_INDEX_SETS, coupling)
"""The same for side constraints: the hooks of local ones, and those that tie stages together."""

COSTS = {"load": load, "sync": sync, "objective": objective}


def build(formulation: SumFormulation) -> SumPyomo:
    """Return the programme with all rules and costs."""
    return assembled(SumPyomo(formulation), RULES, SIDE, COSTS, {"least": least})
