"""Under which widths, sizes and data types layers are priced."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from nest.costing.framework import Framework
from nest.costing.frameworks import MEGATRON_CORE
from nest.errors import InvalidProblem
from nest.families import Architecture, Stack
from nest.families.operators import Rows

BYTES = {"bf16": 2, "fp16": 2, "fp8": 2, "fp32": 4, "tf32": 4}
"""Bytes of an activation by the data type of computation; fp8 is for products, what lies between them stays in bf16."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that the cost of a layer depends on besides model and device.

    Parameters
    ----------
    sequence
        Tokens of a sequence, in every stream that does not have its own number.
    microbatch
        Sequences that a rank takes at a time.
    tensor
        Devices that share each matrix.
    sequence_parallel
        Whether they also share the sequence between the matrices (arXiv 2205.05198, section 4.2.2).
    context
        Devices that share the sequence everywhere.
    context_kind
        How these exchange keys and values: ``ring`` passes them on, ``gather`` collects them, ``exchange`` swaps
        sequence for heads before the scores and back behind them (DeepSpeed-Ulysses, arXiv 2309.14509).
    expert
        Ranks that share the routed experts of a layer; each brings its own microbatch.
    expert_tensor
        Devices that share the matrices of one expert: 1, or as many as share the others.
    imbalance
        Rows of the busiest device over their mean.
    capacity
        Rows that each expert takes over their mean, the rest dropped or padded; 0 takes what comes.
    flash
        Whether attention never writes its scores to memory (arXiv 2205.14135).
    dtype
        Of the matrix products.
    padding
        The vocabulary is rounded up to a multiple of this times `tensor`, as Megatron-LM does with 128; 0 leaves it.
    lengths
        Tokens of single streams, where they differ: ``(("source", 512),)``.
    framework
        What the software does.

    Raises
    ------
    InvalidProblem
        If a width or size is out of range, or widths do not fit together.
    """

    sequence: int
    microbatch: int = 1
    tensor: int = 1
    sequence_parallel: bool = False
    context: int = 1
    context_kind: Literal["ring", "gather", "exchange"] = "ring"
    expert: int = 1
    expert_tensor: int = 1
    imbalance: float = 1.0
    capacity: float = 0.0
    flash: bool = True
    dtype: str = "bf16"
    padding: int = 128
    lengths: tuple[tuple[str, int], ...] = ()
    framework: Framework = MEGATRON_CORE

    def __post_init__(self) -> None:
        for name in ("sequence", "microbatch", "tensor", "context", "expert", "expert_tensor"):
            if getattr(self, name) < 1:
                raise InvalidProblem(name, f"{getattr(self, name)}", "give a whole number from 1")
        if self.dtype not in BYTES:
            raise InvalidProblem("dtype", f"{self.dtype!r} is none", f"one of {', '.join(BYTES)}")
        if self.expert_tensor not in (1, self.tensor):
            raise InvalidProblem("expert_tensor", f"{self.expert_tensor}", f"give 1 or {self.tensor}, the tensor width")
        if self.sequence % self.context:
            remedy = f"give a multiple of the context width {self.context}"
            raise InvalidProblem("sequence", f"{self.sequence} tokens", remedy)
        if not 1 <= self.imbalance < float("inf") or not 0 <= self.capacity < float("inf") or self.padding < 0:
            what = f"imbalance {self.imbalance}, capacity {self.capacity}, padding {self.padding}"
            raise InvalidProblem("setting", what, "give an imbalance from 1, capacity and padding from 0")

    @property
    def value_bytes(self) -> int:
        """Bytes of an activation."""
        return BYTES[self.dtype]

    @property
    def row_shards(self) -> int:
        """Devices that share the rows of what lies between the matrices."""
        return self.tensor if self.sequence_parallel else 1

    def routed(self, chosen: Rows) -> Rows:
        """Return how many rows per token of a rank its device computes in routed experts, the busiest one counting.

        Every rank sends away as many rows as it receives, so that the number of ranks does not change it. The devices
        of tensor parallel hold a part of the tokens each only where they share the sequence; with experts cut by
        tensor parallel each computes the rows of all.
        """
        rows = chosen
        for factor in (self.capacity or 1, self.imbalance):
            rows = rows if factor == 1 else rows * Fraction(factor).limit_denominator(10**6)
        return over(rows * self.expert_tensor, self.row_shards) if self.sequence_parallel else rows


@dataclass(frozen=True, slots=True)
class Tokens:
    """How many tokens the streams of a model have under a setting.

    Parameters
    ----------
    setting, own
        The setting, and the stream that an empty name means.
    streams
        Tokens of a whole sequence in each stream.
    """

    setting: Setting
    own: str
    streams: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, model: Architecture, stack: Stack, setting: Setting) -> Tokens:
        """Return them for the blocks of one stack."""
        known = {stream.name for stream in model.streams}
        for name, _ in setting.lengths:
            if name not in known:
                raise InvalidProblem("lengths", f"the model has no stream {name!r}", f"one of {', '.join(known)}")
        return cls(setting, stack.stream, tuple(model.tokens(setting.sequence, setting.lengths).items()))

    def length(self, stream: str = "") -> int:
        """Return the tokens of a whole sequence."""
        return dict(self.streams)[stream or self.own]

    def local(self, stream: str = "") -> Rows:
        """Return the tokens of a microbatch that one device of context parallel has."""
        return over(self.setting.microbatch * self.length(stream), self.setting.context)


def over(number: Rows, parts: int) -> Rows:
    """Return the exact share of one of so many parts; a whole number where it is one, which counts far faster."""
    whole, rest = divmod(number, parts)
    return Fraction(number, parts) if rest else whole
