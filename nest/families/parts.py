"""The bench on which components are put together: matrices and norms with their weights and operators in one step."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from nest.families.architecture import Component
from nest.families.operators import Elementwise, Exchange, Matmul, Operator, Rows, Scores, Tensor
from nest.families.weights import Split, Weight


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalisation over the width.

    Parameters
    ----------
    bias
        Whether it shifts, as LayerNorm does and RMSNorm does not.
    scale
        Whether it scales by a learned vector.
    """

    bias: bool = False
    scale: bool = True


RMS = Norm()
LAYER = Norm(bias=True)


class Bench:
    """Collects the weights and operators of one component.

    Parameters
    ----------
    name, kind
        As in `Component`.
    stream
        The stream whose tokens the operators have; empty for the stack's own.
    """

    def __init__(self, name: str, kind: str, stream: str = "") -> None:
        self.name, self.kind, self.stream = name, kind, stream
        self._weights: list[Weight] = []
        self._operators: list[Operator] = []

    def tensor(self, name: str, width: int, rows: Rows = 1, *, sharded: bool = False, parts: int = 0) -> Tensor:
        """Return a tensor of this component, under a name unique in the block."""
        return Tensor(f"{self.name}.{name}", width, rows, sharded, parts, stream=self.stream)

    def learn(
        self, name: str, *shape: int, split: Split = Split.REPLICATED, parts: int = 0, tied: bool = False
    ) -> None:
        """Add a weight that no product uses."""
        self._weights.append(Weight(name, shape, split, parts, tied=tied))

    def product(
        self,
        name: str,
        inputs: int,
        outputs: int,
        split: Split,
        source: Tensor | None = None,
        *,
        bias: bool = False,
        parts: int = 0,
        rows: Rows = 1,
        experts: int = 0,
        tied: bool = False,
    ) -> None:
        """Add a matrix product and its weights; ``source`` is its input, and ``rows`` of experts are those chosen."""
        chosen = int(rows) if experts else 0
        self._weights.append(Weight(name, (outputs, inputs), split, parts, experts, chosen, tied))
        if bias:
            cut = Split.REPLICATED if split is Split.ROW else split  # added after the sum, or with the columns
            self._weights.append(Weight(f"{name}.bias", (outputs,), cut, parts, experts, chosen))
        keeps = () if source is None else (source,)
        self._operators.append(Matmul(name, inputs, outputs, split, parts, rows, experts or 1, keeps, self.stream))

    def norm(self, name: str, norm: Norm, width: int, source: Tensor | None = None, *, times: int = 1) -> None:
        """Add a norm over ``width``, done ``times`` per row with the same weights (once per head)."""
        if norm.scale:
            self.learn(f"{name}.weight", width)
        if norm.bias:
            self.learn(f"{name}.bias", width)
        touched = width * times
        keeps = () if source is None else (source,)
        self.work(name, "norm", touched, touched, keeps=keeps, sharded=times > 1)

    def work(
        self,
        name: str,
        kind: str,
        reads: int,
        writes: int,
        *,
        flops: int = 0,
        rows: Rows = 1,
        sharded: bool = False,
        keeps: tuple[Tensor, ...] = (),
    ) -> None:
        """Add element-wise work."""
        self._operators.append(Elementwise(name, kind, reads, writes, flops, rows, sharded, keeps, self.stream))

    def add(self, operator: Scores | Exchange) -> None:
        """Add an operator as it is."""
        self._operators.append(operator)

    def done(self) -> Component:
        """Return the component."""
        return Component(self.name, self.kind, tuple(self._weights), tuple(self._operators))


def norm_component(name: str, norm: Norm, width: int, source: Tensor) -> tuple[Component, Tensor]:
    """Return a norm of the residual stream, and the tensor that it makes."""
    bench = Bench(name, "norm")
    bench.norm("norm", norm, width, source)
    return bench.done(), bench.tensor("out", width)


def share(numerator: int, denominator: int) -> Rows:
    """Return a fraction of rows, whole where it is whole."""
    rows = Fraction(numerator, denominator)
    return rows.numerator if rows.denominator == 1 else rows
