"""One iteration of training, and what a device holds of each weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Literal, TypeAlias

from nest.errors import InvalidProblem
from nest.units import Number

Optimizer: TypeAlias = Literal["sgd", "adam"]
"""What follows gradients: without state, or with two moments."""

OPTIMIZER_COPIES: Mapping[str, int] = {"sgd": 0, "adam": 6}
"""Optimizer bytes per byte of parameters (artifact of arXiv 2603.06798: master copy and two moments in fp32)."""


@dataclass(frozen=True, slots=True)
class Copies:
    """What a device holds of a weight besides the weight, in bytes for each byte of it.

    Megatron-LM's mixed precision has weights of 2 bytes, gradients of 4 and an optimizer of 12: copies of 6 and 2.

    Parameters
    ----------
    optimizer
        Master copy and moments.
    gradients
        As they are accumulated.
    gathered
        Weights that are gathered, on the wire and while they are in use: less than 1 where they are stored in more bits
        than they are computed with.
    reduced
        Gradients on the wire; None for as many bytes as they are held in.
    stepped
        What the optimizer's step takes besides of each weight whose state a device holds.
    """

    optimizer: int
    gradients: int = 1
    gathered: Number = 1
    reduced: Number | None = None
    stepped: int = 0

    def __post_init__(self) -> None:
        for name in ("optimizer", "gradients", "stepped"):
            if not 0 <= getattr(self, name) <= MOST_COPIES:
                what = f"{getattr(self, name)}"
                raise InvalidProblem(f"training.copies.{name}", what, f"give a whole number from 0 to {MOST_COPIES}")
        for name, sent in (("gathered", self.gathered), ("reduced", self.summed)):
            if not 0 <= sent <= MOST_COPIES or sent * PARTS % 1:
                remedy = f"give a multiple of 1/{PARTS} from 0 to {MOST_COPIES}"
                raise InvalidProblem(f"training.copies.{name}", f"{sent}", remedy)

    @property
    def figures(self) -> dict[str, Number]:
        """Optimizer and gradients, and the others where they are not as they mostly are."""
        usual = {"gathered": 1, "reduced": None, "stepped": 0}
        further = {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        return {"optimizer": self.optimizer, "gradients": self.gradients} | further

    @property
    def summed(self) -> Number:
        """What gradients take on the wire."""
        return self.gradients if self.reduced is None else self.reduced


MOST_COPIES = 64
"""Bytes of one kind for each byte of weights, at most."""

PARTS = 64
"""Bytes on the wire come in so many parts of a byte of weights."""


@dataclass(frozen=True, slots=True)
class Training:
    """One iteration, and what it takes besides the layers.

    Parameters
    ----------
    microbatches
        Of an iteration, all replicas together; 0 where the batch is given instead.
    optimizer
        The one that follows.
    global_batch
        Sequences of an iteration; 0 where microbatches are given instead.
    copies
        What a device holds of each weight; None for what `OPTIMIZER_COPIES` says and gradients as large as weights.
    hides_gradients
        Whether the holders of weights exchange them, and their gradients, while computation goes on.
    holds_gathered
        Whether, in a pipeline of several stages, what type 3 gathers stays for the iteration.
    sums_whole
        Whether type 1 sums all gradients on every rank, and not on each its part only.
    splits_transfers
        Whether the tensor ranks of a stage each send a part of what crosses a boundary, and gather it behind it.
    blocking_sends
        Whether a stage is busy with what it sends, too, and not with what it receives only.
    overlap_tax
        What computation loses to a collective that runs beside it, for each second of it.
    step_s_per_byte
        Seconds of the optimizer's step for each byte of weights whose state a device holds.
    overhead_bytes
        What framework and communication take of every device.
    recomputes_last
        Whether, where some layers of a stage are computed again, it is the last that can be, and not the first.
    buffers_boundaries
        Whether stages of a pipeline hold what they have sent of every microbatch, and buffers for all they receive,
        until the iteration ends.
    whole_experts
        Whether each tensor rank that shares the sequence holds experts whole: it is one of those then that hold copies
        of them, each for tokens of its own.

    Raises
    ------
    InvalidProblem
        If neither or both of microbatches and batch are given, or a figure is out of range.
    """

    microbatches: int = 0
    optimizer: Optimizer = "sgd"
    global_batch: int = 0
    copies: Copies | None = None
    hides_gradients: bool = False
    holds_gathered: bool = False
    sums_whole: bool = False
    splits_transfers: bool = False
    blocking_sends: bool = False
    overlap_tax: float = 0.0
    step_s_per_byte: float = 0.0
    overhead_bytes: Number = 0
    recomputes_last: bool = False
    buffers_boundaries: bool = False
    whole_experts: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("microbatches", "global_batch") if getattr(self, name)]
        if len(given) != 1:
            what = "microbatches and global_batch are both given" if given else f"{self.microbatches}"
            raise InvalidProblem(
                "training" if given else "training.microbatches",
                what,
                "give one of them" if given else "give at least 1, or a global_batch",
            )
        if getattr(self, given[0]) < 1:
            raise InvalidProblem(f"training.{given[0]}", f"{getattr(self, given[0])}", "give at least 1")
        if not 0 <= self.overlap_tax <= 1:
            raise InvalidProblem("training.overlap_tax", f"{self.overlap_tax!r}", "give a part from 0 to 1")
        for name in ("step_s_per_byte", "overhead_bytes"):
            if not 0 <= getattr(self, name) < inf:
                raise InvalidProblem(f"training.{name}", f"{getattr(self, name)!r}", "give a finite number from 0")

    @property
    def held(self) -> Copies:
        """Copies of a weight on a device, the optimizer's usual ones where none are given."""
        return Copies(OPTIMIZER_COPIES[self.optimizer]) if self.copies is None else self.copies


HELD = 4
"""Type 3 in a pipeline whose stages keep what they gather, and their gradients whole, for the iteration.

So FSDP2 has it by default (torchtitan, ``reshard_after_forward``): the microbatches of a pipeline follow each other too
closely. What is exchanged is that of type 1.
"""


def exchanging_type(zero: int, stages: int, training: Training) -> int:
    """Return a ZeRO type, or `HELD`, under which a stage of so many exchanges and holds."""
    return HELD if zero == 3 and stages > 1 and training.holds_gathered else zero


SWITCHES = tuple(each.name for each in fields(Training) if each.type == "bool")
"""Names of what a training does or does not, in their order."""
