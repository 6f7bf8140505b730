"""The collectives of a block, and what they can hide behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nest.costing.layer import Axis, Collective, Kind, OperatorCost, Phase
from nest.costing.setting import Setting, Tokens, over
from nest.costing.sizes import cut, whole
from nest.families import Block, Component, Exchange, Matmul, Scores, Split
from nest.families.operators import Rows


def exchanges_of(
    block: Block, operators: Sequence[OperatorCost], setting: Setting, tokens: Tokens
) -> tuple[Collective, ...]:
    """Return the collectives of both passes of a block, in the order of the forward pass."""
    return tuple(_Walk(block, operators, setting, tokens).all())


class _Walk:
    """Walks a block once."""

    def __init__(self, block: Block, operators: Sequence[OperatorCost], setting: Setting, tokens: Tokens) -> None:
        self.block, self.setting, self.tokens = block, setting, tokens
        self.times = {operator.name: operator for operator in operators}
        self.split: list[OperatorCost] = []  # products cut by tensor parallel since the last sum over its devices

    def all(self) -> Iterator[Collective]:
        """Yield the collectives of all operators, in their order."""
        for component in self.block.components:
            for operator in component.operators:
                if isinstance(operator, Matmul):
                    self._note(component, operator)
                    yield from self._logits(operator)
                elif isinstance(operator, Scores) and self.setting.context > 1 and not operator.keys:
                    yield from self._context(component, operator)
                elif isinstance(operator, Exchange):
                    yield from self._exchange(component, operator)

    def _note(self, component: Component, operator: Matmul) -> None:
        """Remember products whose input is whole and whose outputs are cut; fused ones are one."""
        if operator.split is Split.COLUMN and operator.groups == 1:
            for name, cost in self.times.items():
                prefix, _, parts = name.partition(".")
                if prefix == component.name and operator.name in parts.split("+") and cost not in self.split:
                    self.split.append(cost)

    def _exchange(self, component: Component, operator: Exchange) -> Iterator[Collective]:
        value = self.setting.value_bytes
        if operator.collective == "all-to-all":
            rows = over(self.tokens.local() * self.setting.routed(operator.rows), self.setting.expert_tensor)
            if self.setting.expert > 1:
                size = value * operator.width * rows
                yield self._made("all-to-all", size, "expert", "forward")
                yield self._made("all-to-all", size, "expert", "backward")
            if self.setting.expert_tensor > 1:
                yield from self._shared_rows(operator, rows)
            return
        size = value * operator.width * operator.rows * self.tokens.local()
        if component.kind == "embedding":
            yield from self._embedded(size)
        elif self.split:
            yield from self._summed(size)
        self.split = []

    def _shared_rows(self, operator: Exchange, rows: Rows) -> Iterator[Collective]:
        """Yield those of experts that tensor parallel cuts: rows are gathered first, and summed at the end."""
        size = self.setting.value_bytes * operator.width * rows * self.setting.expert_tensor
        kinds: tuple[Kind, Kind] = ("all-gather", "reduce-scatter")
        forward, backward = kinds if operator.name == "dispatch" else kinds[::-1]
        yield self._made(forward, size, "tensor", "forward")
        yield self._made(backward, size, "tensor", "backward")

    def _embedded(self, size: Rows) -> Iterator[Collective]:
        if self.setting.tensor == 1:
            return
        if self.setting.sequence_parallel:
            yield self._made("reduce-scatter", size, "tensor", "forward")
            yield self._made("all-gather", size, "tensor", "backward")
        else:
            yield self._made("all-reduce", size, "tensor", "forward")

    def _summed(self, size: Rows) -> Iterator[Collective]:
        """Yield those around products that are cut: where their sum is made, and where it is read."""
        if self.setting.tensor == 1:
            return
        framework = self.setting.framework
        products = sum(cost.forward_s for cost in self.split) if framework.hides_products else 0.0
        inputs = sum(cost.input_s for cost in self.split)
        weights = sum(cost.weight_s for cost in self.split) if framework.hides_tensor else 0.0
        if not self.setting.sequence_parallel:
            yield self._made("all-reduce", size, "tensor", "forward")
            yield self._made("all-reduce", size, "tensor", "backward", weights)
            return
        yield self._made("all-gather", size, "tensor", "forward", products)
        yield self._made("reduce-scatter", size, "tensor", "forward", products)
        yield self._made("all-gather", size, "tensor", "backward", products)  # of the sum's gradient
        if not framework.keeps_gathered:  # the input again, for the weight gradients
            yield self._made("all-gather", size, "tensor", "backward", inputs if framework.hides_tensor else 0.0)
        yield self._made("reduce-scatter", size, "tensor", "backward", weights)

    def _logits(self, operator: Matmul) -> Iterator[Collective]:
        """Yield those around the logits: the input is gathered; maximum, sum and own logit of a token are shared."""
        if operator.split is not Split.VOCABULARY or self.setting.tensor == 1:
            return
        rows = self.tokens.local() * operator.rows
        size = self.setting.value_bytes * operator.inputs * rows
        if self.setting.sequence_parallel:
            yield self._made("all-gather", size, "tensor", "forward")
            if not self.setting.framework.keeps_gathered:
                yield self._made("all-gather", size, "tensor", "backward")
            yield self._made("reduce-scatter", size, "tensor", "backward")
        else:
            yield self._made("all-reduce", size, "tensor", "backward")
        for _ in range(3):
            yield self._made("all-reduce", 4 * rows, "tensor", "forward")

    def _context(self, component: Component, operator: Scores) -> Iterator[Collective]:
        cost = self.times[f"{component.name}.{operator.name}"]
        value, here = self.setting.value_bytes, self.tokens.local()
        width = operator.key_width + operator.value_width
        pairs = cut(operator.kv_heads * width, operator.kv_heads, self.setting.tensor)
        size = value * here * pairs
        if self.setting.context_kind == "ring":
            yield self._made("ring", size, "context", "forward", cost.forward_s, core=True)
            yield self._made("ring", 2 * size, "context", "backward", cost.input_s, core=True)
        elif self.setting.context_kind == "gather":
            whole_size = size * self.setting.context
            yield self._made("all-gather", whole_size, "context", "forward", core=True)
            yield self._made("all-gather", whole_size, "context", "backward", core=True)
            yield self._made("reduce-scatter", whole_size, "context", "backward", core=True)
        else:
            own = value * here * cut(operator.heads * width, operator.heads, self.setting.tensor)
            yield self._made("all-to-all", size + own, "context", "forward", core=True)
            yield self._made("all-to-all", size + own, "context", "backward", core=True)

    def _made(
        self, kind: Kind, size: Rows, axis: Axis, phase: Phase, hidden_s: float = 0.0, *, core: bool = False
    ) -> Collective:
        return Collective(kind, whole(size), axis, phase, hidden_s, core)
