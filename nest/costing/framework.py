"""What the software does with a layer besides its mathematics: which kernels are fused, what runs at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from nest.errors import InvalidProblem

Recompute: TypeAlias = Literal["none", "selective", "full"]
"""What is computed again before the backward pass: nothing, the attention core (arXiv 2205.05198, section 5), all."""

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
"""All of them, from the least to the most."""


@dataclass(frozen=True, slots=True)
class Framework:
    """A training framework, as far as its choices cost time or memory.

    Parameters
    ----------
    name
        As given by users.
    fused_accumulation
        Whether the product that makes a weight gradient adds it to the accumulated one itself; if not, a kernel of its
        own reads and writes the gradients of every microbatch once more.
    fused_elementwise
        Whether chains of element-wise operators are one kernel (handwritten or compiled) that reads and writes memory
        once; if not, every step of a norm, an activation or a rotation is a kernel.
    fused_inputs
        Whether products of one input are one product: of queries, keys and values, and of gate and up.
    gradient_bytes
        Bytes of an accumulated gradient.
    added_bytes
        Bytes that the optimizer's own accumulation reads and writes for each weight and microbatch, besides.
    fused_attention
        Whether it has flash attention, which is then taken unless it is said otherwise.
    causal_softmax
        Whether, without flash attention, the softmax leaves out what a causal mask hides.
    hides_tensor
        Whether collectives of tensor parallel in the backward pass run beside the weight gradients.
    hides_products
        Whether collectives of tensor parallel are cut into pieces that run beside their own products (asynchronous
        tensor parallel, user buffers).
    hides_gradients
        Whether gradients are summed over the replicas while the last backward pass goes on.
    sums_whole
        Whether, where only the optimizer state is spread (type 1), each rank still gets all sums and not its part only.
    hides_transfers
        Whether transfers between stages run beside the computation.
    scatter_gather
        Whether devices of one tensor-parallel group each send a part of what leaves a stage, and gather it behind the
        boundary (arXiv 2104.04473, section 4.1).
    blocking_sends
        Whether a stage waits until what it sends has arrived.
    loss_moved
        Bytes that the loss reads and writes for each logit, in the forward and in the backward pass: written step by
        step in fp32 it converts, finds the maximum, subtracts, exponentiates, sums and divides.
    logit_bytes
        Bytes per logit that the loss holds at its peak besides the fp32 copy that the graph counts: the logits in the
        data type of the product, and their gradient.
    logit_shared
        The same where tensor parallel cuts the vocabulary and the loss is taken of the parts.
    keeps_gathered
        Whether products whose input is gathered from a shared sequence keep the whole of it for the backward pass, as
        tensors that are only annotated with how they are cut do; if not, each device keeps its part and gathers again.
    logit_kept
        Bytes per logit that the loss keeps for the backward pass: 4, or 2 where it puts gradients in the logits' place.
    spare_gradients
        Whether a weight whose gradient a product has added already still gets a tensor of its shape that stands for
        it: one for each shape, which stay (Transformer Engine), and one for the logits for a moment.
    recomputes_last
        Whether, where some layers of a stage are computed again, it is the last of them and not the first: these come
        first in the backward pass, when all others still keep what they do.
    buffers_boundaries
        Whether stages keep what they have sent of every microbatch, and a buffer for everything that they receive,
        until the iteration ends.
    sorts_rows
        Whether rows that arrive for experts are sorted by expert, and back again, as kernels of their own.
    attention
        Rate of its fused attention over the best that is known for the device: kernels of 2022 and 2023, before
        FlashAttention-2, do about 0.6 of it.
    host_s
        Time that the host takes to issue one kernel; the device waits where its kernels are shorter.
    layer_s
        Time that the device waits for the host at each layer and pass: checkpointing that saves and restores the states
        of random numbers does so.

    Raises
    ------
    InvalidProblem
        If a number is negative.
    """

    name: str
    fused_accumulation: bool = True
    fused_elementwise: bool = True
    fused_inputs: bool = True
    gradient_bytes: float = 4.0
    added_bytes: float = 0.0
    fused_attention: bool = True
    causal_softmax: bool = True
    hides_tensor: bool = True
    hides_products: bool = False
    hides_gradients: bool = True
    sums_whole: bool = False
    hides_transfers: bool = False
    scatter_gather: bool = True
    blocking_sends: bool = False
    loss_moved: tuple[float, float] = (34.0, 14.0)
    logit_bytes: float = 4.0
    logit_shared: float = 4.0
    keeps_gathered: bool = False
    logit_kept: float = 4.0
    spare_gradients: bool = False
    recomputes_last: bool = False
    buffers_boundaries: bool = False
    sorts_rows: bool = True
    attention: float = 1.0
    host_s: float = 0.0
    layer_s: float = 0.0

    def __post_init__(self) -> None:
        sizes = ("gradient_bytes", "added_bytes", "logit_bytes", "logit_shared", "logit_kept")
        for name in (*sizes, "attention", "host_s", "layer_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InvalidProblem(name, f"{getattr(self, name)!r}", "give a finite number from 0")
