"""The optimality checker where stages have widths of their own: it confirms optima, and refutes what is above.

That optima of small problems are those of all plans is in `test_uneven_agreement`, where the checker is asked as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import random_inside
import random_uneven
from injected import Fault, noticed, without_last
from seeds import seeds
from test_certificate_sums import claim_of, confirmed

from nest.certificate import Outcome, check, sum_check
from nest.certificate.sum_widths import Pipelines, Stages
from nest.solve import solve
from nest.tables.repeated import Passing
from nest.units import NEVER

LARGER = random_uneven.Size(layers=5, devices=16)


@pytest.mark.parametrize("seed", seeds(50, 600))
def test_tensor_widths(seed: int) -> None:
    """Optima of random problems, and one tick more."""
    confirmed(random_uneven.random_problem(seed, LARGER if seed % 3 == 0 else random_uneven.SMALL))


@pytest.mark.parametrize("seed", seeds(40, 400))
def test_sharded_inside(seed: int) -> None:
    """The same where stages may be sharded inside."""
    confirmed(random_inside.random_problem(seed))


def test_some_optima_are_uneven() -> None:
    """The problems do ask for plans whose stages differ."""
    plans = [solve(random_uneven.random_problem(seed)).plan for seed in range(40)]
    assert sum(plan is not None and plan.uneven for plan in plans) >= 3


def test_deadline() -> None:
    """A deadline that has passed settles nothing."""
    problem = random_uneven.random_problem(0)
    stopped = check(problem, claim_of(solve(problem).objective_ticks), deadline=time.perf_counter())
    assert (stopped.outcome, stopped.settled, stopped.better) == (Outcome.UNDECIDED, 0, None)


def _load_one_more(method: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*arguments: Any) -> Any:
        found = method(*arguments)
        return found._replace(load=np.minimum(found.load + 1, NEVER))

    return wrong


FAULTS: dict[str, Fault] = {
    "an outer choice is forgotten": (sum_check, "layouts", without_last),
    "a next stage is forgotten": (Pipelines, "followers", without_last),
    "every stage takes one tick longer": (Stages, "_own", _load_one_more),
    "the mean is too high": (sum_check, "least_load", lambda method: lambda *given: 2 * method(*given)),
    "nothing fits that recomputes": (
        Stages,
        "_own",
        lambda method: lambda *given: method(*given[:2], Passing(10**6), given[3]),
    ),
}
"""Faults that make the checker rule out too much."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that rules out too much confirms what is too high, or shows a plan that the judge prices otherwise."""
    noticed(FAULTS[fault], monkeypatch, _confirm_all)


def _confirm_all() -> None:
    for seed in range(200):
        confirmed(random_uneven.random_problem(seed))
