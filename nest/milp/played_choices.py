"""Outer choices under the objective `simulated`, the best bound first.

An iteration takes, under every schedule, ``m`` times the work of any stage at least, and as long as the first
microbatch needs to pass all layers forward and back, but for gradients of weights that ZB-H1 puts off. Some stage does
the mean of all work, and no less than the heaviest layer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from nest.constraints import Outer
from nest.milp.played_paths import Player
from nest.milp.sum_choices import SumChoice, least_of_variant, stand_as_asked
from nest.presets import ScheduleName
from nest.problem import Allowed, Variant
from nest.tables import GroupedTables, Tables
from nest.tables.chunked import levels_around
from nest.tables.speeds import SURE
from nest.units import HARD_LIMIT, NEVER


class Pipelines(NamedTuple):
    """Outer choices wherever their blocks stand, with ticks that each of their plans takes at least.

    ``played`` says that these follow from paths already (`least_by_paths`).
    """

    bound: int
    variant: Variant
    stages: int
    replicas: int
    schedule: ScheduleName
    chunks: int
    played: bool = False


class Agenda:
    """The outer choices that are left, but for where they stand: those that are allowed (C4, C5, C15, C16, `admits`).

    Parameters
    ----------
    tables
        Of the problem.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables, self._turns = tables, count()
        self._heap: list[tuple[int, int, Variant | Pipelines]] = []
        for variant in tables.fitting:
            self._push(least_of_variant(tables, variant), variant)

    @property
    def least(self) -> int:
        """Ticks that every plan of what is left takes at least; `NEVER` where nothing is."""
        return self._heap[0][0] if self._heap else NEVER

    def put(self, found: Pipelines) -> None:
        """Put outer choices back."""
        self._push(found.bound, found)

    def take(self) -> Pipelines | None:
        """Return those with the least bound, None where these are of variants of which nothing was known yet."""
        bound, _, found = heapq.heappop(self._heap)
        if isinstance(found, Pipelines):
            return found
        for each in _of_variant(self.tables, found):
            self.put(each._replace(bound=max(bound, each.bound)))
        return None

    def _push(self, bound: int, found: Variant | Pipelines) -> None:
        heapq.heappush(self._heap, (bound, next(self._turns), found))


def _of_variant(tables: Tables, variant: Variant) -> Iterator[Pipelines]:
    made, choices, blocks = tables.of_variant(variant), tables.problem.choices, tables.blocks(variant)
    for stages in _allowed(choices.stages, min(made.layers, blocks)):
        for replicas in _allowed(choices.replicas, min(made.microbatches, blocks // stages)):
            if tables.filters.outer(Outer(variant, stages, replicas)):
                for schedule in sorted(choices.schedules - {"interleaved"}):
                    yield Pipelines(_least(made, schedule, stages, replicas), variant, stages, replicas, schedule, 1)
                if "interleaved" in choices.schedules:
                    yield from _interleaved(made, stages, replicas)


def _interleaved(tables: GroupedTables, stages: int, replicas: int) -> Iterator[Pipelines]:
    """Yield those with chunks: several stages, and equal parts."""
    allowed = tables.problem.choices.chunks
    for chunks in range(2, tables.layers // stages + 1) if stages > 1 else ():
        if (allowed is None or chunks in allowed) and tables.graph.equal_parts(stages * chunks) is not None:
            bound = _least(tables, "interleaved", stages, replicas)
            yield Pipelines(bound, tables.variant, stages, replicas, "interleaved", chunks)


def _least(tables: GroupedTables, schedule: ScheduleName, stages: int, replicas: int) -> int:
    work, late = int(tables.work.sum()), int(tables.weight.sum()) if schedule == "zb-h1" else 0
    slowest = max(-(-work // stages), int(tables.work.max(initial=0)))
    return min(max(work - late, -(-tables.microbatches // replicas) * slowest), HARD_LIMIT // 2)


def _allowed(kept: Allowed, most: int) -> list[int]:
    """Return the allowed numbers up to a limit, ascending."""
    return [each for each in (range(1, most + 1) if kept is None else sorted(kept)) if each <= most]


def choices_of(tables: Tables, found: Pipelines) -> Iterator[SumChoice]:
    """Yield the outer choices by where they stand (C9, C10), one for all those in which stages see the same."""
    made, (_, variant, stages, replicas, schedule, chunks, _) = tables.of_variant(found.variant), found
    seen, options = set[object](), made.options(replicas, stages)
    further = -(-made.microbatches // replicas) - 1
    for arrangement in tables.problem.preset.arrangements:
        for placing in made.placings(stages, replicas, arrangement):
            if chunks > 1 and not stand_as_asked(made, Outer(variant, stages, replicas), placing):
                continue
            around = frozenset(map(tuple, levels_around(made, stages, replicas, placing).tolist()))
            sights: object = made.sights(made.sites(stages, replicas, placing), options), around
            sights = placing if tables.filters.by_place else sights
            if sights not in seen:
                seen.add(sights)
                yield SumChoice(variant, stages, replicas, arrangement, placing, schedule, further, chunks)


def least_by_paths(tables: GroupedTables, found: Pipelines, player: Player) -> int:
    """Return what the layers of outer choices take at least along paths, whatever the cuts, without transfers.

    Every mean of paths is a bound. A layer adds to it no less than in the stage in which it adds the least. The mean is
    of paths through each stage, with weights such that all stages count alike. With chunks the cut is known.
    """
    late = tables.weight if found.schedule == "zb-h1" else np.zeros_like(tables.weight)
    if found.chunks > 1:
        ends = [0, *(tables.graph.equal_parts(found.stages * found.chunks) or ())]
        each = (np.diff(tables.by_cut(ticks)[ends]) for ticks in (tables.forward, tables.work - tables.forward))
        columns = [ticks.reshape(found.chunks, found.stages).T for ticks in each]
        return player.longest(np.concatenate(columns, axis=1)).ticks
    layers = np.column_stack([tables.forward, tables.work - tables.forward - late, late]).astype(np.float64)
    paths = np.array(player.slow_stages, dtype=np.float64)
    own = np.einsum("ssk,k->s", paths, layers.sum(axis=0))
    if not (own > 0).all():
        return 0
    mean = np.einsum("s,sik->ik", (1 / own) / (1 / own).sum(), paths)
    return int(min(float((layers @ mean.T).min(axis=1).sum()) * SURE, HARD_LIMIT / 2))
