"""A journal of finished rows, so that a study that was interrupted goes on where it ended.

A text of one JSON object a line: the first says which problem it is for, every other one what became of a task. Lines
are only ever appended; the last one may be cut short, as by a crash, and is then dropped.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from nest.ablate.rows import Outcome
from nest.ablate.tasks import digest
from nest.errors import InvalidProblem
from nest.files.disk import read_text, write_text
from nest.files.words import show
from nest.problem import Problem

SCHEMA = "nest.ablation.journal/1"


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line: the problem as it was read, before any sweep."""

    schema: str
    problem: str


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A finished task."""

    task: str
    outcome: Outcome


class Journal:
    """Outcomes of the tasks that were finished, by their digest.

    Parameters
    ----------
    path
        Of the file; it is made if there is none, or an empty one.
    problem
        That the study is about.

    Raises
    ------
    InvalidProblem
        If the file is no journal, is one of another problem, or holds a line that is none of its own.
    OSError
        If it cannot be written.
    """

    def __init__(self, path: str | Path, problem: Problem) -> None:
        self.path = Path(path)
        self._problem = digest(problem)
        self.outcomes: dict[str, Outcome] = {}
        if self.path.exists() and self.path.stat().st_size:
            self._read()
        else:
            head = msgspec.json.encode(_Head(SCHEMA, self._problem)).decode()
            write_text(self.path, f"{head}\n")

    def add(self, task: str, outcome: Outcome) -> None:
        """Append what became of a task, and have it on the disk before going on."""
        try:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(_Line(task, outcome)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as fault:  # a full disk has no name by itself
            raise type(fault)(fault.errno, fault.strerror, str(self.path)) from None
        self.outcomes[task] = outcome

    def _read(self) -> None:
        text = read_text(self.path, InvalidProblem)
        first, *lines, rest = text.split("\n") if "\n" in text else ["", ""]
        self._check(first)
        for at, line in enumerate(lines, start=2):
            try:
                finished = msgspec.json.decode(line, type=_Line)
            except msgspec.MsgspecError:
                remedy = "remove the line, or name another file"
                raise InvalidProblem(f"line {at}", f"{show(line)} is no finished row", remedy, str(self.path)) from None
            self.outcomes[finished.task] = finished.outcome
        if rest:
            os.truncate(self.path, len(text.removesuffix(rest).encode()))

    def _check(self, line: str) -> None:
        """Refuse what is no journal, or one of another problem."""
        try:
            head = msgspec.json.decode(line, type=_Head)
        except msgspec.MsgspecError:
            head = None
        if head is None or head.schema != SCHEMA:
            what = f"this is no journal of an ablation ({SCHEMA})"
            raise InvalidProblem("", what, "name a journal, or a file that is not there yet", str(self.path))
        if head.problem != self._problem:
            what = "this is the journal of another problem, or of this one under other settings"
            raise InvalidProblem("", what, "name another file", str(self.path))
