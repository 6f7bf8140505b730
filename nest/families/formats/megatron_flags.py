"""Arguments of Megatron-LM as people keep them: lists of flags, shell scripts, YAML with flags as keys.

All become a table of flags: True for a flag alone, a text for one value, a list for several.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping

from nest.errors import InvalidProblem
from nest.families.keys import MOST_LAYERS, Keys

_ASSIGNED = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=([^(\s].*|)")
_ARRAY = re.compile(r"^\s*[A-Za-z_]\w*\+?=\(")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*|[0-9]+)(?::?[-=]([^}]*))?\}|([A-Za-z_]\w*|[0-9]))")


def flags_of_text(text: str) -> dict[str, object]:
    """Return the flags of a list or of a shell script; variables that it assigns, or defaults of them, are put in.

    The values of a flag stand in its line, where a line that ends in a backslash goes on in the next.
    """
    variables: dict[str, str] = {}
    flags: dict[str, object] = {}
    for line in text.replace("\\\n", " ").splitlines():
        words = _words(_ARRAY.sub("", line))
        assigned = _ASSIGNED.fullmatch(" ".join(words))
        if assigned and "--" not in assigned[2]:
            variables[assigned[1]] = _put_in(assigned[2], variables)
            continue
        for name, values in _grouped([_put_in(word, variables) for word in words]):
            flags[name] = True if not values else values[0] if len(values) == 1 else values
    return flags


def flags_of_table(table: Mapping[str, object]) -> dict[str, object]:
    """Return the flags of a YAML table whose keys are flags; false is a flag that is not given."""
    return {
        name: value if value is True else str(value)
        for name, value in table.items()
        if value is not False and value is not None
    }


def is_given(keys: Keys, flag: str) -> bool:
    """Whether a flag is given, alone or with a value that does not deny it."""
    return str(keys.table.get(flag, False)).lower() not in ("false", "0")


def whole_list(name: str, text: str) -> tuple[int, ...]:
    """Return the whole numbers of a Python list that a flag has as value, as in ``([0]*3+[1]*58)``.

    Raises
    ------
    InvalidProblem
        If it is no sum of lists and repeated lists.
    """
    try:
        return tuple(_evaluated(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidProblem(name, f"{text!r} is no list", "give one as in ([0]*3+[1]*58)") from None


def _evaluated(node: ast.expr) -> list[int]:
    if isinstance(node, ast.List):
        return [_number(item) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _evaluated(node.left) + _evaluated(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        items, times = _evaluated(node.left), _number(node.right)
        if len(items) * times > MOST_LAYERS:
            raise ValueError("too long")
        return items * times
    raise ValueError("no list")


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ValueError("no whole number")


def _words(line: str) -> list[str]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a quote that goes on in the next line
        words = line.split()
    return [word for word in words if word.strip("()")]


def _put_in(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with its variables put in; those that nothing assigns stay as they are."""

    def value(found: re.Match[str]) -> str:
        """Return what a variable was assigned, else its default, else the text as it stands."""
        name, default = found[1] or found[3], found[2]
        return variables.get(name, found[0] if default is None else default)

    return _VARIABLE.sub(value, text)


def _grouped(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    name, values = "", list[str]()
    for word in words:
        if word.startswith("--"):
            if name:
                yield name, values
            name, _, value = word.partition("=")
            values = [value] if value else []
        elif word.endswith(".py"):  # what is started: flags before it are the launcher's
            if name:
                yield name, values
            name, values = "", []
        elif name:
            values = [*values, word]
    if name:
        yield name, values
