"""Side constraints on the widths and numbers of a whole plan."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from nest.constraints.base import LocalConstraint, Outer
from nest.constraints.checks import as_some, as_switch, as_whole, listed
from nest.errors import InvalidProblem
from nest.problem import Problem

Axis: TypeAlias = Literal["tensor", "expert", "context", "microbatch", "replicas", "stages"]
"""What a plan has one number of."""


@dataclass(frozen=True)
class AllowedDegrees(LocalConstraint):
    """Only some values of a width, of the microbatch, or of the numbers of replicas or stages.

    Parameters
    ----------
    axis
        ``"tensor"``, ``"expert"``, ``"context"``, ``"microbatch"``, ``"replicas"`` or ``"stages"``.
    values
        Whole numbers from 1.
    """

    axis: Axis
    values: Collection[int]

    kind: ClassVar[str] = "allowed_degrees"

    def __post_init__(self) -> None:
        if self.axis not in get_args(Axis):
            raise InvalidProblem(f"{self.kind}.axis", f"{self.axis!r}", f"give one of {', '.join(get_args(Axis))}")
        where = f"{self.kind}.values"
        values = frozenset(as_whole(where, value, 1) for value in as_some(where, self.values, "[1, 2, 4]"))
        object.__setattr__(self, "values", values)

    @property
    def text(self) -> str:
        """What it asks for."""
        values = sorted(self.values)
        return f"{self.axis} is {'' if len(values) == 1 else 'among '}{listed(values)}"

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether the value is an allowed one."""
        own = {"replicas": outer.replicas, "stages": outer.stages}
        value = own[self.axis] if self.axis in own else getattr(outer.variant, self.axis)
        return value in self.values


_DIVIDED = ("heads", "kv_heads", "vocabulary", "experts", "sequence")


@dataclass(frozen=True)
class Divides(LocalConstraint):
    """Widths that divide what they split.

    Parameters
    ----------
    heads, vocabulary
        The tensor width divides them.
    kv_heads
        The tensor width divides them or, with ``replicate_kv``, is a multiple of them: each is held several times then.
    experts, sequence
        The expert and the context width divide them.
    batch
        Whether each replica gets equally many microbatches.
    """

    heads: int | None = None
    kv_heads: int | None = None
    vocabulary: int | None = None
    experts: int | None = None
    sequence: int | None = None
    batch: bool = False
    replicate_kv: bool = True

    kind: ClassVar[str] = "divides"

    def __post_init__(self) -> None:
        for name in _DIVIDED:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_whole(f"{self.kind}.{name}", getattr(self, name), 1))
        for name in ("batch", "replicate_kv"):
            object.__setattr__(self, name, as_switch(f"{self.kind}.{name}", getattr(self, name)))
        if not self.batch and not any(getattr(self, name) for name in _DIVIDED):
            raise InvalidProblem(self.kind, "nothing is to be divided", f"give {', '.join(_DIVIDED)} or batch")

    @property
    def text(self) -> str:
        """What it asks for."""
        return "; ".join(self._parts())

    def _parts(self) -> list[str]:
        parts = [f"tensor divides {value} {name}" for value, name in self._shared_by_tensor()]
        if self.kv_heads is not None:
            also = " or is a multiple of them" if self.replicate_kv else ""
            parts.append(f"tensor divides {self.kv_heads} KV heads{also}")
        if self.experts is not None:
            parts.append(f"expert divides {self.experts} experts")
        if self.sequence is not None:
            parts.append(f"context divides a sequence of {self.sequence}")
        return parts + ["replicas divide the microbatches"] * self.batch

    def _shared_by_tensor(self) -> list[tuple[int, str]]:
        named = ((self.heads, "heads"), (self.vocabulary, "words of the vocabulary"))
        return [(value, name) for value, name in named if value is not None]

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether everything is divided without a rest."""
        variant = outer.variant
        shares = [(value, variant.tensor) for value, _ in self._shared_by_tensor()]
        shares += [(value, width) for value, width in self._others(outer) if value is not None]
        if self.batch:
            shares.append((problem.microbatches(outer.variant), outer.replicas))
        return all(value % width == 0 for value, width in shares) and self._kv_shared(variant.tensor)

    def _others(self, outer: Outer) -> list[tuple[int | None, int]]:
        return [(self.experts, outer.variant.expert), (self.sequence, outer.variant.context)]

    def _kv_shared(self, tensor: int) -> bool:
        if self.kv_heads is None or self.kv_heads % tensor == 0:
            return True
        return self.replicate_kv and tensor % self.kv_heads == 0
