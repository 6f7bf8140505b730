"""The bytes that an iteration of a plan sends over each level of the network (D16): every transfer and collective."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

import numpy as np

from nest.cost.exchanges import EACH_MICROBATCH, GATHERS, ZeroExchanges, axis_starts, sums
from nest.cost.groups import Spread
from nest.cost.scale import Scale, scale_of
from nest.evaluate.grouped import GroupedStage
from nest.evaluate.walk import Walk
from nest.graph import Collective, CollectiveKind
from nest.plan import Plan
from nest.problem import Problem, Variant

Sent: TypeAlias = tuple[CollectiveKind, Spread, float]
"""A collective of one group, and its bytes."""


def crossing(problem: Problem, plan: Plan, scale: Scale | None = None) -> tuple[int, ...]:
    """Return the bytes that an iteration sends over each level or one outside it, all devices together.

    Parameters
    ----------
    plan
        One that the judge prices, of a problem whose technologies are chosen, or that chooses them.
    scale
        That of the problem, where whoever asks has it.

    Returns
    -------
    tuple
        From the innermost level on; empty under presets whose network times follow from levels.
    """
    if problem.preset.collectives != "groups":
        return ()
    scale, technologies = scale or scale_of(problem), problem.cluster.named(plan.technologies)
    if technologies is not None:
        problem = problem.built(technologies)
    walk = Walk(problem, plan, problem.graphs[plan.variant], scale)
    return tuple(_Crossing(walk, level).bytes for level in range(len(problem.cluster.levels)))


class _Crossing:
    """What goes over one level, or one outside it."""

    def __init__(self, walk: Walk, level: int) -> None:
        self.walk, self.level, self.exchanges = walk, level, walk.exchanges
        self._known: dict[Sent, int] = {}

    @property
    def bytes(self) -> int:
        """Of an iteration."""
        plan, problem = self.walk.plan, self.walk.problem
        microbatches = -(-problem.microbatches(plan.variant) // plan.replicas)
        stages = [GroupedStage(self.walk, at) for at in range(len(plan.stages))]
        each = sum(map(self._boundary, range(self.walk.parts - 1)))
        each += sum(self._inside(stage) + self._exchanged(stage) for stage in stages)
        return microbatches * each + sum(map(self._once, stages))

    def _boundary(self, boundary: int) -> int:
        """Return what a microbatch sends over a boundary, both ways, and to gather its parts at either end."""
        walk, ends = self.walk, self.walk.ends(boundary)
        forms = walk.forms[ends[0]], walk.forms[ends[1]]
        variants = forms[0].variant, forms[1].variant
        sizes = [np.array([walk.alive(boundary, at)]) for at in ends]
        each = int(np.rint(self.exchanges.transferred(variants, (sizes[0], sizes[1])))[0])
        total = 2 * each * int((walk.levels(boundary) >= self.level).sum())
        for form, size in zip(forms, sizes, strict=True):
            if self.exchanges.gathers(form.variant):
                groups = walk.plan.replicas * form.computing // form.variant.tensor
                total += groups * self._sent("all-gather", self._tensor(form.variant), float(size[0]))
        return total

    def _tensor(self, variant: Variant) -> Spread:
        return self.walk.group(variant, "tensor", 0)

    def _inside(self, stage: GroupedStage) -> int:
        """Return what the collectives of the layers send for a microbatch, in all blocks."""
        walk, collectives = self.walk, Counter[Collective]()
        for layer, again in zip(stage.layers, stage.again, strict=True):
            collectives.update(layer.collectives)
            collectives.update(again.collectives if again else ())
        form = stage.form
        places = Counter(walk.places(walk.blocks(stage.at), form.width).tolist())
        total = 0
        for each, times in collectives.items():
            starts = axis_starts(form, each.axis).tolist()
            groups = Counter[Spread]()
            for place, blocks in places.items():
                for start in starts:
                    groups[walk.group(form.variant, each.axis, place + start)] += blocks
            total += times * self._of_groups(each.kind, groups, float(each.bytes))
        return total

    def _exchanged(self, stage: GroupedStage) -> int:
        """Return what the holders of the weights exchange for a microbatch, layer by layer."""
        layers = Counter(stage.weights([layer]) for layer in stage.layers)
        each = ((times, self._of_holders(EACH_MICROBATCH, stage, held)) for held, times in layers.items())
        return sum(times * sent for times, sent in each)

    def _once(self, stage: GroupedStage) -> int:
        """Return what a stage sends once per iteration."""
        own = self._of_holders(sums(self.walk.problem.training), stage, stage.held)
        return own + self._of_holders(GATHERS, stage, stage.held) + self._across(stage) + self._ends(stage)

    def _of_holders(self, by_type: ZeroExchanges, stage: GroupedStage, held: tuple[int, int]) -> int:
        """Return what those that share dense weights, and an expert's, exchange of so many quanta on each device."""
        total = 0
        for weights, expert in zip(held, (False, True), strict=True):
            for kind, part in by_type[stage.zero] if weights else ():
                groups = self.walk.all_groups(stage.at, stage.together, expert=expert)[0]
                total += self._of_groups(kind, Counter(groups), self.walk.bytes(weights) * stage.times_sent(part))
        return total

    def _across(self, stage: GroupedStage) -> int:
        """Return what those send that have the same share in different groups, to sum its gradients."""
        total = 0
        for weights, degree, expert in zip(stage.held, stage.degrees, (False, True), strict=True):
            groups = self.walk.all_groups(stage.at, stage.together, expert=expert)[1]
            shard = self.walk.bytes(weights) * stage.times_sent("gradients") / degree
            total += self._of_groups("all-reduce", Counter(groups), shard)
        return total

    def _ends(self, stage: GroupedStage) -> int:
        """Return what is sent to sum the gradients of copies of a table, by each device and its counterpart."""
        walk, last = self.walk, len(self.walk.plan.stages) - 1
        tied = sum(walk.quanta(layer.tied_bytes) for layer in stage.layers)
        if not tied or stage.has_table:
            return 0
        size, total = walk.bytes(tied) * stage.times_sent("gradients"), 0
        for level in walk.problem.cluster.spans(walk.blocks(0), walk.blocks(last)).tolist():
            pair = self.exchanges.pair(level)
            total += stage.form.width * self._sent("all-reduce", pair, size)
        return total

    def _of_groups(self, kind: CollectiveKind, groups: Counter[Spread], size: float) -> int:
        return sum(times * self._sent(kind, group, size) for group, times in groups.items())

    def _sent(self, kind: CollectiveKind, group: Spread, size: float) -> int:
        key = kind, group, size
        if key not in self._known:
            self._known[key] = int(self.exchanges.sent_over(self.level, kind, group, np.array([size]))[0])
        return self._known[key]
