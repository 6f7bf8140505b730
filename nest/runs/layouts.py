"""A plan that somebody already has, as a plan of the problem."""

from __future__ import annotations

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
        If the layout has chunks, offloads, or recomputes the last layers of stages; problems have no such plans.
    """
    if layout.virtual > 1 or layout.offloaded or layout.recomputed:
        what = "chunks, last layers that compute again, and state on the host are not in the space of preset 'default'"
        raise InvalidProblem("layout", what, "give a plan without them")
    costs = Chain.of(run.model).flattened(layer_costs(run.model, run.hardware.device, run.setting(variant)))
    ends = [0, *accumulate(len(blocks) for blocks in split_stages(costs, layout))]
    ids = [layer.id for layer in problem.graphs[variant].layers]
    width, ranks = variant.width, problem.copy_ranks(variant, layout.data)[0]
    sharding = over_replicas(layout.zero if ranks > 1 else 0, ranks)
    stages = (
        Stage(tuple(ids[first:end]), at * width * layout.data, width, layout.recompute, sharding)
        for at, (first, end) in enumerate(pairwise(ends))
    )
    return Plan(variant, layout.data, width, tuple(stages), "stage-major")
