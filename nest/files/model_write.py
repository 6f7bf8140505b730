"""Layer graphs -> the ``[model]`` table: runs of layers, costs once for all that are alike, edges beside the chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from nest.errors import InvalidProblem
from nest.files.toml import Value, Values, assignments, block, listing, size
from nest.files.variants import spell_variant, variant_keys
from nest.graph import Collective, Layer, LayerGraph, LayerId, Recomputed
from nest.problem import Variant
from nest.units import Number

Graphs: TypeAlias = Mapping[Variant, LayerGraph]
Sizes: TypeAlias = tuple[Number, ...]
"""Bytes by variant."""

Figures: TypeAlias = tuple[
    float,
    float,
    Number,
    Number,
    Number,
    Number,
    Number,
    tuple[Collective, ...],
    tuple[Recomputed, ...],
    float | None,
    Number,
]
"""Costs of a layer under one variant: all that a layer has beside id and kind."""

Costs: TypeAlias = tuple[tuple[tuple[str, Figures], ...], ...]
"""Costs of a layer by variant, and by class of devices: without a name those of the cluster's own come first."""

Like: TypeAlias = tuple[str, Costs, Sizes | None]
"""What layers share that one set of cost rows describes: kind, costs, and what they send (None: nowhere to)."""


def model_lines(graphs: Graphs) -> Iterator[str]:
    """Yield the lines of the ``[model]`` table.

    Raises
    ------
    InvalidProblem
        If the variants differ in layers or edges.
    """
    graphs = dict(sorted(graphs.items()))
    _check_alike(graphs)
    graph = next(iter(graphs.values()))
    likes = _likes(graphs)
    yield from ("", "[model]")
    if graph.table is not None:
        yield from assignments({"table": graph.table})
    yield from listing("layers", _runs(graph.layers))
    chain = _is_chain(graph)
    if edges := list(_edges(graphs, likes, chain=chain)):
        yield from listing("skips" if chain else "edges", edges)
    for selector, (_, costs, sizes) in _selectors(graph.layers, likes):
        for at, variant in enumerate(graphs):
            for name, figures in costs[at]:
                sent = None if sizes is None or name else sizes[at]
                of_class: Values = {"class": name} if name else {}
                yield from block("[[model.costs]]", selector | of_class | _row(variant, figures, sent))


def _check_alike(graphs: Graphs) -> None:
    shapes = {
        variant: (
            [(layer.id, layer.kind) for layer in graph.layers],
            [(edge.source, edge.target) for edge in graph.edges],
            graph.table,
        )
        for variant, graph in graphs.items()
    }
    first = next(iter(shapes))
    for variant, shape in shapes.items():
        if shape != shapes[first]:
            what = f"layers or edges differ between {spell_variant(first)} and {spell_variant(variant)}"
            raise InvalidProblem("model", what, "give every variant the same layers and edges, in the same order")


def _likes(graphs: Graphs) -> list[Like]:
    """Return for each layer what it shares with others; the last layer, which sends nothing, joins those it can."""
    kinds = [layer.kind for layer in next(iter(graphs.values())).layers]
    costs = list(zip(*(_costs(graph) for graph in graphs.values()), strict=True))
    sent = list(zip(*(_sent(graph) for graph in graphs.values()), strict=True))
    known: dict[tuple[str, Costs], Sizes] = {}
    for at, sizes in enumerate(sent):
        if None not in sizes:
            known.setdefault((kinds[at], costs[at]), sizes)
    return [
        (kinds[at], costs[at], known.get((kinds[at], costs[at])) if None in sizes else sizes)
        for at, sizes in enumerate(sent)
    ]


def _costs(graph: LayerGraph) -> list[tuple[tuple[str, Figures], ...]]:
    classes = [("", graph.layers), *graph.others]
    columns = [[(name, _figures(layer)) for layer in layers] for name, layers in classes]
    return list(zip(*columns, strict=True))


def _figures(layer: Layer) -> Figures:
    return (
        layer.forward_s,
        layer.backward_s,
        layer.parameter_bytes,
        layer.activation_bytes,
        layer.expert_parameter_bytes,
        layer.working_bytes,
        layer.tied_bytes,
        layer.collectives,
        layer.recomputed,
        layer.weight_share,
        layer.result_bytes,
    )


def _sent(graph: LayerGraph) -> list[Number | None]:
    """Return what each layer sends to the nearest layer that it feeds."""
    return [links[0][1] if links else None for links in graph.outgoing]


def _runs(layers: Sequence[Layer]) -> Iterator[Values]:
    """Yield layers of one kind whose ids count up, or are strings, as one entry."""

    def run_of(place: int) -> tuple[str, int | None]:
        """Return what is equal for layers of one entry: their kind, and by how much ids are ahead of places."""
        layer = layers[place]
        return layer.kind, layer.id - place if isinstance(layer.id, int) else None

    for (kind, counts), places in groupby(range(len(layers)), key=run_of):
        ids = [layers[place].id for place in places]
        entry: Values = {"kind": kind} if kind else {}
        if len(ids) == 1:
            yield entry | {"id": ids[0]}
        elif counts is None:
            yield entry | {"ids": ids}
        else:
            yield entry | {"first_id": ids[0], "count": len(ids)}


def _is_chain(graph: LayerGraph) -> bool:
    """Whether the edges are those that the reader makes of a chain with skips, in its order."""
    steps = [source for source, target in graph.places if target - source == 1]
    return list(graph.places) == sorted(graph.places) and steps == list(range(len(graph) - 1))


def _edges(graphs: Graphs, likes: Sequence[Like], *, chain: bool) -> Iterator[Values]:
    """Yield the edges to be named: those that skip layers on a chain, else all."""
    index = next(iter(graphs.values())).index
    columns = [
        (edges[0].source, tuple(edge.bytes for edge in edges), edges[0].target)
        for edges in zip(*(graph.edges for graph in graphs.values()), strict=True)
        if not chain or index[edges[0].target] - index[edges[0].source] > 1
    ]
    for (source, sizes), group in groupby(columns, key=lambda column: column[:2]):
        targets = [column[2] for column in group]
        entry: Values = {"source": source, "target": targets if len(targets) > 1 else targets[0]}
        yield entry if sizes == likes[index[source]][2] else entry | {"bytes": _bytes(graphs, sizes)}


def _bytes(graphs: Graphs, sizes: Sizes) -> Value:
    if len(set(sizes)) == 1:
        return size(sizes[0])
    return [{**variant_keys(variant), "bytes": size(value)} for variant, value in zip(graphs, sizes, strict=True)]


def _selectors(layers: Sequence[Layer], likes: Sequence[Like]) -> Iterator[tuple[Values, Like]]:
    """Yield how to name the layers that are alike: by their kind where they are the most of it, else by ids."""
    groups: dict[Like, list[LayerId]] = {}
    for layer, like in zip(layers, likes, strict=True):
        groups.setdefault(like, []).append(layer.id)
    most: dict[str, Like] = {}
    for like in sorted(groups, key=lambda like: -len(groups[like])):
        most.setdefault(like[0], like)
    for like, ids in groups.items():
        if most[like[0]] != like:
            yield {"ids": ids}, like
        else:
            yield {"kind": like[0]} if like[0] else {}, like


def _row(variant: Variant, costs: Figures, sent: Number | None) -> Values:
    forward, backward, parameters, activations, experts, working, tied = costs[:7]
    collectives, recomputed, weight_share, result = costs[7:]
    figures: Values = {
        "forward_s": float(forward),
        "backward_s": float(backward),
        "parameter_bytes": size(parameters),
        "activation_bytes": size(activations),
    }
    more: Values = {"expert_parameter_bytes": size(experts)} if experts else {}
    if working:
        more["working_bytes"] = size(working)
    if tied:
        more["tied_bytes"] = size(tied)
    if result:
        more["result_bytes"] = size(result)
    if weight_share is not None:
        more["weight_share"] = weight_share
    if sent is not None:
        more["output_bytes"] = size(sent)
    if collectives:
        more["collectives"] = [_collective(each) for each in collectives]
    if recomputed:
        more["recomputed"] = [_recomputed(each) for each in recomputed]
    return variant_keys(variant) | figures | more


def _recomputed(each: Recomputed) -> Values:
    values: Values = {
        "kind": each.kind,
        "repeated_s": float(each.repeated_s),
        "activation_bytes": size(each.activation_bytes),
    }
    more: Values = {"working_bytes": size(each.working_bytes)} if each.working_bytes else {}
    if each.collectives:
        more["collectives"] = [_collective(one) for one in each.collectives]
    return values | more


def _collective(each: Collective) -> Values:
    values: Values = {"kind": each.kind, "bytes": size(each.bytes), "axis": each.axis, "when": each.when}
    return values | ({"hidden_s": float(each.hidden_s)} if each.hidden_s else {})
