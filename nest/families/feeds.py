"""Feed-forward parts: plain and gated MLPs, and mixtures of experts with routers and shared experts."""

from __future__ import annotations

from dataclasses import dataclass

from nest.families.architecture import Component
from nest.families.operators import Exchange, Rows, Tensor
from nest.families.parts import Bench, Norm
from nest.families.weights import Split


@dataclass(frozen=True, slots=True)
class Mlp:
    """Two matrices with an activation between them, or three with a gate.

    Parameters
    ----------
    width
        Of what lies between the matrices.
    gated
        Whether a third matrix makes a gate (SwiGLU, GeGLU).
    bias, out_bias
        Whether the matrices into it, and the one out of it, have a bias.
    """

    width: int
    gated: bool = True
    bias: bool = False
    out_bias: bool = False
    kind: str = "mlp"

    def build(self, name: str, width: int, source: Tensor) -> tuple[Component, ...]:
        """Return its component; ``source`` is its input, ``width`` elements wide."""
        bench = Bench(name, "mlp")
        _matrices(bench, self, width, source)
        return (bench.done(),)


def _matrices(bench: Bench, mlp: Mlp, width: int, source: Tensor, *, experts: int = 0, rows: Rows = 1) -> None:
    """Add the matrices of an MLP, or of ``experts`` alike of which each token passes ``rows``."""
    if mlp.gated:
        bench.product("gate", width, mlp.width, Split.COLUMN, source, bias=mlp.bias, rows=rows, experts=experts)
    bench.product("up", width, mlp.width, Split.COLUMN, source, bias=mlp.bias, rows=rows, experts=experts)
    entering = mlp.width * (2 if mlp.gated else 1)
    hidden = bench.tensor("hidden", entering, rows, sharded=True)
    product = bench.tensor("product", mlp.width, rows, sharded=True)
    bench.work("activation", "activation", entering, mlp.width, rows=rows, sharded=True, keeps=(hidden,))
    bench.product("down", mlp.width, width, Split.ROW, product, bias=mlp.out_bias, rows=rows, experts=experts)


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts.

    Parameters
    ----------
    experts, chosen
        Routed experts, and how many one token passes.
    expert
        One routed expert.
    shared
        The expert that every token passes, all shared ones as one MLP; None for none.
    shared_gate
        Whether the shared expert is weighted by a gate that the router learns (Qwen2-MoE, Qwen3-Next).
    router_bias
        Whether the router's matrix has a bias.
    correction
        Whether each expert has a bias that balances the load (DeepSeek-V3); it is adjusted, not trained, and counted.
    router_scales
        Vectors that the router learns besides: lengths of them (Gemma 4).
    """

    experts: int
    chosen: int
    expert: Mlp
    shared: Mlp | None = None
    shared_gate: bool = False
    router_bias: bool = False
    correction: bool = False
    router_scales: tuple[int, ...] = ()
    kind: str = "moe"

    def build(self, name: str, width: int, source: Tensor) -> tuple[Component, ...]:
        """Return router, experts and shared expert; ``source`` is their input, ``width`` elements wide."""
        shared = (self._shared(name, width, source),) if self.shared else ()
        return (self._router(name, width, source), self._routed(name, width), *shared)

    def _router(self, name: str, width: int, source: Tensor) -> Component:
        bench = Bench(f"{name}_router", "router")
        bench.product("router", width, self.experts, Split.REPLICATED, source, bias=self.router_bias)
        if self.correction:
            bench.learn("correction", self.experts)
        for at, length in enumerate(self.router_scales):
            bench.learn(f"scale{at}", length)
        kept = Tensor(f"{name}_router.probabilities", self.experts, element="fp32")
        bench.work("choose", "softmax", self.experts, self.chosen, keeps=(kept,))
        return bench.done()

    def _routed(self, name: str, width: int) -> Component:
        bench = Bench(f"{name}_experts", "experts")
        bench.add(Exchange("dispatch", "all-to-all", width, self.chosen))
        bench.work("permute", "permute", width, width, rows=self.chosen)
        source = bench.tensor("in", width, self.chosen)
        _matrices(bench, self.expert, width, source, experts=self.experts, rows=self.chosen)
        bench.add(Exchange("combine", "all-to-all", width, self.chosen))
        bench.work("weigh", "permute", width * self.chosen, width)
        return bench.done()

    def _shared(self, name: str, width: int, source: Tensor) -> Component:
        assert self.shared is not None, "only called where there is one"
        bench = Bench(f"{name}_shared", "shared_experts")
        _matrices(bench, self.shared, width, source)
        if self.shared_gate:
            bench.product("shared_gate", width, 1, Split.REPLICATED, source)
        return bench.done()


@dataclass(frozen=True, slots=True)
class Beside:
    """An MLP and experts that read the same input and are summed, each with norms of its own (Gemma 4).

    Parameters
    ----------
    dense, routed
        The two parts.
    norm
        The norm behind the MLP, before the experts and behind them; the one before the MLP belongs to the layer.
    """

    dense: Mlp
    routed: Experts
    norm: Norm
    kind: str = "mlp&moe"

    def build(self, name: str, width: int, source: Tensor) -> tuple[Component, ...]:
        """Return the components of both; ``source`` is their input, ``width`` elements wide."""
        bench = Bench(f"{name}_norms", "norm")
        for part in ("behind_dense", "before_routed", "behind_routed"):
            bench.norm(part, self.norm, width, bench.tensor(part, width))
        return (*self.dense.build(name, width, source), *self.routed.build(name, width, source), bench.done())


@dataclass(frozen=True, slots=True)
class Linear:
    """One matrix in the place of attention or of an MLP (blocks of a pruned model)."""

    kind: str = "linear"

    def build(self, name: str, width: int, source: Tensor) -> tuple[Component, ...]:
        """Return its component."""
        bench = Bench(name, "linear")
        bench.product("linear", width, width, Split.COLUMN, source)
        return (bench.done(),)
