"""The local constraints of a problem put together, as solvers and judge ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from nest.constraints.base import Constraint, CouplingConstraint, LocalConstraint, Mask, Outer, Run, Site
from nest.errors import InvalidProblem
from nest.problem import Problem, Variant
from nest.units import Number


class Filters:
    """What the local constraints of a problem admit.

    Masks are None where no constraint looks, so that nothing has to be filtered.

    Parameters
    ----------
    problem
        With its constraints.

    Attributes
    ----------
    local, coupling
        The constraints of both kinds.

    Raises
    ------
    InvalidProblem
        If one of them is no `Constraint`.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        for each in problem.constraints:
            if not isinstance(each, Constraint):
                raise InvalidProblem(
                    "constraints", f"{each!r} is no constraint", "give objects of nest.constraints.Constraint"
                )
        self.local = [each for each in problem.constraints if isinstance(each, LocalConstraint)]
        self.coupling = [each for each in problem.constraints if isinstance(each, CouplingConstraint)]
        self._runs = _overriding(self.local, "admits_run")
        self._stages = _overriding(self.local, "admits_stage")
        places = _overriding(self.local, "admits_place")
        self._places = [each for each in places if each.looks_at_place(problem)]

    @property
    def by_run(self) -> bool:
        """Whether some constraint looks at the layers of a stage."""
        return bool(self._runs)

    @property
    def by_stage(self) -> bool:
        """Whether some constraint looks at a stage in its pipeline."""
        return bool(self._stages)

    @property
    def by_place(self) -> bool:
        """Whether some constraint looks at where a stage stands."""
        return bool(self._places)

    @cached_property
    def devices(self) -> int:
        """How many devices a plan may use, counted from device 0 on."""
        return min([self.problem.cluster.devices, *(each.device_limit(self.problem) for each in self.local)])

    @cached_property
    def hbm_bytes(self) -> Number:
        """How many bytes a stage may take on a device."""
        return min([self.problem.cluster.hbm_bytes, *(each.memory_limit(self.problem) for each in self.local)])

    def outer(self, outer: Outer) -> bool:
        """Whether an outer choice is allowed."""
        return all(each.admits(self.problem, outer) for each in self.local)

    def run(self, variant: Variant, run: Run) -> Mask | None:
        """Return which runs of layers may be a stage, so far as that depends on the layers alone."""
        return _all(each.admits_run(self.problem, variant, run) for each in self._runs)

    def stage(self, variant: Variant, stages: int, position: int, run: Run) -> Mask | None:
        """Return which runs of layers may be a stage, so far as that depends on its position in the pipeline."""
        return _all(each.admits_stage(self.problem, variant, stages, position, run) for each in self._stages)

    def place(self, outer: Outer, run: Run, site: Site) -> Mask | None:
        """Return which runs of layers may be a stage, so far as that depends on where it stands."""
        return _all(each.admits_place(self.problem, outer, run, site) for each in self._places)


def _overriding(constraints: list[LocalConstraint], hook: str) -> list[LocalConstraint]:
    """Return the constraints that look at something: whose class has a hook of its own."""
    return [each for each in constraints if getattr(type(each), hook) is not getattr(LocalConstraint, hook)]


def _all(masks: Iterable[Mask]) -> Mask | None:
    found = list(masks)
    return np.logical_and.reduce(np.broadcast_arrays(*found)) if found else None
