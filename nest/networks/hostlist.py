"""Host lists as job schedulers write them: ``node[001-025],gpu7,rack[1,3]-n[0-1]``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from nest.errors import InvalidProblem

MOST_HOSTS = 2**20

RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)
NAME = re.compile(r"[^\s\[\],]*(\[[^\[\]]*\][^\s\[\],]*)*")


def hosts(text: str, where: str = "hosts") -> tuple[str, ...]:
    """Return the names that a host list stands for, in its order.

    Commas outside brackets separate names; ranges in brackets keep their leading zeros.

    Raises
    ------
    InvalidProblem
        If brackets do not match, a range is none, or there are too many hosts.
    """
    found: list[str] = []
    for part in _split(text, where):
        found.extend(_expanded(part, where, MOST_HOSTS - len(found)))
    return tuple(found)


def _split(text: str, where: str) -> Iterator[str]:
    """Yield the parts between commas that stand outside brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(f"{text},"):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            break
        if letter == "," and not depth:
            part = text[start:at].strip()
            if part:
                yield part
            start = at + 1
    if depth:
        raise InvalidProblem(where, f"brackets of {text!r} do not match", "write ranges as node[01-04,7]")


def _expanded(part: str, where: str, room: int) -> list[str]:
    if not NAME.fullmatch(part):
        raise InvalidProblem(where, f"{part!r} is no host name", "write names as node7 or node[01-04,7]")
    pieces = re.split(r"\[([^\[\]]*)\]", part)
    choices = [list(_numbers(piece, where)) if at % 2 else [piece] for at, piece in enumerate(pieces)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > room:
        raise InvalidProblem(where, f"{part!r} makes more than {MOST_HOSTS} hosts", "give fewer")
    return ["".join(pick) for pick in product(*choices)]


def _numbers(text: str, where: str) -> Iterator[str]:
    """Yield the numbers of a bracket, with their leading zeros."""
    for item in text.split(","):
        ends = RANGE.fullmatch(item.strip())
        if ends is None:
            raise InvalidProblem(where, f"{item!r} is no number or range", "write ranges as node[01-04,7]")
        low, high = ends[1], ends[2] or ends[1]
        if not int(low) <= int(high) < int(low) + MOST_HOSTS:
            raise InvalidProblem(where, f"{item!r} is no range", f"put the smaller first, {MOST_HOSTS} at most")
        for number in range(int(low), int(high) + 1):
            yield str(number).zfill(len(low))
