"""A trace cut into pieces, one for each layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, TypeAlias

import torch
from torch.fx.node import map_arg

from nest.capture.repeats import tandem
from nest.capture.trace import Traced
from nest.capture.units import Unit

Place: TypeAlias = tuple[str, Unit]
"""A call of a unit: its name, and the unit."""


@dataclass(frozen=True)
class Piece:
    """Operators that run one after the other, as one layer.

    Parameters
    ----------
    name, block
        The submodule; whether it is a block.
    nodes
        Its calls.
    inputs
        Nodes outside whose values it takes.
    weights
        Nodes of parameters and buffers that it reads.
    outputs
        Its nodes whose values others take, or the module returns.
    """

    name: str
    block: bool
    nodes: tuple[Any, ...]
    inputs: tuple[Any, ...]
    weights: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def run(self, traced: Traced, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Run it and return the values of its outputs."""
        values = dict(zip((*self.inputs, *self.weights), (*inputs, *weights), strict=True))
        values.update(traced.inner)
        for node in self.nodes:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
        return [values[node] for node in self.outputs]

    def signature(self, traced: Traced, grads: Sequence[bool]) -> tuple[object, ...]:
        """Return what pieces of one structure share: operators, how they join, shapes, who wants gradients."""
        names: dict[Any, object] = {
            node: ("in", at, *_form(node.meta["val"]), grads[at]) for at, node in enumerate(self.inputs)
        }
        for at, node in enumerate(self.weights):
            weight = traced.weights[node]
            names[node] = ("weight", at, *_form(weight.value), weight.parameter and weight.value.requires_grad)
        names.update({node: ("graph", str(inner.code)) for node, inner in traced.inner.items()})
        names.update({node: ("node", at) for at, node in enumerate(self.nodes)})
        calls = tuple((str(node.target), str(map_arg((node.args, node.kwargs), _named(names)))) for node in self.nodes)
        return (*calls, *(names[node] for node in self.outputs))


class _Name:
    """A value in a signature."""

    def __init__(self, name: object) -> None:
        self.name = name

    def __repr__(self) -> str:
        return repr(self.name)


def _named(names: dict[Any, object]) -> Any:
    return lambda node: _Name(names[node])


def _form(value: Any) -> tuple[object, ...]:
    return (tuple(value.shape), str(value.dtype)) if isinstance(value, torch.Tensor) else (type(value).__name__,)


def cut(traced: Traced, units: dict[str, Unit]) -> list[Piece]:
    """Cut a trace into layers.

    What runs outside of every unit goes with the unit before it, or, behind a row of blocks, with what follows.
    Neighbours that are no blocks are one layer where there are blocks. Where there are no submodules to go by, equal
    runs of operators in a row are the blocks.
    """
    runs = _runs(traced, units)
    if len(runs) == 1 and not runs[0][0].block:
        runs = _repeating(traced, runs[0][0])
    owner = {node: at for at, (_, nodes) in enumerate(runs) for node in nodes}
    return [_piece(traced, unit, nodes, at, owner) for at, (unit, nodes) in enumerate(runs)]


def _runs(traced: Traced, units: dict[str, Unit]) -> list[tuple[Unit, list[Any]]]:
    placed = _placed(traced, units)
    runs = [(key, [node for node, _ in each]) for key, each in groupby(placed, key=lambda pair: pair[1])]
    joined: list[tuple[Place | None, list[Any]]] = []
    for at, (key, nodes) in enumerate(runs):
        before = joined[-1][0] if joined else None
        behind = runs[at + 1][0] if at + 1 < len(runs) else None
        if key is None and before is not None and (behind is None or not before[1].block or behind[1].block):
            joined[-1][1].extend(nodes)
        elif joined and _together(before, key, units):
            joined[-1] = (_joined(before, key), joined[-1][1] + nodes)
        else:
            joined.append((key, list(nodes)))
    return [(key[1] if key else Unit("", False), nodes) for key, nodes in joined]


def _together(before: Place | None, key: Place | None, units: dict[str, Unit]) -> bool:
    """Whether a run goes with the one before it."""
    if before is None:
        return key is None or not key[1].block
    if before == key:
        return True
    blocks = any(unit.block for unit in units.values())
    return blocks and key is not None and not key[1].block and not before[1].block


def _joined(before: Place | None, key: Place | None) -> Place | None:
    """Return where two runs are that became one, named by the first and the last submodule."""
    if before is None or key is None or before == key:
        return before or key
    return key[0], Unit(f"{before[1].path.partition('+')[0]}+{key[1].path}", False)


def _placed(traced: Traced, units: dict[str, Unit]) -> Iterator[tuple[Any, Place | None]]:
    """Yield every node with the call of a unit in which it runs; parts of a result are where the result is."""
    places: dict[Any, Place | None] = {}
    for node in traced.nodes:
        source = node.args[0] if node.args and node.target.__name__ == "getitem" else None
        places[node] = places[source] if source in places else _unit(node, units)
        yield node, places[node]


def _unit(node: Any, units: dict[str, Unit]) -> Place | None:
    """Return the innermost unit around a node, with the name of the call: a submodule may be called several times."""
    found = None
    for call, (path, _) in node.meta.get("nn_module_stack", {}).items():
        if path in units:
            found = (call, units[path])
    return found


def _repeating(traced: Traced, unit: Unit) -> list[tuple[Unit, list[Any]]]:
    """Return runs of equal operators; all in one where nothing repeats."""
    nodes = list(traced.nodes)
    signs = [(str(node.target), *_form(node.meta.get("val"))) for node in nodes]
    found = tandem(signs)
    if found is None:
        return [(unit, nodes)]
    first, length, times = found
    cuts = [0, *range(first, first + times * length + 1, length), len(nodes)]
    runs = [(nodes[start:end], first <= start < first + times * length) for start, end in pairwise(cuts)]
    return [
        (Unit(f"operators {nodes.index(run[0])} to {nodes.index(run[-1])}", block), run) for run, block in runs if run
    ]


def _piece(traced: Traced, unit: Unit, nodes: Sequence[Any], at: int, owner: dict[Any, int]) -> Piece:
    read = dict.fromkeys(each for node in nodes for each in node.all_input_nodes if owner.get(each) != at)
    outside = [node for node in read if node not in traced.inner]
    results = set(traced.results)
    return Piece(
        unit.path,
        unit.block,
        tuple(nodes),
        tuple(node for node in outside if node not in traced.weights),
        tuple(node for node in outside if node in traced.weights),
        tuple(node for node in nodes if node in results or any(owner.get(user, at) != at for user in node.users)),
    )
