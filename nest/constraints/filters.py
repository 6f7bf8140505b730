"""The local constraints of a problem put together, as solvers and judge ask for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

import numpy as np

from nest.constraints.answers import (
    HOOKS,
    devices_of,
    memory_of,
    outer_of,
    place_of,
    run_of,
    stage_of,
)
from nest.constraints.base import CouplingConstraint, LocalConstraint, Mask, Outer, Run, Site, overrides
from nest.errors import InvalidProblem, OutOfScope
from nest.problem import Problem, SideConstraint, Variant
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
        If one of them is no `LocalConstraint` with a hook of its own, and no `CouplingConstraint`: it would leave
        nothing out. Its methods raise it where a hook answers what means nothing.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        for each in problem.constraints:
            _require_effect(each)
        self.local = [each for each in problem.constraints if isinstance(each, LocalConstraint)]
        self.coupling = [each for each in problem.constraints if isinstance(each, CouplingConstraint)]
        self._runs = _overriding(self.local, "admits_run")
        self._stages = _overriding(self.local, "admits_stage")
        places = _overriding(self.local, "admits_place")
        self._places = [each for each in places if each.looks_at_place(problem)]
        self._limit_memory = _overriding(self.local, "memory_limit")
        self._require_runs()

    def _require_runs(self) -> None:
        """Refuse what looks at runs of layers where stages are none."""
        coupling = (each for each in self.coupling if each.looks_at_layers)
        found = [*self._runs, *self._stages, *self._places, *coupling]
        pairs = (self.problem.graphs[variant].unordered_pair for variant in self.problem.variants) if found else ()
        pair = next((each for each in pairs if each is not None), None)
        if pair is not None:
            what = f"{found[0].kind} looks at runs of layers, and nothing orders layers {pair[0]!r} and {pair[1]!r}"
            raise InvalidProblem("constraints", what, "leave it out, or give a model without branches")

    def require_limits(self, where: str) -> None:
        """Raise `OutOfScope`, naming the key ``where``, if a constraint looks at more than devices and memory."""
        limits = ("device_limit", "memory_limit")
        looking = [each for each in self.local if any(overrides(each, hook) for hook in HOOKS if hook not in limits)]
        coupling = (each for each in self.coupling if each.looks_at_layers)
        for each in [*looking, *coupling]:
            what = f"side constraint {each.kind} is one for stages of one width"
            raise OutOfScope(where, what, "leave that constraint or this choice out")

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

    @property
    def by_replicas(self) -> bool:
        """Whether some constraint looks at where the stages of other replicas than the first stand."""
        return any(each.looks_at_replicas for each in self._places)

    @cached_property
    def crossed(self) -> tuple[tuple[int, int], ...]:
        """Levels, and how many bytes of an iteration may go over each or one outside it, as constraints say."""
        found = (each.most_crossing(self.problem) for each in self.coupling)
        return tuple(each for each in found if each is not None)

    @cached_property
    def devices(self) -> int:
        """How many devices a plan may use, counted from device 0 on."""
        return min([self.problem.cluster.devices, *(devices_of(each, self.problem) for each in self.local)])

    @cached_property
    def reserved(self) -> frozenset[int]:
        """Devices that no plan may take, and that plans may stand around."""
        return frozenset[int]().union(*(each.reserves(self.problem) for each in self.local))

    @cached_property
    def hbm_bytes(self) -> Number:
        """How many bytes a stage may take on a device of the cluster's own class."""
        return self.hbm_bytes_of(())

    def hbm_bytes_of(self, classes: Collection[str]) -> Number:
        """Return how many bytes a stage may take on a device of any of some classes; none stands for the own one."""
        have = self.problem.cluster.hbm_bytes_of(classes)
        if not self._limit_memory:
            return have
        problem = self.problem.with_memory_of(classes)
        return min([have, *(memory_of(each, problem) for each in self._limit_memory)])

    def outer(self, outer: Outer) -> bool:
        """Whether an outer choice is allowed."""
        return all(outer_of(each, self.problem, outer) for each in self.local)

    def run(self, variant: Variant, run: Run) -> Mask | None:
        """Return which runs of layers may be a stage, so far as that depends on the layers alone."""
        return _all(run_of(each, self.problem, variant, run) for each in self._runs)

    def stage(self, variant: Variant, stages: int, position: int, run: Run) -> Mask | None:
        """Return which runs of layers may be a stage, so far as that depends on its position in the pipeline."""
        return _all(
            stage_of(each, self.problem, variant, run, stages=stages, position=position) for each in self._stages
        )

    def place(self, outer: Outer, run: Run, site: Site) -> Mask | None:
        """Return which runs of layers may be a stage, so far as that depends on where it stands."""
        return _all(place_of(each, self.problem, outer, run, site) for each in self._places)


def _overriding(constraints: list[LocalConstraint], hook: str) -> list[LocalConstraint]:
    """Return the constraints that look at something: whose class has a hook of its own."""
    return [each for each in constraints if overrides(each, hook)]


def _require_effect(constraint: SideConstraint) -> None:
    """Raise `InvalidProblem` for what no solver and no judge would ask anything."""
    if isinstance(constraint, CouplingConstraint):
        return
    name = type(constraint).__name__
    if not isinstance(constraint, LocalConstraint):
        remedy = "derive its class from LocalConstraint or CouplingConstraint of nest.constraints"
        raise InvalidProblem("constraints", f"{name} is neither a local nor a coupling constraint", remedy)
    if not any(overrides(constraint, hook) for hook in HOOKS):
        raise InvalidProblem("constraints", f"{name} leaves nothing out", f"give it one of {', '.join(HOOKS)}")


def _all(masks: Iterable[Mask]) -> Mask | None:
    found = list(masks)
    return np.logical_and.reduce(np.broadcast_arrays(*found)) if found else None
