"""Plans to start from under the objective `sum`: the programme of a single plan, which says what it takes, if legal."""

from __future__ import annotations

import numpy as np

from nest.milp.sum_choices import choices_of
from nest.milp.sum_formulation import SumFormulation
from nest.milp.sum_plans import choice_of, encode
from nest.milp.sum_room import Room
from nest.milp.sum_stages import StageWays
from nest.plan import Plan
from nest.tables import Tables
from nest.units import HARD_LIMIT


def alone(tables: Tables, plan: Plan) -> SumFormulation | None:
    """Return the programme of a plan and of no other; None where no programme has it."""
    if plan.variant not in tables.fitting:
        return None
    choices = [each.choice for each in choices_of(tables, plan.variant, every=True)]
    at = choice_of(tables.problem, choices, plan)
    if at is None:
        return None
    ways = StageWays(tables.of_variant(plan.variant), "every").positions(choices[at])
    whole = SumFormulation(tables, [Room(choices[at], ways, 0)], HARD_LIMIT)
    solution = encode(whole, plan)
    if solution is None:
        return None
    kept = np.zeros(len(whole.arcs), dtype=bool)
    kept[solution.arcs] = True
    return whole.only(kept)
