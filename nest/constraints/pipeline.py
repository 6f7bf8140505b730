"""Side constraints on the pipeline: how many stages, and how many layers each holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nest.constraints.base import LocalConstraint, Mask, Outer, Run
from nest.constraints.checks import as_layers, as_whole, counted, places_of, require_layers
from nest.constraints.layers import held
from nest.graph import LayerId
from nest.problem import Problem, Variant


@dataclass(frozen=True)
class MaxStages(LocalConstraint):
    """No more than ``stages`` stages."""

    stages: int

    kind: ClassVar[str] = "max_stages"

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", as_whole(f"{self.kind}.stages", self.stages, 1))

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"at most {counted(self.stages, 'stage')}"

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether there are few enough."""
        return outer.stages <= self.stages


@dataclass(frozen=True)
class EqualStages(LocalConstraint):
    """All stages hold equally many layers, but for so many fewer in the first and the last, as Megatron-LM has it.

    Parameters
    ----------
    first_lighter, last_lighter
        How many layers fewer the first and the last stage hold; the only stage of a pipeline is both.
    counting
        Ids of the layers that count; without them all do.
    """

    first_lighter: int = 0
    last_lighter: int = 0
    counting: Sequence[LayerId] | None = None

    kind: ClassVar[str] = "equal_stages"

    def __post_init__(self) -> None:
        for name in ("first_lighter", "last_lighter"):
            object.__setattr__(self, name, as_whole(f"{self.kind}.{name}", getattr(self, name), 0))
        if self.counting is not None:
            object.__setattr__(self, "counting", as_layers(f"{self.kind}.counting", self.counting))

    @property
    def text(self) -> str:
        """What it asks for."""
        ends = {"first": self.first_lighter, "last": self.last_lighter}
        but = [f"{fewer} fewer in the {name}" for name, fewer in ends.items() if fewer]
        what = "layers" if self.counting is None else f"of the {len(self.counting)} counted layers"
        return ", ".join([f"equally many {what} in each stage", *but])

    def check(self, problem: Problem) -> None:
        """Refuse layers that the problem does not have."""
        require_layers(f"{self.kind}.counting", problem, self.counting or ())

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether the layers divide into so many stages."""
        most, rest = divmod(self._total(problem, outer.variant), outer.stages)
        least = min(most - self._fewer(outer.stages, position) for position in (1, outer.stages))
        return rest == 0 and least >= 0

    def admits_stage(self, problem: Problem, variant: Variant, stages: int, position: int, run: Run) -> Mask:
        """Return which runs hold their share of the layers."""
        found = run.end - run.first
        if self.counting is not None:
            found = held(places_of(problem, variant, self.counting), run)
        most, rest = divmod(self._total(problem, variant), stages)
        return np.asarray((found == most - self._fewer(stages, position)) & (rest == 0))

    def _fewer(self, stages: int, position: int) -> int:
        """Return how many layers a stage, counted from the end, holds fewer than one in the middle."""
        return self.first_lighter * (position == stages) + self.last_lighter * (position == 1)

    def _total(self, problem: Problem, variant: Variant) -> int:
        """Return how many layers there would be if no stage were lighter."""
        count = len(problem.graphs[variant]) if self.counting is None else len(self.counting)
        return count + self.first_lighter + self.last_lighter
