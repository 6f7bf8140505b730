"""The little TOML that we write: assignments, tables, and lists with one inline table a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from nest.units import Number

Value: TypeAlias = "str | bool | int | float | Sequence[Value] | Mapping[str, Value]"
Values: TypeAlias = dict[str, Value]

WHOLE_LIMIT = 2**53


def size(value: Number) -> Number:
    """Return a number of bytes as a whole number where it is one, so that it reads as one."""
    return int(value) if value == int(value) and value < WHOLE_LIMIT else value


def assignments(values: Mapping[str, Value]) -> Iterator[str]:
    """Yield one line ``key = value`` for each value."""
    for name, value in values.items():
        yield f"{name} = {_text(value)}"


def block(header: str, values: Mapping[str, Value]) -> Iterator[str]:
    """Yield a table under its header, after an empty line."""
    yield from ("", header)
    yield from assignments(values)


def listing(name: str, tables: Iterable[Mapping[str, Value]]) -> Iterator[str]:
    """Yield a list of tables, one a line."""
    yield f"{name} = ["
    for table in tables:
        yield f"    {_text(table)},"
    yield "]"


def _text(value: Value) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_text(entry)}" for name, entry in value.items()) + " }"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML allows no bare DEL
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:_}" if isinstance(value, int) and abs(value) >= 10**4 else repr(value)
