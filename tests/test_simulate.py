"""The simulator plays schedules as they are defined, and agrees with every closed formula about them."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial
from itertools import pairwise, product

import pytest
from pace import is_within
from seeds import seeds

from nest.cost.schedule import iteration, summed
from nest.cost.schedules import (
    Schedule,
    bubble,
    in_flight,
    least_by_load,
    least_by_wait,
    schedule_named,
    waves,
)
from nest.errors import InvalidProblem
from nest.presets import SCHEDULES
from nest.simulate import Event, Pipeline, Run, StageTimes, simulate

ONE, GPIPE, ZERO_BUBBLE = Schedule("1f1b"), Schedule("gpipe"), Schedule("zb-h1")
INTERLEAVED = tuple(Schedule("interleaved", chunks) for chunks in (2, 3, 4))
ALL = (ONE, GPIPE, ZERO_BUBBLE, *INTERLEAVED)


def equal(stages: int, microbatches: int, forward: int, backward: int, weight: int = 0) -> Pipeline:
    """Return a pipeline of equal stages whose transfers take no time."""
    return Pipeline((StageTimes(forward, backward, weight),) * stages, microbatches)


def uneven(forwards: list[int], backwards: list[int], microbatches: int) -> Pipeline:
    """Return a pipeline of stages with these passes."""
    return Pipeline(tuple(map(StageTimes, forwards, backwards)), microbatches)


def random_pipeline(rng: random.Random, *, overlapped: bool = False) -> Pipeline:
    """Return a small pipeline in which everything may take time, or none."""
    stages, most = rng.randint(1, 6), rng.choice([1, 9, 100])

    def ticks() -> int:
        return rng.choice([0, 1, rng.randint(0, most), rng.randint(0, most)])

    times = []
    for at in range(stages):
        weight = ticks()
        there, back = ticks() if at else 0, ticks() if at + 1 < stages else 0
        times.append(StageTimes(ticks(), weight + ticks(), weight, ticks(), there, back))
    return Pipeline(tuple(times), rng.randint(1, 14), ticks(), overlapped)


def on_stages(run: Run) -> dict[int, list[Event]]:
    """Return what each stage does, by its number."""
    events: dict[int, list[Event]] = defaultdict(list)
    for event in run.events():
        if event.kind not in ("activation", "gradient"):
            events[event.stage].append(event)
    return events


def test_worked_by_hand() -> None:
    """Two uneven stages, transfers included: every tick of every event."""
    run = simulate(Pipeline((StageTimes(2, 3, receive_gradient=1), StageTimes(3, 4, receive=1)), 2), ONE)
    seen = [(event.stage, event.kind, event.microbatch, event.start, event.end) for event in run.events()]
    assert seen == [
        (0, "forward", 0, 0, 2),
        (0, "forward", 1, 2, 4),
        (0, "receive", 0, 10, 11),
        (0, "backward", 0, 11, 14),
        (0, "receive", 1, 18, 19),
        (0, "backward", 1, 19, 22),
        (1, "receive", 0, 2, 3),
        (1, "forward", 0, 3, 6),
        (1, "backward", 0, 6, 10),
        (1, "receive", 1, 10, 11),
        (1, "forward", 1, 11, 14),
        (1, "backward", 1, 14, 18),
    ]
    assert (run.makespan, run.busy, run.idle, run.ends, run.in_flight) == (22, (12, 16), (10, 6), (22, 18), (2, 1))


def test_worked_by_hand_overlapped() -> None:
    """The same, with transfers beside the work: the second activation is there long before it is needed."""
    times = StageTimes(2, 3, receive_gradient=1), StageTimes(3, 4, receive=1)
    run = simulate(Pipeline(times, 2, overlapped=True), ONE)
    assert [event[:4] for event in run.transfers if event.kind == "activation"] == [(2, 3, 1, 0), (4, 5, 1, 1)]
    assert [event[:4] for event in run.transfers if event.kind == "gradient"] == [(10, 11, 0, 0), (17, 18, 0, 1)]
    assert (run.makespan, run.busy) == (21, (10, 14))


def test_worked_by_hand_blocked() -> None:
    """The same, with sends that keep a stage busy; chunks of the last stage send to the first."""
    times = StageTimes(2, 3, receive_gradient=1, send=1), StageTimes(3, 4, receive=1, send_gradient=1)
    run = simulate(Pipeline(times, 2), ONE)
    sent = [event[:4] for event in run.events() if event.kind == "send"]
    assert sent == [(2, 3, 0, 0), (5, 6, 0, 1), (11, 12, 1, 0), (20, 21, 1, 1)]
    assert (run.makespan, run.busy) == (25, (14, 18))
    assert simulate(Pipeline(times, 2, overlapped=True), ONE).makespan == 21
    wrapped = simulate(Pipeline(times, 2, wrap=1, wrap_send=5), Schedule("interleaved", 2))
    sends = [
        [event.end - event.start for event in wrapped.events() if event[2:] == (at, 0, 0, "send")] for at in (0, 1)
    ]
    assert sends == [[1], [5, 1]]


@pytest.mark.parametrize("schedule", ALL, ids=str)
def test_formula_for_equal_stages(schedule: Schedule) -> None:
    """Every schedule takes what its formula says: also fewer microbatches than stages, and no multiple of them."""
    rng = random.Random(1)
    for stages, microbatches in product(range(1, 8), range(1, 24)):
        forward, inputs, weight = (12 * rng.randint(0, 5) for _ in range(3))
        run = simulate(equal(stages, microbatches, forward, inputs + weight, weight), schedule)
        idle = bubble(schedule, stages, microbatches, forward=forward, backward=inputs + weight, weight=weight)
        assert run.idle == (idle,) * stages, (schedule, stages, microbatches, forward, inputs, weight)
        assert run.makespan == microbatches * (forward + inputs + weight) + idle


@pytest.mark.parametrize("schedule", ALL, ids=str)
def test_in_flight(schedule: Schedule) -> None:
    """The most microbatches that a stage keeps are as many as the formula of the schedule says, and no more ever."""
    for stages, microbatches in product(range(1, 8), range(1, 24)):
        run = simulate(equal(stages, microbatches, 1, 2, 1), schedule)
        limits = [in_flight(schedule, stages, at, microbatches) for at in range(stages)]
        assert list(run.in_flight) == limits, (schedule, stages, microbatches)


def test_published_bubbles() -> None:
    """Figures of the papers: 1F1B, a v-th with v chunks, and a third for zero bubble with T_F = T_B = T_W."""
    for stages, microbatches in ((4, 8), (8, 8), (8, 64)):
        plain = simulate(equal(stages, microbatches, 12, 24, 12), ONE)
        assert plain.idle[0] / plain.makespan == (stages - 1) / (microbatches + stages - 1)
        assert simulate(equal(stages, microbatches, 12, 24, 12), GPIPE).idle == plain.idle
        for schedule in INTERLEAVED:
            chunked = simulate(equal(stages, microbatches, 12, 24, 12), schedule)
            assert chunked.idle[0] * schedule.chunks == plain.idle[0]
        zero = simulate(equal(stages, microbatches, 12, 24, 12), ZERO_BUBBLE)
        assert 3 * zero.idle[0] == plain.idle[0]
        assert max(zero.in_flight) == max(plain.in_flight)


def test_published_memory_of_chunks() -> None:
    """Korthikanti et al.: interleaving keeps 1 + (S - 1) / (S v) times as much on the first stage."""
    for stages, schedule in product((2, 4, 8), INTERLEAVED):
        held = simulate(equal(stages, 4 * stages, 12, 24), schedule).in_flight[0] / schedule.chunks
        assert held == pytest.approx(stages * (1 + (stages - 1) / (stages * schedule.chunks)))


def check(run: Run) -> None:
    """Assert that every pass is taken once, in an order that makes sense, and as early as its stage and input allow."""
    stages, chunks = len(run.starts), run.schedule.chunks
    done: dict[tuple[str, int, int], int] = {}
    for at, (order, starts) in enumerate(zip(run.orders, run.starts, strict=True)):
        kinds = {"forward", "backward"} | ({"weight"} if run.schedule.name == "zb-h1" else set())
        every = product(kinds, range(chunks), range(run.pipeline.microbatches))
        assert sorted(map(tuple, order)) == sorted(every)
        place: dict[tuple[str, int, int], int] = {each: position for position, each in enumerate(order)}
        for kind, chunk, microbatch in order:
            before = {"backward": "forward", "weight": "backward"}.get(kind)
            assert before is None or place[before, chunk, microbatch] < place[kind, chunk, microbatch]
            start = starts[place[kind, chunk, microbatch]]
            done[kind, chunk * stages + at, microbatch] = start + run.durations.busy[at][kind][chunk]
    sent = {(each.kind, each.chunk * stages + each.stage, each.microbatch): each for each in run.transfers}
    for at, (order, starts) in enumerate(zip(run.orders, run.starts, strict=True)):
        free = 0
        for (kind, chunk, microbatch), start in zip(order, starts, strict=True):
            here, there = chunk * stages + at, 0
            source = here - 1 if kind == "forward" else here + 1
            if kind != "weight" and 0 <= source < stages * chunks:
                there = done[kind, source, microbatch]
                transfer = sent.get(("activation" if kind == "forward" else "gradient", here, microbatch))
                if transfer is not None:
                    assert transfer.start >= there
                    there = transfer.end
            assert start == max(free, there)
            free = done[kind, here, microbatch]


@pytest.mark.parametrize("seed", seeds(60, 300))
def test_nothing_is_late_or_early(seed: int) -> None:
    """Random pipelines under every schedule: dependences hold, and no stage waits without a reason."""
    rng = random.Random(seed)
    pipeline = random_pipeline(rng, overlapped=seed % 2 == 1)
    run = simulate(pipeline, ALL[seed // 2 % len(ALL)])
    check(run)
    for at, events in on_stages(run).items():
        assert all(first.end <= second.start for first, second in pairwise(events))
        assert sum(event.end - event.start for event in events) == run.busy[at]
        assert run.busy[at] + run.idle[at] == run.makespan
    by_connection = defaultdict(list)
    for event in run.transfers:
        by_connection[event.kind, event.stage].append(event)
    for events in by_connection.values():
        assert all(first.end <= second.start for first, second in pairwise(sorted(events)))


@pytest.mark.parametrize("seed", seeds(60, 150))
def test_overlapping_never_hurts(seed: int) -> None:
    """Transfers beside the work never make an iteration longer."""
    for schedule in ALL:
        blocked = random_pipeline(random.Random(seed))
        overlapped = Pipeline(blocked.stages, blocked.microbatches, blocked.wrap, overlapped=True)
        assert simulate(overlapped, schedule).makespan <= simulate(blocked, schedule).makespan


def test_bounds_on_random_pipelines() -> None:
    """Both lower bounds, the simulation, and `sum`, in this order, where backward is the same multiple of forward."""
    rng = random.Random(3)
    for _ in range(3000):
        stages, ratio = rng.randint(1, 9), (rng.randint(0, 3), rng.randint(1, 4))
        times = [rng.choice([rng.randint(0, 3), rng.randint(10, 20), 100]) for _ in range(stages)]
        microbatches = rng.choice([rng.randint(1, 8), stages, 4 * stages])
        forwards, backwards = ([part * each for each in times] for part in ratio)
        loads = [sum(ratio) * each for each in times]
        taken = simulate(uneven(forwards, backwards, microbatches), ONE).makespan
        shown = forwards, backwards, microbatches
        assert least_by_load(loads, microbatches) <= least_by_wait(forwards, loads, microbatches) <= taken, shown
        assert taken <= summed(sum(loads), max(loads), microbatches, 0), shown


def beyond_sum(forwards: list[int], backwards: list[int], microbatches: int) -> int:
    """Return by how much no pipeline tried so far takes longer than `sum` says: seen, not proven."""
    slowest = max(forward + backward for forward, backward in zip(forwards, backwards, strict=True))
    return (min(microbatches, len(forwards)) - 1) * (max(forwards) + max(backwards) - slowest)


def test_bounds_where_passes_differ() -> None:
    """Where stages differ in what part of their load is forward, `sum` may be too short; what is said of it holds."""
    rng, exceeded = random.Random(4), 0
    for _ in range(3000):
        stages, microbatches = rng.randint(1, 8), rng.randint(1, 16)
        style = rng.choice([(0, 0, 1, 7), (1, 1, 100, 1000), tuple(range(1, 20))])
        forwards, backwards = ([rng.choice(style) for _ in range(stages)] for _ in range(2))
        loads = [forward + backward for forward, backward in zip(forwards, backwards, strict=True)]
        taken = simulate(uneven(forwards, backwards, microbatches), ONE).makespan
        most = summed(sum(loads), max(loads), microbatches, 0)
        shown = forwards, backwards, microbatches
        assert least_by_load(loads, microbatches) <= least_by_wait(forwards, loads, microbatches) <= taken, shown
        assert taken <= most + beyond_sum(forwards, backwards, microbatches), shown
        assert taken <= iteration(max(loads), microbatches, 1, stages, 0), shown
        exceeded += taken > most
    assert exceeded > 100


def test_smallest_pipeline_above_sum() -> None:
    """Three stages, two microbatches, one tick each way on different stages: a tick more than `sum` says."""
    forwards, backwards = [0, 1, 0], [1, 0, 0]
    assert simulate(uneven(forwards, backwards, 2), ONE).makespan == 4
    assert summed(2, 1, 2, 0) == 3
    assert beyond_sum(forwards, backwards, 2) == 1


def test_waves() -> None:
    """As many as stages where that divides; otherwise more, never fewer, unless there are not so many at all."""
    assert waves(12, 4) == (4, 4, 4)
    assert waves(14, 4) == (5, 5, 4)
    assert waves(13, 4) == (7, 6)
    assert waves(7, 4) == (7,)
    assert waves(3, 4) == (3,)
    for stages, microbatches in product(range(1, 9), range(1, 60)):
        sizes = waves(microbatches, stages)
        assert sum(sizes) == microbatches
        assert min(sizes) >= min(stages, microbatches)
        assert len(set(sizes[:-1])) <= 1
        for less in range(min(stages, microbatches), sizes[0]):  # Megatron-LM does not start with it
            assert 0 < microbatches % less < stages


def test_chunks_share_what_a_stage_takes() -> None:
    """No tick is lost where times do not divide, and each boundary of chunks is crossed once each way."""
    times = StageTimes(7, 11, receive_gradient=2), StageTimes(7, 11, receive=1)
    run = simulate(Pipeline(times, 4, wrap=5), Schedule("interleaved", 3))
    assert run.busy == (4 * (18 + 3 * 2 + 2 * 5), 4 * (18 + 3 * 1 + 2 * 5))


def test_nothing_is_sent_by_a_stage_to_itself() -> None:
    """A single stage with chunks never receives."""
    assert simulate(Pipeline((StageTimes(6, 6),), 5, wrap=9), Schedule("interleaved", 3)).makespan == 60


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: StageTimes(-1, 2), "forward"),
        (lambda: StageTimes(1, 2, weight=3), "weight"),
        (lambda: Pipeline((), 1), "stages"),
        (lambda: equal(2, 0, 1, 1), "microbatches"),
        (lambda: Pipeline((StageTimes(1, 1),), 1, wrap=-1), "wrap"),
        (lambda: Pipeline((StageTimes(1, 1, receive=1),), 1), "receive"),
        (lambda: Pipeline((StageTimes(1, 1, send=1),), 1), "send"),
        (lambda: Schedule("1f1b", 2), "chunks"),
        (lambda: Schedule("interleaved"), "chunks"),
        (lambda: schedule_named("zbv"), "schedule"),
    ],
)
def test_refused(make: object, what: str) -> None:
    """What makes no pipeline is refused, naming the figure."""
    assert callable(make)
    with pytest.raises(InvalidProblem) as caught:
        make()
    assert caught.value.where == what
    assert caught.value.remedy


def test_names() -> None:
    """Every schedule can be asked for by its name."""
    assert [schedule_named(name, 2 if name == "interleaved" else 1).name for name in SCHEDULES] == list(SCHEDULES)


def test_quick() -> None:
    """16 stages and 512 microbatches take 0.03 s; the limit is generous to slow machines."""
    for schedule in (ONE, ZERO_BUBBLE):
        run = simulate(equal(16, 512, 3, 6, 3), schedule)
        assert run.makespan == 512 * 9 + bubble(schedule, 16, 512, forward=3, backward=6, weight=3)
        assert is_within(1, partial(simulate, equal(16, 512, 3, 6, 3), schedule))
