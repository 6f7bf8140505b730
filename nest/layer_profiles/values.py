"""Values of foreign files, checked and converted."""

from __future__ import annotations

from collections.abc import Mapping

from nest.errors import InvalidProblem
from nest.files.limits import MOST_BYTES
from nest.files.words import missing, show

MS = 1e-3
US = 1e-6
MIB = 2**20


def table_at(table: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
    """Return the table under a key."""
    value = _present(table, key, where)
    if not isinstance(value, dict):
        raise InvalidProblem(f"{where}{key}", show(value), "give a table")
    return value


def numbers_at(table: Mapping[str, object], key: str, where: str) -> list[float]:
    """Return the list of numbers under a key."""
    value = _present(table, key, where)
    if not isinstance(value, list) or not value:
        raise InvalidProblem(f"{where}{key}", show(value), "give a list of numbers, one for each layer")
    return [number(each, f"{where}{key}[{at}]") for at, each in enumerate(value)]


def number(value: object, where: str) -> float:
    """Return a number from 0 to 2^53, as many as bytes can be counted; a string is read as one."""
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        found = -1.0
    if not 0 <= found <= MOST_BYTES:
        raise InvalidProblem(where, show(value), "give a number that is not negative and at most 2^53")
    return found


def _present(table: Mapping[str, object], key: str, where: str) -> object:
    if key not in table:
        raise InvalidProblem(f"{where}{key}", missing(key, table), "give the whole file")
    return table[key]
