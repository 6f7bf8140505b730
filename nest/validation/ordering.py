"""Whether predicted times come in the order of the measured ones, and how well anything could put them in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from statistics import correlation, mean

from nest.validation.compare import Comparison
from nest.validation.layers import heads_of, layer_of

FEWEST_RANKED = 3
"""Rows of a section from which an order says something."""

GOOD = 0.85
"""Rank correlation from which a section counts as ordered."""

DRAWS = 500
"""Sets of measurements that are drawn to see which rank correlation exact predictions would have."""


@dataclass(frozen=True, slots=True)
class Order:
    """Whether the rows of a section come in the order of their times.

    Parameters
    ----------
    rows
        How many have a time.
    spread
        The longest time over the shortest, less 1.
    correlation
        Spearman's, of predicted and measured times.
    uncontradicted
        The same of the rows that no other measurements contradict.
    limit
        The most that any predictor reaches which says the same of rows that state the same, and of others something
        else.
    limit_rising
        The most of those for which more heads never make an iteration shorter that is the same in all else.
    expected
        What exact predictions would have on average, if measurements scatter about them as rows of equal layers do
        about their mean; rows that others contradict stay as they were measured, and predicted. It is an average, and
        no limit.
    chance
        In which share of such measurements exact predictions would have `GOOD` or more.
    apart, right
        Pairs whose measured times differ by more than what rows of equal layers do among themselves, and those of them
        that are predicted in the measured order.
    """

    rows: int
    spread: float
    correlation: float
    uncontradicted: float
    limit: float
    limit_rising: float
    expected: float
    chance: float
    apart: int
    right: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """The order of every section.

    Parameters
    ----------
    orders
        By section.
    scatter
        By how much rows of equal layers differ in measured over predicted time.
    expected_good
        How many sections exact predictions would put at `GOOD` or more, on average.
    chance_all
        The share of measurements in which they would all sections.
    """

    orders: Mapping[str, Order]
    scatter: float
    expected_good: float
    chance_all: float


def ranking(comparisons: Sequence[Comparison], contradicted: Collection[int] = ()) -> Ranking:
    """Return how well predicted times order the rows of each section.

    Parameters
    ----------
    contradicted
        Places of rows that other measurements contradict.
    """
    noise, sections = scatter(comparisons), _sections(comparisons)
    draws = _drawn(comparisons, sections, contradicted)
    orders = {}
    for name, places in sections.items():
        rows = [comparisons[place] for place in places]
        free = [comparisons[place] for place in places if place not in contradicted]
        orders[name] = _order(rows, free, noise, [draw[name] for draw in draws])
    good = [sum(each >= GOOD for each in draw.values()) for draw in draws]
    return Ranking(orders, noise, mean(good), mean(each == len(sections) for each in good))


def scatter(comparisons: Iterable[Comparison]) -> float:
    """Return by how much measured over predicted times differ at most among rows that run the same layers.

    These have the same width, heads, microbatch, tensor width and software, so that every kernel is the same; they
    differ in the number of layers, stages, replicas and sequences, or not at all. What is left no model of a layer
    explains.
    """
    return max((max(ratios) / min(ratios) - 1 for ratios in _equal(comparisons)), default=0.0)


def _sections(comparisons: Sequence[Comparison]) -> dict[str, list[int]]:
    """Return the places of the rows with a time, by section."""
    sections: dict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(comparisons):
        if each.case.seconds is not None:
            sections[each.case.section].append(place)
    return {name: places for name, places in sections.items() if len(places) >= FEWEST_RANKED}


def _equal(comparisons: Iterable[Comparison]) -> Iterable[list[float]]:
    """Return the predicted over the measured times of rows that run the same layers, a list for each layer."""
    same: dict[object, list[float]] = defaultdict(list)
    for each in comparisons:
        if each.time_error is not None:
            same[each.case.setting, layer_of(each.case)].append(1 + each.time_error)
    return same.values()


def _deviations(comparisons: Iterable[Comparison]) -> list[float]:
    """Return by what share rows of equal layers deviate from their mean, as if their mean were known."""
    several = [ratios for ratios in _equal(comparisons) if len(ratios) > 1]
    free = [(len(ratios) / (len(ratios) - 1)) ** 0.5 for ratios in several]
    return [part * (each / mean(ratios) - 1) for part, ratios in zip(free, several, strict=True) for each in ratios]


def _drawn(
    comparisons: Sequence[Comparison], sections: Mapping[str, Sequence[int]], contradicted: Collection[int]
) -> list[dict[str, float]]:
    """Return the rank correlations of times with themselves after they were measured, for each draw by section.

    A measurement that several sections have is drawn once. One that others contradict is not drawn: whoever predicts
    the others exactly does not predict it, and it stays as it is.
    """
    fixed = {place: comparisons[place].case.seconds for place in contradicted}
    deviations = _deviations(comparisons) or [0.0]
    exact = [each.estimate.iteration_s for each in comparisons]
    same = [(_stated(each), each.case.seconds) for each in comparisons]
    keys, rng = list(dict.fromkeys(same)), Random(0)
    draws = []
    for _ in range(DRAWS if sections else 1):
        off = {key: 1 + rng.choice(deviations) for key in keys}
        found = {}
        for name, places in sections.items():
            times = [exact[place] for place in places]
            again = [fixed.get(place) or exact[place] * off[same[place]] for place in places]
            found[name] = correlation(_ranks(times), _ranks(again))
        draws.append(found)
    return draws


def _order(rows: Sequence[Comparison], free: Sequence[Comparison], noise: float, drawn: Sequence[float]) -> Order:
    pairs = [(row.case.seconds or 0.0, row.estimate.iteration_s) for row in rows]
    measured = [pair[0] for pair in pairs]
    every = combinations(sorted(pairs), 2)
    apart = [(first, second) for first, second in every if second[0] / first[0] - 1 > noise]
    return Order(
        len(pairs),
        max(measured) / min(measured) - 1,
        _correlation(rows),
        _correlation(free),
        best_order(measured, [[places] for places in _tied(rows)]),
        best_order(measured, _chains(rows)),
        mean(drawn),
        mean(each >= GOOD for each in drawn),
        len(apart),
        sum(second[1] > first[1] for first, second in apart),
    )


def _correlation(rows: Sequence[Comparison]) -> float:
    measured = [row.case.seconds or 0.0 for row in rows]
    return correlation(_ranks(measured), _ranks([row.estimate.iteration_s for row in rows]))


def _stated(row: Comparison) -> tuple[object, ...]:
    """Return all that a row states of what was run."""
    return row.case.name, row.case.layout, row.case.setting, row.estimate.iteration_s


def _tied(rows: Sequence[Comparison]) -> list[list[int]]:
    """Return the places of rows that state the same, together."""
    same: dict[object, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        same[_stated(row)].append(place)
    return list(same.values())


def _chains(rows: Sequence[Comparison]) -> list[list[list[int]]]:
    """Return groups of equal rows, as chains in which each has more heads than the one before and is equal in all else.

    Heads whose width is no multiple of 8 starve the matrix units, and are chains of their own.
    """
    chains: dict[object, list[tuple[int, list[int]]]] = defaultdict(list)
    for places in _tied(rows):
        row = rows[places[0]]
        heads, width = heads_of(row.case)
        layers = [len(stack.blocks) for stack in row.case.model.stacks]
        alike = (row.case.setting, row.case.layout, *layers, layer_of(row.case).width, row.case.section)
        chains[alike if width % 8 == 0 else (alike, heads)].append((heads, places))
    return [[places for _, places in sorted(chain)] for chain in chains.values()]


def best_order(measured: Sequence[float], chains: Sequence[Sequence[Sequence[int]]]) -> float:
    """Return the best rank correlation of any order that keeps chains, and in which tied rows share a rank.

    The sum of products of ranks is to be as large as it can be: the total weighted completion time of one machine
    under chains. What of a chain comes in the wrong order is joined, until means rise along it; then all parts go
    by their means (Sidney, Operations Research 23, 1975), which is optimal.

    Parameters
    ----------
    measured
        A time for each row.
    chains
        Each a list of groups of rows, which hold the places of rows that share a rank; every row is in one of them.
    """
    ranks = _ranks(measured)
    parts = [part for chain in chains for part in _rising(chain, ranks)]
    order = [group for part in sorted(parts, key=lambda part: _mean(part, ranks)) for group in part]
    placed, done = [0.0] * len(ranks), 0
    for group in order:
        for place in group:
            placed[place] = done + (len(group) - 1) / 2
        done += len(group)
    return correlation(ranks, placed)


def _rising(chain: Sequence[Sequence[int]], ranks: Sequence[float]) -> list[list[Sequence[int]]]:
    """Return a chain in parts, neighbours joined until the mean ranks of the parts rise."""
    parts: list[list[Sequence[int]]] = []
    for group in chain:
        parts.append([group])
        while len(parts) > 1 and _mean(parts[-2], ranks) > _mean(parts[-1], ranks):
            last = parts.pop()
            parts[-1] = parts[-1] + last
    return parts


def _mean(part: Sequence[Sequence[int]], ranks: Sequence[float]) -> float:
    return mean(ranks[place] for group in part for place in group)


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the place of each value in ascending order; equal ones share their mean place."""
    ordered = sorted(values)
    return [(ordered.index(value) + len(ordered) - 1 - ordered[::-1].index(value)) / 2 for value in values]
