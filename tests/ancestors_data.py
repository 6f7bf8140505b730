"""Where the inputs of the two earlier solvers lie, if at all, with their proven optima."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nest.dag import DagProblem
from nest.files.ancestors import read_dag, with_devices

HERE = Path(__file__).resolve().parent
PLACES = [above / "shared" / "ancestors" for above in HERE.parents]
ANCESTORS = next((place for place in PLACES if place.is_dir()), PLACES[0])

needs_ancestors = pytest.mark.skipif(
    not ANCESTORS.is_dir(), reason=f"the inputs of dnn-partitioning and Piper are not in {ANCESTORS}"
)

FOLDERS = {"dnn-partitioning": "dnn_partitioning", "piper": "piper"}


def optima() -> list[dict[str, Any]]:
    """Return the cases; none where the data is not there."""
    path = ANCESTORS / "optima.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else []
    return found


def case_name(case: dict[str, Any]) -> str:
    """Return a name for a case."""
    return f"{case['file'].removesuffix('.json')} {case['variant'].partition(':')[2].strip() or case['variant']}"


def settings_of(case: dict[str, Any]) -> list[str]:
    """Return the devices of a case's variant, as ``--set`` takes them."""
    if case["suite"] == "piper":
        names = {"maxDevices": "device", "mbsInBatch": "microbatches", "maxMemoryPerDevice": "memory_bytes"}
        pairs = (setting.split("=") for setting in case["variant"].split())
        return [f"{names.get(name, name)}={value}" for name, value in pairs]
    return [
        f"accelerator={case['accelerators']}",
        f"cpu={case['cpus']}",
        f"memory_bytes={case['mem_limit_bytes']}",
    ]


def path_of(case: dict[str, Any]) -> Path:
    """Return the file of a case."""
    return ANCESTORS / FOLDERS[case["suite"]] / str(case["file"])


def problem_of(case: dict[str, Any]) -> DagProblem:
    """Read a case, with the devices of its variant."""
    return with_devices(read_dag(path_of(case)), settings_of(case))
