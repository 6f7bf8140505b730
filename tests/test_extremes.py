"""Problems at the edge of what can be counted: no time, vanishing times, endless rings, flat and wide clusters."""

from __future__ import annotations

import time

import pytest
from pace import is_within

from nest.cluster import Cluster, Level
from nest.errors import InvalidProblem
from nest.graph import Edge, Layer, LayerGraph
from nest.presets import ARTIFACT, PAPER
from nest.problem import Choices, Problem, Training, Variant
from nest.result import Status
from nest.solve import solve


def chain(seconds: float, cluster: Cluster, choices: Choices, *, layers: int = 3, edge: int = 10) -> Problem:
    """Return equal layers, half of their time backward, with 1,000 bytes of parameters and 1 of activations."""
    graph = LayerGraph(
        tuple(Layer(at, seconds / 2, seconds / 2, 1000, 1) for at in range(layers)),
        tuple(Edge(at, at + 1, edge) for at in range(layers - 1)),
    )
    return Problem("chain", {Variant(1): graph}, cluster, Training(2, "adam"), choices, PAPER)


def test_no_time_at_all() -> None:
    """Layers that take no time are fastest in one stage, without transfers: nothing to round, and an objective of 0."""
    result = solve(chain(0.0, Cluster(2, 10**6, (Level(2, 1e9, 1e-6),)), Choices()))
    assert (result.status, result.objective_ticks) == (Status.OPTIMAL, 0)


@pytest.mark.parametrize("seconds", [1e-320, 1e-300])
def test_vanishing_times_are_refused(seconds: float) -> None:
    """Times that no tick can resolve are refused with a message."""
    with pytest.raises(InvalidProblem, match="ticks of"):
        solve(chain(seconds, Cluster(2, 10**6, (Level(2, 1e9, 1e-6),)), Choices()))


def test_ring_beyond_64_bits() -> None:
    """A ring of 65,535 steps of a second leaves the range; where all plans need one, the problem is refused."""
    choices = Choices(zero=frozenset({3}), zero_degree=frozenset({65536}))
    cluster = Cluster(65536, 10**6, (Level(65536, 450e9, 1.0),))
    problem = chain(2e-6, cluster, choices, layers=2, edge=32_000_000).with_preset(ARTIFACT)
    with pytest.raises(InvalidProblem, match="ticks can count"):
        solve(problem)


@pytest.mark.parametrize("fanouts", [(8192, 1), (1, 8192), (8192,)])
def test_flat_and_wide(fanouts: tuple[int, ...]) -> None:
    """Levels that join nothing cost no search: a group as large as the cluster is never left."""
    levels = tuple(Level(fanout, 1e9, 1e-3) for fanout in fanouts)
    problem = chain(1e-2, Cluster(8192, 10**9, levels), Choices(zero=frozenset({2})), layers=2)
    assert solve(problem).status is Status.OPTIMAL
    assert is_within(5, lambda: solve(problem))


def test_time_limit_holds_inside_an_outer_choice() -> None:
    """A search over many layouts stops soon after its limit, with a bound below its plan."""
    cluster = Cluster(16384, 2**53, (Level(8192, 1e9, 9.0), Level(2, 1e9, 9.0)))
    choices = Choices(zero=frozenset({0, 3}), zero_degree=frozenset({2, 8192}))
    begin = time.perf_counter()
    result = solve(chain(0.8, cluster, choices), time_limit_s=0.5)
    assert time.perf_counter() - begin < 10
    assert result.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert result.bound_ticks is not None
    assert result.objective_ticks is not None
    assert result.bound_ticks <= result.objective_ticks
