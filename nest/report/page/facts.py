"""Everything that a page shows, computed before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nest.alternatives import Changed, RunnerUp
from nest.certify import Certificate
from nest.dp.trace import Looked
from nest.report.figures import PricedPlan
from nest.report.format import short_widths
from nest.runs import EVERY_PLAN, Tried
from nest.simulate import Run


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search did with one outer choice.

    Parameters
    ----------
    variant
        Its widths, for people to read.
    replicas, stages
        Of the pipeline.
    bound_s
        Below which no plan of this choice is; None where nobody computed it.
    value_s
        Its best plan; None where it was ruled out before one was found.
    status
        What became of it, as in ``solved`` or ``pruned``.
    """

    variant: str
    replicas: int
    stages: int
    bound_s: float | None
    value_s: float | None
    status: str


MOST_SEARCHED = 200
"""Rows of the search on a page."""


def searched_of(looked: Sequence[Looked], priced: PricedPlan) -> list[Searched]:
    """Return the rows of a search: the outer choices with the least bounds, and all that were the best for a while."""
    shown = [each for at, each in enumerate(looked) if at < MOST_SEARCHED or each.value_ticks is not None]
    return [
        Searched(
            short_widths(each.variant),
            each.choice.replicas,
            each.choice.stages,
            priced.seconds(each.bound_ticks),
            None if each.value_ticks is None else priced.seconds(each.value_ticks),
            each.fate,
        )
        for each in shown
    ]


@dataclass(frozen=True)
class Reported:
    """A plan and what was found out about it.

    Parameters
    ----------
    priced
        The plan with the judge's figures.
    run
        As the simulator plays it.
    changed
        What other figures of the problem would change.
    runners
        The best plans of other outer choices; None where nobody asked.
    searched
        Outer choices that a search looked at, and what became of them: those with the least bounds.
    looked_at
        How many it looked at.
    certificate
        What provers say; None where none was asked, for the reason ``uncertified``.
    provenance
        What the plan was computed with, by name.
    plan_file
        Its path, as typed.
    tried
        How much of the space what is proven is about.
    """

    priced: PricedPlan
    run: Run
    changed: Sequence[Changed] = ()
    runners: Sequence[RunnerUp] | None = None
    searched: Sequence[Searched] = ()
    looked_at: int = 0
    certificate: Certificate | None = None
    uncertified: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)
    plan_file: str = ""
    tried: Tried = EVERY_PLAN
