"""Inputs of a module as they are typed: ``1x1024:int64``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nest.errors import InvalidProblem

DTYPES = ("float32", "bfloat16", "float16", "float64", "int64", "int32", "bool")
FORM = re.compile(r"(=?)(\d+(?:x\d+)*)(?::(\w+))?")


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that a module takes.

    Parameters
    ----------
    shape
        Lengths; the first is the batch.
    dtype
        One of `DTYPES`.
    batched
        Whether the first length grows with the batch.

    Raises
    ------
    InvalidProblem
        If a length is 0 or the data type unknown.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    batched: bool = True

    def __post_init__(self) -> None:
        if min(self.shape, default=0) < 1:
            raise InvalidProblem("--input", f"{self} has an empty dimension", "give lengths from 1")
        if self.dtype not in DTYPES:
            raise InvalidProblem("--input", f"{self.dtype!r} is no data type here", f"one of {', '.join(DTYPES)}")

    def __str__(self) -> str:
        return f"{'' if self.batched else '='}{'x'.join(map(str, self.shape))}:{self.dtype}"

    def times(self, factor: int) -> tuple[int, ...]:
        """Return its shape with so many times the batch."""
        return (self.shape[0] * factor, *self.shape[1:]) if self.batched else self.shape


def read_input(text: str) -> Input:
    """Return an input as typed: lengths with an x between them, a data type behind a colon (float32 if left out).

    An equals sign in front keeps its first length as it is whatever the batch, as in ``=1024x1024:bool`` for a mask.

    Raises
    ------
    InvalidProblem
        If it is none.
    """
    found = FORM.fullmatch(text)
    if not found:
        raise InvalidProblem("--input", f"{text!r} is no shape", "give lengths and a data type, as in 1x1024:int64")
    fixed, lengths, dtype = found.groups()
    return Input(tuple(map(int, lengths.split("x"))), dtype or "float32", not fixed)
