"""The programme in CP-SAT: a function for each rule and cost, in the order and under the names of the formulation.

Times are whole ticks, so that what CP-SAT proves is meant exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from ortools.sat.python import cp_model

from nest.errors import OutOfScope
from nest.milp.formulation import BY_INDEX_SETS, Formulation, Indices
from nest.plan import Plan
from nest.units import HARD_LIMIT


class CpSatModel:
    """Variables of the programme, and the literals that stand for sets of outer choices.

    Attributes
    ----------
    use, arc
        Whether an outer choice and an arc are taken.
    rank
        Whether the stage that is waited for has the parameters of a rank.
    load, sync, objective
        Ticks: largest load, synchronisation, and their sum over the iteration.
    """

    def __init__(self, formulation: Formulation) -> None:
        require_range(formulation)
        self.formulation, self.model = formulation, cp_model.CpModel()
        new = self.model
        self.use = [new.new_bool_var(f"use{at}") for at in range(len(formulation.choices))]
        self.arc = [new.new_bool_var(f"arc{at}") for at in range(len(formulation.arcs))]
        self.rank = [new.new_bool_var(f"rank{at}") for at in range(len(formulation.weights))]
        self.load = new.new_int_var(0, formulation.largest_load, "load")
        self.sync = new.new_int_var(0, formulation.largest_sync, "sync")
        least = min(*formulation.least_objectives, formulation.largest_objective)
        self.objective = new.new_int_var(least, formulation.largest_objective, "objective")
        self._literals: dict[tuple[int, ...], cp_model.IntVar] = {}

    def literal(self, choices: Iterable[int]) -> cp_model.IntVar:
        """Return the literal that one of some outer choices is taken."""
        key = tuple(choices)
        if key not in self._literals:
            self._literals[key] = self.model.new_bool_var(f"choices{len(self._literals)}")
            self.model.add(sum(self.use[at] for at in key) == self._literals[key])
        return self._literals[key]

    def arcs(self, chosen: Indices, times: Iterable[int] | None = None) -> cp_model.LinearExprT:
        """Return the sum of some arcs, each as often as ``times`` says."""
        taken = [self.arc[at] for at in chosen]
        return cp_model.LinearExpr.sum(taken) if times is None else cp_model.LinearExpr.weighted_sum(taken, list(times))

    def hint(self, plan: Plan) -> None:
        """Tell the solver to start from a plan, if the programme has it."""
        encoded = self.formulation.encode(plan)
        if encoded is not None:
            choice, arcs = encoded[0], set(encoded[1])
            for at, taken in enumerate(self.use):
                self.model.add_hint(taken, at == choice)
            for at, taken in enumerate(self.arc):
                self.model.add_hint(taken, at in arcs)

    def fix(self, plan: Plan) -> None:
        """Allow no other plan than this one; none at all where the index sets or `Formulation.decode` exclude it."""
        encoded = self.formulation.encode(plan)
        choice, arcs = (-1, set()) if encoded is None else (encoded[0], set(encoded[1]))
        for at, taken in enumerate(self.use):
            self.model.add(taken == int(at == choice))
        for at, taken in enumerate(self.arc):
            self.model.add(taken == int(at in arcs))


def require_range(formulation: Formulation) -> None:
    """Raise `OutOfScope` where sums of ticks could leave the 64 bits of CP-SAT."""
    if max(formulation.by_rounds) * formulation.largest_load + formulation.largest_sync >= HARD_LIMIT:
        raise OutOfScope("times", "the ticks of this problem are too many for CP-SAT", "use the dynamic program")


def variant(made: CpSatModel) -> None:
    """C1: one outer choice, of an allowed variant: ``sum use = 1``."""
    made.model.add_exactly_one(made.use)


def cover(made: CpSatModel) -> None:
    """C2: the path of the variant starts behind the last layer: ``sum of its first arcs = sum of its use``."""
    for at, choices in made.formulation.by_variant.items():
        made.model.add(made.arcs(made.formulation.last[at]) == made.literal(choices))


def order(made: CpSatModel) -> None:
    """C3: each stage begins where the one before it in the path ended: ``sum entering = sum leaving`` each state."""
    for entering, leaving in made.formulation.states.values():
        made.model.add(made.arcs(entering) == made.arcs(leaving))


def stages(made: CpSatModel) -> None:
    """C5: the path ends after ``S`` arcs: ``sum of arcs that end there = sum of use with S stages``."""
    for key, arcs in made.formulation.closing.items():
        made.model.add(made.arcs(arcs) == made.literal(made.formulation.by_stages[key]))


def load(made: CpSatModel) -> None:
    """D5: ``load >= sum of loads of the arcs at a position``, under the outer choices that make them so."""
    for bound in made.formulation.loads:
        held = made.model.add(made.load >= made.arcs(bound.arcs, bound.loads))
        if bound.choices is not None:
            held.only_enforce_if(made.literal(bound.choices))


def sync(made: CpSatModel) -> None:
    """D6: the rank covers the arcs waited for, and ``sync >= ticks of the rank`` in the class of the outer choice."""
    formulation, expression = made.formulation, cp_model.LinearExpr
    made.model.add_exactly_one(made.rank)
    ranks = expression.weighted_sum(made.rank, list(range(len(made.rank))))
    for arcs, heavy in formulation.waited:
        made.model.add(ranks >= made.arcs(arcs, heavy))
    for at, choices in formulation.by_class.items():
        ticks = expression.weighted_sum(made.rank, formulation.syncs[at])
        made.model.add(made.sync >= ticks).only_enforce_if(made.literal(choices))


def objective(made: CpSatModel) -> None:
    """D7: ``objective >= rounds * load + sync`` under the outer choices with these rounds; it is minimised."""
    for rounds, choices in made.formulation.by_rounds.items():
        held = made.model.add(made.objective >= rounds * made.load + made.sync)
        held.only_enforce_if(made.literal(choices))
    made.model.minimize(made.objective)


def mean(made: CpSatModel) -> None:
    """State a consequence, for speed: no plan takes less than its mean load, ``objective >= sum least * use``."""
    least = cp_model.LinearExpr.weighted_sum(made.use, made.formulation.least_objectives)
    made.model.add(made.objective >= least)


Post: TypeAlias = Callable[[CpSatModel], None]

RULES: Mapping[str, Post | str] = {
    "variant": variant,
    "cover": cover,
    "order": order,
    "replicas": BY_INDEX_SETS["replicas"],
    "stages": stages,
    **{name: BY_INDEX_SETS[name] for name in ("recompute", "sharding", "block", "placement", "devices", "memory")},
    "range": BY_INDEX_SETS["range"],
}
"""Every rule of the formulation: the function that posts it, or where the index sets keep it."""

COSTS: Mapping[str, Post] = {"load": load, "sync": sync, "objective": objective}


def build(formulation: Formulation) -> CpSatModel:
    """Return the programme with all rules and costs.

    Raises
    ------
    OutOfScope
        If sums of ticks could leave the 64 bits of CP-SAT.
    """
    made = CpSatModel(formulation)
    for post in (*RULES.values(), *COSTS.values(), mean):
        if callable(post):
            post(made)
    return made
