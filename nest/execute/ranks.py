"""Process groups of a shape, and the layers of a stage spread over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from nest.execute.model import Block, Embedding, Experts, Head, Part, loss_of
from nest.execute.shape import Seat, Shape


@dataclass(frozen=True)
class Copies:
    """Those that hold copies of a weight.

    Parameters
    ----------
    every, within, across
        All of them; those that share it between them; those of other groups that have the same share.
    """

    every: Any
    within: Any
    across: Any

    @classmethod
    def of(cls, places: Sequence[Tensor]) -> Copies:
        """Make them from the ranks of each stage, in whose last two dimensions they are, group by group."""
        every = _subgroup([each.flatten(-2) for each in places])
        return cls(every, _subgroup(places), _subgroup([each.transpose(-2, -1) for each in places]))

    @property
    def shared(self) -> int:
        """How many share a weight between them."""
        return int(dist.get_world_size(self.within))

    @property
    def groups(self) -> int:
        """How many groups of such ranks there are."""
        return int(dist.get_world_size(self.across))

    def mesh(self) -> Any:
        """Return the mesh over which FSDP2 spreads: groups x ranks, or the ranks of the only group."""
        if self.groups == 1:
            return DeviceMesh.from_group(self.within, "cpu")
        own = torch.tensor(dist.get_process_group_ranks(self.every)).reshape(self.groups, self.shared)
        return DeviceMesh.from_group([self.across, self.within], "cpu", mesh=own, mesh_dim_names=("across", "within"))


@dataclass(frozen=True)
class Groups:
    """The processes with which one exchanges something.

    Parameters
    ----------
    shape, seat
        All processes, and this one.
    mesh
        Those of the stage: groups of replicas x copies within one that share dense weights x tensor ranks.
    pipeline
        The other stages of the pipeline.
    dense
        Those that hold copies of the same dense weights.
    context, expert
        Those that share the sequence, and the experts; None where no one does.
    routed
        Those that hold copies of the same experts; None where there are none.
    """

    shape: Shape
    seat: Seat
    mesh: Any
    pipeline: Any
    dense: Copies
    context: Any = None
    expert: Any = None
    routed: Copies | None = None

    @classmethod
    def of(cls, shape: Shape, rank: int) -> Groups:
        """Make them; every process has to call this."""
        seat, ranks = shape.seat(rank), torch.arange(shape.processes)
        places = ranks.reshape(len(shape.stages), shape.replicas, shape.expert, shape.context, shape.tensor)
        by_stage = [
            part.unflatten(0, (-1, stage.together)) for part, stage in zip(places, shape.stages, strict=True)
        ]  # groups of replicas, replicas of one, expert, context, tensor
        dense = Copies.of([each.movedim(-1, 0).flatten(2) for each in by_stage])
        tensor = _subgroup([places])
        names = ("across", "within", "tensor")
        own = by_stage[seat.stage].flatten(1, 3)
        return cls(
            shape,
            seat,
            DeviceMesh.from_group([dense.across, dense.within, tensor], "cpu", mesh=own, mesh_dim_names=names),
            _subgroup([places.movedim(0, -1)]),
            dense,
            _subgroup([places.movedim(3, -1)]) if shape.context > 1 else None,
            _subgroup([places.movedim(2, -1)]) if shape.expert > 1 else None,
            Copies.of([each.movedim((-1, 2), (0, 1)).flatten(3) for each in by_stage]) if shape.expert > 1 else None,
        )

    def part(self, tokens: int) -> Part:
        """Return what the process has of sequences of so many tokens, and of the experts."""
        first, own = self.shape.span(self.seat, tokens)
        shared = self.seat.tensor * own // self.shape.tensor if self.shape.sequence else 0
        return Part(first, shared, self.context, self.expert)

    def cut(self, layers: Sequence[nn.Module]) -> None:
        """Cut the matrices of layers among the tensor ranks."""
        if self.shape.tensor > 1:
            for layer in layers:
                parallelize_module(layer, self.mesh["tensor"], _styles(layer, sequence=self.shape.sequence))

    def spread(self, module: nn.Module, layers: Sequence[nn.Module], zero: int) -> None:
        """Spread weights and gradients over the ranks with copies (types 2 and 3), layer by layer, experts apart.

        Where groups of replicas share them, FSDP2 sums gradients within each, and then across them.
        """
        if zero < 2 or self.dense.shared == 1:
            return
        mesh = self.mesh["within"] if self.dense.groups == 1 else self.mesh["across", "within"]
        apart: set[nn.Parameter] = set()
        for part in layers:
            if self.routed is not None and isinstance(part, Block):
                apart |= self._spread_experts(part.mlp, self.routed, zero)
            fully_shard(part, mesh=mesh, reshard_after_forward=zero == 3, ignored_params=apart)
        fully_shard(module, mesh=mesh, reshard_after_forward=zero == 3, ignored_params=apart)

    def _spread_experts(self, mlp: nn.Module, routed: Copies, zero: int) -> set[nn.Parameter]:
        """Spread the experts of a block over the ranks with copies of them; return those of which each has all."""
        assert isinstance(mlp, Experts), "experts are in all blocks, or in none"
        if routed.shared == 1:
            return set(mlp.experts.parameters())
        for expert in mlp.experts.values():
            fully_shard(expert, mesh=routed.mesh(), reshard_after_forward=zero == 3)
        return set()

    def routed_weights(self, layers: Sequence[nn.Module]) -> list[nn.Parameter]:
        """Return the weights of experts that ranks share."""
        if self.routed is None:
            return []
        mlps = [layer.mlp for layer in layers if isinstance(layer, Block)]
        return [weight for mlp in mlps for weight in mlp.experts.parameters()]

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of the process's tokens, of logits that tensor ranks have a part of each."""
        if self.shape.tensor == 1:
            return loss_of(logits, targets)
        whole = DTensor.from_local(logits, self.mesh["tensor"], [Shard(-1)], run_check=False)
        loss: Tensor = loss_of(whole, targets)
        return loss.to_local() if isinstance(loss, DTensor) else loss


def _subgroup(places: Sequence[Tensor]) -> Any:
    """Return the process group of this rank along the last dimension of one of some arrays of ranks."""
    return dist.new_subgroups_by_enumeration([line for each in places for line in each.flatten(0, -2).tolist()])[0]


def _styles(layer: nn.Module, *, sequence: bool) -> dict[str, Any]:
    """Return how each part of a layer is cut, in the terms of `parallelize_module`."""
    rows = Shard(1) if sequence else Replicate()
    if isinstance(layer, Embedding):
        return {"tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=rows)}
    if isinstance(layer, Head):
        styles: dict[str, Any] = {"logits": ColwiseParallel(input_layouts=rows, output_layouts=Shard(-1))}
        return {**styles, "norm": SequenceParallel()} if sequence else styles
    assert isinstance(layer, Block), "there is no other kind of layer"
    into = ("attention.query", "attention.key", "attention.value", "mlp.up")
    styles = {name: ColwiseParallel() for name in into}
    styles |= {name: RowwiseParallel(output_layouts=rows) for name in ("attention.out", "mlp.down")}
    if sequence:
        styles |= {name: SequenceParallel() for name in ("first_norm", "second_norm")}
        for name in ("attention", "mlp"):
            styles[name] = PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(Replicate(),))
    return styles
