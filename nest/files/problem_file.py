"""Reading a problem: which of the formats a file is in, told by its content."""

from __future__ import annotations

from pathlib import Path

from nest.families import is_model
from nest.files.artifact import MARKS, artifact_problem
from nest.files.document import Document
from nest.files.graphs_apart import refuse_dag
from nest.files.left_out import LeftOut, left_out_of
from nest.files.problem_read import problem_of
from nest.files.schema import SCHEMA
from nest.problem import Problem


def read_problem(path: str | Path) -> Problem:
    """Read a problem: our format, as TOML or as JSON, or a JSON input of the artifact of arXiv 2603.06798.

    The content decides which it is, not the name of the file. Of two equal keys in one JSON object the later counts,
    as in Python; in TOML they are an error.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy.
    """
    return read_reduced_problem(path)[0]


def read_reduced_problem(path: str | Path) -> tuple[Problem, tuple[LeftOut, ...] | None]:
    """Read a problem as `read_problem` does, and what it lacks of the run that it is of; None where it is of none."""
    document = Document.read(path)
    refuse_dag(document)
    if document.is_json and "schema" not in document.keys and not document.keys.isdisjoint(MARKS):
        return artifact_problem(document), None
    _refuse_model(document)
    document.require_schema(SCHEMA, f", or the artifact's own keys ({', '.join(MARKS)}, ...)")
    return problem_of(document), left_out_of(document)


def _refuse_model(document: Document) -> None:
    """Refuse a model in the place of a problem, with what takes it."""
    if "schema" not in document.keys and is_model(document.text):
        takes = f"nest solve --model {document.source} --cluster NAME:N --seq N --global-batch N takes it"
        document.fail("", "a model, and no problem: it says nothing of a cluster", takes)
