"""Plans to draw: one with everything in it, one with hostile names, one that is large."""

from __future__ import annotations

from dataclasses import replace

from nest.alternatives import runners_up, sensitivity
from nest.certify import certify
from nest.cluster import Cluster, Level
from nest.cost.schedules import schedule_named
from nest.evaluate import evaluate
from nest.graph import Collective, Edge, Layer, LayerGraph, Recomputed
from nest.plan import Plan, Stage
from nest.presets import DEFAULT
from nest.problem import Choices, Copies, Problem, Training, Variant
from nest.report.figures import PricedPlan
from nest.report.page import Reported, Searched
from nest.report.throughput import Workload
from nest.simulate import pipeline_of, simulate
from nest.solve import solve

HOSTILE = "</script><script>window.broken = 1</script> \"quoted\" 'names' & <b>more</b>"


def trained(name: str = "small", layers: int = 8) -> Problem:
    """Return a chain of layers with collectives on 16 devices in nodes of four, under preset default.

    The best plan has four stages of tensor pairs, two replicas, and shards the optimizer; the first stage recomputes
    all of its layers, the second one of two.
    """
    again = (Recomputed("full", 0.5, 1, 8),)
    sums = Collective("all-reduce", 100, "tensor", "forward")
    nodes = tuple(
        Layer(f"{name} {at}", 2.0, 3.0, 10, 5, collectives=(sums,), working_bytes=7, recomputed=again)
        for at in range(layers)
    )
    edges = tuple(Edge(nodes[at].id, nodes[at + 1].id, 20) for at in range(layers - 1))
    cluster = Cluster(16, 250, (Level(4, 100.0, 0.0, "node"), Level(4, 10.0, 0.0, name)), name)
    training = Training(global_batch=32, copies=Copies(6, 2), overhead_bytes=100)
    whole = LayerGraph(tuple(replace(layer, forward_s=6.0, backward_s=9.0, collectives=()) for layer in nodes), edges)
    graphs = {Variant(2): LayerGraph(nodes, edges), Variant(1): whole}
    choices = Choices(zero=frozenset({0, 1}))
    return Problem(name, graphs, cluster, training, choices, DEFAULT, source=f"measured by {name}")


def reported(problem: Problem, plan: Plan | None = None, *, searched: bool = True) -> Reported:
    """Return everything that a page shows of a plan, of the best one if none is given."""
    plan = solve(problem).plan if plan is None else plan
    assert plan is not None
    evaluation = evaluate(problem, plan)
    priced = PricedPlan.of(
        problem, plan, evaluation, Workload(10**15, 1000, (1e12,) * (len(problem.cluster.classes) + 1), "bf16")
    )
    assert priced is not None
    run = simulate(pipeline_of(problem, plan, evaluation), schedule_named("1f1b"))
    if not searched:
        return Reported(priced, run)
    trace = (
        Searched("1 x 1 x 1", 2, 4, 1.5, None, f"pruned {problem.name}"),
        Searched("2 x 1 x 1", 1, 1, 2.0, 3.0, "solved"),
    )
    return Reported(
        priced,
        run,
        sensitivity(problem, plan, time_limit_s=600.0),
        runners_up(problem, plan, 2)[0],
        trace,
        len(trace),
        certify(problem, plan),
        provenance={"nest": "0", "written": problem.name},
        plan_file="plan.json",
    )


def large() -> Reported:
    """Return a plan of 64 stages on 2,048 devices with 2,048 microbatches in each replica: 262,144 passes."""
    nodes = tuple(Layer(at, 1e-3, 2e-3, 10, 5) for at in range(64))
    edges = tuple(Edge(at, at + 1, 100) for at in range(63))
    cluster = Cluster(2048, 10_000, (Level(8, 1e9, 0.0, "node"), Level(256, 1e8, 0.0, "all")))
    problem = Problem("large", {Variant(1): LayerGraph(nodes, edges)}, cluster, Training(2048 * 32))
    stages = tuple(Stage((at,), 63 - at, 1) for at in range(64))
    return reported(problem, Plan(Variant(1), 32, 64, stages), searched=False)
