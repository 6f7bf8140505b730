"""Text of a model file as plain tables: JSON, TOML, YAML, with the references inside a YAML file followed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping

from nest.errors import InvalidProblem

Table = Mapping[str, object]

DEEPEST = 20
"""References that may lead to each other before they are called a circle."""

LONGEST = 2**20
"""Characters that a YAML file of settings may have; the parser is slow, and any text may be given to it."""

_REFERENCE = re.compile(r"\$\{(\.*[A-Za-z_][\w.]*)\}")


def json_table(text: str) -> Table | None:
    """Return a JSON object, or None if the text is none."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return table if isinstance(table, dict) else None


def toml_table(text: str) -> Table | None:
    """Return a TOML document, or None if the text is none."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def yaml_table(text: str) -> Table | None:
    """Return a YAML mapping with its references followed, or None if the text is none, or far too long for one."""
    if len(text) > LONGEST:
        return None
    import msgspec  # noqa: PLC0415  (only these formats need it)

    try:
        table = msgspec.yaml.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    if not isinstance(table, dict):
        return None
    named = {str(name): value for name, value in table.items()}
    if "${" not in text:
        return named
    follower = _Follower(named)
    return {name: follower.followed(value, (name,), 0) for name, value in named.items()}


class _Follower:
    """Replaces each text that is a reference by itself with what it leads to.

    What a YAML file holds once under several names is followed once, or a few lines of names of names of names would
    grow without end.
    """

    def __init__(self, top: Table) -> None:
        self.top = top
        self._done: dict[int, object] = {}

    def followed(self, value: object, place: tuple[str, ...], depth: int) -> object:
        """Return a value with its references followed; ``place`` is its path."""
        if isinstance(value, dict | list):
            if id(value) not in self._done:
                self._done[id(value)] = self._inside(value, place, depth)
            return self._done[id(value)]
        found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return value
        if depth > DEEPEST:
            raise InvalidProblem(".".join(place), f"{value} leads in a circle", "give the value itself")
        path = _path(found[1], place)
        target: object = self.top
        for name in path:
            if not isinstance(target, Mapping) or name not in target:
                return value
            target = target[name]
        return self.followed(target, path, depth + 1)

    def _inside(self, value: dict[object, object] | list[object], place: tuple[str, ...], depth: int) -> object:
        if isinstance(value, list):
            return [self.followed(item, place, depth) for item in value]
        return {str(name): self.followed(item, (*place, str(name)), depth) for name, item in value.items()}


def _path(reference: str, place: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path of a reference; leading dots count up from the key itself."""
    name = reference.lstrip(".")
    up = len(reference) - len(name)
    start = place[: len(place) - up] if up else ()
    return (*start, *name.split("."))
