"""The programme in Pyomo: a function for each rule and cost, in the order and under the names of the formulation.

Solvers behind Pyomo compute in floating point. Times are counted in units that keep the numbers small, and what such a
solver proves is its claim: `nest.milp` rounds it to whole ticks only where its tolerance is finer than a tick.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyomo.environ as pyo

from nest.milp.assembly import RULE_ORDER, SIDE_ORDER, assembled, in_order
from nest.milp.coupled import LevelledTerms, coupling
from nest.milp.formulation import BY_INDEX_SETS, SIDE_BY_INDEX_SETS, Formulation
from nest.milp.plans import NOTHING, Solution, encode
from nest.milp.pyomo_base import Expression, PyomoBase, least, variant
from nest.milp.side import Clash, place_clashes, stage_clashes
from nest.milp.sights import Indices
from nest.plan import Plan


class PyomoModel(PyomoBase, LevelledTerms):
    """Variables of the programme, and the binaries that stand for sets of outer choices.

    Attributes
    ----------
    use, arc, option, place
        Whether an outer choice, an arc, a way to shard and a place are taken, by their index in the formulation.
    seat, sight
        Whether a replica starts a stage at a seat, and a stage sees certain levels: 1 at least where it is so.
    rank
        Whether the stage that is waited for has the parameters of a rank.
    load, sync, objective
        In units: largest load, synchronisation, and their sum over the iteration.
    unit
        Ticks of a unit.
    """

    def __init__(self, formulation: Formulation) -> None:
        super().__init__(formulation)
        model = self.model
        model.option = pyo.Var(range(len(formulation.options)), domain=pyo.Binary)
        model.place = pyo.Var(range(len(formulation.places)), domain=pyo.Binary)
        model.seat = pyo.Var(range(formulation.seats), bounds=(0, 1))
        model.sight = pyo.Var(range(len(formulation.sights)), bounds=(0, 1))
        model.rank = pyo.Var(range(len(formulation.ranks)), domain=pyo.Binary)
        model.largest = pyo.Var(bounds=(0, formulation.largest_load / self.unit))
        model.sync = pyo.Var(bounds=(0, formulation.largest_sync / self.unit))
        model.objective = pyo.Var(bounds=(0, formulation.largest_objective / self.unit))
        self.rank = model.rank
        self.option, self.place, self.seat, self.sight = model.option, model.place, model.seat, model.sight
        self.load, self.sync, self.objective = model.largest, model.sync, model.objective

    def sum(self, taken: Expression, chosen: Indices, choices: Iterable[int] = ()) -> Expression:
        """Return the sum of some variables, and of the binary of some outer choices if there are any."""
        key = tuple(choices)
        return pyo.quicksum(taken[at] for at in chosen) + (self.literal(key) if key else 0)

    def fix(self, plan: Plan) -> None:
        """Allow no other plan than this one; none at all where the index sets or `decode` exclude it."""
        self.take(encode(self.formulation, plan) or NOTHING)

    def take(self, solution: Solution) -> None:
        """Allow no other solution than this one."""
        for variables, chosen in (
            (self.use, [solution.choice]),
            (self.arc, solution.arcs),
            (self.option, solution.options),
            (self.place, solution.places),
        ):
            for at in variables:
                variables[at].fix(int(at in chosen))


def cover(made: PyomoModel) -> None:
    """C2: the path of the variant that is used, and no other, starts behind the last layer."""
    for at, arcs in made.formulation.last.items():
        made.post(made.arcs(arcs) == made.literal(made.formulation.by_variant.get(at, ())))


def order(made: PyomoModel) -> None:
    """C3: as many arcs enter a state as leave it."""
    for entering, leaving in made.formulation.states.values():
        made.post(made.arcs(entering) == made.arcs(leaving))


def stages(made: PyomoModel) -> None:
    """C5: the path has as many arcs as the outer choice has stages."""
    for key, arcs in made.formulation.closing.items():
        made.post(made.arcs(arcs) == made.literal(made.formulation.by_stages.get(key, ())))


def sharding(made: PyomoModel) -> None:
    """C7: of the options with the degree of the stage's place one is taken."""
    for options, places in made.formulation.widths:
        made.post(made.sum(made.option, options) == made.sum(made.place, places))


def placement(made: PyomoModel) -> None:
    """C9: as many places enter a node as leave it; paths start at block 0 and end where the outer choice says."""
    for (at, position, block), (entering, leaving) in made.formulation.nodes.items():
        begin = made.formulation.by_variant.get(at, ()) if position == 0 else ()
        end = made.formulation.by_end.get((at, position, block), ())
        made.post(made.sum(made.place, entering, begin) == made.sum(made.place, leaving, end))


def memory(made: PyomoModel) -> None:
    """C11: an arc that fits only in some ways to shard goes with one of them."""
    for options, arcs in made.formulation.held:
        if arcs:
            made.post(made.arcs(arcs) <= made.sum(made.option, options))


def admits_stage(made: PyomoModel) -> None:
    """Side constraints: no stage that the number of stages forbids."""
    for clash in stage_clashes(made.formulation):
        _avoid(made, clash)


def admits_place(made: PyomoModel) -> None:
    """Side constraints: no stage where it must not be, under outer choices for which that is so."""
    for clash in place_clashes(made.formulation):
        _avoid(made, clash)


def _avoid(made: PyomoModel, clash: Clash) -> None:
    made.post(made.arcs(clash.arcs) + made.sum(made.place, clash.places, clash.choices) <= clash.most)


def load(made: PyomoModel) -> None:
    """D5: no arc's load, under the outer choices or the sight that make it so, is above the largest.

    Without these the bound falls back to what the arcs take at least. Sights and seats are as in CP-SAT.
    """
    for seating in made.formulation.seatings:
        taken = made.sum(made.place, seating.places, seating.choices)
        made.post(taken <= 1 + made.seat[seating.seat])
    for at, sight in enumerate(made.formulation.sights):
        for cause in sight.causes:
            taken = made.sum(made.place, cause.places) if cause.seat is None else made.seat[cause.seat]
            other = made.sum(made.option, cause.unless, cause.unless_choices)
            made.post(taken <= made.sight[at] + other)
    for bound in made.formulation.loads:
        taken = made.arcs(bound.arcs, made.in_units(bound.loads))
        if bound.choices is None and bound.sight is None:
            made.post(made.load >= taken)
        else:
            slack = max(high - low for high, low in zip(bound.loads, bound.least, strict=True)) / made.unit
            there = made.sight[bound.sight] if bound.choices is None else made.literal(bound.choices)
            made.post(made.load >= taken - slack * (1 - there))


def sync(made: PyomoModel) -> None:
    """D6: the rank covers the arcs that are waited for; synchronisation is that of the rank in the class.

    Class and rank are chosen together, so that the linear relaxation is tight.
    """
    formulation, model = made.formulation, made.model
    ranks, classes = list(made.rank), list(formulation.by_class)
    for bound in formulation.waited:
        slack = max((high - low for high, low in zip(bound.ranks, bound.least, strict=True)), default=0)
        off = made.sum(made.option, list(bound.unless)) + (0 if bound.option is None else 1 - made.option[bound.option])
        taken = made.arcs(bound.arcs, bound.ranks) - slack * off
        made.post(pyo.quicksum(at * made.rank[at] for at in ranks) >= taken)
    model.both = pyo.Var(classes, ranks, bounds=(0, 1))
    for at in classes:
        made.post(pyo.quicksum(model.both[at, rank] for rank in ranks) == made.literal(formulation.by_class[at]))
    for rank in ranks:
        made.post(pyo.quicksum(model.both[at, rank] for at in classes) == made.rank[rank])
    ticks = {at: made.in_units(formulation.syncs[at]) for at in classes}
    made.post(made.sync == pyo.quicksum(ticks[at][rank] * model.both[at, rank] for at in classes for rank in ranks))


def objective(made: PyomoModel) -> None:
    """D7: rounds times load plus synchronisation, minimised.

    The load is split over the possible rounds, of which one is chosen, so that the linear relaxation is tight.
    """
    formulation, model = made.formulation, made.model
    rounds = list(formulation.by_rounds)
    model.load_in = pyo.Var(rounds, domain=pyo.NonNegativeReals)
    for each in rounds:
        most = formulation.largest_load / made.unit
        made.post(model.load_in[each] <= most * made.literal(formulation.by_rounds[each]))
    made.post(made.load == pyo.quicksum(model.load_in.values()))
    made.post(made.objective == pyo.quicksum(each * model.load_in[each] for each in rounds) + made.sync)
    model.minimised = pyo.Objective(expr=made.objective)


RULES = in_order(RULE_ORDER, BY_INDEX_SETS, variant, cover, order, stages, sharding, placement, memory)
"""Every rule of the formulation: the function that posts it, or where the index sets keep it."""

SIDE = in_order(SIDE_ORDER, SIDE_BY_INDEX_SETS, admits_stage, admits_place, coupling)
"""The same for side constraints: the hooks of local ones, and those that tie stages together."""

COSTS = {"load": load, "sync": sync, "objective": objective}


def build(formulation: Formulation) -> PyomoModel:
    """Return the programme with all rules and costs."""
    return assembled(PyomoModel(formulation), RULES, SIDE, COSTS, {"least": least})
