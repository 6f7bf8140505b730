"""Networks as people have them, and the levels that they become; `docs/clusters.md` describes both."""

from nest.networks.described import Asked, hardware_of, kind_of
from nest.networks.graphs import network_of, read_graph
from nest.networks.levelling import ClassGap, Levelling, gaps_of, level_network, level_pairs
from nest.networks.network import Link, Network
from nest.networks.pairwise import Pairwise, pairwise
from nest.networks.shapes import dragonfly, fat_tree, grid, ring
from nest.networks.torus import level_host_torus, level_torus
from nest.networks.tree import Group, level_tree, one_root

__all__ = [
    "Asked",
    "ClassGap",
    "Group",
    "Levelling",
    "Link",
    "Network",
    "Pairwise",
    "dragonfly",
    "fat_tree",
    "gaps_of",
    "grid",
    "hardware_of",
    "kind_of",
    "level_host_torus",
    "level_network",
    "level_pairs",
    "level_torus",
    "level_tree",
    "network_of",
    "one_root",
    "pairwise",
    "read_graph",
    "ring",
]
