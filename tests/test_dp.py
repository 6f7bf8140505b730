"""The parts of the dynamic program: bounds are admissible, levels are those of true positions, limits are kept."""

from __future__ import annotations

import numpy as np
import pytest
from random_problems import Size, random_problem

from nest.cluster import Cluster, Level
from nest.cost.scale import scale_of
from nest.dp import optimum
from nest.dp.incumbent import Incumbent
from nest.dp.layout import layouts
from nest.dp.outer import Bounds, OuterChoices, least_blocks, outer_choices, useful_replicas
from nest.dp.profile import replica_offsets, uniform_profile
from nest.dp.relaxed import Relaxation
from nest.dp.sharding import ShardedStages
from nest.graph import Edge, Layer, LayerGraph
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Choices, Problem, Training, Variant
from nest.result import Progress, Status
from nest.solve import solve
from nest.tables import Tables, VariantTables
from nest.units import NEVER

SMALL = Size(layers=5, devices=12)
BOTH = pytest.mark.parametrize("preset", [ARTIFACT, PAPER], ids=lambda preset: preset.name)


def chain(layers: int, devices: tuple[int, ...], microbatches: int = 8, preset: Preset = PAPER) -> Problem:
    """Return a chain of equal layers on a tree, each level ten times slower than the one below."""
    graph = LayerGraph(
        tuple(Layer(at, 1e-3, 2e-3, 100, 10) for at in range(layers)),
        tuple(Edge(at, at + 1, 1000) for at in range(layers - 1)),
    )
    levels = tuple(Level(fanout, 1e8 / 10**at, 1e-6 * 10**at) for at, fanout in enumerate(devices))
    cluster = Cluster(int(np.prod(devices)), 10**6, levels)
    return Problem("chain", {Variant(1): graph}, cluster, Training(microbatches), preset=preset)


def tables_of(problem: Problem) -> list[VariantTables]:
    """Return the tables of every variant."""
    return Tables(problem, scale_of(problem)).variants


def restricted(problem: Problem, variant: Variant, stages: int, replicas: int, zero: frozenset[int]) -> int:
    """Return the best objective with one variant, number of stages and number of replicas; `NEVER` without a plan."""
    only = problem.with_choices(
        tensor=frozenset({variant.tensor}),
        expert=frozenset({variant.expert}),
        context=frozenset({variant.context}),
        sequence=variant.sequence,
        microbatch=frozenset({variant.microbatch}),
        stages=frozenset({stages}),
        replicas=frozenset({replicas}),
        zero=zero,
    )
    return optimum(Tables(only, scale_of(only)), None, None).objective_ticks or NEVER


@BOTH
@pytest.mark.parametrize("seed", range(40))
def test_bounds_are_admissible(seed: int, preset: Preset) -> None:
    """No plan of an outer choice is faster than the bound of that choice, with sharding and without."""
    problem = random_problem(seed, SMALL).with_preset(preset)
    unsharded = problem.choices.zero & {0}
    for tables in tables_of(problem):
        plain = outer_choices(Bounds(tables), sharded=False)
        for row in range(len(plain)) if unsharded else ():
            best = restricted(problem, tables.variant, plain[row].stages, plain[row].replicas, unsharded)
            assert plain.bounds[row] <= best, (seed, plain[row])
        sharded = outer_choices(Bounds(tables), sharded=True)
        for row in range(len(sharded)):
            assert sharded.bounds[row] <= _best_sharded(problem, tables, sharded, row), (seed, sharded[row])


@BOTH
@pytest.mark.parametrize("seed", range(40, 80))
def test_refined_bounds_are_admissible(seed: int, preset: Preset) -> None:
    """The bounds that look at the bytes to synchronise and at groups crossed are below every plan as well."""
    problem = random_problem(seed, SMALL).with_preset(preset)
    for tables in tables_of(problem):
        bounds = Bounds(tables)
        choices = outer_choices(bounds, sharded=True)
        if len(choices) == 0:
            continue
        relaxation = Relaxation(ShardedStages(tables.band(max(1, tables.deepest))), bounds)
        least = least_blocks(problem, tables.width, choices.stages)
        refined, by_interval = relaxation.refine(choices, tables.heights(choices.replicas, least * tables.width))
        assert (refined.bounds >= choices.bounds).all()
        assert (by_interval.min(axis=0) == refined.bounds).all()
        for row in range(len(choices)):
            best = _best_sharded(problem, tables, choices, row)
            assert refined.bounds[row] <= best, (seed, choices[row])


def _best_sharded(problem: Problem, tables: VariantTables, choices: OuterChoices, row: int) -> int:
    """Return the best objective of an outer choice; plans without sharding do not count unless they tie."""
    choice, zero = choices[row], problem.choices.zero
    best = restricted(problem, tables.variant, choice.stages, choice.replicas, zero)
    plain = restricted(problem, tables.variant, choice.stages, choice.replicas, zero & {0}) if 0 in zero else NEVER
    return NEVER if best == plain else best


@pytest.mark.parametrize(
    ("microbatches", "most", "allowed", "want"),
    [
        (8, 8, None, [1, 2, 3, 4, 8]),  # 8, 4, 3, 2, 2, 2, 2, 1 microbatches each
        (8, 6, None, [1, 2, 3, 4]),
        (1, 8, None, [1]),  # more replicas than microbatches are not allowed
        (8, 8, frozenset({3, 5, 6}), [3, 5]),
        (100, 100, frozenset({99}), [99]),
    ],
)
def test_useful_replicas(microbatches: int, most: int, allowed: frozenset[int] | None, want: list[int]) -> None:
    """Only the fewest replicas for each number of microbatches per replica are worth a look."""
    problem = chain(1, (128,), microbatches).with_choices(replicas=allowed)
    assert useful_replicas(problem, most).tolist() == want


def test_uniform_profile_worked() -> None:
    """Four stages of two devices on groups of four, the second replica starting in the middle of a group.

    Replica 0 takes devices 0 to 7: stage q (from the end) on 2q-2 and 2q-1. Boundaries of blocks: 0-3 within the first
    group, 2-5 across, 4-7 within the second. Replica 1 starts at 10, two into the third group: 10-13 across, 12-15
    within, 14-17 across.
    """
    problem = chain(4, (4, 8))
    one = uniform_profile(problem, 2, 4, np.array([0]), monotone=False)
    assert one == (((0, 0),), ((1, 0),), ((0, 1),), ((0, 0),))
    both = uniform_profile(problem, 2, 4, np.array([0, 10]), monotone=False)
    assert both == (((0, 0), (1, 0)), ((0, 1), (1, 0)), ((0, 1), (1, 0)), ((0, 0), (0, 1)))
    assert uniform_profile(problem, 2, 4, np.array([0, 10]), monotone=True)[0] == ((1, 0),)


@BOTH
@pytest.mark.parametrize("seed", range(30))
def test_layouts_see_true_levels(seed: int, preset: Preset) -> None:
    """What a layout says of a place in its cycle is what the devices there see, replica by replica."""
    rng = np.random.default_rng(seed)
    fanouts = tuple(int(fanout) for fanout in rng.integers(1, 5, size=int(rng.integers(1, 5))))
    problem = chain(3, fanouts, preset=preset)
    width, replicas = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    degrees = (1, 2, 3)
    for layout in layouts(problem, width, replicas, range(3, problem.cluster.devices // width // replicas + 1)):
        stride = next(s for s in range(3, layout.budget + 1) if s % layout.cycle in layout.ends)
        count = replicas if preset.all_replicas else 1
        starts = [replica * stride * width for replica in range(count)]
        if replica_offsets(problem, replicas, stride * width).tolist() != layout.offsets.tolist():
            continue  # a stride that sees fewer levels shares the place of its end
        for own in degrees:
            classes = layout.classes(own, degrees, monotone=False)
            for below, above, place in np.ndindex(len(degrees), len(degrees), layout.cycle):
                position = place + 3 * layout.cycle if layout.cycle <= layout.budget else place
                got = classes.triples[classes.which[below, above, place]]
                want = _seen(
                    problem, starts, [width * each for each in (degrees[below], own, degrees[above], position)]
                )
                assert set(got) == want, (fanouts, width, replicas, own, below, above, place)


def _seen(problem: Problem, starts: list[int], figures: list[int]) -> set[tuple[int, int, int]]:
    """Return the levels of entry, exit and block, from devices far enough up the line not to leave it below."""
    below, own, above, position = figures
    sizes = [size for size in problem.cluster.group_sizes if size < problem.cluster.devices]
    base = problem.cluster.period * 1000
    first = problem.preset.boundary == "first"

    def span(low: int, high: int) -> int:
        return sum(low // size != high // size for size in sizes)

    seen = set()
    for start in starts:
        low = base + start + position
        entry = span(low, low + own + (0 if first else above - 1))
        out = span(low - below, low + (0 if first else own - 1))
        seen.add((entry, out, span(low, low + own - 1)))
    return seen


def test_time_limit_leaves_a_valid_bound() -> None:
    """A search that is stopped at once proves little, but nothing false."""
    problem = chain(12, (4, 4, 4), 64)
    best = solve(problem).objective_ticks
    stopped = solve(problem, time_limit_s=1e-9)
    assert best is not None
    assert stopped.status is Status.UNKNOWN
    assert stopped.bound_ticks is not None
    assert stopped.bound_ticks <= best
    assert stopped.reason is not None


def test_progress_is_reported() -> None:
    """A long search tells how far it is, ending with its best plan in hand."""
    seen: list[Progress] = []
    graph = LayerGraph(
        tuple(Layer(at, 1e-3 * (1 + at % 7), 2e-3, 10**6 * (1 + at % 5), 10**7) for at in range(120)),
        tuple(Edge(at, at + 1, 10**6) for at in range(119)),
    )
    levels = (Level(8, 1e9, 1e-5), Level(8, 1e8, 1e-4))
    cluster = Cluster(64, 2 * 10**8, levels)
    problem = Problem("long", {Variant(1): graph}, cluster, Training(64), Choices(recompute="full"))
    solve(problem, report=seen.append)
    assert all(progress.settled <= progress.total for progress in seen)


def test_incumbent_keeps_the_better_plan() -> None:
    """Only a smaller objective replaces the plan; the cap is the largest load that still beats it."""
    incumbent = Incumbent()
    assert incumbent.plan() is None
    incumbent.objective = 101
    assert incumbent.load_cap(10) == 10
    assert incumbent.load_cap(10, 5) == 9
