"""The variants of a run whose plans could be the fastest: all others are slower than a plan that is known.

No variant is left out because it is unusual. Some shapes that promise much are solved first, roughly; what their plan
takes rules out every variant whose floor (`nest.runs.floors`) is above it, most of them before they are priced.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from math import gcd, inf

from nest.cost.scale import scale_of
from nest.errors import InvalidProblem
from nest.files.left_out import LeftOut
from nest.graph import LayerGraph
from nest.problem import Choices, Problem, Variant
from nest.result import Result, Status
from nest.runs.floors import Floor, Floors
from nest.runs.pose import Maker, Posed, problem_of
from nest.runs.run import Run
from nest.solve import solve

FIRST = 12
"""Shapes that are solved first."""

FURTHER = 4
"""How many times as many are, where these have no plan."""

FEW = 256
"""As many variants are all tried where nothing is known that rules out some of them."""

ROUGHLY = 0.2
"""Part of its time by which the first plan may be above what is proven for these shapes."""


def _ask(problem: Problem, within: float) -> Result:
    return solve(problem, within=within)


def _same(problem: Problem) -> Problem:
    return problem


def contenders(
    run: Run,
    ask: Callable[[Problem, float], Result] = _ask,
    change: Callable[[Problem], Problem] = _same,
    margin: float = 1.0,
) -> Posed:
    """Return a run as a problem that has every fastest plan of the space, whatever its widths and microbatch.

    Where no floors are known it is the problem of `all_if_few`: for measured times, stages with figures of their own,
    or an objective that is the time of one stage; or where no plan is found in time. Where times of usual and unusual
    variants lie too far apart to be counted in the same ticks it is that of the usual ones, as `problem_of` has it.

    Parameters
    ----------
    ask
        Solves a problem of some of the variants, up to a part of its plan's time, as ``within`` of `nest.solve.solve`.
    change
        Makes the changes to choices with which the problem is to be solved.
    margin
        Plans that take up to this many times what the first plan takes are to be in the problem, too.

    Raises
    ------
    InvalidProblem
        As `problem_of`, and what ``ask`` and ``change`` raise.
    """
    if run.profile is not None or run.choices.uneven:
        return all_if_few(run, change)
    maker = Maker(run, every=True)
    shapes = maker.shapes()
    probe = maker.problem(dict.fromkeys(shapes, maker.graph(shapes[0])))
    asked = change(probe)
    nested = all(probe.unnested(shape) is None for shape in shapes)
    if asked.preset.objective not in ("sum", "simulated") or asked.choices.uneven or not nested:
        return all_if_few(run, change)
    race = _Race(maker, probe, shapes, asked.choices)
    try:
        first_s = race.first_s(lambda problem: ask(_with_few_stages(change(problem)), ROUGHLY))
        posed = None if first_s is None else race.posed(first_s * margin)
        if posed is not None:
            scale_of(change(posed.problem))
    except InvalidProblem:
        return problem_of(run)
    return posed or all_if_few(run, change)


def all_if_few(run: Run, change: Callable[[Problem], Problem] = _same) -> Posed:
    """Return a run with the problem of all its variants where these are no more than `FEW`, else of the usual ones.

    That is for questions about which a floor of time says nothing. Where the times of all lie too far apart to be
    counted in the same ticks, it is of the usual ones, too.

    Parameters
    ----------
    change
        Makes the changes to choices with which the problem is to be solved.

    Raises
    ------
    InvalidProblem
        As `problem_of`, and what ``change`` raises.
    """
    maker = Maker(run, every=True)
    shapes = maker.shapes()
    if len(shapes) * len(maker.widths.microbatch[0]) > FEW:
        return problem_of(run)
    posed = maker.of({variant: graph for shape in shapes for variant, graph in maker.sizes(shape)})
    try:
        scale_of(change(posed.problem))
    except InvalidProblem:
        return problem_of(run)
    return posed


class _Race:
    """Shapes in the order of their floors, and the variants of those that were looked at."""

    def __init__(self, maker: Maker, probe: Problem, shapes: list[Variant], choices: Choices) -> None:
        self.maker, self.choices, self.shapes = maker, choices, shapes
        self.sizes = maker.widths.microbatch[0]
        self.floors = Floors(probe, maker.graph, maker.run.global_batch, gcd(*self.sizes))
        self.in_turn = "zb-h1" not in choices.schedules  # a microbatch passes on before all of its work is done
        self._order, self._looked = self._by_floor(), dict[Variant, Floor]()

    def first_s(self, ask: Callable[[Problem], Result]) -> float | None:
        """Return what a good plan of the first shapes takes, of more where they have none.

        It is infinite where no shape has a plan with the microbatches tried here, and None where that cannot be said.
        """
        count, sizes = FIRST, set(_spaced(self.sizes))
        while True:
            self._look(count)
            graphs = self._variants(inf, sizes)
            result = ask(self.maker.problem(graphs)) if graphs else None
            if result is not None and result.objective_s is not None:
                return result.objective_s
            if result is not None and result.status is not Status.INFEASIBLE:
                return None
            if len(self._looked) < count:
                return inf
            count *= FURTHER

    def posed(self, known_s: float) -> Posed:
        """Return the problem of all variants whose floors are not above a time."""
        for shape, floor in self._order:
            if floor.shared_s > known_s:
                break
            self._looked[shape] = floor
        graphs = self._variants(known_s, set(self.sizes))
        return self.maker.of(graphs, *self._slower(len(graphs), known_s))

    def _look(self, count: int) -> None:
        self._looked |= dict(islice(self._order, count - len(self._looked)))

    def _by_floor(self) -> Iterator[tuple[Variant, Floor]]:
        """Yield all shapes, the lowest floor first; of those far above others passes alone are looked at."""
        floors, shapes = self.floors, self.shapes
        heap: list[tuple[float, int, Floor | None]]
        heap = [(floors.without_exchanges(shape).shared_s, at, None) for at, shape in enumerate(shapes)]
        heapq.heapify(heap)
        while heap:
            _, at, floor = heapq.heappop(heap)
            if floor is not None:
                yield shapes[at], floor
            else:
                floor = floors.of(shapes[at])
                heapq.heappush(heap, (floor.shared_s, at, floor))

    def _variants(self, most_s: float, sizes: set[int]) -> dict[Variant, LayerGraph]:
        """Return the variants of the shapes looked at with some microbatches whose floors are not above a time."""
        found: dict[Variant, LayerGraph] = {}
        for shape, floor in self._looked.items():

            def wanted(variant: Variant, floor: Floor = floor) -> bool:
                """Whether its floor leaves a chance to a microbatch that is asked for."""
                least_s = floor.of(variant.microbatch) if self.in_turn else floor.shared_s
                small = least_s <= most_s
                return small and variant.microbatch in sizes and self.choices.admits(variant)

            found.update(self.maker.sizes(shape, wanted))
        return found

    def _slower(self, kept: int, known_s: float) -> Iterator[LeftOut]:
        """Yield that all other variants are no faster, where any are left out for that."""
        every = len(self.shapes) * len(self.sizes)
        if kept < every and known_s < inf:
            what = f"all widths and microbatches but {kept} of {every} combinations"
            why = f"by what their layers take at least, none has a plan of {known_s:.6g} s or less"
            yield LeftOut(what, why, slower=True)


def _with_few_stages(problem: Problem) -> Problem:
    """Return a problem with powers of two as numbers of stages, unless it says which: plans good enough come sooner."""
    if problem.choices.stages is not None:
        return problem
    return problem.with_choices(stages=frozenset(_spaced(list(range(1, problem.cluster.devices + 1)))))


def _spaced(sizes: list[int]) -> list[int]:
    """Return ascending sizes of which each is twice the one before at least."""
    found = sizes[:1]
    for each in sizes:
        if each >= 2 * found[-1]:
            found.append(each)
    return found
