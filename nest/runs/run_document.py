"""Runs as plain objects under ``nest.run/1``, with all that they refer to, for other files to carry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nest.errors import InvalidProblem
from nest.files.cluster_file import ClusterText, cluster_text
from nest.files.disk import model_file, read_text
from nest.files.document import Document
from nest.files.problem_write import choice_values
from nest.files.profile_file import profile_document
from nest.runs.run import Run
from nest.runs.run_file import SCHEMA, RunFile, read_run


def run_document(run: Run, model: dict[str, Any], cluster: str | dict[str, Any]) -> dict[str, Any]:
    """Return a run as a run file has it.

    Parameters
    ----------
    model
        The model as a table: keys of our own model files, or the text of another.
    cluster
        The cluster by name, or as a table with its text.
    """
    named = {"name": run.name, "source": run.source}
    plain = ("sequence", "global_batch", "dtype", "padding", "context_kind", "cut_experts", "imbalance", "capacity")
    choices = choice_values(run.choices)
    if "sequence" in choices:  # which is the tokens of one here
        choices["sequence_parallel"] = choices.pop("sequence")
    return {
        "schema": SCHEMA,
        **{name: text for name, text in named.items() if text},
        "model": model,
        "cluster": cluster,
        **{name: getattr(run, name) for name in plain},
        "recipe": run.recipe.name,
        "framework": run.framework.name,
        **({} if run.flash is None else {"flash": run.flash}),
        "lengths": [{"stream": stream, "tokens": tokens} for stream, tokens in run.lengths],
        "reserve_gib": run.reserved_bytes / 2**30,
        "choices": {name: value for name, value in choices.items() if name != "recompute"},
        **({} if run.profile is None else {"profile": profile_document(run.profile)}),
    }


def run_file_document(path: Path) -> dict[str, Any]:
    """Return a run file with what it refers to put in; raises `InvalidProblem` as `read_run` does."""
    tables = Document.read(path).decode(RunFile)
    model = model_table(path.parent / tables.model) if isinstance(tables.model, str) else dict(tables.model)
    cluster = tables.cluster if isinstance(tables.cluster, dict) else cluster_value(tables.cluster, path.parent)
    return run_document(read_run(path), model, cluster)


def model_table(path: Path, vocabulary: int | None = None) -> dict[str, Any]:
    """Return a model file, or that of a folder, as the table of a run; raises `InvalidProblem`, naming the file."""
    text = read_text(model_file(path), InvalidProblem)
    return {"text": text} if vocabulary is None else {"text": text, "vocabulary": vocabulary}


def cluster_value(given: str, folder: Path = Path()) -> str | dict[str, Any]:
    """Return a cluster as given by name, or the texts of its file, looked for in a folder first."""
    file = next((path for path in (folder / given, Path(given)) if path.is_file()), None)
    if file is None:
        return given
    return cluster_table(cluster_text(file))


def cluster_table(texts: ClusterText) -> dict[str, Any]:
    """Return the texts of a cluster file as the table of a run."""
    return {"name": texts.name, "text": texts.text, **({"network": texts.network} if texts.network else {})}
