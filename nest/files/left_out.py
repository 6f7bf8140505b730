"""What a problem lacks of the run that it was posed from, as its file says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from nest.files.document import Document
from nest.files.limits import Switch, Table
from nest.files.toml import Values


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Variants that are not in the problem: which, and why.

    Attributes
    ----------
    what, why
        In words.
    possible
        Whether they are in the space all the same, and were left out to save time: one of them may be faster.
    slower
        Whether they were left out since none of their plans is the fastest: of other questions that says nothing, so
        that a file has them as possible.
    """

    what: str
    why: str
    possible: bool = False
    slower: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


Words = Annotated[str, Meta(min_length=1, max_length=1000, description="words")]


class LeftOutTable(Table):
    """Variants that were left out; ``possible`` where one of them may be faster than all that are in the file."""

    what: Words
    why: Words
    possible: Switch = False


def left_out_values(left_out: Sequence[LeftOut]) -> list[Values]:
    """Return rows of a problem file."""
    rows: list[Values] = [{"what": each.what, "why": each.why} for each in left_out]
    for row, each in zip(rows, left_out, strict=True):
        if each.possible or each.slower:
            row["possible"] = True
    return rows


def left_out_of(document: Document) -> tuple[LeftOut, ...] | None:
    """Return what a problem file says it lacks; None where it has all that is asked about.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy.
    """
    if "left_out" not in document.keys:
        return None
    rows = document.convert(document.tree["left_out"], list[LeftOutTable], "left_out")
    return tuple(LeftOut(row.what, row.why, row.possible) for row in rows)
