"""YAML as plain objects."""

from __future__ import annotations

from typing import Any

from nest.errors import InvalidProblem


def parse_yaml(text: str) -> Any:
    """Return what a YAML text holds.

    Raises
    ------
    InvalidProblem
        If it is no valid YAML, or empty.
    """
    import msgspec  # noqa: PLC0415  (brings PyYAML)

    try:
        tree = msgspec.yaml.decode(text)
    except msgspec.DecodeError as fault:
        raise InvalidProblem("", f"no valid YAML: {fault}", "mend it there") from None
    if tree is None:
        raise InvalidProblem("", "the file is empty", "give a description of a cluster")
    return tree
