"""Plans to start from under the objective `sum`: the programme of a single plan, which says what it takes, if legal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nest.milp.sum_choices import AnyChoice, choices_of
from nest.milp.sum_formulation import SumFormulation
from nest.milp.sum_kinds import Stages
from nest.milp.sum_plans import choice_of, encode
from nest.milp.sum_room import Room
from nest.milp.wide_choices import wide_choices
from nest.milp.wide_plans import places
from nest.plan import Plan
from nest.tables import Tables
from nest.units import HARD_LIMIT


def alone(tables: Tables, plan: Plan) -> SumFormulation | None:
    """Return the programme of a plan and of no other; None where no programme has it."""
    choices, stages = list(_choices_of(tables, plan)), Stages(tables, "every")
    for choice in choices:
        whole = SumFormulation(tables, [Room(choice, stages.of(choice).positions(choice), 0)], HARD_LIMIT)
        solution = encode(whole, plan)
        if solution is not None:
            kept = np.zeros(len(whole.arcs), dtype=bool)
            kept[solution.arcs] = True
            return whole.only(kept)
    return None


def _choices_of(tables: Tables, plan: Plan) -> Iterator[AnyChoice]:
    """Yield the outer choices that a plan may be of."""
    if plan.variant in tables.fitting:
        alike = [each.choice for each in choices_of(tables, plan.variant, every=True)]
        at = choice_of(tables.problem, alike, plan)
        if at is not None:
            yield alike[at]
    by_devices = bool(tables.filters.coupling)
    for forms in tables.uneven:
        every = (choice for _, choice in wide_choices(forms, every=True, by_devices=by_devices))
        yield from (choice for choice in every if places(choice, plan))
