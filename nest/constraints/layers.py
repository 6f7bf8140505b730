"""Side constraints on which layers make a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nest.constraints.base import LocalConstraint, Mask, Run
from nest.constraints.checks import as_layers, listed, places_of, require_layers
from nest.graph import LayerId
from nest.problem import Problem, Variant
from nest.units import Ints


@dataclass(frozen=True)
class _Layers(LocalConstraint):
    """A constraint that names some layers.

    Parameters
    ----------
    layers
        Their ids.
    """

    layers: Sequence[LayerId]

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", as_layers(f"{self.kind}.layers", self.layers))

    def check(self, problem: Problem) -> None:
        """Refuse layers that the problem does not have."""
        require_layers(f"{self.kind}.layers", problem, self.layers)

    def held(self, problem: Problem, variant: Variant, run: Run) -> Ints:
        """Return how many of the layers each run holds."""
        return held(places_of(problem, variant, self.layers), run)


@dataclass(frozen=True)
class Together(_Layers):
    """Layers that share a stage, together with all layers between them."""

    kind: ClassVar[str] = "together"

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"layers {listed(self.layers)} share a stage"

    def admits_run(self, problem: Problem, variant: Variant, run: Run) -> Mask:
        """Return which runs hold all of the layers, or none."""
        found = self.held(problem, variant, run)
        return np.asarray((found == 0) | (found == len(self.layers)))


@dataclass(frozen=True)
class Apart(_Layers):
    """Layers of which no two share a stage."""

    kind: ClassVar[str] = "apart"

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"no two of layers {listed(self.layers)} share a stage"

    def admits_run(self, problem: Problem, variant: Variant, run: Run) -> Mask:
        """Return which runs hold at most one of the layers."""
        return np.asarray(self.held(problem, variant, run) <= 1)


@dataclass(frozen=True)
class CutsAt(_Layers):
    """Layers with which a stage may begin; the first stage begins with the first layer, named or not."""

    kind: ClassVar[str] = "cuts_at"

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"stages begin only with layers {listed(self.layers)}"

    def admits_run(self, problem: Problem, variant: Variant, run: Run) -> Mask:
        """Return which runs begin with one of the layers, or with the first of all."""
        begins = (run.first == 0) | np.isin(run.first, places_of(problem, variant, self.layers))
        return np.broadcast_to(begins, np.broadcast(run.first, run.end).shape)


def held(places: Ints, run: Run) -> Ints:
    """Return how many of some places, ascending, each run holds."""
    return np.asarray(np.searchsorted(places, run.end) - np.searchsorted(places, run.first))
