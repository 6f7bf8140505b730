"""Prices a block: walks its operators once and adds up times, bytes and collectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from nest.costing.attention import Core
from nest.costing.exchanges import exchanges_of
from nest.costing.kernels import Kernels
from nest.costing.layer import Buckets, Kept, LayerCost, OperatorCost
from nest.costing.profile import LayerProfile
from nest.costing.setting import Setting, Tokens, over
from nest.costing.sizes import (
    local_experts,
    product_rows,
    product_shape,
    tensor_elements,
    weight_elements,
    whole,
)
from nest.costing.steps import elementwise_steps
from nest.families import Architecture, Block, Component, Elementwise, Exchange, Matmul, Scores, Split, Stack, Tensor
from nest.families.operators import Rows
from nest.hardware import Device

ELEMENT_BYTES = {"fp32": 4, "mask": 1, "index": 4}


Known: TypeAlias = dict[tuple[int, int, Setting], LayerCost]
"""Costs of blocks without routed experts, by block, width of what enters it, and setting without expert width."""


def layer_costs(
    model: Architecture,
    device: Device,
    setting: Setting,
    profile: LayerProfile | None = None,
    known: Known | None = None,
) -> dict[str, tuple[LayerCost, ...]]:
    """Return the cost of every block, by stack.

    Stacks outside the published model are among them where pre-training runs them.

    Parameters
    ----------
    profile
        Measurements, which override what is modelled.
    known
        Costs from other settings of the same model on the same device, which are used, and to which more are added.

    Raises
    ------
    InvalidProblem
        If the setting does not fit the model, the device does not compute with its data type, or a measurement is of
        no block of the model.
    """
    kernels = Kernels.of(device, setting.framework)
    trained = {extra.stack.name for extra in model.extras if extra.trained}
    stacks = (stack for stack in model.every_stack if stack in model.stacks or stack.name in trained)
    known = {} if known is None else known
    costs = {stack.name: stack_costs(model, stack, kernels, setting, known) for stack in stacks}
    return costs if profile is None else profile.applied(costs, setting)


def stack_costs(
    model: Architecture, stack: Stack, kernels: Kernels, setting: Setting, known: Known
) -> tuple[LayerCost, ...]:
    """Return the cost of every block of one stack; equal blocks are priced once, known ones not at all."""
    tokens = Tokens.of(model, stack, setting)
    spread = replace(setting, expert=1)
    made: dict[tuple[int, int], LayerCost] = {}
    costs, width = [], 0
    for place, block in enumerate(stack.blocks):
        key = (id(block), width)
        if key not in made:
            same = None if _routes(block) else (*key, spread)
            cost = known.get(same) if same else None
            if cost is None:
                cost = Priced(block, kernels, setting, tokens, width).cost(f"{stack.name}.{place}")
            made[key] = cost
            if same:
                known[same] = cost
        costs.append(made[key])
        width = block.width
    return tuple(costs)


def _routes(block: Block) -> bool:
    """Whether the expert width makes a difference to a block: it has routed experts, or sends rows to them."""
    experts = any(weight.routed for component in block.components for weight in component.weights)
    return experts or any(isinstance(each, Exchange) and each.collective == "all-to-all" for each in block.operators)


@dataclass(frozen=True)
class Priced:
    """A block under a setting.

    Parameters
    ----------
    block
        What is priced.
    kernels, setting, tokens
        On which device, under which setting, with how many tokens.
    entering
        Width of what enters it; 0 at the start of a stack.
    """

    block: Block
    kernels: Kernels
    setting: Setting
    tokens: Tokens
    entering: int

    def cost(self, name: str) -> LayerCost:
        """Return its cost."""
        operators = tuple(self._operators())
        none, selective = self._kept_bytes()
        layer = self.block.layer
        entering = self.entering or self.block.width
        full = whole(self._rows() * entering * self.setting.value_bytes) if layer else none
        return LayerCost(
            self.block.kind,
            name,
            operators,
            Kept(none, selective, min(full, selective)),
            whole(self._working_bytes()),
            *self._parameters(),
            whole(self._sent() * self.block.width * self.setting.value_bytes),
            exchanges_of(self.block, operators, self.setting, self.tokens),
            layer,
            self._spare() if self.setting.framework.spare_gradients else (),
        )

    def _rows(self) -> Rows:
        return over(self.tokens.local(), self.setting.row_shards)

    def _sent(self) -> Rows:
        parted = self.setting.sequence_parallel or self.setting.framework.scatter_gather
        return over(self.tokens.local(), self.setting.tensor if parted else 1)

    # Times

    def _operators(self) -> Iterator[OperatorCost]:
        waited = self.setting.framework.layer_s
        if waited and self.block.layer:
            yield OperatorCost("host", "host", waited, waited)
        for component in self.block.components:
            for group in grouped(component, together=self.setting.framework.fused_inputs):
                first = group[0]
                if isinstance(first, Matmul):
                    yield self._product(component, [each for each in group if isinstance(each, Matmul)])
                elif isinstance(first, Exchange) and first.collective == "all-to-all":
                    yield from self._sorted(component, first)
                elif isinstance(first, Scores):
                    forward, backward = Core(first, self.setting, self.tokens).seconds(self.kernels)
                    yield OperatorCost(f"{component.name}.{first.name}", "scores", forward, backward, core=True)
                elif isinstance(first, Elementwise):
                    yield self._work(component, [each for each in group if isinstance(each, Elementwise)])

    def _product(self, component: Component, group: list[Matmul]) -> OperatorCost:
        """Price products of one input as one product, as fused matrices of queries, keys and values are."""
        first = group[0]
        routed, setting = first.groups > 1, self.setting
        rows = whole(product_rows(first, setting, self.tokens, routed=routed))
        inner = product_shape(first, setting, routed=routed)[0]
        columns = sum(product_shape(each, setting, routed=routed)[1] for each in group)
        experts = local_experts(first.groups, setting) if routed else 1
        share = -(-rows // experts)
        dtype = "bf16" if setting.dtype == "fp8" and not self.block.layer else setting.dtype
        forward = self.kernels.product(share, inner, columns, dtype, batch=experts)
        inputs = self.kernels.product(share, columns, inner, dtype, batch=experts)
        weights = self._weight_s(share, inner, columns, dtype, experts=experts)
        if any(_has_bias(component, each) for each in group):
            weights += self.kernels.moved(2.0 * rows * columns)
        if dtype == "fp8":
            forward += self.kernels.moved(4.0 * rows * inner)
            inputs += self.kernels.moved(4.0 * rows * columns)
        name = f"{component.name}.{'+'.join(each.name for each in group)}"
        return OperatorCost(name, "product", forward, inputs, weights)

    def _weight_s(self, rows: int, inner: int, columns: int, dtype: str, *, experts: int) -> float:
        """Return the time to make gradients of a matrix, and to add them to those of earlier microbatches."""
        framework = self.setting.framework
        added = 2 * framework.gradient_bytes * inner * columns
        moved = experts * (2.0 * rows * (inner + columns) + added)
        seconds = self.kernels.product(inner, rows, columns, dtype, batch=experts, moved=moved, widths=(inner, columns))
        if framework.fused_accumulation:
            return seconds
        return seconds + self.kernels.moved(experts * ((2 + framework.added_bytes) * inner * columns + added))

    def _work(self, component: Component, group: list[Elementwise]) -> OperatorCost:
        first, setting = group[0], self.setting
        if first.kind == "loss":
            return self._loss(component, first)
        forward = backward = 0.0
        for step in elementwise_steps(group, together=setting.framework.fused_elementwise):
            rows = self._work_rows(component, step.operator)
            value = float(rows * setting.value_bytes)
            sizes = [(each.element, self._tensor_bytes(each, component)) for each in step.operator.keeps]
            kept = float(sum(size for _, size in sizes))
            masks = float(sum(size for element, size in sizes if element == "mask"))
            forward += self.kernels.moved(step.factor * value * step.forward_elements + masks, step.kernels)
            backward += self.kernels.moved(step.factor * (value * step.backward_elements + kept), step.kernels)
        return OperatorCost(f"{component.name}.{first.name}", first.kind, forward, backward)

    def _loss(self, component: Component, operator: Elementwise) -> OperatorCost:
        logits = float(self._logits(operator))
        forward, backward = (self.kernels.moved(logits * each) for each in self.setting.framework.loss_moved)
        return OperatorCost(f"{component.name}.{operator.name}", "loss", forward, backward)

    def _sorted(self, component: Component, operator: Exchange) -> Iterator[OperatorCost]:
        """Price the sorting of rows by the expert that they are for, on the other side of the exchange."""
        if self.setting.expert > 1 and self.setting.framework.sorts_rows:
            rows = self.tokens.local() * self.setting.routed(operator.rows)
            seconds = self.kernels.moved(float(2 * rows * operator.width * self.setting.value_bytes))
            yield OperatorCost(f"{component.name}.{operator.name}", "permute", seconds, seconds)

    def _work_rows(self, component: Component, operator: Elementwise) -> Rows:
        here = self.tokens.local(operator.stream)
        if component.kind == "experts":
            rows = here * self.setting.routed(operator.rows)
            return over(rows, self.setting.expert_tensor) if operator.sharded else rows
        return over(here * operator.rows, self.setting.tensor if operator.sharded else self.setting.row_shards)

    # Memory

    def _tensor_bytes(self, tensor: Tensor, component: Component) -> Rows:
        size: Rows = ELEMENT_BYTES.get(tensor.element, self.setting.value_bytes)
        if tensor.name.endswith(".logits"):
            size = Fraction(self.setting.framework.logit_kept)
        return size * tensor_elements(tensor, self.setting, self.tokens, routed=component.kind == "experts")

    def _kept_bytes(self) -> tuple[int, int]:
        """Return what is kept without recomputation, and with that of the attention core."""
        tensors: dict[str, Rows] = {}
        core = 0
        for component in self.block.components:
            for operator in component.operators:
                if isinstance(operator, Exchange):
                    continue
                parts = self._kept_parts(component, operator)
                for each in operator.keeps:
                    size = parts * self._tensor_bytes(each, component)
                    tensors[each.name] = max(size, tensors.get(each.name, size))
                if isinstance(operator, Scores):
                    core += Core(operator, self.setting, self.tokens).kept_bytes
        plain = sum(tensors.values())
        return whole(plain + core), whole(plain + core if self.setting.flash else plain)

    def _kept_parts(self, component: Component, operator: Matmul | Scores | Elementwise) -> int:
        """Return how many parts of a shared sequence a device keeps of an operator's input."""
        gathers = isinstance(operator, Matmul) and operator.split in (Split.COLUMN, Split.VOCABULARY)
        keeps = gathers and self.setting.framework.keeps_gathered and component.kind != "experts"
        return self.setting.row_shards if keeps else 1

    def _working_bytes(self) -> Rows:
        """Return gradients of the operator that has most of them, and that of the residual stream beside it."""
        value = self.setting.value_bytes
        most: Rows = 0
        for component in self.block.components:
            for operator in component.operators:
                if isinstance(operator, Matmul):
                    routed = operator.groups > 1
                    rows = product_rows(operator, self.setting, self.tokens, routed=routed)
                    size = value * rows * sum(product_shape(operator, self.setting, routed=routed))
                elif isinstance(operator, Scores):
                    size = Core(operator, self.setting, self.tokens).working_bytes
                elif isinstance(operator, Elementwise):
                    size = value * self._work_rows(component, operator) * (operator.reads + operator.writes)
                    if operator.kind == "loss":
                        size = self._loss_bytes(operator)
                else:
                    continue
                most = max(most, size)
        return most + value * self._rows() * min(self.block.width, self.entering or self.block.width)

    def _loss_bytes(self, operator: Elementwise) -> Rows:
        framework = self.setting.framework
        return self._logits(operator) * Fraction(
            framework.logit_shared if self.setting.tensor > 1 else framework.logit_bytes
        )

    def _logits(self, operator: Elementwise) -> Rows:
        kept = (tensor_elements(each, self.setting, self.tokens, routed=False) for each in operator.keeps)
        return sum(kept)

    # Parameters

    def _spare(self) -> tuple[int, ...]:
        """Return the numbers of each distinct matrix of a product, one for all experts of a layer."""
        shapes: dict[tuple[int, int], int] = {}
        for component in self.block.components:
            for group in grouped(component, together=self.setting.framework.fused_inputs):
                products = [each for each in group if isinstance(each, Matmul)]
                if products:
                    sizes = [product_shape(each, self.setting, routed=each.groups > 1) for each in products]
                    inner, columns = sizes[0][0], sum(size[1] for size in sizes)
                    shapes[inner, columns] = inner * columns
        return tuple(sorted(shapes.values()))

    def _parameters(self) -> tuple[Buckets, int]:
        sharded = replicated = expert = tied = 0
        for component in self.block.components:
            for weight in component.weights:
                count = weight_elements(weight, self.setting)
                if weight.tied:
                    tied += count
                elif weight.routed:
                    expert += count
                elif weight.split is Split.REPLICATED:
                    replicated += count
                else:
                    sharded += count
        return Buckets(sharded, replicated, expert), tied


def _has_bias(component: Component, operator: Matmul) -> bool:
    return any(weight.name == f"{operator.name}.bias" for weight in component.weights)


def grouped(component: Component, *, together: bool) -> Iterator[list[Matmul | Scores | Elementwise | Exchange]]:
    """Yield the operators in order; neighbours that libraries make one kernel come together.

    These are products of one input that are cut alike (queries, keys and values; gate and up), if ``together``, and
    element-wise operators that follow each other.
    """
    group: list[Matmul | Scores | Elementwise | Exchange] = []
    for operator in component.operators:
        if group and not _same(group[-1], operator, together=together):
            yield group
            group = []
        group.append(operator)
    if group:
        yield group


def _same(
    one: Matmul | Scores | Elementwise | Exchange, two: Matmul | Scores | Elementwise | Exchange, *, together: bool
) -> bool:
    if isinstance(one, Elementwise) and isinstance(two, Elementwise):
        return one.stream == two.stream
    if isinstance(one, Matmul) and isinstance(two, Matmul) and together:
        alike = (one.inputs, one.split, one.rows, one.groups, one.stream)
        return one.keeps == two.keeps and alike == (two.inputs, two.split, two.rows, two.groups, two.stream)
    return False
