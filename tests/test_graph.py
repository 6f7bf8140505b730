"""The layer graph: its order, its ends, and what is no graph of a model."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InvalidProblem
from nest.graph import Edge, Layer, LayerGraph, LayerId


def layer(name: LayerId) -> Layer:
    """Return a layer of no interest but its name."""
    return Layer(name, 1.0, 2.0, 3, 4)


def graph_of(names: str, *edges: str) -> LayerGraph:
    """Sort one-letter layers with edges such as ``"ab"``."""
    return LayerGraph.sort(map(layer, names), [Edge(edge[0], edge[1], at) for at, edge in enumerate(edges)])


def names_of(graph: LayerGraph) -> str:
    """Return the order of one-letter layers."""
    return "".join(str(each.id) for each in graph.layers)


@given(st.permutations(range(8)), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=15))
def test_order_is_topological(shuffled: list[int], pairs: list[tuple[int, int]]) -> None:
    """Every edge runs forward, whatever the order in which layers and edges are given."""
    chain = [(at, at + 1) for at in range(7)]
    edges = [Edge(shuffled[min(a, b)], shuffled[max(a, b)], 1) for a, b in [*pairs, *chain] if a != b]
    graph = LayerGraph.sort(map(layer, range(8)), edges)
    assert sorted(each.id for each in graph.layers) == list(range(8))
    assert all(graph.index[edge.source] < graph.index[edge.target] for edge in edges)


def test_ties_keep_the_order_given() -> None:
    """Of layers that are ready at once, the one given first comes first."""
    assert names_of(graph_of("dbca", "da", "ba", "ca")) == "dbca"
    assert names_of(graph_of("zyx", "zx", "yx")) == "zyx"
    assert names_of(graph_of("cab", "ab", "bc")) == "abc"


def test_ends() -> None:
    """Edges by place in the order, with their bytes, double ones kept."""
    graph = graph_of("abc", "ab", "bc", "ac", "ab")
    assert graph.incoming == ((), ((0, 0), (0, 3)), ((0, 2), (1, 1)))
    assert graph.outgoing == (((1, 0), (1, 3), (2, 2)), ((2, 1),), ())


def test_chain_or_branch() -> None:
    """Skip edges leave a chain a chain; two layers that no edge orders make it branch."""
    assert graph_of("abc", "ab", "bc", "ac").unordered_pair is None
    assert graph_of("a").unordered_pair is None
    assert graph_of("abcd", "ab", "ac", "bd", "cd").unordered_pair == ("b", "c")


@pytest.mark.parametrize(
    ("names", "edges", "where", "message"),
    [
        ("", [], "layers", "the graph is empty"),
        ("abca", ["ab"], "layers[3].id", "'a' is used twice"),
        ("ab", ["ax"], "edges[0].target", "'x' is no layer"),
        ("ab", ["ab", "xb"], "edges[1].source", "'x' is no layer"),
        ("abcd", ["ab", "cd"], "edges", "layer 'c' is not connected to layer 'a'"),
        ("abc", ["ab", "bc", "cb"], "edges", "the layers form a cycle: b -> c -> b"),
        ("ab", ["ab", "bb"], "edges", "the layers form a cycle: b -> b"),
    ],
    ids=["empty", "duplicate", "dangling target", "dangling source", "pieces", "cycle", "loop"],
)
def test_no_graph_of_a_model(names: str, edges: list[str], where: str, message: str) -> None:
    """The error says where and what."""
    with pytest.raises(InvalidProblem) as caught:
        graph_of(names, *edges)
    assert caught.value.where == where
    assert message in caught.value.problem or _rotated(message, caught.value.problem)


def _rotated(message: str, got: str) -> bool:
    """Whether a cycle is named from another of its layers on."""
    return message.replace("b -> c -> b", "c -> b -> c") in got


def test_layers_given_in_order() -> None:
    """Without sorting, an edge that dangles or runs backwards is an error too."""
    layers = (layer("a"), layer("b"))
    with pytest.raises(InvalidProblem, match="runs against the order"):
        LayerGraph(layers, (Edge("b", "a", 1),))
    with pytest.raises(InvalidProblem, match="'x' is no layer"):
        LayerGraph(layers, (Edge("a", "x", 1),))


@pytest.mark.parametrize(
    "bad",
    [
        Layer("a", -1.0, 0.0, 0, 0),
        Layer("a", 0.0, nan, 0, 0),
        Layer("a", 0.0, 0.0, inf, 0),
        Layer("a", 0.0, 0.0, 0, -0.5),
    ],
)
def test_figures_out_of_range(bad: Layer) -> None:
    """Negative or endless figures would make every bound of the search wrong."""
    with pytest.raises(InvalidProblem, match="of layer 'a'"):
        LayerGraph((bad,), ())
    with pytest.raises(InvalidProblem, match="'a' -> 'b' is -1"):
        LayerGraph((layer("a"), layer("b")), (Edge("a", "b", -1),))
