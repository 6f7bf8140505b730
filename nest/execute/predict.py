"""What the stages of the tiny model keep, as `nest.costing` says, and what PyTorch keeps besides."""

from __future__ import annotations

from nest.cost.memory import stepped_on
from nest.costing import Framework, LayerCost, Setting, layer_costs, recipe_named
from nest.execute.job import Job
from nest.execute.tiny import CHOSEN
from nest.hardware import device_named
from nest.problem import Recompute

EAGER = Framework("pytorch-eager", scatter_gather=False)
"""PyTorch without compiler: the loss keeps logarithms of probabilities in fp32, and no kernel of ours is involved."""

VALUE = 4
"""Bytes of a number in fp32."""


def kept_bytes(job: Job) -> tuple[tuple[int, int], ...]:
    """Return for each layer the bytes that a microbatch keeps on a rank.

    Returns
    -------
    tuple of (int, int)
        As `nest.costing` has it, and what PyTorch keeps on top of that (`_besides`).
    """
    again = tuple(kind for stage in job.shape.stages for kind in stage.again)
    fused, written = _costs(job, fused=True), _costs(job, fused=False)
    return tuple(
        ((written if kind == "selective" else fused)[at].kept.of(kind), _besides(job, at, kind))
        for at, kind in enumerate(again)
    )


def state_bytes(job: Job, stage: int) -> tuple[int, int]:
    """Return the bytes of weights and of Adam's moments that a rank of a stage holds, by `nest.costing`."""
    shape, part = job.shape, job.shape.stages[stage]
    costs = _costs(job, fused=True)[part.first : part.end]  # whose head has a table of its own
    recipe, held, sharing = recipe_named("fp32"), [0, 0], shape.sharing(stage)
    for place, since in enumerate((3, 1)):
        zero = part.zero if part.zero >= since else 0
        counts = (sum(cost.parameters.dense for cost in costs), sum(cost.parameters.expert for cost in costs))
        held[place] = sum(stepped_on(count, zero, ranks) for count, ranks in zip(counts, sharing, strict=True))
    return int(recipe.weights) * held[0], int(recipe.moments) * held[1]


def _costs(job: Job, *, fused: bool) -> tuple[LayerCost, ...]:
    """Return what each layer costs; bytes do not depend on the device that is named."""
    shape, model = job.shape, job.model
    setting = Setting(
        model.sequence,
        shape.microbatch,
        shape.tensor,
        shape.sequence,
        shape.context,
        "gather",
        shape.expert,
        flash=fused,
        dtype="fp32",
        padding=0,
        framework=EAGER,
    )
    return layer_costs(model.architecture(), device_named("a100"), setting)["text"]


def _besides(job: Job, layer: int, kind: Recompute) -> int:
    """Return what PyTorch keeps of a layer that the cost model does not know of.

    Mean and deviation of each row of a norm; the sum of weights of the loss; with sequence parallel the gathered input
    of matrices, which Megatron-LM gathers again; with context parallel keys and values of all ranks, and the mask as
    numbers; of experts, what they found and with which weight.
    """
    shape, model = job.shape, job.model
    rows = shape.microbatch * model.sequence // shape.context
    own = rows // (shape.tensor if shape.sequence else 1)
    head = layer == model.layers - 1
    if layer == 0 or (kind == "full" and not head):
        return 0
    norms = 1 if head else 2
    besides = norms * (2 * VALUE * own + VALUE * model.hidden * (rows - own))
    if head:
        return besides + VALUE
    if kind == "none" and shape.context > 1:
        besides += 2 * VALUE * rows * (shape.context - 1) * model.hidden // shape.tensor
        besides += VALUE * model.sequence * model.sequence // shape.context
    if model.experts:
        besides += VALUE * CHOSEN * rows * (model.hidden + 1)
    return besides
