"""The programme in CP-SAT: a function for each rule and cost, in the order and under the names of the formulation.

Times are whole ticks, so that what CP-SAT proves is meant exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ortools.sat.python import cp_model

from nest.milp.assembly import RULE_ORDER, SIDE_ORDER, assembled, in_order
from nest.milp.coupled import LevelledTerms, coupling
from nest.milp.cpsat_base import COUNTED, CpSatBase, parts, require_counted, variant
from nest.milp.formulation import BY_INDEX_SETS, SIDE_BY_INDEX_SETS, Formulation
from nest.milp.plans import NOTHING, Solution, encode
from nest.milp.side import Clash, place_clashes, stage_clashes
from nest.milp.sights import Indices
from nest.plan import Plan


class CpSatModel(CpSatBase, LevelledTerms):
    """Variables of the programme, and the literals that stand for sets of outer choices.

    Attributes
    ----------
    use, arc, option, place
        Whether an outer choice, an arc, a way to shard and a place are taken, by their index in the formulation.
    seat, sight
        Whether a replica starts a stage at a seat, and a stage sees certain levels: true at least where it is so.
    rank
        Whether the stage that is waited for has the parameters of a rank.
    load, sync, objective
        Ticks: largest load, synchronisation, and their sum over the iteration.
    """

    def __init__(self, formulation: Formulation, proven: int | None = None) -> None:
        require_counted(max(formulation.largest_objective, formulation.largest_load) + formulation.largest_sync)
        super().__init__(formulation)
        new = self.model
        self.option = self.bools("option", len(formulation.options))
        self.place = self.bools("place", len(formulation.places))
        self.seat = self.bools("seat", formulation.seats)
        self.sight = self.bools("sight", len(formulation.sights))
        self.rank = self.bools("rank", len(formulation.ranks))
        self.load = new.new_int_var(0, formulation.largest_load, "load")
        self.sync = new.new_int_var(0, formulation.largest_sync, "sync")
        low = min(max(proven or 0, min(formulation.least_objectives)), formulation.largest_objective)
        self.objective = new.new_int_var(low, formulation.largest_objective, "objective")

    def sum(
        self, taken: Sequence[cp_model.IntVar], chosen: Indices, choices: Iterable[int] = ()
    ) -> cp_model.LinearExpr:
        """Return the sum of some variables, and of the literal of some outer choices if there are any."""
        key = tuple(choices)
        terms = [taken[at] for at in chosen] + ([self.literal(key)] if key else [])
        return cp_model.LinearExpr.sum(terms)

    def hint(self, plan: Plan) -> bool:
        """Tell the solver what a plan takes; return whether the programme has the plan at all."""
        solution = encode(self.formulation, plan)
        if solution is not None:
            for taken, value in self._values(solution):
                self.model.add_hint(taken, value)
        return solution is not None

    def fix(self, plan: Plan) -> None:
        """Allow no other plan than this one; none at all where the index sets or `decode` exclude it."""
        self.take(encode(self.formulation, plan) or NOTHING)

    def take(self, solution: Solution) -> None:
        """Allow no other solution than this one."""
        for taken, value in self._values(solution):
            self.model.add(taken == int(value))

    def _values(self, solution: Solution) -> Iterator[tuple[cp_model.IntVar, bool]]:
        """Yield the variables that a solution decides, with their values."""
        for variables, chosen in (
            (self.use, [solution.choice]),
            (self.arc, solution.arcs),
            (self.option, solution.options),
            (self.place, solution.places),
        ):
            among = set(chosen)
            yield from ((taken, at in among) for at, taken in enumerate(variables))


def cover(made: CpSatModel) -> None:
    """C2: the path of the variant starts behind the last layer: ``sum of its first arcs = sum of its use``."""
    for at, arcs in made.formulation.last.items():
        made.model.add(made.arcs(arcs) == made.literal(made.formulation.by_variant.get(at, ())))


def order(made: CpSatModel) -> None:
    """C3: each stage begins where the one before it in the path ended: ``sum entering = sum leaving`` each state."""
    for entering, leaving in made.formulation.states.values():
        made.model.add(made.arcs(entering) == made.arcs(leaving))


def stages(made: CpSatModel) -> None:
    """C5: the path ends after ``S`` arcs: ``sum of arcs that end there = sum of use with S stages``."""
    for key, arcs in made.formulation.closing.items():
        made.model.add(made.arcs(arcs) == made.literal(made.formulation.by_stages.get(key, ())))


def sharding(made: CpSatModel) -> None:
    """C7: a stage shards in one way over the blocks of its place: ``sum of options = sum of places`` of each degree."""
    for options, places in made.formulation.widths:
        made.model.add(made.sum(made.option, options) == made.sum(made.place, places))


def placement(made: CpSatModel) -> None:
    """C9: each stage follows at once on the one after it: ``sum entering = sum leaving`` each node.

    The path starts at block 0, and ends where the outer choice says.
    """
    for (at, position, block), (entering, leaving) in made.formulation.nodes.items():
        begin = made.formulation.by_variant.get(at, ()) if position == 0 else ()
        end = made.formulation.by_end.get((at, position, block), ())
        made.model.add(made.sum(made.place, entering, begin) == made.sum(made.place, leaving, end))


def memory(made: CpSatModel) -> None:
    """C11: a stage shards in a way in which it fits: ``sum of arcs that fit in these ways only <= sum of the ways``."""
    for options, arcs in made.formulation.held:
        made.model.add(made.arcs(arcs) <= made.sum(made.option, options))


def admits_stage(made: CpSatModel) -> None:
    """Side constraints: no stage that a number of stages forbids: ``sum of the arcs + [choices] <= 1``."""
    for clash in stage_clashes(made.formulation):
        _avoid(made, clash)


def admits_place(made: CpSatModel) -> None:
    """Side constraints: no stage where it must not be: ``sum of the arcs + sum of places + [choices] <= 2``."""
    for clash in place_clashes(made.formulation):
        _avoid(made, clash)


def _avoid(made: CpSatModel, clash: Clash) -> None:
    taken = [made.arcs(clash.arcs), made.sum(made.place, clash.places, clash.choices)]
    made.model.add(cp_model.LinearExpr.sum(taken) <= clash.most)


def load(made: CpSatModel) -> None:
    """D5: ``load >= sum of loads of the arcs at a position``, under the outer choices or the sight that make them so.

    A sight is there if a seat or one of some places is taken and none of what would change it; a seat is taken if
    replica 0 has one of some places and another replica starts at the right distance.
    """
    for seating in made.formulation.seatings:
        taken = made.sum(made.place, seating.places, seating.choices)
        made.model.add(taken <= 1 + made.seat[seating.seat])
    for sight, found in zip(made.sight, made.formulation.sights, strict=True):
        for cause in found.causes:
            taken = made.sum(made.place, cause.places) if cause.seat is None else made.sum(made.seat, [cause.seat])
            other = made.sum(made.option, cause.unless, cause.unless_choices)
            made.model.add(taken - other <= sight)
    for bound in made.formulation.loads:
        for part in parts(bound.loads):
            held = made.model.add(made.load >= made.arcs(bound.arcs[part], bound.loads[part]))
            if bound.choices is not None:
                held.only_enforce_if(made.literal(bound.choices))
            elif bound.sight is not None:
                held.only_enforce_if(made.sight[bound.sight])


def sync(made: CpSatModel) -> None:
    """D6: the rank covers the arcs waited for, and ``sync >= ticks of the rank`` in the class of the outer choice."""
    formulation, expression = made.formulation, cp_model.LinearExpr
    made.model.add_exactly_one(made.rank)
    ranks = expression.weighted_sum(made.rank, list(range(len(made.rank))))
    for bound in formulation.waited:
        held = made.model.add(ranks >= made.arcs(bound.arcs, bound.ranks))
        if bound.option is not None:
            held.only_enforce_if(made.option[bound.option])
        if bound.unless:
            held.only_enforce_if([~made.option[at] for at in bound.unless])
    for at, choices in formulation.by_class.items():
        for part in parts(formulation.syncs[at]):
            ticks = expression.weighted_sum(made.rank[part], formulation.syncs[at][part])
            made.model.add(made.sync >= ticks).only_enforce_if(made.literal(choices))


def objective(made: CpSatModel) -> None:
    """D7: ``objective >= rounds * load + sync`` under the outer choices with these rounds; it is minimised."""
    for rounds, choices in made.formulation.by_rounds.items():
        taken = made.literal(choices)
        load = made.load if rounds * made.formulation.largest_load < COUNTED else _shorter(made, rounds, taken)
        made.model.add(made.objective >= rounds * load + made.sync).only_enforce_if(taken)
    made.model.minimize(made.objective)


def _shorter(made: CpSatModel, rounds: int, taken: cp_model.IntVar) -> cp_model.IntVar:
    """Return the load under some outer choices, of which so many rounds stay within what CP-SAT can count."""
    load = made.model.new_int_var(0, made.formulation.largest_objective // rounds, f"load{rounds}")
    made.model.add(load >= made.load).only_enforce_if(taken)
    return load


def least(made: CpSatModel) -> None:
    """State a consequence, for speed: what each outer choice takes at least, ``objective >= sum least * use``."""
    ticks = made.formulation.least_objectives
    for part in parts(ticks):
        made.model.add(made.objective >= cp_model.LinearExpr.weighted_sum(made.use[part], ticks[part]))


RULES = in_order(RULE_ORDER, BY_INDEX_SETS, variant, cover, order, stages, sharding, placement, memory)
"""Every rule of the formulation: the function that posts it, or where the index sets keep it."""

SIDE = in_order(SIDE_ORDER, SIDE_BY_INDEX_SETS, admits_stage, admits_place, coupling)
"""The same for side constraints: the hooks of local ones, and those that tie stages together."""

COSTS = {"load": load, "sync": sync, "objective": objective}


def build(formulation: Formulation, proven: int | None = None) -> CpSatModel:
    """Return the programme with all rules and costs.

    Parameters
    ----------
    proven
        Ticks of which it is proven that no plan takes less.

    Raises
    ------
    OutOfScope
        If sums of ticks could leave the 64 bits of CP-SAT.
    """
    return assembled(CpSatModel(formulation, proven), RULES, SIDE, COSTS, {"least": least})
