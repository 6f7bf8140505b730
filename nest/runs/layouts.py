"""A plan that somebody already has, as a plan of the problem."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

from nest.costing import Layout, layer_costs, split_stages
from nest.errors import InvalidProblem
from nest.plan import Plan, Stage, over_replicas
from nest.problem import Problem, Variant
from nest.runs.chain import Chain
from nest.runs.run import Run


def plan_of(run: Run, problem: Problem, variant: Variant, layout: Layout) -> Plan:
    """Return the plan that a layout means, its ranks numbered as Megatron-LM does.

    Parameters
    ----------
    run, problem
        A run, and its problem.
    variant
        Widths and microbatch.
    layout
        Replicas, stages and ZeRO type, the same for every stage.

    Raises
    ------
    InvalidProblem
        If the layout has chunks or offloads; problems have no such plans.
    """
    if layout.virtual > 1 or layout.offloaded:
        what = "chunks, and state on the host, are not in the space of preset 'default'"
        raise InvalidProblem("layout", what, "give a plan without them")
    costs = Chain.of(run.model).flattened(layer_costs(run.model, run.hardware.device, run.setting(variant)))
    ends = [0, *accumulate(len(blocks) for blocks in split_stages(costs, layout))]
    width, ranks = variant.width, problem.copy_ranks(variant, layout.data)[0]
    sharding = over_replicas(layout.zero if ranks > 1 else 0, ranks)
    stages = (
        replace(_repeating(problem, variant, layout, at, run), first_device=at * width * layout.data, sharding=sharding)
        for at, run in enumerate(pairwise(ends))
    )
    return Plan(variant, layout.data, width, tuple(stages), "stage-major")


def _repeating(problem: Problem, variant: Variant, layout: Layout, at: int, run: tuple[int, int]) -> Stage:
    """Return a stage with its layers and what they recompute; none where no layer can, or none is to."""
    layers = problem.graphs[variant].layers[slice(*run)]
    able = sum(layer.again(layout.recompute) is not None for layer in layers)
    count = min(able, layout.recomputed[at]) if layout.recomputed else able
    kind = layout.recompute if count else "none"
    ids = tuple(layer.id for layer in layers)
    return Stage(ids, 0, variant.width, kind, recomputed=count if 0 < count < able else None)
