"""How much of the space, and of the devices, an answer is about, in the words of every command."""

from __future__ import annotations

from dataclasses import dataclass

from nest.files.left_out import LeftOut
from nest.runs.reserve import Reserve

TRIED, USUAL = "tried", "usual"
"""Key and value of the provenance of a plan that is the best of the usual variants of a run."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What of the space a problem has.

    Parameters
    ----------
    left_out
        Variants of a run that are not among those of its problem; None where it is of no run, and a file says it all.
    reserve
        What its plans keep free of every device, of a run or a captured module.
    """

    left_out: tuple[LeftOut, ...] | None = None
    reserve: Reserve | None = None

    @property
    def all_tried(self) -> bool:
        """Whether no variant is left out that is in the space."""
        return not any(each.possible for each in self.left_out or ())

    @property
    def among(self) -> str:
        """Of which plans something is proven, in words."""
        return "of the space" if self.all_tried else "of those tried"

    @property
    def aside(self) -> str:
        """What is added to words that would claim too much; nothing where all were tried."""
        return "" if self.all_tried else f" {self.among}"

    @property
    def plan(self) -> str:
        """A plan of which something is proven, in words."""
        return f"plan{self.aside}"

    @property
    def infeasible(self) -> str:
        """That there is no plan, in words."""
        return "infeasible" if self.all_tried else f"infeasible, all{self.aside}"

    @property
    def provenance(self) -> dict[str, str]:
        """What the file of a plan says of it: that it is about the usual variants of a run, where others are left out.

        `nest.runs.read_self_contained` poses the same ones again. A file of a problem says itself what it lacks.
        """
        return {} if self.all_tried else {TRIED: USUAL}

    def document(self) -> dict[str, object]:
        """Return what documents of a run say besides: the reserve, and what was left out."""
        reserve = {} if self.reserve is None else self.reserve.document()
        if self.left_out is None:
            return reserve
        return {"left_out": [str(each) for each in self.left_out], "all_tried": self.all_tried, **reserve}


EVERY_PLAN = Tried()
"""Of a problem that has all plans that are asked about."""
