"""Results of problems on graphs with branches as JSON, under the schema ``nest.dag.result/1``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nest.dag import DagResult, DagStage, Price
from nest.files.disk import write_text

DAG_RESULT_SCHEMA = "nest.dag.result/1"


def dag_result_document(result: DagResult) -> dict[str, Any]:
    """Return a result as plain objects: loads in the problem's unit of time, sizes in bytes, ids as in the problem."""
    return {
        "schema": DAG_RESULT_SCHEMA,
        "problem": result.problem.name,
        "preset": result.problem.preset.name,
        "status": result.status.value,
        "objective": result.value,
        "bound": result.bound_value,
        "objective_parts": result.objective,
        "bound_parts": result.bound,
        "reason": result.reason or None,
        "downsets": result.downsets,
        "complete": result.complete,
        "wall_s": result.wall_s,
        "stages": [_stage(result, *pair) for pair in zip(result.stages, result.prices, strict=True)],
    }


def write_dag_result(result: DagResult, path: str | Path) -> None:
    """Write a result, whole or not at all; raises `OSError` if the file cannot be written."""
    write_text(path, json.dumps(dag_result_document(result), indent=2, allow_nan=False) + "\n")


def _stage(result: DagResult, stage: DagStage, price: Price) -> dict[str, Any]:
    return {
        "layers": list(stage.layers),
        "devices": stage.kind,
        "width": stage.width,
        "replicas": stage.replicas,
        "options": list(stage.options),
        "load": result.load.value(price.load),
        "memory_bytes": price.memory / result.load.bytes_scale,
    }
