"""Several classes of devices on one cluster: solver, judge, checker and reference agree, as integers."""

from __future__ import annotations

import pytest
from random_classes import FEW, mixed, mixed_places
from test_default_agreement import check


@pytest.mark.parametrize("seed", range(200))
def test_best_plan(seed: int) -> None:
    """Every plan on every line."""
    check(mixed(seed, FEW))


@pytest.mark.parametrize("seed", range(120))
def test_best_place(seed: int) -> None:
    """Every plan in every place, with idle devices, and around some that are down."""
    check(mixed_places(seed))
