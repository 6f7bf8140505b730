"""Which device each rank of a plan is, and what it does there."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields

from nest.cluster import Cluster
from nest.plan import Plan


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank.

    Parameters
    ----------
    rank
        Ranks count up along the line of the plan; devices without work are left out.
    place, host, device
        Place on the line of devices, the node that it is in, and the device in the node, from 0.
    name
        Of the device, where the cluster has names.
    stage, replica, shard, expert, context, tensor
        What it holds, each from 0: stage of the pipeline, replica, part of a stage that is sharded inside, and places
        in the groups of expert, context and tensor parallel.
    """

    rank: int
    place: int
    host: int
    device: int
    name: str
    stage: int
    replica: int
    shard: int
    expert: int
    context: int
    tensor: int


def ranks_of(plan: Plan, cluster: Cluster, names: tuple[str, ...] = ()) -> tuple[Rank, ...]:
    """Return the ranks of a plan, in their order.

    Parameters
    ----------
    cluster
        Its innermost groups are the nodes.
    names
        Of the devices, by place; empty where they have none.
    """
    found = sorted(_places(plan), key=lambda each: plan.line.position(each[0]))
    node = cluster.group_sizes[0]
    return tuple(
        Rank(rank, place, place // node, place % node, names[place] if names else "", stage, replica, *inside)
        for rank, (place, stage, replica, inside) in enumerate(found)
    )


def _places(plan: Plan) -> Iterator[tuple[int, int, int, tuple[int, int, int, int]]]:
    """Yield place, stage, replica, and what a device is inside its block: shard, expert, context, tensor."""
    for stage, (each, variant) in enumerate(zip(plan.stages, plan.stage_variants, strict=True)):
        for replica, first in enumerate(plan.starts(stage).tolist()):
            for inside in range(each.devices):
                rest, tensor = divmod(inside, variant.tensor)
                rest, context = divmod(rest, variant.context)
                shard, expert = divmod(rest, variant.expert)
                yield first + inside, stage, replica, (shard, expert, context, tensor)


def ranks_csv(ranks: tuple[Rank, ...]) -> str:
    """Return ranks as a table."""
    out = io.StringIO()
    table = csv.DictWriter(out, [spec.name for spec in fields(Rank)], lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(rank) for rank in ranks)
    return out.getvalue()


def ranks_json(ranks: tuple[Rank, ...]) -> str:
    """Return ranks as a list of objects, one a line."""
    rows = ",\n".join(f"  {json.dumps(asdict(rank))}" for rank in ranks)
    return f"[\n{rows}\n]\n"
