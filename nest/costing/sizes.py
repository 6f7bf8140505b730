"""What one device holds of a tensor, a matrix or a set of heads when tensor parallel cuts it."""

from __future__ import annotations

from math import ceil

from nest.costing.setting import Setting, Tokens, over
from nest.families import Matmul, Split, Tensor, Weight
from nest.families.operators import Rows


def cut(length: int, parts: int, width: int) -> int:
    """Return the elements of a length that one of ``width`` devices holds.

    Parameters
    ----------
    parts
        Pieces into which the length can be cut; where they are fewer than devices, some hold the same piece.
    """
    if not parts:
        return -(-length // width)
    return length // parts * -(-parts // width)


def vocabulary(rows: int, setting: Setting) -> int:
    """Return the rows of a vocabulary table on one device, padding included."""
    multiple = setting.padding * setting.tensor
    padded = -(-rows // multiple) * multiple if multiple else rows
    return -(-padded // setting.tensor)


def product_shape(operator: Matmul, setting: Setting, *, routed: bool) -> tuple[int, int]:
    """Return inner length and outputs of a product on one device."""
    width = setting.expert_tensor if routed else setting.tensor
    if operator.split is Split.COLUMN:
        return operator.inputs, cut(operator.outputs, operator.parts, width)
    if operator.split is Split.ROW:
        return cut(operator.inputs, operator.parts, width), operator.outputs
    if operator.split is Split.VOCABULARY:
        return operator.inputs, vocabulary(operator.outputs, setting)
    return operator.inputs, operator.outputs


def product_rows(operator: Matmul, setting: Setting, tokens: Tokens, *, routed: bool) -> Rows:
    """Return the rows of a product on one device, those of all its experts together."""
    here = tokens.local(operator.stream)
    if routed:
        return here * setting.routed(operator.rows)
    whole = operator.split is not Split.REPLICATED
    return over(here * operator.rows, 1 if whole else setting.row_shards)


def local_experts(groups: int, setting: Setting) -> int:
    """Return how many experts of a layer one device holds."""
    return -(-groups // setting.expert)


def tensor_elements(tensor: Tensor, setting: Setting, tokens: Tokens, *, routed: bool) -> Rows:
    """Return the elements of a kept tensor on one device."""
    here = tokens.local(tensor.stream)
    if routed:
        width = cut(tensor.width, tensor.parts, setting.expert_tensor) if tensor.sharded else tensor.width
        return here * setting.routed(tensor.rows) * width
    rows = here * tensor.rows
    if not tensor.sharded:
        return over(rows * tensor.width, setting.row_shards)
    if tensor.name.endswith(".logits"):
        return rows * vocabulary(tensor.width, setting)
    return rows * cut(tensor.width, tensor.parts, setting.tensor)


def weight_elements(weight: Weight, setting: Setting) -> int:
    """Return the numbers of a weight on one device, those of all its experts together."""
    if weight.split is Split.VOCABULARY:
        rest = weight.elements // weight.shape[0]
        return vocabulary(weight.shape[0], setting) * rest
    axis = {Split.COLUMN: 0, Split.ROW: len(weight.shape) - 1}.get(weight.split)
    width = setting.expert_tensor if weight.routed else setting.tensor
    count = local_experts(weight.experts, setting) if weight.routed else 1
    for at, length in enumerate(weight.shape):
        count *= cut(length, weight.parts, width) if at == axis else length
    return count


def whole(number: Rows) -> int:
    """Return a number of bytes or rows, rounded up."""
    return ceil(number)
