"""What a side constraint is, and what it may look at.

A *local* constraint looks at one thing at a time: the outer choice, a run of layers, a stage in its pipeline, or a
stage in its place. Solvers then leave out what it does not admit, and stay exact. A *coupling* constraint ties stages
together: the judge decides it on the whole plan, and it is posted in the mathematical programme.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from nest.errors import OutOfScope
from nest.line import EVERY, Line
from nest.problem import Problem, Variant
from nest.units import Ints, Number

if TYPE_CHECKING:
    from nest.constraints.programme import Programme

Mask: TypeAlias = npt.NDArray[np.bool_]
"""What a hook answers: for each of many runs of layers, whether it is admitted."""


@dataclass(frozen=True, slots=True)
class Outer:
    """An outer choice: the variant, and the numbers of stages and replicas."""

    variant: Variant
    stages: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Run:
    """Runs ``[first, end)`` of layers, by their places in the order: arrays that broadcast against each other."""

    first: Ints
    end: Ints


@dataclass(frozen=True, slots=True)
class Site:
    """Where stages stand.

    Attributes
    ----------
    position
        The how-manieth from the end of the pipeline, from 1 on.
    start
        First devices in replica 0: an array that broadcasts against those of a `Run`.
    devices
        Of the stage.
    stride
        Devices from one replica to the next, on the line.
    line
        The devices that are not left out around reserved ones.
    """

    position: int
    start: Ints
    devices: int
    stride: int
    line: Line = EVERY

    def blocks(self, replicas: int) -> Ints:
        """Return the first devices in each of so many replicas: an axis behind those of ``start``."""
        start = self.line.positions(np.asarray(self.start, dtype=np.int64))
        return self.line.devices(start[..., None] + self.stride * np.arange(replicas, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole plan as the judge prices it; sequences are by stage, from the first of the pipeline on.

    Attributes
    ----------
    outer
        Variant, stages, replicas.
    runs
        First layer and end of each stage, by place in the order.
    starts, devices
        First device in replica 0, and number of devices.
    shardings
        ZeRO type and degree.
    stride
        Devices from one replica to the next.
    loads_s, sync_s, objective_s
        Seconds that a microbatch keeps each stage busy, of the gradient synchronisation, and of an iteration.
    recomputes
        What each stage recomputes, and how many of its layers do; None where it is no choice of the stage.
    iteration
        Seconds of an iteration, exactly: a multiple of the tick.
    used_devices
        Devices of the line up to the last that the plan takes, in all replicas.
    line
        The devices on which the stride counts.
    crossing
        Bytes of an iteration that all devices send over each level or one outside it, where some constraint has
        `CouplingConstraint.most_crossing`, and the preset counts them so.
    """

    outer: Outer
    runs: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]
    devices: tuple[int, ...]
    shardings: tuple[tuple[int, int], ...]
    stride: int
    loads_s: tuple[float, ...]
    sync_s: float
    objective_s: float
    recomputes: tuple[tuple[str, int | None], ...]
    iteration: Fraction
    used_devices: int
    line: Line = EVERY
    crossing: tuple[int, ...] = ()

    def blocks(self, at: int) -> Ints:
        """Return the first device of a stage in every replica."""
        apart = self.stride * np.arange(self.outer.replicas, dtype=np.int64)
        return self.line.devices(self.line.position(self.starts[at]) + apart)


class Constraint(ABC):
    """A side constraint of a problem, a frozen data class.

    Attributes
    ----------
    kind
        Its name in files, and that of the rule which the judge says a plan breaks.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def text(self) -> str:
        """What it asks for, in a few words, as in ``layers 'a' and 'b' share a stage``."""

    @property
    def looks_at_layers(self) -> bool:
        """Whether it asks which layers a stage has, taking them for one row: then it does not go with chunks."""
        return True

    def check(self, problem: Problem) -> None:
        """Raise `nest.errors.InvalidProblem` where the constraint does not go with the problem."""


def none_keeps(problem: Problem) -> str | None:
    """Return, as a reason, that no plan keeps the side constraints of a problem; None where there are none."""
    texts = [constraint.text for constraint in problem.constraints]
    return f"no plan that fits keeps the side constraints: {'; '.join(texts)}" if texts else None


class LocalConstraint(Constraint):
    """A constraint that each outer choice and each stage keeps or breaks by itself.

    A class overrides what it needs, the first that suffices: the less a hook looks at, the faster the search.

    Attributes
    ----------
    looks_at_replicas
        Whether `admits_place` looks at the number of replicas or at the stride between them, and not only at where a
        stage stands in replica 0. If none does, plans that differ in these are searched together.
    places_layers
        Whether `admits_place` looks at the layers of a stage, and not only at where it stands. If not, and no other
        hook does, the constraint goes with stages of several chunks.
    """

    looks_at_replicas: ClassVar[bool] = True
    places_layers: ClassVar[bool] = True

    @property
    def looks_at_layers(self) -> bool:
        """Whether a hook of the class looks at the layers of a stage."""
        hooks = ("admits_run", "admits_stage", *(("admits_place",) if self.places_layers else ()))
        return any(overrides(self, hook) for hook in hooks)

    def device_limit(self, problem: Problem) -> int:
        """Return how many devices a plan may use, counted from device 0 on."""
        return problem.cluster.devices

    def reserves(self, problem: Problem) -> Collection[int]:
        """Return devices that no plan may take, and that plans may stand around; none where `device_limit` says all."""
        return ()

    def memory_limit(self, problem: Problem) -> Number:
        """Return how many bytes a stage may take on a device."""
        return problem.cluster.hbm_bytes

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether an outer choice is allowed."""
        return True

    def admits_run(self, problem: Problem, variant: Variant, run: Run) -> Mask:
        """Return which runs of layers may be a stage, wherever it is."""
        return _everything(run)

    def admits_stage(self, problem: Problem, variant: Variant, stages: int, position: int, run: Run) -> Mask:
        """Return which runs of layers may be the ``position``-th from the end of so many stages."""
        return _everything(run)

    def admits_place(self, problem: Problem, outer: Outer, run: Run, site: Site) -> Mask:
        """Return which runs of layers may stand where."""
        return _everything(run)

    def looks_at_place(self, problem: Problem) -> bool:
        """Whether `admits_place`, where a class has its own, may leave out what no other hook does.

        If not, no search has to know where stages stand.
        """
        return True


def overrides(constraint: LocalConstraint, hook: str) -> bool:
    """Whether the class of a constraint has a hook of its own."""
    return getattr(type(constraint), hook) is not getattr(LocalConstraint, hook)


def _everything(run: Run) -> Mask:
    return np.ones(np.broadcast(run.first, run.end).shape, dtype=bool)


class CouplingConstraint(Constraint):
    """A constraint that ties stages together: decided on whole plans, posted in the mathematical programme.

    Attributes
    ----------
    looks_at_replicas
        Whether a plan that keeps it may break it with fewer replicas, everything else being equal and an iteration no
        longer. Where none does, only the fewest of those with equally many rounds are in the programme.
    looks_at_types
        The same for a lower ZeRO type of a stage; of type 3, where that synchronises less, nothing is ever left out.
    looks_at_sharding, looks_at_recompute
        The same for any other way to shard, and to recompute, under preset `default`, that sends no more over the
        levels of `most_crossing`. Where none does, only such ways of a stage are in the programme than which none is
        faster.
    """

    looks_at_replicas: ClassVar[bool] = True
    looks_at_types: ClassVar[bool] = True
    looks_at_sharding: ClassVar[bool] = True
    looks_at_recompute: ClassVar[bool] = True

    @abstractmethod
    def broken_by(self, problem: Problem, whole: Whole) -> str | None:
        """Return how a plan breaks the constraint, in a few words, None where it keeps it."""

    def most_ticks(self, devices: int, tick: Fraction) -> int | None:
        """Return how many ticks an iteration may take on so many devices, None where that is all the same.

        It only makes a search faster: what it says has to be posted, too.
        """
        return None

    def most_crossing(self, problem: Problem) -> tuple[int, int] | None:
        """Return a level, and how many bytes of an iteration may go over it or one outside it; None for no limit.

        It only makes a search faster, and `Programme.sent_over` possible: what it says has to be posted, too.
        """
        return None

    def post(self, programme: Programme) -> None:
        """Post the constraint in the mathematical programme, so that just the plans that keep it are left.

        Raises
        ------
        OutOfScope
            If the class cannot say it there: the judge decides on plans only.
        """
        what = f"{type(self).__name__} has no `post`, so that no programme keeps it"
        raise OutOfScope("constraints", what, "give it one, see docs/constraints.md, or have plans judged")
