"""Time and memory of one iteration of a plan that is given: uniform widths, any split of the layers into stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nest.costing.efficiency import OVERLAP_TAX, efficiency_of
from nest.costing.flops import model_flops
from nest.costing.framework import Recompute
from nest.costing.layer import Collective, LayerCost
from nest.costing.layout import Layout, split_stages
from nest.costing.memory import Position, Sharding, StageMemory, stage_memory, stage_parameters
from nest.costing.pricing import layer_costs
from nest.costing.profile import LayerProfile
from nest.costing.recipe import Recipe
from nest.costing.setting import Setting
from nest.families import Architecture
from nest.hardware import Device


class Network(Protocol):
    """Prices communication by where the groups sit."""

    def seconds(self, kind: str, size: float, axis: str) -> float:
        """Return the time of a collective.

        Parameters
        ----------
        kind, size
            As in `Collective`.
        axis
            ``tensor``, ``context`` or ``expert`` inside a stage; ``data`` for the ranks that hold the same dense
            parameters, ``expert_data`` for those with the same experts; ``ends`` for first and last stage.
        """

    def transfer(self, size: float) -> float:
        """Return the time to send so many bytes from a stage to the next."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """Seconds for which one microbatch keeps a stage busy.

    Parameters
    ----------
    forward, backward
        Computation and collectives.
    repeated
        What is computed again.
    transfer
        To and from its neighbours.
    exposed
        Of these, collectives that nothing hides.
    """

    forward: float
    backward: float
    repeated: float
    transfer: float
    exposed: float

    @property
    def load(self) -> float:
        """All of it."""
        return self.forward + self.backward + self.repeated + self.transfer


@dataclass(frozen=True, slots=True)
class Estimate:
    """An iteration.

    Parameters
    ----------
    iteration_s
        Its time.
    pipeline_s, sync_s, step_s
        Passes of all microbatches; what is left of summing the gradients; the optimizer's step.
    stages
        Times by stage.
    memory
        Memory by stage.
    model_flops
        Of the iteration, by the convention of `nest.costing.flops`.
    devices
        How many work.
    """

    iteration_s: float
    pipeline_s: float
    sync_s: float
    step_s: float
    stages: tuple[StageTime, ...]
    memory: tuple[StageMemory, ...]
    model_flops: int
    devices: int

    @property
    def flops_per_device(self) -> float:
        """Model FLOP/s of each device."""
        return self.model_flops / self.iteration_s / self.devices

    @property
    def peak_bytes(self) -> int:
        """Memory of the fullest device."""
        return max(memory.total for memory in self.memory)


def estimate_iteration(
    model: Architecture,
    device: Device,
    setting: Setting,
    layout: Layout,
    *,
    recipe: Recipe,
    network: Network,
    profile: LayerProfile | None = None,
) -> Estimate:
    """Return time and memory of an iteration; measurements of a profile override what is modelled.

    Raises
    ------
    InvalidProblem
        If setting and layout do not fit the model, or a profile has nothing for them.
    """
    costs = [cost for stack in layer_costs(model, device, setting, profile).values() for cost in stack]
    if profile is not None:
        profile.require_used([setting])
    split = split_stages(costs, layout)
    crossing = max((cost.output_bytes for cost in costs if cost.repeats), default=costs[0].output_bytes)
    plan = _Plan(device, setting, layout, recipe, network, crossing)
    times = tuple(plan.stage_time(at, blocks) for at, blocks in enumerate(split))
    pipeline = plan.pipeline_s(times)
    sync = max(plan.sync_s(at, blocks, times[at]) for at, blocks in enumerate(split))
    step = max(plan.step_s(at, blocks) for at, blocks in enumerate(split))
    devices = setting.tensor * setting.context * setting.expert * layout.stages * layout.data
    return Estimate(
        pipeline + sync + step,
        pipeline,
        sync,
        step,
        times,
        tuple(plan.memory(at, blocks) for at, blocks in enumerate(split)),
        model_flops(model, layout.global_batch, setting.sequence),
        devices,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    device: Device
    setting: Setting
    layout: Layout
    recipe: Recipe
    network: Network
    crossing_bytes: int  # of what a layer hands on, for stages without layers

    @property
    def ranks(self) -> int:
        return self.layout.data * self.setting.context * self.setting.expert

    @property
    def expert_ranks(self) -> int:
        return self.layout.data * self.setting.context

    @property
    def sharding(self) -> Sharding:
        return Sharding(self.layout.zero, self.ranks, self.expert_ranks)

    @property
    def gathers(self) -> bool:
        """Whether each microbatch gathers the weights; a pipeline keeps them for the iteration."""
        return self.layout.zero == 3 and self.layout.stages == 1

    def recompute(self, stage: int, blocks: Sequence[LayerCost]) -> list[Recompute]:
        """Return what each block computes again: the first so many layers of the stage do."""
        left = self.layout.recomputed[stage] if self.layout.recomputed else len(blocks)
        kinds: list[Recompute] = []
        for block in blocks:
            again = block.repeats and left > 0
            left -= again
            kinds.append(self.layout.recompute if again else "none")
        return kinds

    def memory(self, stage: int, blocks: Sequence[LayerCost]) -> StageMemory:
        microbatches = self.layout.microbatches(self.setting)
        position = Position(stage, self.layout.stages, microbatches, self.layout.virtual)
        kinds = self.recompute(stage, blocks)
        return stage_memory(
            blocks,
            kinds,
            position,
            self.recipe,
            sharding=self.sharding,
            offloaded=self.offloaded(stage),
            reserve=self.layout.reserve,
        )

    def stage_time(self, stage: int, blocks: Sequence[LayerCost]) -> StageTime:
        kinds = self.recompute(stage, blocks)
        forward = backward = repeated = exposed = 0.0
        for block, kind in zip(blocks, kinds, strict=True):
            there = sum(self.left(each) for each in block.collectives(kind) if each.phase == "forward")
            back = sum(self.left(each) for each in block.collectives(kind) if each.phase == "backward")
            gathered = self.gathered_s(block)
            forward += max(block.forward_s + there, gathered)
            again = block.repeated_s(kind)
            backward += max(block.backward_s + back + again, gathered + self.reduced_s(block)) - again
            repeated += again
            exposed += there + back
        if self.gathers and self.ranks > 1:
            taxed = OVERLAP_TAX * sum(2 * self.gathered_s(block) + self.reduced_s(block) for block in blocks)
            backward += taxed + self.gathered_s(blocks[0])
        backward += self.scattered_s(blocks, backward)
        return StageTime(forward, backward, repeated, self.transfer_s(blocks), exposed)

    def left(self, each: Collective) -> float:
        """Return what computation does not hide of a collective, and what it costs the computation that does."""
        seconds = self.network.seconds(each.kind, each.size, each.axis)
        if not each.hidden_s:
            return seconds
        hidden = min(seconds, each.hidden_s)
        return seconds - hidden + OVERLAP_TAX * hidden

    def gathered_s(self, block: LayerCost) -> float:
        """Return the time to gather a block's weights (type 3)."""
        if not self.gathers:
            return 0.0
        return self._spread("all-gather", block, self.recipe.gathered)

    def reduced_s(self, block: LayerCost) -> float:
        """Return the time to sum and spread a block's gradients after each microbatch (type 3)."""
        if not self.gathers:
            return 0.0
        return self._spread("reduce-scatter", block, self.recipe.reduced)

    def scattered_s(self, blocks: Sequence[LayerCost], backward_s: float) -> float:
        """Return what is left of spreading gradients after each microbatch, where nobody keeps all of them (type 2)."""
        if self.layout.zero != 2:
            return 0.0
        seconds = sum(self._spread("reduce-scatter", block, self.recipe.reduced) for block in blocks)
        hidden = min(seconds, backward_s) if self.setting.framework.hides_gradients else 0.0
        return seconds + (OVERLAP_TAX - 1) * hidden

    def _spread(self, kind: str, block: LayerCost, each: float) -> float:
        seconds = 0.0
        if self.ranks > 1 and block.parameters.dense:
            seconds += self.network.seconds(kind, each * block.parameters.dense, "data")
        if self.expert_ranks > 1 and block.parameters.expert:
            seconds += self.network.seconds(kind, each * block.parameters.expert, "expert_data")
        return seconds

    def transfer_s(self, blocks: Sequence[LayerCost]) -> float:
        """Return the time of one microbatch's transfers in and out, both passes, all chunks."""
        if self.layout.stages == 1 or self.setting.framework.hides_transfers:
            return 0.0
        layers = [block for block in blocks if block.repeats]
        size = layers[-1].output_bytes if layers else self.crossing_bytes
        seconds = self.network.transfer(size)
        if self.setting.tensor > 1 and self.setting.framework.scatter_gather and not self.setting.sequence_parallel:
            seconds += self.network.seconds("all-gather", size * self.setting.tensor, "tensor")
        return 2 * self.layout.virtual * seconds

    def pipeline_s(self, times: Sequence[StageTime]) -> float:
        """Return ``sum of the other loads / v + m * largest load``: every stage fills once, the slowest works m times.

        For equal stages it is exact: ``(m + (S - 1) / v) * load`` (arXiv 2104.04473, section 2.2).
        """
        loads = [time.load for time in times]
        rounds = self.layout.microbatches(self.setting)
        return (sum(loads) - max(loads)) / self.layout.virtual + rounds * max(loads)

    def sync_s(self, stage: int, blocks: Sequence[LayerCost], time: StageTime) -> float:
        """Return what is left of summing a stage's gradients over its ranks, behind the last backward pass."""
        seconds = self.ends_s(stage, blocks)
        if self.gathers:
            return seconds
        parameters = stage_parameters(blocks)
        spread = self.layout.zero > 0
        summed = gathered = 0.0
        for count, ranks, axis in (
            (parameters.dense, self.ranks, "data"),
            (parameters.expert, self.expert_ranks, "expert_data"),
        ):
            if ranks == 1 or not count:
                continue
            part = spread and not (self.layout.zero == 1 and self.setting.framework.sums_whole)
            kind = "reduce-scatter" if part else "all-reduce"
            if self.layout.zero != 2:  # spread with every microbatch
                summed += self.network.seconds(kind, self.recipe.reduced * count, axis)
            gathered += self.network.seconds("all-gather", self.recipe.gathered * count, axis) if spread else 0.0
        if self.setting.framework.hides_gradients:
            # the last chunk's gradients have nothing left to hide behind
            hidden = min(summed * (1 - 1 / max(2, len(blocks))), time.backward)
            summed += (OVERLAP_TAX - 1) * hidden
        return seconds + summed + gathered

    def ends_s(self, stage: int, blocks: Sequence[LayerCost]) -> float:
        """Return the time to sum the gradients of both copies of a table that first and last stage share."""
        tied = sum(block.tied for block in blocks)
        if self.layout.stages == 1 or not tied or stage != self.layout.stages - 1:
            return 0.0
        return self.network.seconds("all-reduce", self.recipe.reduced * tied, "ends")

    def offloaded(self, stage: int) -> float:
        return self.layout.offloaded[stage] if self.layout.offloaded else 0.0

    def step_s(self, stage: int, blocks: Sequence[LayerCost]) -> float:
        """Return the time of the optimizer's step: it reads and writes memory, and fetches what the host holds."""
        count = self.sharding.share(stage_parameters(blocks), 1)
        efficiency = efficiency_of(self.device)
        seconds = count * self.recipe.touched / (self.device.hbm_bytes_per_s * efficiency.memory)
        fetched = 2 * self.offloaded(stage) * self.recipe.optimizer * count
        return seconds + (fetched / self.device.pcie_bytes_per_s if fetched and self.device.pcie_bytes_per_s else 0.0)
