"""Seeds of random problems: the first in every run, the others where slow tests run too."""

from __future__ import annotations

import pytest


def seeds(quick: int, all_of_them: int, *, first: int = 0) -> list[object]:
    """Return so many seeds from a first one on, of which those after the quick ones are marked slow."""
    later = range(first + quick, first + all_of_them)
    return [*range(first, first + quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in later)]
