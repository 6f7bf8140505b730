"""The cost of a block on one device: times by operator, bytes kept, parameters, and the collectives that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from nest.costing.framework import Recompute

Kind: TypeAlias = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring"]
"""``ring`` passes its bytes on to the next device as often as there are further devices; of the others, the bytes are
those of the whole tensor (all-reduce, all-gather, reduce-scatter) or those that a device has to send (all-to-all)."""

Axis: TypeAlias = Literal["tensor", "context", "expert"]

Phase: TypeAlias = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of one microbatch, without its time: that depends on where the group sits.

    Parameters
    ----------
    kind, size
        What it does, and with how many bytes.
    axis
        Among which devices.
    phase
        In which pass.
    hidden_s
        Seconds of computation beside which it can run.
    core
        Whether it belongs to the attention core, which selective recomputation repeats.
    """

    kind: Kind
    size: int
    axis: Axis
    phase: Phase
    hidden_s: float = 0.0
    core: bool = False


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """Seconds of an operator.

    Parameters
    ----------
    name, kind
        The component and the operator; what kind of work it is.
    forward_s
        Of the forward pass.
    input_s, weight_s
        Of the backward pass: towards the inputs, and for the weights.
    core
        Whether it belongs to the attention core.
    """

    name: str
    kind: str
    forward_s: float
    input_s: float
    weight_s: float = 0.0
    core: bool = False

    @property
    def backward_s(self) -> float:
        """Of the whole backward pass."""
        return self.input_s + self.weight_s


@dataclass(frozen=True, slots=True)
class Buckets:
    """Numbers of parameters on one device, by how they are shared.

    Parameters
    ----------
    sharded
        Cut by tensor parallel.
    replicated
        Whole on every device of tensor parallel.
    expert
        Of routed experts, each on one of the devices of expert parallel.
    """

    sharded: int = 0
    replicated: int = 0
    expert: int = 0

    @property
    def dense(self) -> int:
        """Those whose gradients are summed over all replicas, expert and context ranks."""
        return self.sharded + self.replicated

    @property
    def total(self) -> int:
        """All of them."""
        return self.dense + self.expert

    def __add__(self, other: Buckets) -> Buckets:
        """Return the sum."""
        return Buckets(self.sharded + other.sharded, self.replicated + other.replicated, self.expert + other.expert)


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes that a microbatch keeps in a block until its backward pass, by what is computed again."""

    none: int
    selective: int
    full: int

    def of(self, recompute: Recompute) -> int:
        """Return the bytes under one kind of recomputation."""
        return {"none": self.none, "selective": self.selective, "full": self.full}[recompute]


@dataclass(frozen=True)
class LayerCost:
    """What one block costs on one device, for one microbatch.

    Parameters
    ----------
    kind, name
        Kind of the block; its stack and place.
    operators
        Times of computation alone.
    kept
        Bytes until the backward pass.
    working_bytes
        Bytes in use for a moment of the backward pass, on top of what is kept.
    parameters, tied
        Parameters stored here; those of the embedding table where it is used again, which are stored here only if the
        block that owns it is on other devices.
    output_bytes
        What goes to the next block if that is on other devices.
    exchanged
        Collectives of both passes.
    repeats
        Whether recomputation of whole layers repeats it: embeddings and heads are left out.
    spare
        Numbers in the tensors that stand for gradients of its matrices, where the framework has such.
    """

    kind: str
    name: str
    operators: tuple[OperatorCost, ...]
    kept: Kept
    working_bytes: int
    parameters: Buckets
    tied: int
    output_bytes: int
    exchanged: tuple[Collective, ...]
    repeats: bool = True
    spare: tuple[int, ...] = ()

    @property
    def forward_s(self) -> float:
        """Seconds of the forward pass, computation alone."""
        return sum(operator.forward_s for operator in self.operators)

    @property
    def backward_s(self) -> float:
        """Seconds of the backward pass, computation alone, without anything computed again."""
        return sum(operator.backward_s for operator in self.operators)

    def repeated_s(self, recompute: Recompute) -> float:
        """Return the seconds of what is computed again before the backward pass."""
        if recompute == "none" or not self.repeats:
            return 0.0
        again = recompute == "full"
        return sum(operator.forward_s for operator in self.operators if again or operator.core)

    def collectives(self, recompute: Recompute = "none") -> tuple[Collective, ...]:
        """Return the collectives of both passes; those of what is computed again are in the backward pass."""
        if recompute == "none" or not self.repeats:
            return self.exchanged
        again = recompute == "full"
        repeated = tuple(
            Collective(each.kind, each.size, each.axis, "backward", each.hidden_s, each.core)
            for each in self.exchanged
            if each.phase == "forward" and (again or each.core)
        )
        return (*self.exchanged, *repeated)
