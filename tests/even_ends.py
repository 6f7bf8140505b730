"""A side constraint that ties stages together, as a user would write one: the class of `docs/constraints.md`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nest.constraints import CouplingConstraint, Programme, Whole
from nest.problem import Problem


@dataclass(frozen=True)
class EvenEnds(CouplingConstraint):
    """The first and the last stage hold equally many layers."""

    kind: ClassVar[str] = "even_ends"
    looks_at_replicas: ClassVar[bool] = False
    looks_at_types: ClassVar[bool] = False
    looks_at_sharding: ClassVar[bool] = False
    looks_at_recompute: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """What it asks for."""
        return "as many layers in the first stage as in the last"

    def broken_by(self, problem: Problem, whole: Whole) -> str | None:  # noqa: ARG002
        """Return how many layers they hold, where that differs."""
        first, last = (end - first for first, end in (whole.runs[0], whole.runs[-1]))
        return None if first == last else f"they hold {first} and {last}"

    def post(self, programme: Programme) -> None:
        """Post that the difference is 0."""
        terms = []
        for slot in programme.slots:
            terms += [(arc.end - arc.first, arc.taken) for arc in slot.arcs if slot.position == 1]
            terms += [(arc.first - arc.end, arc.taken) for arc in slot.arcs if arc.first == 0]
        programme.at_most(terms, 0)
        programme.at_most([(-times, taken) for times, taken in terms], 0)
