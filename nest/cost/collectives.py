"""Network times in seconds: transfers between stages, sharding inside a stage, gradient synchronisation.

All three are the artifact's (arXiv 2603.06798, ``nest/Solver``; the ring stands for its packet simulator). Byte counts
may be numbers or arrays.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from nest.cluster import Cluster
from nest.presets import Preset
from nest.units import Floats

Bytes = TypeVar("Bytes", float, Floats)


def transfer_s(cluster: Cluster, preset: Preset, level: int, size: Bytes) -> Bytes:
    """Return the time to send ``size`` bytes across a boundary of ``level``.

    ``y = size / min(bandwidth[0..level]) + latency[level]``, twice that above the innermost level.
    """
    once = size / cluster.path_bandwidths[level] + cluster.levels[level].latency_s
    return once * (preset.network_factor if level == 0 else 2 * preset.network_factor)


def shard_s(cluster: Cluster, preset: Preset, level: int, degree: int, size: Bytes) -> Bytes:
    """Return the time of one ring reduce-scatter or all-gather of ``size`` bytes over ``degree`` ranks.

    ``(z - 1) * (latency[level] + (size / z) / min(bandwidth[0..level]))``; ``level`` is the span of the stage's block.
    """
    step = size / degree / cluster.path_bandwidths[level] + cluster.levels[level].latency_s
    return step * ((degree - 1) * preset.network_factor)


def sync_s(cluster: Cluster, preset: Preset, replicas: int, height: int, size: Bytes) -> Bytes:
    """Return the time to all-reduce ``size`` bytes of gradients over ``replicas``.

    Parameters
    ----------
    height
        Number of levels that the starts of the replicas need to share a group.

    Notes
    -----
    Halving inside the innermost level, ``sum over i < floor(log2 d) of latency[0] + size / 2^i / bandwidth[0]``, then
    ``total += 2 (latency[l] + size / bandwidth[l]) + low; low += total`` for each further level below ``height``.
    """
    total = size * 0.0
    for halving in range(replicas.bit_length() - 1):
        total = total + (size / 2**halving / cluster.levels[0].bandwidth_bytes_per_s + cluster.levels[0].latency_s)
    low = total * 0.0
    for level in cluster.levels[1:height]:
        total = total + (2 * (size / level.bandwidth_bytes_per_s + level.latency_s) + low)
        low = low + total
    return total * (preset.network_factor * preset.sync_factor)


def sync_height(cluster: Cluster, replicas: int, stride: int) -> int:
    """Return how many levels the starts of ``replicas`` replicas, ``stride`` devices apart, need to share a group."""
    return cluster.span(0, (replicas - 1) * stride) + 1


def sync_heights(cluster: Cluster, replicas: np.ndarray, stride: np.ndarray) -> np.ndarray:
    """Return `sync_height` for arrays."""
    last = (replicas - 1) * stride
    return cluster.spans(np.zeros_like(last), last) + 1
