"""The best plan of one outer choice under the objective `simulated`: branches, bounds, and plays what is left.

Stages are chosen from the first of the pipeline on. What is chosen and the bounds of `simulated_bounds` for the rest
give a bound of all plans that begin so. Those that begin best go on first; complete ones are played, until no bound is
less than the best time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from nest.dp.incumbent import Incumbent
from nest.dp.makespans import Played, Shape, makespans
from nest.dp.schedules import Pace
from nest.dp.simulated_bounds import Rest, prefixes, suffixes
from nest.dp.simulated_rows import Stages, stages_at, way_of
from nest.dp.sum_rows import Step, SumRows
from nest.dp.sum_search import Prepared, sum_plan
from nest.units import LONGEST, NEVER, Ints

TOGETHER = 256
"""Plans that go on together."""

MOST_CHILDREN = 2**17
"""Plans that may come of those at once, unless they come of a single one."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Plans of which the first stages are chosen, a row for each.

    Attributes
    ----------
    bound
        No plan that begins so takes less.
    end, before
        Layer with which the next stage begins; sum of what the stages so far pass on.
    span, wait, sync
        Their own bound, the largest of `Pace.waits`, the largest synchronisation.
    chosen
        A column for each stage: a place in its `Stages`.
    """

    bound: Ints
    end: Ints
    before: Ints
    span: Ints
    wait: Ints
    sync: Ints
    chosen: Ints

    @classmethod
    def nothing(cls, bound: int) -> Begun:
        """Return the one plan of which nothing is chosen."""
        zero = np.zeros(1, dtype=np.int64)
        return cls(np.array([bound]), zero, zero, zero, zero, zero, np.zeros((1, 0), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.bound)

    def pick(self, rows: np.ndarray | slice) -> Begun:
        """Return those that indices, a mask or a slice pick."""
        names = ("bound", "end", "before", "span", "wait", "sync", "chosen")
        return Begun(*(getattr(self, name)[rows] for name in names))


class PlayedChoice:
    """Settles one outer choice.

    Parameters
    ----------
    prepared
        The choice.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.prepared, self.choice = prepared, prepared.choice
        self.microbatches = prepared.choice.further + 1
        self.pace = Pace(prepared.engine.schedule, prepared.choice.stages, self.microbatches)
        most = min((self.incumbent.objective - 1) // self.microbatches, LONGEST - 1)
        deepest = prepared.engine.tables.deepest_within(max(most, 0))
        self.rows: SumRows = prepared.at_depth(max(1, deepest))
        self.steps = self._stages(most)
        self.after = suffixes(self.steps, self.pace)
        self.bound = min(int(self.after[-1].span[0]) + int(self.after[-1].sync[0]), NEVER)

    @property
    def incumbent(self) -> Incumbent:
        """The best plan so far."""
        return self.prepared.engine.watch.incumbent

    def _stages(self, most: int) -> list[Stages]:
        """Return the stages of each place, from the end of the pipeline on."""
        known: dict[Step, Stages] = {}
        for step in self.rows.steps:
            if step not in known:
                self.prepared.engine.watch.check()
                known[step] = stages_at(self.rows, step, most)
        return [known[step] for step in self.rows.steps]

    def settle(self) -> None:
        """Offer every plan to the incumbent that may be better."""
        self._leave_out()
        todo = [Begun.nothing(self.bound)]
        while todo:
            self.prepared.engine.watch.check()
            begun = todo.pop()
            begun = begun.pick(begun.bound < self.incumbent.objective)
            if not len(begun):
                continue
            if begun.chosen.shape[1] == len(self.steps):
                self._play(begun)
                continue
            count = self._together(begun)
            if count < len(begun):
                todo.append(begun.pick(slice(count, None)))
            further = self._further(begun.pick(slice(count)))
            further = further.pick(np.argsort(further.bound, kind="stable"))
            todo += [further.pick(slice(at, at + TOGETHER)) for at in reversed(range(0, len(further), TOGETHER))]

    def _leave_out(self) -> None:
        """Leave out the stages through which no plan passes that could be better."""
        before, kept = prefixes(self.steps, self.pace), list[Stages]()
        for from_end, stages in enumerate(self.steps, start=1):
            sooner, after = before[len(self.steps) - from_end], self.after[from_end - 1]
            kept.append(stages.kept(self._through(stages, from_end, sooner, after) < self.incumbent.objective))
        self.steps = kept

    def _through(self, stages: Stages, from_end: int, before: Rest, after: Rest) -> Ints:
        """Return a bound of the plans that have a stage in one place."""
        passing, own = self.pace.passing(stages), self.pace.own(stages, from_end)
        sooner, later = before.loads[stages.first], after.loads[stages.end]
        total = np.minimum(sooner, NEVER - 1) + np.minimum(np.minimum(later, NEVER - 1) + passing, NEVER)
        possible = (sooner < NEVER) & (later < NEVER) & (total < NEVER)
        total = np.where(possible, total, 0)
        total += np.maximum(self.pace.waits(stages, from_end), 0)
        sooner = np.where(possible, sooner, 0)
        span = np.where(possible, np.maximum(own, passing + after.span[stages.end]), 0)
        most = np.maximum.reduce([total, sooner + span, np.where(possible, before.span[stages.first], 0)])
        sync = np.maximum.reduce([stages.sync, before.sync[stages.first], after.sync[stages.end]])
        return np.where(possible & (most < NEVER), np.minimum(most, NEVER) + np.where(possible, sync, 0), NEVER)

    def _together(self, begun: Begun) -> int:
        """Return how many of some plans go on at once."""
        stages = self.steps[len(self.steps) - begun.chosen.shape[1] - 1]
        children = np.cumsum(stages.begins[begun.end + 1] - stages.begins[begun.end])
        return max(1, int(np.searchsorted(children, MOST_CHILDREN, side="right")))

    def _further(self, begun: Begun) -> Begun:
        """Return all plans that come of some by choosing the next stage, as far as they could be better."""
        from_end = len(self.steps) - begun.chosen.shape[1]
        stages, after = self.steps[from_end - 1], self.after[from_end - 1]
        first = stages.begins[begun.end]
        counts = stages.begins[begun.end + 1] - first
        parent = np.repeat(np.arange(len(begun)), counts)
        chosen = np.arange(len(parent)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        end = stages.end[chosen]
        before = begun.before[parent]
        span = np.maximum(begun.span[parent], before + self.pace.own(stages, from_end)[chosen])
        wait = np.maximum(begun.wait[parent], self.pace.waits(stages, from_end)[chosen])
        before, sync = before + self.pace.passing(stages)[chosen], np.maximum(begun.sync[parent], stages.sync[chosen])
        total = np.minimum(before + np.minimum(after.loads[end], NEVER - 1), NEVER)
        least = np.maximum.reduce([span, total + wait, before + np.minimum(after.span[end], NEVER - 1)])
        bound = np.minimum(least, NEVER) + np.maximum(sync, np.minimum(after.sync[end], NEVER - 1))
        kept = (after.loads[end] < NEVER) & (least < NEVER) & (bound < self.incumbent.objective)
        path = np.concatenate([begun.chosen[parent[kept]], chosen[kept, None]], axis=1)
        return Begun(bound[kept], end[kept], before[kept], span[kept], wait[kept], sync[kept], path)

    def _play(self, complete: Begun) -> None:
        """Play complete plans, and offer the best to the incumbent."""
        steps = list(reversed(self.steps))
        columns = list(enumerate(complete.chosen.T))
        passes = (
            np.stack([getattr(steps[at], name)[chosen] for at, chosen in columns], axis=1) for name in Played._fields
        )
        shape = Shape(self.pace.schedule, self.choice.stages, self.microbatches)
        taken = makespans(shape, Played(*passes)) + complete.sync
        if (taken < complete.bound).any():
            raise AssertionError("a bound is above what was played")
        best = int(np.argmin(taken))
        self._offer(int(taken[best]), complete.chosen[best].tolist())

    def _offer(self, ticks: int, chosen: list[int]) -> None:
        steps, cuts, ways = list(reversed(self.steps)), [0], []
        for stages, step, at in zip(steps, reversed(self.rows.steps), chosen, strict=True):
            cuts.append(int(stages.end[at]))
            ways.append(way_of(self.rows, step, stages, at))
        self.incumbent.keep(ticks, partial(sum_plan, self.prepared, cuts, ways))
