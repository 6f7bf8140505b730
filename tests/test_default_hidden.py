"""What stages hide of their exchanges under preset `default`, the optimizer's step and its memory: figures by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_default import CHAIN, judged, loads, plan_of, problem_of, seconds, syncs

from nest.cost.overlap import hideable, left
from nest.graph import LayerGraph, Recomputed
from nest.problem import Copies, Training


def short(backward_s: float, forward_s: float = 0.0) -> LayerGraph:
    """Return the chain with layers that hardly compute."""
    layers = tuple(replace(layer, forward_s=forward_s, backward_s=backward_s) for layer in CHAIN.layers)
    return LayerGraph(layers, CHAIN.edges)


SUMMED = 2 * 0.01 + 40 / 100
"""An all-reduce of four layers of 10 bytes over a pair."""


def test_sums_hide_behind_the_last_backward_pass() -> None:
    """All but those of the last of four layers, no more than the backward pass takes; what is hidden costs a tenth."""
    problem = problem_of(hides_gradients=True, overlap_tax=0.1)
    assert syncs(judged(problem, plan_of(problem, [0, 4], 2))) == pytest.approx([SUMMED - 0.9 * 3 / 4 * SUMMED])
    problem = problem_of(graph=short(0.01), hides_gradients=True, overlap_tax=0.1)
    assert syncs(judged(problem, plan_of(problem, [0, 4], 2))) == pytest.approx([SUMMED - 0.9 * 0.04])


def test_a_stage_of_one_layer_hides_half() -> None:
    """As if it had two."""
    problem = problem_of(hides_gradients=True)
    found = syncs(judged(problem, plan_of(problem, [0, 1, 4], 2)))
    assert found == pytest.approx([(0.02 + 0.1) / 2, (0.02 + 0.3) / 3])


def test_gathers_behind_the_step_are_not_hidden() -> None:
    """Type 1 hides its reduce-scatter, not its all-gather; gradients of twice as many bits have 80 bytes."""
    problem = problem_of(hides_gradients=True, copies=Copies(6, 2, 0.5))
    scattered, gathered = 0.01 + 80 / 200, 0.01 + 20 / 200
    found = syncs(judged(problem, plan_of(problem, [0, 4], 2, zeros=(1,))))
    assert found == pytest.approx([scattered / 4 + gathered])


@pytest.mark.parametrize("backward", [1.0, 0.01])
def test_scattered_gradients_hide_behind_the_stage(backward: float) -> None:
    """Type 2: four reduce-scatters of 10 bytes beside the passes of all four layers."""
    scattered = 4 * (0.01 + 10 / 200)
    problem = problem_of(graph=short(backward), hides_gradients=True, overlap_tax=0.1)
    found = loads(judged(problem, plan_of(problem, [0, 4], 2, zeros=(2,))))
    assert found == pytest.approx([4 * backward + scattered - 0.9 * min(scattered, 4 * backward)])


def test_gathered_weights_hide_behind_their_layer() -> None:
    """Type 3: of 0.06 s forward 0.05 hide, but for the first layer; of 0.12 s backward all behind a repeated pass."""
    layers = tuple(replace(layer, recomputed=(Recomputed("full", 0.05, 0),)) for layer in short(0.08, 0.05).layers)
    problem = problem_of(graph=LayerGraph(layers, CHAIN.edges), hides_gradients=True)
    plan = plan_of(problem, [0, 4], 2, zeros=(3,))
    half = replace(plan, stages=(replace(plan.stages[0], recompute="full", recomputed=2),))
    assert loads(judged(problem, plan)) == pytest.approx([4 * 0.13 + 0.06 + 3 * 0.01 + 4 * 0.04])
    assert loads(judged(problem, half)) == pytest.approx([4 * 0.13 + 2 * 0.05 + 0.06 + 3 * 0.01 + 2 * 0.04])


def test_shares_are_summed_beside_what_is_left() -> None:
    """Two groups of two ranks scatter for each microbatch, and have what that leaves of the backward pass for sums."""
    problem = problem_of(graph=short(0.1), hides_gradients=True, microbatches=8)
    plan = plan_of(problem, [0, 4], 4, zeros=(2,))
    pairs = replace(plan, stages=(replace(plan.stages[0], sharding=replace(plan.stages[0].sharding, degree=2)),))
    scattered, across, gathered = 4 * 0.06, 2 * 0.1 + 20 / 10, 0.01 + 40 / 200
    assert syncs(judged(problem, pairs)) == pytest.approx([across - (0.4 - scattered) + gathered])


def test_pipelines_may_hold_what_they_gather() -> None:
    """Type 3 exchanges as type 1 does, and holds 10 + 5 bytes of each layer besides half of 10 + 10."""
    problem = problem_of(holds_gathered=True, copies=Copies(0, 1, 0.5), microbatches=2)
    plans = [plan_of(problem, cuts, 2, zeros=zeros) for cuts, zeros in (([0, 4], (3,)), ([0, 1, 4], (3, 3)))]
    alone, several = (judged(problem, plan) for plan in plans)
    assert syncs(alone) == [0]
    assert syncs(several) == pytest.approx([0.01 + n * 10 / 200 + 0.01 + n * 5 / 200 for n in (1, 3)])
    assert loads(several) == pytest.approx([3 + 0.1 + 5 / 10, 9 + 0.1 + 5 / 10])
    assert alone.memory_bytes == [40 + 16 + 15]
    assert several.memory_bytes == [n * (10 + 15 + 4) for n in (1, 3)]


def test_sums_may_be_whole() -> None:
    """Type 1 with an all-reduce: each rank has all sums, and steps on its share."""
    problem = problem_of(sums_whole=True)
    found = syncs(judged(problem, plan_of(problem, [0, 4], 2, zeros=(1,))))
    assert found == pytest.approx([SUMMED + 0.01 + 40 / 200])


def test_sends_may_block() -> None:
    """Whoever sends waits as long as whoever receives: both ends of a boundary pay twice."""
    plain, blocked = problem_of(), problem_of(blocking_sends=True)
    plans = [plan_of(each, [0, 1, 3, 4]) for each in (plain, blocked)]
    verdicts = [judged(each, plan) for each, plan in zip((plain, blocked), plans, strict=True)]
    assert loads(verdicts[0]) == pytest.approx([3 + 0.06, 6 + 0.06 + 0.6, 3 + 0.6])
    assert loads(verdicts[1]) == pytest.approx([3 + 2 * 0.06, 6 + 2 * 0.06 + 2 * 0.6, 3 + 2 * 0.6])
    forward = [seconds(verdicts[1], stage.forward) for stage in verdicts[1].stages]
    assert forward == pytest.approx([1 + 0.06, 2 + 0.06 + 0.6, 1 + 0.6])


@pytest.mark.parametrize(("zero", "stepped"), [(0, 40), (1, 20), (3, 20)])
def test_step(zero: int, stepped: int) -> None:
    """The slowest stage steps once per iteration, on the weights whose state it holds."""
    plain, stepping = problem_of(), problem_of(step_s_per_byte=0.5)
    verdicts = [judged(each, plan_of(each, [0, 4], 2, zeros=(zero,))) for each in (plain, stepping)]
    assert syncs(verdicts[1])[0] - syncs(verdicts[0])[0] == pytest.approx(stepped / 2)
    assert seconds(verdicts[1], verdicts[1].stages[0].step) == stepped / 2
    ticks = [each.objective_ticks for each in verdicts]
    assert seconds(verdicts[1], ticks[1]) - seconds(verdicts[0], ticks[0]) == pytest.approx(stepped / 2)


def test_memory_of_a_step() -> None:
    """The step takes 3 bytes for each of 40, when activations are gone: 120 over the 16 of a microbatch."""
    problem = problem_of(copies=Copies(0, 1, stepped=3))
    assert judged(problem, plan_of(problem, [0, 4])).memory_bytes == [80 + 120]
    assert judged(problem, plan_of(problem, [0, 4], 2, zeros=(1,))).memory_bytes == [80 + 60]


def test_gathered_weights_are_rounded_up() -> None:
    """Of 10 bytes 1/64 is gathered: a byte, beside 10 of gradients and what is kept, with half of the state."""
    problem = problem_of(copies=Copies(0, 1, 1 / 64))
    assert judged(problem, plan_of(problem, [0, 4], 2, zeros=(3,))).memory_bytes == [40 + 16 + 10 + 1]


def test_what_is_left_in_integers() -> None:
    """Gains and parts are rounded down, so that nothing is left out."""
    assert [int(left(7, beside, 900_000)) for beside in (0, 1, 5, 9)] == [7, 7, 3, 1]
    assert [int(hideable(7, layers)) for layers in (1, 2, 3, 7, 8)] == [3, 3, 4, 6, 6]
    huge = 2**59 + 1
    assert int(left(huge, huge, 999_999)) == huge - huge * 999_999 // 10**6


def test_without_overlap_all_is_left() -> None:
    """The tax counts for what layers hide of their own collectives even then."""
    problem = problem_of(overlap_tax=0.1)
    assert syncs(judged(problem, plan_of(problem, [0, 4], 2))) == pytest.approx([SUMMED])
    assert not Training(4).hides_gradients
