"""Figures as they were published, with their source in the first lines of each file."""

from __future__ import annotations

import csv
from pathlib import Path


def read_figures(name: str) -> tuple[str, list[dict[str, str]]]:
    """Return the source of a table, and its rows."""
    lines = (Path(__file__).parent / f"{name}.csv").read_text().splitlines()
    source = " ".join(line[1:].strip() for line in lines if line.startswith("#"))
    return source, list(csv.DictReader(line for line in lines if not line.startswith("#")))
