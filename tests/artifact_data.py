"""Where the inputs of the original solver lie, if at all (arXiv 2603.06798, github.com/scai-tech/Nest at 3e163ad)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import pytest

HERE = Path(__file__).resolve().parent
PLACES = [above / "shared" / "artifact" for above in HERE.parents]
ARTIFACT_DATA = next((place for place in PLACES if place.is_dir()), PLACES[0])

needs_artifact_data = pytest.mark.skipif(
    not ARTIFACT_DATA.is_dir(), reason=f"the inputs of the original solver are not in {ARTIFACT_DATA}"
)


class Optimum(TypedDict):
    """A proven optimum, in the input's own unit of time; all None where no plan fits."""

    value: float | None
    t: int | None
    d: int | None
    cuts: list[int] | None


def read(name: str) -> Mapping[str, Mapping[str, Optimum]]:
    """Read a file of optima; empty where the data is not there."""
    path = ARTIFACT_DATA / name
    return json.loads(path.read_text()) if path.is_file() else {}
