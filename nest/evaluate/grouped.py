"""Prices of the preset whose network times follow from the places of all members of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from operator import mul
from typing import Literal, NamedTuple

import numpy as np

from nest.classes import across
from nest.cost.exchanges import (
    BACKWARD,
    FORWARD,
    GATHERS,
    SCATTERS,
    Part,
    ZeroExchanges,
    sums,
)
from nest.cost.groups import Spread
from nest.cost.memory import state, stepped_on, whole_for_a_moment
from nest.cost.overlap import hideable, left
from nest.cost.scale import Scale
from nest.cost.schedules import Schedule
from nest.evaluate.rules import priced_sharding, sharing_replicas
from nest.evaluate.verdict import Levels, StageFigures
from nest.evaluate.walk import Groups, Walk
from nest.forms import Form
from nest.graph import CollectiveKind, Layer, LayerGraph, Recomputed
from nest.pipeline import StageTimes, flights, shared
from nest.plan import Plan
from nest.problem import Problem, exchanging_type


def grouped_figures(problem: Problem, plan: Plan, graph: LayerGraph, scale: Scale) -> Iterator[StageFigures]:
    """Yield the figures of each stage of a plan that keeps the rules ``cover`` and ``order``."""
    walk = Walk(problem, plan, graph, scale)
    for at in range(len(plan.stages)):
        yield GroupedStage(walk, at).figures()


class Shown(NamedTuple):
    """Ticks that are left of what the holders of weights exchange for each microbatch.

    Parameters
    ----------
    forward, backward
        Of what goes with these passes.
    weight
        Of what goes with gradients of weights, where these come later than those of inputs.
    """

    forward: int
    backward: int
    weight: int


class Hop(NamedTuple):
    """What crosses a boundary of a stage for one microbatch, an activation one way and a gradient the other.

    Parameters
    ----------
    received, sent
        Ticks that the stage is busy with what comes, and with what goes.
    level
        At which the two devices share a group.
    """

    received: int
    sent: int
    level: int

    @property
    def busy(self) -> int:
        """Ticks of both."""
        return self.received + self.sent


def _together(boundaries: Iterable[list[Hop]]) -> list[Hop]:
    """Return the transfers across some boundaries together for each replica, and the outermost level of them."""
    columns = zip(*boundaries, strict=True)
    return [
        Hop(sum(hop.received for hop in hops), sum(hop.sent for hop in hops), max(hop.level for hop in hops))
        for hops in columns
    ]


@dataclass(frozen=True)
class GroupedStage:
    """A stage by its number, with what its layers and the holders of its weights take."""

    walk: Walk
    at: int

    @property
    def form(self) -> Form:
        """What it is of."""
        return self.walk.forms[self.at]

    @cached_property
    def classes(self) -> frozenset[str]:
        """Classes of the devices that it stands on, in whichever replica; none where there is one class."""
        return self.walk.problem.cluster.classes_in(self.walk.blocks(self.at), self.walk.plan.stages[self.at].devices)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, with the times of its devices."""
        graph = across(self.walk.graph_of(self.at), self.classes)
        return graph.named(self.walk.plan.stages[self.at].layers)

    @cached_property
    def zero(self) -> int:
        """Its ZeRO type, by what is exchanged."""
        problem, stages = self.walk.problem, self.walk.plan.stages
        return exchanging_type(priced_sharding(problem, stages[self.at])[0], len(stages), problem.training)

    @cached_property
    def together(self) -> int:
        """Neighbouring replicas that share weights between them."""
        return sharing_replicas(self.walk.problem, self.walk.plan, self.at)

    @cached_property
    def again(self) -> tuple[Recomputed | None, ...]:
        """What each of its layers computes again."""
        last = self.walk.problem.training.recomputes_last
        return self.walk.plan.stages[self.at].repeats(self.layers, last=last)

    @cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Where its parts begin and end among its layers: one, or one for each chunk."""
        ends = list(accumulate(len(part) for part in self.walk.plan.parts(self.walk.graph_of(self.at), self.at)))
        return tuple(pairwise([0, *ends]))

    def figures(self) -> StageFigures:
        """Return its figures, for the replica with the largest load."""
        before, behind = map(_together, self._crossings)
        shown, sync, step = self._shown(), self._sync(), self._step()
        blocks = self.walk.blocks(self.at)
        places = self.walk.places(blocks, self.form.width).tolist()
        passes = {place: self._passes(place) for place in set(places)}
        rows = [
            (
                there.received + passes[place][0] + back.sent,
                back.received + passes[place][1] + there.sent,
                there.level,
                back.level,
                block,
                there.busy + back.busy,
            )
            for there, back, place, block in zip(before, behind, places, blocks.tolist(), strict=True)
        ]
        if not self.walk.problem.preset.all_replicas:
            rows = rows[:1]
        replica, (forward, backward, entry, out, block, transfer) = max(
            enumerate(rows), key=lambda each: (each[1][0] + each[1][1], each[1])
        )
        last = block + self.walk.plan.stages[self.at].devices - 1
        levels = Levels(entry, out, self.walk.problem.cluster.span(block, last))
        load = forward + backward + sum(shown)
        memory, stepping = self._memory()
        once, split = (sync + step, memory, levels, step, stepping), (shown.forward, shown.weight)
        chunks = tuple(self._chunks(replica, places[replica])) if self.walk.plan.chunks > 1 else ()
        return StageFigures(load, forward, backward, sum(shown), *once, *split, self.classes, transfer, chunks)

    def _chunks(self, replica: int, block: int) -> Iterator[StageTimes]:
        """Yield what each chunk takes in a replica; of what is left of exchanges behind them each has as equal a part.

        Exchanges that belong to layers are with the chunk that has these.
        """
        alone, behind, count = self.zero == 3, self._shown().backward, len(self.parts)
        for at, (part, *hops) in enumerate(zip(self.parts, *self._crossings, strict=True)):
            layers, there, back = range(*part), hops[0][replica], hops[1][replica]
            shown = [self._shown_of(layer) if alone else Shown(0, 0, 0) for layer in layers]
            left_over = sum(each.backward for each in shown) if alone else shared(behind, at, count)
            again = [self.again[layer] for layer in layers]
            recompute = self.walk.ticks(each.repeated_s for each in again if each)
            passes = (sum(self._pass(layer, when, block) for layer in layers) for when in ("forward", "backward"))
            forward, backward = passes
            yield StageTimes(
                forward=forward + sum(each.forward for each in shown),
                backward=backward + sum(self._again(layer, block) for layer in layers) - recompute + left_over,
                recompute=recompute,
                receive=there.received,
                receive_gradient=back.received,
                send=back.sent,
                send_gradient=there.sent,
            )

    @cached_property
    def _crossings(self) -> tuple[list[list[Hop]], list[list[Hop]]]:
        """What crosses the boundary before each of its parts, for each replica, and what crosses that behind it."""
        places = range(self.at, self.walk.parts, len(self.walk.plan.stages))
        return [self._hops(at - 1) for at in places], [self._hops(at) for at in places]

    def _hops(self, boundary: int) -> list[Hop]:
        """Return the transfers across a boundary for each replica, in its slowest pair of devices."""
        walk = self.walk
        if not 0 <= boundary < walk.parts - 1:
            return [Hop(0, 0, 0)] * walk.plan.replicas
        levels, (at, to) = walk.levels(boundary), walk.ends(boundary)
        ends = walk.variants[at], walk.variants[to]
        sizes = np.array([walk.alive(boundary, at)]), np.array([walk.alive(boundary, to)])
        hops = {}
        for level in set(levels.ravel().tolist()):
            crossing = walk.exchanges.resharding_s(ends, level, sizes)
            received = walk.ticks(crossing.received) + walk.ticks(crossing.gathered)
            hops[level] = Hop(received, walk.ticks(crossing.sent), level)
        return [max((hops[level] for level in row), key=lambda hop: (hop.busy, hop)) for row in levels.tolist()]

    def _passes(self, block: int) -> tuple[int, int]:
        """Return the ticks of the forward and the backward pass in a block, transfers apart."""
        layers = range(len(self.layers))
        again = sum(self._again(at, block) for at in layers)
        forward, backward = (sum(self._pass(at, when, block) for at in layers) for when in ("forward", "backward"))
        return forward, again + backward

    def _pass(self, at: int, when: Literal["forward", "backward"], block: int) -> int:
        """Return a pass of one layer in a block, without what it repeats."""
        layer = self.layers[at]
        own = self.walk.ticks([layer.forward_s if when == "forward" else layer.backward_s])
        return own + sum(self.walk.inside(each, self.form, block) for each in layer.collectives if each.when == when)

    def _again(self, at: int, block: int) -> int:
        """Return what one layer repeats in a block."""
        again = self.again[at]
        if again is None:
            return 0
        return self.walk.ticks([again.repeated_s]) + sum(
            self.walk.inside(each, self.form, block) for each in again.collectives
        )

    def _shown(self) -> Shown:
        """Return what is left of exchanges for each microbatch: gradients behind the stage, weights behind layers."""
        if self.zero != 3:
            shown = self._left(sum(self._behind), self._window)
            return Shown(0, 0, shown) if self._puts_off else Shown(0, shown, 0)
        return Shown(*map(sum, zip(*map(self._shown_of, range(len(self.layers))), strict=True)))

    def _shown_of(self, at: int) -> Shown:
        """Return the same of one layer whose weights are gathered for each pass."""
        block = self._first_block
        gathered = self._exchanged(FORWARD, self.weights([self.layers[at]]))
        opens = any(at == first for first, _ in self.parts)
        forward = self._left(gathered, 0 if opens else self._pass(at, "forward", block))
        window = self._pass(at, "backward", block) + self._again(at, block)
        if not self._puts_off:
            return Shown(forward, self._left(self._behind[at], window), 0)
        late = self.walk.scale.weight_ticks(self.layers[at])
        return Shown(forward, self._left(gathered, window - late), self._left(self._behind[at], late))

    def _left(self, ticks: int, beside: int) -> int:
        return int(left(ticks, beside, self.walk.hidden))

    def _sync(self) -> int:
        """Return what is left of exchanges once per iteration, the sums of gradients beside the last backward pass."""
        factor = self.walk.problem.preset.sync_factor
        summed = self._exchanged(sums(self.walk.problem.training), self.held, factor) + self._across()
        window = max(self._window - sum(self._behind), 0)
        window = min(int(hideable(summed, len(self.layers))), window)
        once = self._left(summed, window) + self._exchanged(GATHERS, self.held, factor)
        return once + self._ends()

    def _ends(self) -> int:
        """Return what it takes to sum the gradients of copies of a table, between the first stage and the last."""
        walk, last = self.walk, len(self.walk.plan.stages) - 1
        tied = sum(walk.quanta(layer.tied_bytes) for layer in self.layers)
        if not tied or self.has_table:
            return 0
        size = np.array([walk.bytes(tied) * self.times_sent("gradients")])
        levels = set(walk.problem.cluster.spans(walk.blocks(0), walk.blocks(last)).tolist())
        factor = walk.problem.preset.sync_factor
        return max(walk.ticks(walk.exchanges.ends_s(level, size) * factor) for level in levels)

    @property
    def has_table(self) -> bool:
        """Whether it holds the table that others copy."""
        graph = self.walk.graph_of(self.at)
        return graph.layers[graph.table_place].id in self.walk.plan.stages[self.at].layers

    def _step(self) -> int:
        """Return the ticks of the optimizer's step."""
        walk = self.walk
        step = walk.problem.cluster.step_s_per_byte_of(self.classes, walk.problem.training.step_s_per_byte)
        return walk.scale.time.ticks(walk.bytes(self._stepped_on) * step)

    @property
    def _stepped_on(self) -> int:
        """Quanta of weights whose state a device holds."""
        parts = zip(self.held, self.degrees, strict=True)
        return sum(stepped_on(weights, self.zero, ranks) for weights, ranks in parts)

    @property
    def _first_block(self) -> int:
        """The block of replica 0: where a plan is legal, collectives inside take the same in each."""
        return int(self.walk.blocks(self.at)[0])

    @property
    def _puts_off(self) -> bool:
        """Whether gradients of weights come later than those of inputs."""
        return self.walk.plan.schedule == "zb-h1"

    @cached_property
    def _window(self) -> int:
        """Ticks beside which sums of gradients run: the backward pass without what it repeats, or what is put off."""
        if self._puts_off:
            return sum(map(self.walk.scale.weight_ticks, self.layers))
        return sum(self._pass(at, "backward", self._first_block) for at in range(len(self.layers)))

    @cached_property
    def _behind(self) -> tuple[int, ...]:
        """What each layer exchanges in this time for each microbatch, whether it is hidden or not."""
        by_type = SCATTERS if self._puts_off else BACKWARD
        return tuple(self._exchanged(by_type, self.weights([layer])) for layer in self.layers)

    def weights(self, layers: Iterable[Layer]) -> tuple[int, int]:
        """Return quanta of dense weights, and of the experts' on each device."""
        experts = whole = 0
        for layer in layers:
            experts += self.walk.quanta(layer.expert_parameter_bytes)
            whole += self.walk.quanta(layer.parameter_bytes)
        return whole - experts, experts

    @cached_property
    def held(self) -> tuple[int, int]:
        """The same of the stage, which holds a table once that several of its layers use."""
        dense, experts = self.weights(self.layers)
        tied = sum(self.walk.quanta(layer.tied_bytes) for layer in self.layers) if self.has_table else 0
        return dense - tied, experts

    def _exchanged(self, by_type: ZeroExchanges, held: tuple[int, int], factor: float = 1.0) -> int:
        """Return what the ranks that hold copies exchange of dense weights and experts', each rounded by itself."""
        total = 0
        for weights, groups in zip(held, self._groups, strict=True):
            for kind, part in by_type[self.zero]:
                size = self.walk.bytes(weights) * self.times_sent(part)
                total += self._slowest(kind, groups.within, size, factor)
        return total

    def _across(self) -> int:
        """Return what the groups that each share the weights between them take to sum their shares of the gradients."""
        total = 0
        for weights, groups, degree in zip(self.held, self._groups, self.degrees, strict=True):
            if groups.across:
                shard = self.walk.bytes(weights) * self.times_sent("gradients") / degree
                total += self._slowest("all-reduce", groups.across, shard, self.walk.problem.preset.sync_factor)
        return total

    def times_sent(self, part: Part) -> float:
        """Return how many bytes are exchanged for each byte of weights."""
        return self.walk.copies.summed if part == "gradients" else self.walk.copies.gathered

    def _slowest(self, kind: CollectiveKind, groups: Iterable[Spread], size: float, factor: float) -> int:
        """Return what the slowest of some groups takes to exchange so many bytes, times a factor of the preset."""
        walk, sizes = self.walk, np.array([size])
        slowest = max(float(walk.exchanges.seconds(kind, group, sizes)[0]) for group in groups)
        return walk.scale.time.ticks(slowest * factor)

    @cached_property
    def _groups(self) -> tuple[Groups, Groups]:
        """How those are spread that hold copies of dense weights, and of an expert's."""
        found = (self.walk.groups(self.at, self.together, expert=expert) for expert in (False, True))
        return tuple(found)  # type: ignore[return-value]

    @property
    def degrees(self) -> tuple[int, int]:
        """Over how many ranks dense weights are spread, and an expert's."""
        dense, expert = self.walk.problem.copy_ranks(self.form.variant, self.together)
        return dense * self.form.inside, expert * self.form.inside

    def _memory(self) -> tuple[int, int]:
        """Return quanta on each device, and by how many the optimizer's step takes more than a backward pass."""
        walk, stages = self.walk, len(self.walk.plan.stages)
        held = sum(
            state(weights, walk.copies, self.zero, ranks)
            for weights, ranks in zip(self.held, self.degrees, strict=True)
        )
        microbatches = -(-walk.problem.microbatches(walk.plan.variant) // walk.plan.replicas)
        held_by = [again or layer for layer, again in zip(self.layers, self.again, strict=True)]
        kept = [walk.quanta(each.activation_bytes) for each in held_by]
        working = [walk.quanta(each.working_bytes) for each in held_by]
        moments = [self._moment(layer, size) for layer, size in zip(self.layers, working, strict=True)]
        whole = [sum(kept[first:end]) for first, end in self.parts]
        peaks = [self._peak(kept[first:end], moments[first:end]) for first, end in self.parts]
        schedule = Schedule(walk.plan.schedule, walk.plan.chunks)
        received, stays = self._buffered()
        passing = max(
            sum(map(mul, each.kept, whole))
            - whole[each.chunk]
            + peaks[each.chunk]
            + sum((microbatches - kept) * size for kept, size in zip(each.kept, received, strict=True))
            for each in flights(schedule, stages, self.at, microbatches, every=any(received))
        )
        overhead = walk.quanta(walk.problem.training.overhead_bytes) + microbatches * stays
        stepping = max(walk.copies.stepped * self._stepped_on + microbatches * sum(received) - passing, 0)
        return held + passing + stepping + overhead, stepping

    def _buffered(self) -> tuple[list[int], int]:
        """Return quanta that buffers hold of a microbatch: what comes into each part, and all else of the stage."""
        walk, count = self.walk, len(self.walk.plan.stages)
        if not walk.problem.training.buffers_boundaries or count == 1:
            return [0] * len(self.parts), 0
        parts = range(self.at, walk.parts, count)
        sent = sum(walk.alive_quanta(part, self.at) for part in parts)  # and as much comes back for it
        results = sum(walk.quanta(layer.result_bytes) for layer in self.layers)
        return [walk.alive_quanta(part - 1, self.at) for part in parts], 2 * sent + results

    def _peak(self, kept: Sequence[int], moments: Sequence[int]) -> int:
        """Return what the microbatch at work takes at most, with all that its layers have in use for a moment."""
        held = [sum(kept)] * len(kept) if self._puts_off else accumulate(kept)  # until gradients of weights are there
        return max(size + moment for size, moment in zip(held, moments, strict=True))

    def _moment(self, layer: Layer, working: int) -> int:
        """Return what is in use for a moment while a layer runs."""
        spread = [self.zero if ranks > 1 else 0 for ranks in self.degrees]
        whole = sum(
            whole_for_a_moment(weights, self.walk.copies, zero)
            for weights, zero in zip(self.weights([layer]), spread, strict=True)
        )
        return working + whole
