"""Plans whose stages have widths of their own as paths of the programme under the objective `sum`, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nest.line import EVERY
from nest.milp.sum_formulation import SumFormulation
from nest.milp.wide_choices import WideChoice
from nest.milp.wide_spots import Frame, Spots
from nest.plan import Plan, Stage


def wide_plan(choice: WideChoice, forms: Sequence[int], stages: Sequence[Stage]) -> Plan:
    """Return the plan of some stages of forms: of the variant of those with the most tensor ranks."""
    tables, layout = choice.tables, choice.layout
    wholes = [tables.shapes[form].whole for form in forms]
    variant = max(wholes, key=lambda whole: whole.tensor)
    each = zip(stages, wholes, strict=True)
    own = (replace(stage, tensor=None if whole.tensor == variant.tensor else whole.tensor) for stage, whole in each)
    stride, technologies = layout.stride(variant.width), tables.problem.cluster.technologies
    return Plan(variant, layout.replicas, stride, tuple(own), layout.arrangement, technologies=technologies)


class Walk(NamedTuple):
    """The states of a plan under an outer choice.

    Attributes
    ----------
    choice
        Its place.
    forms, firsts, ends
        Of each stage from the first of the pipeline on: its form, and the states that it lies between.
    """

    choice: int
    forms: tuple[int, ...]
    firsts: tuple[int, ...]
    ends: tuple[int, ...]


def walks_of(made: SumFormulation, plan: Plan) -> Iterator[Walk]:
    """Yield the states of a plan under each outer choice that places its stages so."""
    for at, choice in enumerate(made.choices):
        if isinstance(choice, WideChoice) and places(choice, plan):
            found = _walk(made, at, choice, plan)
            if found is not None:
                yield found


def places(choice: WideChoice, plan: Plan) -> bool:
    """Whether a plan is of an outer choice, as far as that says nothing of single stages."""
    layout, (schedule, line) = choice.layout, (plan.schedule, plan.line)
    if (choice.stages, layout.replicas, "1f1b", EVERY) != (len(plan.stages), plan.replicas, schedule, line):
        return False
    apart = 1 if layout.by_stage else layout.apart  # with one replica all arrangements are the same
    alone = plan.replicas == 1 and (plan.arrangement, apart) == ("replica-major", layout.apart)
    stride = layout.stride(plan.variant.width)
    asked = choice.devices in (0, plan.used_devices) and set(plan.stage_forms) <= set(choice.tables.shapes)
    return asked and (alone or (plan.arrangement, plan.replica_stride) == (layout.arrangement, stride))


def _walk(made: SumFormulation, at: int, choice: WideChoice, plan: Plan) -> Walk | None:
    states, index = made.states_of(choice), choice.tables.forms[0].graph.index
    forms = tuple(choice.tables.shapes.index(form) for form in plan.stage_forms)
    route = _route(states.spots, forms, [stage.first_device for stage in plan.stages])
    if route is None or any(stage.layers[0] not in index for stage in plan.stages):
        return None
    frame = next(number for number, each in enumerate(states.spots.frames) if _joins(each, route))
    begins = np.array([index[stage.layers[0]] for stage in plan.stages[1:]], dtype=np.int64)
    within = [int(states.number(frame, spot, first)) for spot, first in zip(route[1:], begins, strict=True)]
    return Walk(at, forms, (0, *within), (*within, states.count - 1))


def _route(spots: Spots, forms: Sequence[int], starts: Sequence[int]) -> list[int] | None:
    """Return the spots of stages of some forms that start at some devices; None where they may not."""
    found = list[int]()
    for form, start in zip(forms, starts, strict=True):
        among = [step.to for step in spots.steps[found[-1]]] if found else spots.firsts
        spot = next((at for at in among if (spots.spots[at].form, spots.spots[at].start) == (form, start)), None)
        if spot is None:
            return None
        found.append(spot)
    return found


def _joins(frame: Frame, route: Sequence[int]) -> bool:
    return route[0] in frame.firsts and route[-1] in frame.lasts
