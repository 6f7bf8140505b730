"""The claim that no plan takes less than a value, under the objective `sum`: put to every outer choice."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from nest.certificate.choices import Undecided, allowed
from nest.certificate.sum_boxes import Boxes
from nest.certificate.sum_choices import (
    Counts,
    Left,
    SumChoice,
    admitted,
    apart,
    arranged,
    by_mean,
    by_memory,
    schedule_of,
    too_slow,
)
from nest.certificate.sum_chunks import Chunked, ChunkedStages, Cut, chunked, fast_enough, standing
from nest.certificate.sum_stages import SumStages, standings
from nest.certificate.sum_widths import Layout, Pipelines, Stages, layouts, least_load
from nest.certificate.verdict import Closed, Verdict
from nest.evaluate import evaluate
from nest.plan import Plan
from nest.presets import ScheduleName
from nest.problem import Variant
from nest.tables import GroupedBand, GroupedTables, Tables, UnevenTables, band_of
from nest.tables.chunked import alike
from nest.units import LONGEST


def settle_sums(tables: Tables, verdict: Verdict, deadline: float | None) -> None:
    """Write down what rules outer choices out, and the first plan that takes less than the value.

    Raises
    ------
    Undecided
        After the deadline, and if of the plans that take less only such were found as break a side constraint that ties
        stages together: what is proven without it holds with it, but not the reverse.
    """
    claim, schedule = Claim(tables, verdict, deadline), schedule_of(tables.problem)
    pipelines, uneven = interleaved(tables), [(each, list(layouts(each))) for each in tables.uneven]
    verdict.choices = sum(map(len, pipelines.values())) + sum(len(found) for _, found in uneven)
    if schedule is not None:
        claim.settle_runs(schedule)
    claim.settle_interleaved(pipelines)
    for each, found in uneven:
        if verdict.better is None:
            claim.settle_widths(each, found)
    if claim.tied and verdict.better is None:
        raise Undecided


def interleaved(tables: Tables) -> dict[Variant, list[Chunked]]:
    """Return the outer choices that are interleaved, by variant."""
    allowed = "interleaved" in tables.problem.choices.schedules
    return {variant: list(chunked(tables, variant)) for variant in tables.fitting} if allowed else {}


def _alike(tables: UnevenTables, layout: Layout) -> list[list[int]]:
    """Return the numbers of stages (C5), apart where stages may shard otherwise."""
    found: dict[object, list[int]] = {}
    for count in allowed(tables.problem.choices.stages, min(tables.layers, layout.each // min(tables.widths))):
        found.setdefault(tables.options(layout.replicas, count), []).append(count)
    return list(found.values())


@dataclass
class Claim:
    """What is put to the outer choices.

    Attributes
    ----------
    tied
        Whether some plan takes less and breaks a side constraint that ties stages together.
    """

    tables: Tables
    verdict: Verdict
    deadline: float | None
    tied: bool = field(default=False, init=False)

    def watch(self) -> None:
        """Raise `Undecided` after the deadline."""
        if self.deadline is not None and time.perf_counter() >= self.deadline:
            raise Undecided

    def settle_runs(self, schedule: ScheduleName) -> None:
        """Settle the outer choices under a schedule without chunks."""
        counts = {variant: Counts.of(self.tables, variant) for variant in self.tables.fitting}
        self.verdict.choices += sum(each.arranged(self.tables.problem) for each in counts.values())
        left = {variant: self.left(variant, schedule, each) for variant, each in counts.items()}
        for variant, choices in left.items():
            if choices and self.verdict.better is None:
                self.settle(self.tables.of_variant(variant), choices)

    def left(self, variant: Variant, schedule: ScheduleName, counts: Counts) -> list[SumChoice]:
        """Return the outer choices of a variant that neither mean nor memory nor side constraints rule out."""
        self.watch()
        problem, verdict = self.tables.problem, self.verdict
        if too_slow(self.tables, variant, verdict.value):
            verdict.by_mean += counts.arranged(problem)
            return []
        tables = self.tables.of_variant(variant)
        found = [*self.narrowed(tables, schedule, counts)]
        found.append(admitted(tables, found[-1]))
        fast, fitting, kept = (arranged(problem, each.stages, each.replicas) for each in found)
        verdict.by_mean += counts.arranged(problem) - fast
        verdict.by_memory += fast - fitting
        verdict.choices -= fitting - kept
        return apart(problem, variant, schedule, found[-1])

    def narrowed(self, tables: GroupedTables, schedule: ScheduleName, counts: Counts) -> Iterator[Left]:
        """Yield stages and replicas of a variant that the mean does not rule out, and those that memory does not."""
        fast = by_mean(tables, *counts.pairs(), self.verdict.value)
        yield fast
        yield by_memory(tables, schedule, fast, self.verdict.value)

    def settle(self, tables: GroupedTables, choices: list[SumChoice]) -> None:
        """Close the boxes of outer choices of one variant, until a plan takes less than the value."""
        bands: dict[int, GroupedBand] = {}
        for choice in choices:
            depth = min(tables.layers, 1 << (tables.deepest_within(choice.cap) - 1).bit_length())
            puts_off = choice.schedule == "zb-h1"
            band = bands[depth] = bands.get(depth) or band_of(tables, depth, puts_off=puts_off)
            plan = self.better(band, choice)
            if plan is None:
                self.verdict.closed.append(self.closed(choice))
                continue
            if self.refutes(plan):
                self.verdict.better = plan
                return
            self.tied = True

    def closed(self, choice: SumChoice) -> Closed:
        """Return an outer choice as one that is ruled out."""
        return Closed(choice.variant, choice.stages, choice.replicas, choice.arrangement)

    def better(self, band: GroupedBand, choice: SumChoice) -> Plan | None:
        """Return a plan of an outer choice below the value, None if there is none wherever it stands."""
        for each in standings(band.tables, choice):
            self.watch()
            plan = Boxes(SumStages(band, choice, each), self.verdict.value, self.watch).better()
            if plan is not None:
                return plan
        return None

    def settle_interleaved(self, choices: Mapping[Variant, list[Chunked]]) -> None:
        """Settle the outer choices that are interleaved, until a plan takes less than the value."""
        for variant, each in choices.items():
            if each and self.verdict.better is None:
                self.settle_chunks(variant, each)

    def settle_chunks(self, variant: Variant, choices: list[Chunked]) -> None:
        """Settle the outer choices of one variant that are interleaved, until a plan takes less than the value."""
        verdict, left, cuts = self.verdict, list[Chunked](), dict[tuple[int, ...], Cut]()
        self.watch()
        if not too_slow(self.tables, variant, verdict.value):
            left = self.fast_enough(self.tables.of_variant(variant), choices)
        verdict.by_mean += len(choices) - len(left)
        for choice in left:
            tables = self.tables.of_variant(variant)
            key = choice.stages, choice.chunks, *alike(tables, choice.stages, choice.microbatches)
            cut = cuts[key] = cuts.get(key) or Cut(tables, choice)
            plan = self.better_of_all(cut, choice)
            if plan is not None and self.refutes(plan):
                verdict.better = plan
                return
            closed = Closed(variant, choice.stages, choice.replicas, choice.arrangement, choice.chunks)
            verdict.closed.append(closed)

    def fast_enough(self, tables: GroupedTables, choices: list[Chunked]) -> list[Chunked]:
        """Return the interleaved outer choices of a variant that work and exchange do not rule out."""
        return fast_enough(tables, choices, self.verdict.value)

    def better_of_all(self, cut: Cut, choice: Chunked) -> Plan | None:
        """Return a plan of an interleaved outer choice below the value, None if there is none wherever it stands."""
        for stages in standing(cut, choice):
            self.watch()
            plan = self.better_interleaved(stages)
            if plan is not None:
                return plan
        return None

    def better_interleaved(self, stages: ChunkedStages) -> Plan | None:
        """Return a plan of an interleaved outer choice in one place below the value, None if there is none."""
        return stages.better(self.verdict.value)

    def settle_widths(self, tables: UnevenTables, choices: list[Layout]) -> None:
        """Settle the outer choices whose stages have widths of their own, until a plan takes less than the value."""
        verdict, total = self.verdict, int(np.minimum.reduce([form.work for form in tables.forms]).sum())
        stages = Stages(tables, self.watch)
        for layout in choices:
            self.watch()
            left, least = verdict.value - 1 - total, least_load(tables, layout)
            cap = min(left // layout.further if layout.further else LONGEST - 1, LONGEST - 1)
            if left < 0 or least > cap:
                verdict.by_mean += 1
                continue
            for counts in _alike(tables, layout):
                plan = Pipelines(stages, layout, counts, verdict.value).better(cap)
                if plan is not None and self.refutes(plan):
                    verdict.better = plan
                    return
            whole = tables.shapes[0].whole
            verdict.closed.append(Closed(whole, 0, layout.replicas, layout.arrangement, apart=layout.apart))

    def refutes(self, plan: Plan) -> bool:
        """Whether the judge lets a plan stand that takes less by the tables: it may break what ties stages together."""
        judged, value = evaluate(self.tables.problem, plan), self.verdict.value
        if judged.objective_ticks is None or judged.objective_ticks >= value:
            raise AssertionError(f"a plan of {judged.objective_ticks} ticks takes less than {value} by the tables")
        if not judged.legal and not self.tables.filters.coupling:
            raise AssertionError(f"a plan that fits by the tables is illegal: {judged.violations}")
        return judged.legal
