"""Figures of foreign descriptions, checked: numbers that something real has, counts, and the JSON they stand in."""

from __future__ import annotations

import json
from typing import Any

from nest.errors import InvalidProblem

LEAST, MOST = 1e-15, 1e30
"""Between these is any rate, time or size, whatever its unit."""

MOST_COUNT = 2**31


def figure(value: object, where: str, *, may_be_zero: bool = False) -> float:
    """Return a number above 0.

    Parameters
    ----------
    where
        The key, as errors name it.
    may_be_zero
        Whether it may be 0, as latencies and numbers of links may.

    Raises
    ------
    InvalidProblem
        If it is missing, no number, or of a size that nothing has.
    """
    right = isinstance(value, int | float) and not isinstance(value, bool)
    if right and (LEAST <= value <= MOST or (may_be_zero and value == 0)):  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    spelt = "missing" if value is None else f"{value!r}"
    what = spelt if len(spelt) <= MOST_SHOWN else f"{spelt[:MOST_SHOWN]}..."
    raise InvalidProblem(where, what, f"give a number {'from' if may_be_zero else 'above'} 0")


MOST_SHOWN = 60


def figure_of(text: str | None, where: str, *, may_be_zero: bool = False) -> float:
    """Return the number that a text is, checked as `figure` does; raises `InvalidProblem` as it does."""
    try:
        value: object = None if text is None else float(text)
    except ValueError:
        value = text
    return figure(value, where, may_be_zero=may_be_zero)


def count(value: object, where: str) -> int:
    """Return a whole number from 1; raises `InvalidProblem` for any other."""
    found = figure(value, where)
    if not (found.is_integer() and found <= MOST_COUNT):
        raise InvalidProblem(where, f"{value!r}", f"give a whole number from 1 to {MOST_COUNT}")
    return int(found)


def json_of(text: str) -> Any:
    """Return what a JSON text holds; raises `InvalidProblem` if it is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as fault:
        raise InvalidProblem("", f"no valid JSON: {fault}", "mend it there") from None
    except RecursionError:
        raise InvalidProblem("", "nested too deeply", "a description is nested a few levels deep") from None
    except ValueError as fault:  # a whole number of thousands of digits
        raise InvalidProblem("", str(fault).partition(";")[0], "give sane numbers") from None


def table_of(text: str) -> dict[str, Any]:
    """Return the JSON object that a text is; raises `InvalidProblem` if it is none."""
    tree = json_of(text)
    if not isinstance(tree, dict):
        raise InvalidProblem("", "no JSON object", "give {...}")
    return tree
