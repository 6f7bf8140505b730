"""Expert ranks beside context ranks in torchtitan: other groups than the plan's, that lie alike and take as long."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from test_export_megatron import beside_context

from nest.cost.groups import spread
from nest.export import FRAMEWORKS, Assignment, Inexpressible, exported
from nest.plan import over_replicas
from nest.problem import Variant

TORCHTITAN = FRAMEWORKS["torchtitan"]

Groups = set[tuple[int, ...]]


def mesh_groups(given: Assignment, shard: int) -> dict[str, Groups]:
    """Return ranks that share experts, that hold the same, and that hold the same share, as torchtitan's mesh has them.

    Of each stage the mesh of experts is replicas x ``efsdp`` x ``ep`` x ``etp``, in this order; ``shard`` ranks of data
    parallel shard, and with them the context ranks of each.
    """
    variant, stages = given.plan.variant, len(given.plan.stages)
    cut = variant.tensor if given.run.cut_experts else 1
    ranks = np.arange(given.world).reshape(
        stages, given.data // shard, shard * variant.context * variant.tensor // (cut * variant.expert), -1, cut
    )
    axes = {"ep": 3, "within": 2, "across": 1}
    return {
        name: {tuple(group) for group in np.moveaxis(ranks, axis, -1).reshape(-1, ranks.shape[axis]).tolist()}
        for name, axis in axes.items()
    }


def own_groups(given: Assignment, together: int) -> dict[str, Groups]:
    """Return the same groups as the plan has them (C8, D12), with weights spread over so many replicas."""
    return {name: set(map(tuple, _own(given, together, name))) for name in ("ep", "within", "across")}


def _own(given: Assignment, together: int, name: str) -> Iterator[list[int]]:
    plan, variant = given.plan, given.plan.variant
    found: dict[tuple[int, ...], list[int]] = {}
    axes = (range(variant.tensor), range(variant.context), range(variant.expert))
    for (at, stage), replica, x, y, z in product(enumerate(plan.stages), range(plan.replicas), *axes):
        rank = stage.first_device + replica * plan.replica_stride + x + variant.tensor * (y + variant.context * z)
        group, place = divmod(replica, together)
        key = {"ep": (at, replica, x, y), "within": (at, x, z, group), "across": (at, x, y, z, place)}[name]
        found.setdefault(key, []).append(rank)
    yield from found.values()


@pytest.mark.parametrize("variant", [Variant(1, 2, 2), Variant(1, 4, 2), Variant(2, 2, 2, True)])
@pytest.mark.parametrize("ends", [(34,), (17, 34)])
@pytest.mark.parametrize("together", [1, 2])
def test_groups_lie_alike(variant: Variant, ends: tuple[int, ...], together: int) -> None:
    """Groups of experts are others there, with equally many members in equally many nodes."""
    cut = variant.tensor > 1
    given = beside_context(variant, 16, cut, ends)
    own = own_groups(given, given.plan.replicas // together)
    ranks = given.plan.replicas // together * variant.expert
    alike = tuple(replace(stage, sharding=over_replicas(3, ranks * 2)) for stage in given.plan.stages)
    export = exported(replace(given, plan=replace(given.plan, stages=alike)), TORCHTITAN)
    parallelism = tomllib.loads(export.text)["parallelism"]
    assert parallelism["data_parallel_shard_degree"] == ranks
    assert (parallelism["expert_parallel_degree"], parallelism["context_parallel_degree"]) == (variant.expert, 2)
    assert any("groups of experts are those of torchtitan" in note for note in export.notes)
    cluster = given.run.hardware.cluster
    for name, groups in mesh_groups(given, ranks).items():
        assert groups != own[name] or name != "ep"
        assert sorted(map(len, groups)) == sorted(map(len, own[name]))
        lie = [{spread(cluster, list(group)) for group in each if len(group) > 1} for each in (groups, own[name])]
        assert lie[0] == lie[1], name


def test_blocks_over_nodes_are_refused() -> None:
    """There a block has expert ranks in several nodes, torchtitan's groups keep to one."""
    given = beside_context(Variant(1, 8, 2), 16, cut=False)
    with pytest.raises(Inexpressible, match=r"expert: 8 beside context 2.*not all of a block is in one node"):
        exported(given, TORCHTITAN)
