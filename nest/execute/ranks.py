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
class Groups:
    """The processes with which one exchanges something.

    Parameters
    ----------
    shape, seat
        All processes, and this one.
    mesh
        All of them, stages x copies x tensor ranks.
    context, expert
        Those that share the sequence, and the experts; None where no one does.
    routed
        Those that hold copies of the same experts; None where there are none.
    """

    shape: Shape
    seat: Seat
    mesh: Any
    context: Any = None
    expert: Any = None
    routed: Any = None

    @classmethod
    def of(cls, shape: Shape, rank: int) -> Groups:
        """Make them; every process has to call this."""
        stages, tensor = len(shape.stages), shape.tensor
        ranks = torch.arange(shape.processes)
        names = ("stage", "copy", "tensor")
        mesh = DeviceMesh("cpu", ranks.reshape(stages, shape.copies, tensor), mesh_dim_names=names)
        places = ranks.reshape(stages, shape.replicas, shape.expert, shape.context, tensor)
        return cls(
            shape,
            shape.seat(rank),
            mesh,
            _subgroup(places.movedim(3, -1), 1) if shape.context > 1 else None,
            _subgroup(places.movedim(2, -1), 1) if shape.expert > 1 else None,
            _subgroup(places.movedim((1, 3), (-2, -1)), 2) if shape.expert > 1 else None,
        )

    @property
    def copies(self) -> Any:
        """Those that hold copies of the same dense weights."""
        return self.mesh.get_group("copy")

    @property
    def pipeline(self) -> Any:
        """The other stages of the pipeline."""
        return self.mesh.get_group("stage")

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
        """Spread weights and gradients over the ranks with copies (types 2 and 3), layer by layer, experts apart."""
        if zero < 2 or self.shape.copies == 1:
            return
        lonely: set[nn.Parameter] = set()
        for part in layers:
            if self.routed is not None and isinstance(part, Block):
                lonely |= self._spread_experts(part.mlp, zero)
            fully_shard(part, mesh=self.mesh["copy"], reshard_after_forward=zero == 3, ignored_params=lonely)
        fully_shard(module, mesh=self.mesh["copy"], reshard_after_forward=zero == 3, ignored_params=lonely)

    def _spread_experts(self, mlp: nn.Module, zero: int) -> set[nn.Parameter]:
        """Spread the experts of a block over the ranks with copies of them; return those that have only one copy."""
        assert isinstance(mlp, Experts), "experts are in all blocks, or in none"
        if dist.get_world_size(self.routed) == 1:
            return set(mlp.experts.parameters())
        mesh = DeviceMesh.from_group(self.routed, "cpu")
        for expert in mlp.experts.values():
            fully_shard(expert, mesh=mesh, reshard_after_forward=zero == 3)
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


def _subgroup(places: Tensor, dims: int) -> Any:
    """Return the process group of this rank along the last dimensions of all ranks."""
    lines = places.flatten(-dims).flatten(0, -2)
    return dist.new_subgroups_by_enumeration(lines.tolist())[0]


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
