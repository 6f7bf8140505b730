"""Tori and meshes as levels, with the exact gap at any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nest.cluster import Cluster
from nest.hardware import Pairs, Tier, Torus
from nest.networks.levelling import MESSAGE_BYTES, ClassGap, Levelling
from nest.networks.pairwise import pairwise
from nest.networks.shapes import grid
from nest.units import Number


def level_torus(
    torus: Torus, hbm_bytes: Number, *, shared: bool = True, message_bytes: int = MESSAGE_BYTES, name: str = ""
) -> Levelling:
    """Return the levels of a torus or mesh.

    Parameters
    ----------
    hbm_bytes
        Memory of each device.
    shared
        Whether devices that send at the same time share the links between boxes, as in `Torus.levels`.
    message_bytes
        Size of the message for which the gaps hold.
    """
    cluster = Cluster(torus.devices, hbm_bytes, torus.levels(shared=shared), name or "x".join(map(str, torus.shape)))
    order = tuple(",".join(map(str, row)) for row in torus.order().tolist())
    exact = _pairs(torus, order) if torus.devices <= EVERY_PAIR else None
    return Levelling(cluster, order, _gaps(torus, cluster, message_bytes), True, message_bytes, pairs=exact)


EVERY_PAIR = 256
"""Devices up to which every pair of a torus is worked out; gaps are known from counts of distances at any size."""


def _pairs(torus: Torus, order: Sequence[str]) -> Pairs:
    found = pairwise(grid(torus))
    at = [found.names.index(name) for name in order]
    return Pairs(found.bandwidth_bytes_per_s[np.ix_(at, at)], found.latency_s[np.ix_(at, at)])


def level_host_torus(
    torus: Torus,
    hosts: Sequence[str],
    per_host: int,
    inside: Tier,
    hbm_bytes: Number,
    *,
    message_bytes: int = MESSAGE_BYTES,
) -> Levelling:
    """Return the levels of hosts on a torus, with several devices each.

    Parameters
    ----------
    torus
        Of the hosts; its links are those of a host, of which a device has its part.
    hosts
        Names of the hosts, the last axis running fastest.
    per_host
        Devices of each host.
    inside
        The links between them.
    """
    share = replace(torus, link_bytes_per_s=torus.link_bytes_per_s / per_host)
    outer = level_torus(share, hbm_bytes, message_bytes=message_bytes)
    cluster = Cluster(
        torus.devices * per_host, hbm_bytes, (inside.level(per_host), *outer.cluster.levels), outer.cluster.name
    )
    names = [hosts[int(np.ravel_multi_index(row, torus.shape))] for row in torus.order()]
    order = tuple(f"{name}/{at}" for name in names for at in range(per_host))
    gaps = tuple(replace(gap, level=gap.level + 1, pairs=gap.pairs * per_host**2) for gap in outer.gaps)
    within = ClassGap(0, torus.devices * per_host * (per_host - 1) // 2, 1.0, 1.0, 1.0)
    return Levelling(cluster, order, (*([within] if within.pairs else []), *gaps), True, message_bytes)


def _gaps(torus: Torus, cluster: Cluster, message_bytes: int) -> tuple[ClassGap, ...]:
    """Return the gap of each level, from the number of pairs at each distance in and below its boxes."""
    gaps, below = [], np.array([torus.devices], dtype=np.int64)  # at distance 0: every device and itself
    levels = zip(torus.boxes(), cluster.levels, cluster.path_bandwidths, strict=True)
    for at, (box, level, path) in enumerate(levels):
        counts = torus.hop_counts(box)
        fresh = counts - np.pad(below, (0, len(counts) - len(below)))
        hops = np.flatnonzero(fresh)
        if hops.size:
            exact = hops * torus.hop_s + message_bytes / torus.link_bytes_per_s
            ratio = (level.latency_s + message_bytes / path) / exact
            mean = float((ratio * fresh[hops]).sum() / fresh[hops].sum())
            pairs = int(fresh[hops].sum()) // 2
            gaps.append(ClassGap(at, pairs, float(ratio.min()), mean, float(ratio.max())))
        below = counts
    return tuple(gaps)
