"""A module as a flat graph of operators, by `torch.export`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from nest.capture.build import describe
from nest.errors import InvalidProblem, NestError


class ExportFailed(NestError):
    """`torch.export` cannot see through the module; the message says why."""


@dataclass(frozen=True)
class Weight:
    """A parameter or buffer.

    Parameters
    ----------
    name
        The first name under which the module has it, whatever others it has.
    value
        The tensor, on the meta device.
    parameter
        Whether it is a parameter.
    """

    name: str
    value: Any
    parameter: bool


@dataclass(frozen=True)
class Traced:
    """A module as operators.

    Parameters
    ----------
    nodes
        Calls, in the order in which they run.
    weights
        Parameters, buffers and constants, by the node that stands for each.
    given
        Nodes of the user's inputs, with their shapes and data types as tensors on the meta device.
    results
        Nodes whose values the module returns.
    inner
        Graphs that operators call, by their node.
    """

    nodes: tuple[Any, ...]
    weights: dict[Any, Weight]
    given: dict[Any, Any]
    results: tuple[Any, ...]
    inner: dict[Any, Any]


def trace(module: Any, inputs: tuple[Any, ...], device: str, *, fused: bool) -> Traced:
    """Export a module on the meta device, its operators to run on another device.

    Parameters
    ----------
    fused
        Whether dropout is one kernel and attention fused in spite of it, as on GPUs; on CPUs neither is.

    Raises
    ------
    ExportFailed
        If torch cannot.
    InvalidProblem
        If the module has regions of mixed precision.
    """
    try:
        with quiet():
            program = torch.export.export(module, inputs, strict=False)
    except Exception as error:
        raise ExportFailed(describe(error)) from error
    if program.range_constraints:
        raise ExportFailed("the shapes of some tensors depend on values")
    _check(program.graph_module)
    _move(program.graph_module, device)
    if fused:
        _fuse(program.graph_module)
    nodes = list(program.graph.nodes)
    weights, given = _sources(program, module, nodes)
    (output,) = (node for node in nodes if node.op == "output")
    return Traced(
        tuple(node for node in nodes if node.op == "call_function" and node.target not in SILENT),
        weights,
        given,
        tuple(dict.fromkeys(output.all_input_nodes)),
        {node: getattr(program.graph_module, node.target) for node in nodes if node.op == "get_attr"},
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what torch warns of and logs while it exports off the terminal: nothing in it is about the model."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _sources(program: Any, module: Any, nodes: list[Any]) -> tuple[dict[Any, Weight], dict[Any, Any]]:
    """Return the placeholders of weights, and those of the user's inputs."""
    names: dict[int, str] = {}
    for name, value in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        names.setdefault(id(value), name)
    known = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    weights: dict[Any, Weight] = {}
    given: dict[Any, Any] = {}
    for node, spec in zip(
        (each for each in nodes if each.op == "placeholder"), program.graph_signature.input_specs, strict=True
    ):
        if spec.kind.name == "USER_INPUT":
            given[node] = node.meta.get("val")
        elif spec.target in known:
            value = known[spec.target]
            weights[node] = Weight(names[id(value)], value, spec.kind.name == "PARAMETER")
        else:
            weights[node] = Weight(spec.target, program.constants[spec.target], False)
    return weights, given


SILENT = {torch.ops.aten._assert_tensor_metadata.default}
"""What export adds to a graph and nothing runs."""


def _check(module: Any) -> None:
    """Refuse regions of mixed precision: on the meta device they change no data type, so that sizes would be wrong."""
    for inner in module.modules():
        for node in getattr(inner, "graph", torch.fx.Graph()).nodes:
            if node.target is torch.ops.higher_order.wrap_with_autocast:
                remedy = "give the module one data type, as with --dtype bfloat16, and leave autocast to the training"
                raise InvalidProblem("torch.autocast", "the module uses it, and it cannot be captured", remedy)


def _move(module: Any, device: str) -> None:
    """Let operators that name a device name this one, in a graph and in those that it calls."""
    for inner in module.modules():
        for node in getattr(inner, "graph", torch.fx.Graph()).nodes:
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device(device)}


def _fuse(module: Any) -> None:
    """Put what GPUs run in the place of dropout, and of dropout inside attention, which keeps no mask there."""
    for inner in module.modules():
        for node in getattr(inner, "graph", torch.fx.Graph()).nodes:
            if node.target is torch.ops.aten.dropout.default and node.args[1] > 0 and node.args[2]:
                node.target = fused_dropout
            elif node.target is torch.ops.aten.scaled_dot_product_attention.default:
                node.args = tuple(0.0 if at == DROPPED else each for at, each in enumerate(node.args))
                node.kwargs = {name: each for name, each in node.kwargs.items() if name != "dropout_p"}


DROPPED = 4
"""Place of the share that is dropped among the arguments of attention."""


def fused_dropout(value: Any, share: float, training: bool) -> Any:
    """Drop a share of a tensor in one kernel, which keeps a mask of one byte for each number."""
    return torch.ops.aten.native_dropout(value, share, training)[0]
