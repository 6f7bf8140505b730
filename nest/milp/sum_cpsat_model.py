"""The programme under the objective `sum` in CP-SAT: a function for each rule and cost, as the formulation names them.

Times are whole ticks, so that what CP-SAT proves is meant exactly.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from nest.milp.assembly import RULE_ORDER, SIDE_ORDER, assembled, in_order
from nest.milp.coupled import SumTerms, coupling
from nest.milp.cpsat_base import COUNTED, CpSatBase, parts, require_counted, variant
from nest.milp.sum_formulation import SUM_BY_INDEX_SETS, SUM_SIDE_BY_INDEX_SETS, SumFormulation
from nest.milp.sum_plans import SumSolution


class SumCpSat(CpSatBase, SumTerms):
    """Variables of the programme.

    Attributes
    ----------
    use, arc
        Whether an outer choice and an arc are taken, by their index in the formulation.
    load, loads, sync, objective
        Ticks: largest load, sum of all loads, slowest synchronisation, and an iteration.
    """

    def __init__(self, formulation: SumFormulation) -> None:
        require_counted(formulation.largest_loads + formulation.largest_sync)
        super().__init__(formulation)
        new = self.model
        self.load = new.new_int_var(0, formulation.largest_load, "load")
        self.loads = new.new_int_var(0, formulation.largest_loads, "loads")
        self.sync = new.new_int_var(0, formulation.largest_sync, "sync")
        most = min(formulation.largest_objective, COUNTED - 1)
        self.objective = new.new_int_var(min(*formulation.least_objectives, most), most, "objective")

    def take(self, solution: SumSolution) -> None:
        """Allow no other solution than this one."""
        for variables, chosen in ((self.use, [solution.choice]), (self.arc, solution.arcs)):
            among = set(chosen)
            for at, taken in enumerate(variables):
                self.model.add(taken == int(at in among))


def cover(made: SumCpSat) -> None:
    """C2: the path of the outer choice starts behind the last layer: ``sum of its first arcs = use``."""
    for use, arcs in zip(made.use, made.formulation.last, strict=True):
        made.model.add(made.arcs(arcs) == use)


def order(made: SumCpSat) -> None:
    """C3: each stage begins where the one before it in the path ended: ``sum entering = sum leaving`` each state."""
    for entering, leaving in made.formulation.states:
        made.model.add(made.arcs(entering) == made.arcs(leaving))


def stages(made: SumCpSat) -> None:
    """C5: the path ends after ``S`` arcs: ``sum of the arcs that end there = use``."""
    for use, arcs in zip(made.use, made.formulation.closing, strict=True):
        made.model.add(made.arcs(arcs) == use)


def load(made: SumCpSat) -> None:
    """D11: ``load >= sum of loads of the arcs at a position``, and ``loads = sum of loads of all arcs``."""
    ticks = made.formulation.arcs.load
    for arcs in made.formulation.by_position.values():
        for part in parts(ticks[arcs].tolist()):
            made.model.add(made.load >= made.arcs(arcs[part], ticks[arcs[part]].tolist()))
    every = range(len(made.arc))
    made.model.add(made.loads == made.arcs(list(every), ticks.tolist()))


def sync(made: SumCpSat) -> None:
    """D13: ``sync >= sum of synchronisations of the arcs at a position``."""
    ticks = made.formulation.arcs.sync
    for arcs in made.formulation.by_position.values():
        for part in parts(ticks[arcs].tolist()):
            made.model.add(made.sync >= made.arcs(arcs[part], ticks[arcs[part]].tolist()))


def objective(made: SumCpSat) -> None:
    """D14: ``objective >= m * load + filling + sync`` under the outer choices with ``m`` and ``v``; it is minimised.

    ``filling`` is what the other stages take to fill: ``v * filling >= loads - load``. Where some have more stages than
    microbatches, also ``objective >= loads + waiting + sync``, with ``v * waiting >= (m - 1) * load``.
    """
    for (further, chunks), choices in made.formulation.by_pace.items():
        most = made.formulation.largest_objective // further if further else made.formulation.largest_load
        load = made.load if most >= made.formulation.largest_load else made.model.new_int_var(0, most, f"load{further}")
        taken = [made.literal(choices)] if len(made.formulation.by_pace) > 1 else []
        made.model.add(load >= made.load).only_enforce_if(taken)
        filling = made.loads - load
        if chunks > 1:
            longest = -(-made.formulation.largest_loads // chunks)
            filling = made.model.new_int_var(0, longest, f"filling{further},{chunks}")
            made.model.add(chunks * filling >= made.loads - load).only_enforce_if(taken)
        made.model.add(made.objective >= (further + 1) * load + filling + made.sync).only_enforce_if(taken)
        if (further, chunks) in made.formulation.short_paces:
            waiting = made.model.new_int_var(0, -(-further * most // chunks), f"waiting{further},{chunks}")
            made.model.add(chunks * waiting >= further * load).only_enforce_if(taken)
            made.model.add(made.objective >= made.loads + waiting + made.sync).only_enforce_if(taken)
    made.model.minimize(made.objective)


def least(made: SumCpSat) -> None:
    """State a consequence, for speed: what each outer choice takes at least, ``objective >= sum least * use``."""
    ticks = [min(each, made.formulation.largest_objective + 1) for each in made.formulation.least_objectives]
    for part in parts(ticks):
        made.model.add(made.objective >= cp_model.LinearExpr.weighted_sum(made.use[part], ticks[part]))


RULES = in_order(RULE_ORDER, SUM_BY_INDEX_SETS, variant, cover, order, stages)
"""Every rule of the formulation: the function that posts it, or where the index sets keep it."""

SIDE = in_order(SIDE_ORDER, SUM_SIDE_BY_INDEX_SETS, coupling)
"""The same for side constraints: the hooks of local ones, and those that tie stages together."""

COSTS = {"load": load, "sync": sync, "objective": objective}


def build(formulation: SumFormulation) -> SumCpSat:
    """Return the programme with all rules and costs.

    Raises
    ------
    OutOfScope
        If sums of ticks could leave the 64 bits of CP-SAT.
    """
    return assembled(SumCpSat(formulation), RULES, SIDE, COSTS, {"least": least})
