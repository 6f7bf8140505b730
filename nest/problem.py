"""The declarative problem: model, cluster, training, choices, preset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from nest.cluster import Cluster
from nest.errors import InvalidProblem
from nest.graph import LayerGraph
from nest.presets import PAPER, Preset

Allowed: TypeAlias = frozenset[int] | None
"""Values a choice may take; None where every value is allowed."""

Recompute: TypeAlias = Literal["none", "full"]
Optimizer: TypeAlias = Literal["sgd", "adam"]

OPTIMIZER_COPIES: Mapping[str, int] = {"sgd": 0, "adam": 6}
"""Optimizer bytes per byte of parameters (artifact of arXiv 2603.06798: master copy and two moments in fp32)."""


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """A way to spread each layer over devices, for which the model gives its costs.

    Parameters
    ----------
    tensor, expert, context
        Widths: devices that share each layer's matrices, its experts, its sequence.
    sequence
        Whether the ``tensor`` devices also share the sequence between the matrices.
    microbatch
        Sequences of one microbatch on one rank.
    """

    tensor: int
    expert: int = 1
    context: int = 1
    sequence: bool = False
    microbatch: int = 1

    def __str__(self) -> str:
        widths = f"tensor={self.tensor} expert={self.expert} context={self.context}"
        return f"({widths} sequence={str(self.sequence).lower()} microbatch={self.microbatch})"

    @property
    def width(self) -> int:
        """Devices of one stage before sharding."""
        return self.tensor * self.expert * self.context


@dataclass(frozen=True, slots=True)
class Training:
    """One iteration: ``microbatches`` of them, and the optimizer that follows."""

    microbatches: int
    optimizer: Optimizer = "sgd"

    def __post_init__(self) -> None:
        if self.microbatches < 1:
            raise InvalidProblem("training.microbatches", f"{self.microbatches}", "give at least 1")


@dataclass(frozen=True, slots=True)
class Choices:
    """What the solver may choose.

    Parameters
    ----------
    tensor, expert, context, microbatch
        Allowed values of the variant's widths.
    sequence
        Whether sequence parallel is on; None leaves it free.
    replicas, stages
        Allowed numbers of pipeline replicas and stages.
    zero
        Allowed ZeRO types of a stage, of 0 to 3; 0 is no sharding.
    zero_degree
        Allowed sharding degrees; None allows every power of two.
    recompute
        Whether every stage but the last recomputes its forward pass.
    """

    tensor: Allowed = None
    expert: Allowed = None
    context: Allowed = None
    microbatch: Allowed = None
    sequence: bool | None = None
    replicas: Allowed = None
    stages: Allowed = None
    zero: frozenset[int] = frozenset({0, 1, 2, 3})
    zero_degree: Allowed = None
    recompute: Recompute = "none"

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, frozenset) and not value:
                raise InvalidProblem(f"choices.{spec.name}", "no value is allowed", "allow at least one")
        if not self.zero <= {0, 1, 2, 3}:
            raise InvalidProblem("choices.zero", f"{sorted(self.zero)}", "ZeRO types are 0, 1, 2 and 3")
        for name in ("tensor", "expert", "context", "microbatch", "replicas", "stages", "zero_degree"):
            if min(getattr(self, name) or {1}) < 1:
                raise InvalidProblem(f"choices.{name}", f"{min(getattr(self, name))}", "give whole numbers from 1")

    def admits(self, variant: Variant) -> bool:
        """Whether the variant is among the allowed ones."""
        for name in ("tensor", "expert", "context", "microbatch"):
            allowed: Allowed = getattr(self, name)
            if allowed is not None and getattr(variant, name) not in allowed:
                return False
        return self.sequence is None or variant.sequence == self.sequence


@runtime_checkable
class SideConstraint(Protocol):
    """What a problem asks of its side constraints; `nest.constraints.Constraint` is what they are."""

    kind: ClassVar[str]

    @property
    def text(self) -> str:
        """What it asks for, in a few words."""

    def check(self, problem: Problem) -> None:
        """Raise `InvalidProblem` where the constraint does not go with the problem."""


@dataclass(frozen=True)
class Problem:
    """Everything the optimizer needs to know.

    Parameters
    ----------
    name
        For people to read.
    graphs
        The model: one layer graph for each variant whose costs are known.
    cluster, training, choices, preset
        See there.
    time_unit_s
        Unit, in seconds, in which the input states its times and wants the objective back.
    source
        Where the figures come from.
    constraints
        What a plan has to keep beyond the space, of `nest.constraints`.

    Raises
    ------
    InvalidProblem
        If no variant is left, or a graph branches (the presets of today price chains, with or without skip edges).
    """

    name: str
    graphs: Mapping[Variant, LayerGraph]
    cluster: Cluster
    training: Training
    choices: Choices = field(default_factory=Choices)
    preset: Preset = PAPER
    time_unit_s: float = 1.0
    source: str = ""
    constraints: tuple[SideConstraint, ...] = ()

    def __post_init__(self) -> None:
        if not self.graphs:
            raise InvalidProblem("model", "no variant", "give the costs of the layers for at least one tensor width")
        if not self.variants:
            known = ", ".join(str(variant) for variant in sorted(self.graphs))
            raise InvalidProblem("choices", "no variant of the model is allowed", f"the model has {known}")
        for graph in self.graphs.values():
            require_chain(graph, self.preset, "model.edges")
        for constraint in self.constraints:
            if not isinstance(constraint, SideConstraint):
                raise InvalidProblem("constraints", f"{constraint!r} is none", "give objects of nest.constraints")
            constraint.check(self)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The variants that the choices allow, in ascending order."""
        return tuple(sorted(variant for variant in self.graphs if self.choices.admits(variant)))

    @property
    def levels(self) -> int:
        """Number of network levels."""
        return len(self.cluster.levels)

    def zero_degrees(self, width: int) -> tuple[int, ...]:
        """Sharding degrees beyond 1 that a stage of ``width`` devices may take, ascending."""
        if not self.choices.zero - {0}:
            return ()
        most = self.cluster.devices // width
        allowed = self.choices.zero_degree
        if allowed is not None:
            return tuple(sorted(degree for degree in allowed if 1 < degree <= most))
        return tuple(2**power for power in range(1, most.bit_length()))

    def with_choices(self, **changes: object) -> Problem:
        """Return the same problem with other choices, as in ``with_choices(zero=frozenset({0}))``."""
        return replace(self, choices=replace(self.choices, **changes))  # type: ignore[arg-type]

    def with_constraints(self, *constraints: SideConstraint) -> Problem:
        """Return the same problem with these side constraints and no others."""
        return replace(self, constraints=constraints)

    def with_preset(self, preset: Preset) -> Problem:
        """Return the same problem under another preset."""
        return replace(self, preset=preset)


def require_chain(graph: LayerGraph, preset: Preset, where: str) -> None:
    """Raise `InvalidProblem`, naming the key ``where``, if the graph branches: the presets of today price chains."""
    if pair := graph.unordered_pair:
        raise InvalidProblem(
            where,
            f"the model branches: nothing orders layers {pair[0]!r} and {pair[1]!r}",
            f"preset {preset.name!r} takes chains, with or without skip edges",
        )
