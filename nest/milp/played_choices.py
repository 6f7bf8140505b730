"""Outer choices under the objective `simulated`, the best bound first.

An iteration takes, under every schedule, ``m`` times the work of any stage at least, and as long as the first
microbatch needs to pass all layers forward and back, but for gradients of weights that ZB-H1 puts off. Some stage does
the mean of all work, and no less than the heaviest layer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from nest.constraints import Outer
from nest.milp.sum_choices import SumChoice, stand_as_asked
from nest.presets import ScheduleName
from nest.problem import Allowed, Variant
from nest.tables import GroupedTables, Tables
from nest.tables.chunked import levels_around
from nest.units import HARD_LIMIT


class Pipelines(NamedTuple):
    """Outer choices wherever their blocks stand, with ticks that each of their plans takes at least."""

    bound: int
    variant: Variant
    stages: int
    replicas: int
    schedule: ScheduleName
    chunks: int


def pipelines_of(tables: Tables) -> list[Pipelines]:
    """Return the outer choices that are allowed (C4, C5, C15, C16, `admits`), but for where they stand; a heap."""
    found = [each for variant in tables.fitting for each in _of_variant(tables, variant)]
    heapq.heapify(found)
    return found


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
    """Yield those with chunks: equal parts, and microbatches that are a multiple of the stages."""
    allowed = tables.problem.choices.chunks
    if stages < 2 or -(-tables.microbatches // replicas) % stages:
        return
    for chunks in range(2, tables.layers // stages + 1):
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
    made, (_, variant, stages, replicas, schedule, chunks) = tables.of_variant(found.variant), found
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
