"""Seeds of random problems: the first in every run, the others where slow tests run too."""

from __future__ import annotations

import pytest


def seeds(quick: int, all_of_them: int) -> list[object]:
    """Return so many seeds from 0 on, of which those after the quick ones are marked slow."""
    later = (pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, all_of_them))
    return [*range(quick), *later]
