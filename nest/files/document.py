"""A text in TOML or JSON: told apart by content, parsed, and checked against a declared structure.

JSON that is right goes through `msgspec` in one step. Everything else is parsed to plain objects and converted, and
where that fails, `nest.files.faults` looks for the first key that is wrong.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn, TypeVar, cast

import msgspec

from nest.errors import InvalidProblem
from nest.files.disk import read_text
from nest.files.faults import first_fault
from nest.files.kinds import of_another_kind
from nest.files.words import missing, show

T = TypeVar("T")

CUT_SHORT = "the file seems to be cut short"


@dataclass(frozen=True)
class Document:
    """Text of a file.

    Parameters
    ----------
    source
        Path, as errors name it.
    error
        What is raised for everything wrong in it.
    """

    source: str
    text: str
    error: type[InvalidProblem]

    @classmethod
    def read(cls, path: str | Path, error: type[InvalidProblem] = InvalidProblem) -> Document:
        """Read a file; raises ``error`` if it is no text."""
        return cls(str(path), read_text(path, error), error)

    @cached_property
    def is_json(self) -> bool:
        """Whether the text is a JSON object; a TOML document cannot begin with a brace."""
        return self.text.lstrip().startswith("{")

    @cached_property
    def tree(self) -> Mapping[str, object]:
        """The text as plain objects."""
        try:
            return self._json() if self.is_json else self._toml()
        except RecursionError:
            self.fail("", "nested too deeply", "a problem or plan is nested a few levels deep")
        except ValueError as fault:  # a whole number of thousands of digits
            self.fail("", str(fault).split(";", maxsplit=1)[0], "give sane numbers")

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys at the top of the document."""
        return frozenset(self._top)

    @property
    def schema(self) -> object:
        """The value of the key ``schema``, None where there is none; the rest of large documents is not looked at."""
        value = self._top.get("schema")
        return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value

    @cached_property
    def _top(self) -> Mapping[str, object]:
        """The document, with values that are not parsed yet where it is JSON."""
        if self.is_json:
            try:
                return msgspec.json.decode(self.text, type=dict[str, msgspec.Raw])
            except (msgspec.MsgspecError, RecursionError):
                pass  # as in `decode`
        return self.tree

    def decode(self, kind: type[T]) -> T:
        """Return the text as an object of ``kind``, a `msgspec.Struct`; raises `error` with the first wrong key."""
        if self.is_json:
            try:
                return msgspec.json.decode(self.text, type=kind)
            except (msgspec.MsgspecError, RecursionError):
                pass  # the way below is slower, and finds out which key is wrong
        return self.convert(self.tree, kind)

    def convert(self, tree: object, kind: type[T], where: str = "") -> T:
        """Return plain objects, found at the key ``where``, as an object of ``kind``."""
        try:
            return msgspec.convert(tree, kind)
        except msgspec.ValidationError as failure:
            fault = first_fault(tree, kind, where)
            if fault is None:
                self.fail(where, str(failure))
            self.fail(*fault)

    def names(self, *schemas: str) -> bool:
        """Whether the schema is one of some; a text in which none of them stands is not parsed."""
        return any(schema in self.text for schema in schemas) and self.schema in schemas

    def fail(self, where: str, problem: str, remedy: str = "") -> NoReturn:
        """Raise the document's error."""
        raise self.error(where, problem, remedy, self.source) from None

    def require_schema(self, expected: str, also: str, *others: str) -> None:
        """Raise `error` if the document names no schema, or that of another kind of files.

        Parameters
        ----------
        expected
            The schema that is right.
        also
            What is right, too, in words that follow the former.
        others
            More schemas that are right.
        """
        if "schema" not in self.keys:
            self.fail("schema", missing("schema", self.keys), f"give schema = {show(expected)}{also}")
        wrong = of_another_kind(self.schema, expected, *others)
        if wrong is not None:
            self.fail("schema", *wrong)

    def _json(self) -> Mapping[str, object]:
        try:
            tree = json.loads(self.text)
        except json.JSONDecodeError as fault:
            cut = fault.pos >= len(self.text.rstrip()) or fault.msg.startswith("Unterminated string")
            what = f"no valid JSON: line {fault.lineno}, column {fault.colno}: {fault.msg}"
            self.fail("", what, CUT_SHORT if cut else "mend it there")
        try:
            json.dumps(tree, ensure_ascii=False).encode()
        except UnicodeEncodeError as fault:
            half = fault.object[fault.start : fault.end].encode("unicode_escape").decode()
            self.fail("", f"a string holds {half}, which is half a character", "write the character itself")
        return cast("Mapping[str, object]", tree)

    def _toml(self) -> Mapping[str, object]:
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as fault:
            self._refuse_other_json()
            cut = str(fault).endswith("(at end of document)")
            self.fail("", f"no valid TOML: {fault}", CUT_SHORT if cut else "mend it there, or give JSON: {...}")

    def _refuse_other_json(self) -> None:
        """Fail if the text is JSON but no object."""
        try:
            value = msgspec.json.decode(self.text)
        except (msgspec.MsgspecError, RecursionError):
            return
        self.fail("", f"JSON holding {'a list' if isinstance(value, list) else show(value)}", "give an object: {...}")


def names_schema(path: Path, *schemas: str) -> bool:
    """Whether a path is a file that names one of some schemas; who reads it next says what else is wrong with it."""
    if not path.is_file():
        return False
    try:
        return Document.read(path).names(*schemas)
    except InvalidProblem:
        return False
