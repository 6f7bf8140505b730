"""Layers with a state instead of attention: Mamba, Mamba-2 and the gated delta rule.

Their scans are counted as recurrences, operations per token and element of the state; a kernel that works in chunks
does more of them, as matrix products. What the scan keeps inside is taken to be computed again, as the published
kernels do.
"""

from __future__ import annotations

from dataclasses import dataclass

from nest.families.architecture import Component
from nest.families.operators import Tensor
from nest.families.parts import RMS, Bench
from nest.families.weights import Split


@dataclass(frozen=True, slots=True)
class Mamba:
    """A selective state-space layer (arXiv 2312.00752).

    Parameters
    ----------
    inner
        Channels.
    state
        State of each channel.
    kernel
        Tokens that the convolution sees.
    rank
        Width of the latent of the step sizes.
    conv_bias, bias
        Whether the convolution, and the matrices in and out, have a bias.
    normed
        Whether step sizes, inputs and outputs of the state have norms (Jamba).
    """

    inner: int
    state: int
    kernel: int
    rank: int
    conv_bias: bool = True
    bias: bool = False
    normed: bool = False
    kind: str = "mamba"

    def build(self, name: str, width: int, source: Tensor) -> tuple[Component, ...]:
        """Return its component; ``source`` is its input, ``width`` elements wide."""
        bench = Bench(name, "mamba")
        channels = bench.tensor("channels", 2 * self.inner, sharded=True)
        scanned = bench.tensor("scanned", self.inner, sharded=True)
        convolved = bench.tensor("convolved", self.inner, sharded=True)
        bench.product("in", width, 2 * self.inner, Split.COLUMN, source, bias=self.bias)
        _convolution(bench, self.inner, self.kernel, channels, bias=self.conv_bias)
        bench.product("select", self.inner, self.rank + 2 * self.state, Split.ROW, convolved)
        if self.normed:
            for part, length in (("step", self.rank), ("input", self.state), ("output", self.state)):
                bench.norm(f"{part}_norm", RMS, length)
        bench.product("step", self.rank, self.inner, Split.COLUMN, bench.tensor("steps", self.rank), bias=True)
        bench.learn("decay", self.inner, self.state, split=Split.COLUMN)
        bench.learn("skip", self.inner, split=Split.COLUMN)
        # decay by exp(step * decay): 2; input: 2; sum into the state: 2; output: 2
        bench.work("scan", "scan", 3 * self.inner, self.inner, flops=8 * self.inner * self.state, sharded=True)
        bench.product("out", self.inner, width, Split.ROW, scanned, bias=self.bias)
        return (bench.done(),)


@dataclass(frozen=True, slots=True)
class Mamba2:
    """A state-space layer with one decay per head (arXiv 2405.21060).

    Parameters
    ----------
    heads, head_width
        Heads, and channels of each.
    groups, state
        Groups of heads that share inputs and outputs of the state, and its width.
    kernel, conv_bias, bias
        As in `Mamba`.
    """

    heads: int
    head_width: int
    groups: int
    state: int
    kernel: int
    conv_bias: bool = True
    bias: bool = False
    kind: str = "mamba"

    def build(self, name: str, width: int, source: Tensor) -> tuple[Component, ...]:
        """Return its component; ``source`` is its input, ``width`` elements wide."""
        bench = Bench(name, "mamba")
        inner = self.heads * self.head_width
        mixed = inner + 2 * self.groups * self.state
        channels = bench.tensor("channels", inner + mixed + self.heads, sharded=True, parts=self.groups)
        scanned = bench.tensor("scanned", inner, sharded=True, parts=self.heads)
        bench.product("in", width, channels.width, Split.COLUMN, source, bias=self.bias, parts=self.groups)
        _convolution(bench, mixed, self.kernel, channels, bias=self.conv_bias)
        for weight in ("decay", "skip", "step_bias"):
            bench.learn(weight, self.heads, split=Split.COLUMN, parts=self.heads)
        # decay: 1; input times channel into the state: 2; output: 2
        bench.work("scan", "scan", mixed, inner, flops=5 * inner * self.state, sharded=True)
        bench.norm("norm", RMS, inner, scanned)
        bench.product("out", inner, width, Split.ROW, bench.tensor("normed", inner, sharded=True), bias=self.bias)
        return (bench.done(),)


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """The gated delta rule (arXiv 2412.06464), as Qwen3-Next has it.

    Parameters
    ----------
    key_heads, key_width, value_heads, value_width
        Heads and their widths.
    kernel
        Tokens that the convolution sees.
    """

    key_heads: int
    key_width: int
    value_heads: int
    value_width: int
    kernel: int
    kind: str = "linear_attention"

    def build(self, name: str, width: int, source: Tensor) -> tuple[Component, ...]:
        """Return its component; ``source`` is its input, ``width`` elements wide."""
        bench = Bench(name, "linear_attention")
        keys, values = self.key_heads * self.key_width, self.value_heads * self.value_width
        mixed = bench.tensor("mixed", 2 * keys + values, sharded=True, parts=self.key_heads)
        context = bench.tensor("context", values, sharded=True, parts=self.value_heads)
        bench.product("in", width, 2 * (keys + values), Split.COLUMN, source, parts=self.key_heads)
        bench.product("gates", width, 2 * self.value_heads, Split.COLUMN, source, parts=self.key_heads)
        _convolution(bench, mixed.width, self.kernel, mixed, bias=False)
        for weight in ("step_bias", "decay"):
            bench.learn(weight, self.value_heads, split=Split.COLUMN, parts=self.value_heads)
        # decay: 1; what the state says of the key: 2; correction into the state: 2; output: 2
        flops = 7 * values * self.key_width
        bench.work("scan", "scan", mixed.width, values, flops=flops, sharded=True, keeps=(context,))
        bench.norm("norm", RMS, self.value_width, times=self.value_heads)
        bench.product("out", values, width, Split.ROW, bench.tensor("normed", values, sharded=True))
        return (bench.done(),)


def _convolution(bench: Bench, channels: int, kernel: int, source: Tensor, *, bias: bool) -> None:
    """Add a convolution along the sequence, each channel by itself."""
    bench.learn("convolution", channels, kernel, split=Split.COLUMN)
    if bias:
        bench.learn("convolution.bias", channels, split=Split.COLUMN)
    flops = 2 * channels * kernel
    bench.work("convolution", "convolution", channels, channels, flops=flops, sharded=True, keeps=(source,))
