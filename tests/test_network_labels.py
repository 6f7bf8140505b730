"""Networks whose devices have any names: levels exist for all of them, and no group is cut off from the others."""

from __future__ import annotations

import random

import networkx
import pytest
from seeds import seeds

from nest.networks import Link, Network, level_network

LINK_BYTES_PER_S = 25e9
SHAPES = (
    networkx.grid_2d_graph(4, 2),
    networkx.grid_2d_graph(3, 4),
    networkx.path_graph(9),
    networkx.binomial_tree(4),
    networkx.star_graph(7),
    networkx.petersen_graph(),
)


def _renamed(seed: int) -> Network:
    """Return a network of devices that pass on for each other, under names and in an order drawn at random."""
    draw = random.Random(seed)
    graph = networkx.convert_node_labels_to_integers(SHAPES[seed % len(SHAPES)])
    names = [f"device {place:02}" for place in range(len(graph))]
    draw.shuffle(names)
    links = [Link(names[one], names[other], LINK_BYTES_PER_S, 5e-6) for one, other in graph.edges]
    draw.shuffle(links)
    return Network(tuple(sorted(names)), (), tuple(links), forwarding=True)


@pytest.mark.parametrize("seed", seeds(60, 300))
def test_every_level_has_bandwidth(seed: int) -> None:
    """Catches groups that are joined though no cable joins them, whose share was zero (4 x 2 meshes, trees, others)."""
    network = _renamed(seed)
    levels = level_network(network, 1).cluster.levels
    assert all(0 < level.bandwidth_bytes_per_s <= LINK_BYTES_PER_S for level in levels)
