"""Inputs of two earlier planners, where a problem or a plan is looked for."""

from __future__ import annotations

from nest.errors import OutOfScope
from nest.files.document import Document


def refuse_dag(document: Document) -> None:
    """Raise `OutOfScope` if a document is an input of one of the two planners whose problems are of another kind."""
    if not document.is_json or "schema" in document.keys:
        return
    from nest.files.ancestors import dag_problem  # noqa: PLC0415  (a problem in our format should not wait for it)

    dag = dag_problem(document)
    if dag is not None:
        what = f"an input of {dag.preset.name}, a graph with branches"
        raise OutOfScope("", what, "nest solve and nest show take it, other commands do not", document.source)
