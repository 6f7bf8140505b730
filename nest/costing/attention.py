"""Attention proper: its time, and what it keeps and writes, with and without flash attention."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from nest.costing.kernels import Kernels
from nest.costing.setting import Setting, Tokens
from nest.families import Scores

BLOCK = 128
"""Queries of one block of fused attention; on the diagonal a block computes both halves."""

PASSES = 2.5
"""Operations of the fused backward pass over those of the forward pass: five products instead of two."""


@dataclass(frozen=True, slots=True)
class Core:
    """Scores on one device.

    Parameters
    ----------
    operator, setting, tokens
        What is computed, and under which setting.
    """

    operator: Scores
    setting: Setting
    tokens: Tokens

    @property
    def heads(self) -> int:
        """Heads of the queries on one device."""
        heads = -(-self.operator.heads // self.setting.tensor)
        if self.setting.context_kind == "exchange":
            return -(-heads // self.setting.context)
        return heads

    @property
    def queries(self) -> int:
        """Tokens of one sequence whose queries a device has."""
        length = self.tokens.length()
        return length if self.setting.context_kind == "exchange" else -(-length // self.setting.context)

    @property
    def keys(self) -> int:
        """Tokens of one sequence that queries look at."""
        return self.tokens.length(self.operator.keys)

    @property
    def probabilities(self) -> int:
        """Probabilities that are written without flash attention."""
        return self.setting.microbatch * self.heads * self.queries * self.keys

    @property
    def kept_bytes(self) -> int:
        """Bytes kept besides queries, keys, values and result.

        Without flash attention the probabilities, and where they are dropped a mask and the rest: ``5 a s / h`` of
        arXiv 2205.05198; with it one fp32 number for each head and query.
        """
        if self.setting.flash:
            return 4 * self.setting.microbatch * self.heads * self.queries
        value = self.setting.value_bytes
        each = 2 * value + 1 if self.operator.dropout else value
        return each * self.probabilities

    @property
    def working_bytes(self) -> int:
        """Bytes in use for a moment in the backward pass: gradients of probabilities and of scores."""
        if self.setting.flash:
            return 4 * self.setting.microbatch * self.heads * self.queries * self.operator.key_width
        return 2 * self.setting.value_bytes * self.probabilities

    def seconds(self, kernels: Kernels) -> tuple[float, float]:
        """Return the seconds of the forward and of the backward pass."""
        forward, backward = self._fused(kernels) if self.setting.flash else self._written(kernels)
        joined = self._joined(kernels)
        return forward + joined, backward + joined

    def _joined(self, kernels: Kernels) -> float:
        """Return the time to put heads together whose keys have a plain and a rotated part (latent attention).

        Queries, keys and values are each copied once: the parts come from different products.
        """
        operator = self.operator
        if operator.key_width == operator.value_width:
            return 0.0
        rows = self.setting.microbatch * self.queries * self.heads
        width = 2 * operator.key_width + operator.value_width
        return kernels.moved(2.0 * self.setting.value_bytes * rows * width, 3)

    def _fused(self, kernels: Kernels) -> tuple[float, float]:
        operator, setting = self.operator, self.setting
        length = self.tokens.length()
        pairs = operator.pairs(length, self.keys)
        if operator.causal and length == self.keys:
            pairs += length * min(BLOCK, length) // 2
        share = Fraction(self.queries, length)
        width = operator.key_width + operator.value_width
        flops = float(2 * setting.microbatch * self.heads * width * pairs * share)
        blocks = setting.microbatch * self.heads * -(-self.queries // BLOCK)
        narrow = min(operator.key_width, operator.value_width)
        forward = kernels.fused_attention(flops, narrow, blocks, setting.dtype)
        return forward, kernels.fused_attention(PASSES * flops, narrow, blocks, setting.dtype, backward=True)

    def _written(self, kernels: Kernels) -> tuple[float, float]:
        """Products over all pairs, and the kernels between them that read and write every probability."""
        operator, setting = self.operator, self.setting
        dtype = "bf16" if setting.dtype == "fp8" else setting.dtype
        batch = setting.microbatch * self.heads
        scores = kernels.product(self.queries, operator.key_width, self.keys, dtype, batch=batch)
        values = kernels.product(self.queries, self.keys, operator.value_width, dtype, batch=batch)
        forward, backward = self._between(kernels)
        return scores + values + forward, 2 * (scores + values) + backward

    def _between(self, kernels: Kernels) -> tuple[float, float]:
        value, count = self.setting.value_bytes, self.probabilities
        halved = self.operator.causal and self.setting.framework.causal_softmax
        read = count * value * (0.5 if halved else 1.0)
        written = float(count * value)
        steps = 1 if self.setting.framework.fused_elementwise else 3
        forward = kernels.moved(steps * (read + written), steps)
        backward = kernels.moved(steps * (2 * read + written), steps)
        if self.operator.dropout:
            dropped = kernels.moved(2 * written + count)
            forward, backward = forward + dropped, backward + dropped
        return forward, backward
