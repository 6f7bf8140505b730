"""Words of error messages: values as the file spells them, and the name that was probably meant."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

LONGEST = 60


def near(name: object, names: Iterable[T]) -> T | None:
    """Return the one of ``names`` that is spelt most like ``name``, whatever the case; None if none is close."""
    from difflib import get_close_matches  # noqa: PLC0415  (only errors need it)

    spelt = {str(other): other for other in names}
    folded = {other.casefold(): other for other in spelt}
    close = get_close_matches(str(name), spelt, 1) or get_close_matches(str(name).casefold(), folded, 1)
    return next((spelt[folded.get(other, other)] for other in close), None)


def meant(name: object, names: Iterable[object], otherwise: str) -> str:
    """Return ``did you mean ...?`` with the nearest of ``names``, or ``otherwise`` if none is close."""
    found = near(name, names)
    return otherwise if found is None else f"did you mean {show(found)}?"


def missing(name: str, present: Iterable[str]) -> str:
    """Return that a key is missing, with the one of ``present`` that may be it, misspelt."""
    close = near(name, present)
    return "missing" if close is None else f"missing (there is a key {show(close)})"


def show(value: object) -> str:
    """Return a value as JSON spells it, cut to a length that fits an error message."""
    if isinstance(value, dict):
        return "a table" if value else "an empty table"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
