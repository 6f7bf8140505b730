"""The rules of `docs/formulation.md` that a plan keeps or breaks before it is priced, and those that its price decides.

Each rule has one name; every violation carries it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from nest.constraints import Filters
from nest.cost.scale import Scale
from nest.evaluate.verdict import StageFigures, Violation
from nest.forms import Form
from nest.graph import LayerGraph
from nest.line import EVERY, Line, Ranges
from nest.places import Shape, lines, placings
from nest.plan import Plan, Stage
from nest.presets import Arrangement
from nest.problem import Problem
from nest.uneven import groups_to_begin_with, starts_of, strides
from nest.units import HARD_LIMIT, LONGEST, bytes_of, quanta


def technology_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Yield violations of ``technology``: one of each menu, that of the cluster where that is built, not too dear."""
    cluster, named = problem.cluster, ", ".join(plan.technologies) or "none"
    chosen = cluster.named(plan.technologies)
    if chosen is None:
        menus = "; ".join(" or ".join(each.name for each in level.alternatives) for level in cluster.menus)
        due = f"one of each menu is due: {menus}" if menus else "no level has a menu"
        yield Violation("technology", f"the plan names {named}, {due}")
    elif cluster.technologies not in ((), plan.technologies):
        yield Violation("technology", f"the plan names {named}, the cluster has {', '.join(cluster.technologies)}")
    elif not problem.affords(chosen):
        price, most = float(cluster.price(chosen)), problem.choices.price_at_most
        yield Violation("technology", f"{named} cost {price:,.10g}, allowed are {most:,.10g}")


def choice_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Yield violations of what a plan chooses, from ``variant`` and ``schedule`` to ``sharding`` and ``recompute``."""
    choices, most = problem.choices, problem.microbatches(plan.variant)
    yield from _variant_violations(problem, plan)
    if not 1 <= plan.replicas <= most:
        yield Violation("replicas", f"{plan.replicas} replicas for {most} microbatches")
    elif choices.replicas is not None and plan.replicas not in choices.replicas:
        yield Violation("replicas", f"{plan.replicas} replicas, allowed are {sorted(choices.replicas)}")
    if choices.stages is not None and len(plan.stages) not in choices.stages:
        yield Violation("stages", f"{len(plan.stages)} stages, allowed are {sorted(choices.stages)}")
    if plan.schedule not in choices.schedules:
        yield Violation("schedule", f"{plan.schedule!r}, allowed are {', '.join(sorted(choices.schedules))}")
    for at, stage in enumerate(plan.stages):
        yield from _sharding_violations(problem, plan, at)
        if what := _wrong_recompute(problem, plan, stage, last=at + 1 == len(plan.stages)):
            yield Violation("recompute", f"stage {at} recomputes {what}")


def _variant_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Rules ``variant`` and ``nesting``: one variant, or a tensor width of its own for each stage."""
    forms, own = problem.stage_forms(plan.variant), _may_be_uneven(problem, plan)
    widths, allowed = (sorted({each.variant.tensor for each in some}) for some in (plan.stage_forms, forms))
    if plan.uneven and not set(widths) <= set(allowed):
        single = allowed or "those of the variant"
        yield Violation("variant", f"stages have tensor widths {widths}, single stages may have {single}")
    elif not own and not problem.admits(plan.variant):
        yield Violation("variant", f"{plan.variant} is not among the allowed ones")
    for form in dict.fromkeys((Form(plan.variant), *plan.stage_forms)):
        if pair := problem.unnested(form):
            what = f"groups of {pair[0]} devices do not nest with groups of {pair[1]} of the network"
            yield Violation("nesting", what)


def _may_be_uneven(problem: Problem, plan: Plan) -> bool:
    """Whether all stages are of forms that a plan may give each stage."""
    return set(plan.stage_forms) <= set(problem.stage_forms(plan.variant))


def of_own_widths(problem: Problem, plan: Plan) -> bool:
    """Whether stages of a plan have widths of their own, and stand as such do: where all are alike, many do not."""
    return plan.uneven or (plan.sharded_inside and problem.preset.sharding == "replicas")


def _wrong_recompute(problem: Problem, plan: Plan, stage: Stage, *, last: bool) -> str | None:
    """Return what a stage recomputes, and why that is not legal; None where it is."""
    if problem.preset.recompute == "choices":
        due = "none" if last else problem.choices.recompute
        found = f"{stage.recompute!r}, the problem says {due!r}"
        return found if stage.recompute != due or stage.recomputed is not None else None
    variant = stage.variant(plan.variant)
    kinds, graph = problem.recomputes(variant), problem.graphs[variant]
    layers = [graph.layers[graph.index[name]] for name in stage.layers]
    able = {kind: sum(layer.again(kind) is not None for layer in layers) for kind in kinds}
    if stage.recompute == "none":
        idle = "none" not in kinds and any(able.values())
        return f"nothing, allowed are {', '.join(kinds)}" if idle else None
    if stage.recompute not in kinds or plan.schedule == "zb-h1":
        late = ", but nothing under zb-h1" if plan.schedule == "zb-h1" else ""
        return f"{stage.recompute!r}, allowed are {', '.join(kinds)}{late}"
    count = able[stage.recompute]
    asked = count if stage.recomputed is None else stage.recomputed
    if not 1 <= asked <= count:
        return f"{asked} layers {stage.recompute!r}, {count} of them can"
    if not problem.choices.admits_recomputed(asked, count):
        return f"{asked} layers, allowed are {sorted(problem.choices.recomputed or ())}"
    return None


def _sharding_violations(problem: Problem, plan: Plan, at: int) -> Iterator[Violation]:
    """Yield what a stage shards otherwise than allowed, the first fault of each."""
    sharding, allowed = plan.stages[at].sharding, problem.choices.zero
    inside = problem.preset.sharding == "stage"
    if sharding.zero not in allowed:
        yield Violation("sharding", f"stage {at} uses ZeRO-{sharding.zero}, allowed are {sorted(allowed)}")
    elif inside and sharding.kind == "replicas":
        yield Violation("sharding", f"stage {at} shards over replicas, which {problem.preset.name!r} does not price")
    elif inside and sharding.splits_batch:
        yield Violation("sharding", f"stage {at} splits the batch, which {problem.preset.name!r} does not price")
    elif not inside and (what := _wrong_inside(problem, plan, at)):
        yield Violation("sharding", f"stage {at} {what}")
    elif sharding.degree > 1 and (inside or sharding.kind == "replicas") and not _is_degree(problem, plan, at):
        yield Violation("sharding", f"stage {at} shards over {sharding.degree}, which is no allowed degree")


def _wrong_inside(problem: Problem, plan: Plan, at: int) -> str | None:
    """Return why a stage may not be sharded inside so, or has to be; None where it may."""
    choices, stage = problem.choices, plan.stages[at]
    degrees = choices.shard_inside or frozenset({1})
    if of_own_widths(problem, plan) and stage.inside not in degrees:
        return f"takes {stage.inside} times its devices, stages may be sharded inside over {sorted(degrees)}"
    split = stage.sharding.splits_batch
    if stage.inside > 1 and choices.splits_batch not in (None, split):
        return f"{'splits' if split else 'does not split'} the batch, splits_batch is {str(not split).lower()}"
    return None


def sharing_replicas(problem: Problem, plan: Plan, at: int) -> int:
    """Return how many neighbouring replicas share a stage's weights between them (rule C7).

    All of them where the stage shards over no replicas, or over a number of ranks that is not legal; 1 where it is
    sharded inside.
    """
    if problem.preset.sharding == "replicas" and plan.stages[at].inside > 1:
        return 1
    each, (zero, degree) = problem.copy_ranks(plan.variant, 1)[0], priced_sharding(problem, plan.stages[at])
    legal = zero and degree % each == 0 and plan.replicas % (degree // each) == 0
    return degree // each if legal else plan.replicas


def _is_degree(problem: Problem, plan: Plan, at: int) -> bool:
    """Whether a stage may shard over so many ranks."""
    degree = plan.stages[at].sharding.degree
    if problem.preset.sharding == "stage":
        return degree in problem.zero_degrees(plan.variant.width)
    each = problem.copy_ranks(plan.variant, 1)[0]
    return degree in {each * size for size in problem.shard_groups(plan.variant, plan.replicas)}


def chunk_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Yield violations of ``chunks``: an allowed number, several stages, and equal parts."""
    chunks, stages, allowed = plan.chunks, len(plan.stages), problem.choices.chunks
    if (chunks > 1) != (plan.schedule == "interleaved") or chunks < 1:
        yield Violation("chunks", f"{chunks} under {plan.schedule}: interleaved has 2 or more, every other schedule 1")
    elif chunks > 1 and allowed is not None and chunks not in allowed:
        yield Violation("chunks", f"{chunks}, allowed are {sorted(allowed)}")
    elif chunks > 1 and stages == 1:
        yield Violation("chunks", f"{chunks} of one stage: interleaved has several stages")
    elif chunks > 1 and _part_ends(problem.graphs[plan.variant], plan) != (
        due := problem.graphs[plan.variant].equal_parts(chunks * stages)
    ):
        ends = "none divide the layers" if due is None else f"equal ones end at {', '.join(map(str, due))}"
        yield Violation("chunks", f"the {chunks * stages} parts are not equal: {ends}")


def _part_ends(graph: LayerGraph, plan: Plan) -> tuple[int, ...]:
    """Return how many layers the first 1, 2, ... parts hold, in the order of the pipeline."""
    parts = [plan.parts(graph, at) for at in range(len(plan.stages))]
    return tuple(accumulate(len(each[chunk]) for chunk in range(plan.chunks) for each in parts if chunk < len(each)))


def cover_violations(graph: LayerGraph, plan: Plan) -> Iterator[Violation]:
    """Yield violations of ``cover`` and ``order``: every layer once, and each edge within a stage or to a later one."""
    index = graph.index
    placed = [index[name] for stage in plan.stages for name in stage.layers]
    if sorted(placed) != list(range(len(graph))) or not all(stage.layers for stage in plan.stages):
        missing = sorted(set(range(len(graph))) - set(placed))
        what = (
            f"layer {graph.layers[missing[0]].id!r} is in no stage" if missing else "a layer is twice or a stage empty"
        )
        yield Violation("cover", what)
    else:
        yield from _order_violations(graph, plan)


def _order_violations(graph: LayerGraph, plan: Plan) -> Iterator[Violation]:
    """Yield the first violation of ``order``: an edge that leads back, or a stage whose layers are out of order."""
    if plan.chunks > 1 and plan.schedule == "interleaved":
        yield from _part_violations(graph, plan)
        return
    if graph.unordered_pair is None:
        if [name for stage in plan.stages for name in stage.layers] != [layer.id for layer in graph.layers]:
            yield Violation("order", "the stages do not follow the order of the layers")
        return
    stages = plan.stages_of(graph)
    for source, target in graph.places:
        if stages[source] > stages[target]:
            names = graph.layers[source].id, graph.layers[target].id
            what = f"layer {names[0]!r} of stage {stages[source]} sends to {names[1]!r} of stage {stages[target]}"
            yield Violation("order", f"{what}, which is before it")
            return
    for at, stage in enumerate(plan.stages):
        places = [graph.index[name] for name in stage.layers]
        if places != sorted(places):
            yield Violation("order", f"stage {at} does not list its layers in the order of the model")
            return


def _part_violations(graph: LayerGraph, plan: Plan) -> Iterator[Violation]:
    """Yield the first violation of ``order`` by chunks: microbatches pass chunk 0 of all stages, then chunk 1."""
    if graph.unordered_pair is not None:
        yield Violation("order", f"{plan.chunks} chunks of a model that branches")
        return
    parts = [plan.parts(graph, at) for at in range(len(plan.stages))]
    for at, each in enumerate(parts):
        if len(each) != plan.chunks:
            yield Violation("order", f"the layers of stage {at} are in {len(each)} rows, for {plan.chunks} chunks")
            return
    if [place for chunk in range(plan.chunks) for each in parts for place in each[chunk]] != list(range(len(graph))):
        yield Violation("order", "the chunks do not follow the order of the layers")


def placement_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Yield violations of ``block``, ``placement`` and ``devices``."""
    for at, stage in enumerate(plan.stages):
        due = stage.form(plan.variant).width
        if stage.devices != due:
            yield Violation("block", f"stage {at} has {stage.devices} devices, its widths make {due}")
    stands, own = _stands_uneven(problem, plan), of_own_widths(problem, plan)
    if own and not stands:
        widths = ", ".join(str(stage.devices) for stage in plan.stages)
        yield Violation("placement", f"stages of {widths} devices start, or replicas follow, where they may not")
    elif not own and not (stands and _may_be_uneven(problem, plan)):
        yield from _placing_violations(problem, plan)
    yield from _device_violations(problem, plan)


def _stands_uneven(problem: Problem, plan: Plan) -> bool:
    """Whether stages stand as those with tensor widths of their own may."""
    widths, firsts = [stage.devices for stage in plan.stages], tuple(stage.first_device for stage in plan.stages)
    if min(widths) < 1 or plan.replicas < 1 or plan.line != EVERY:
        return False
    cluster = problem.cluster
    if plan.arrangement == "stage-major":
        groups = groups_to_begin_with(cluster.group_sizes, cluster.devices)
        allowed = {starts_of(widths, plan.replicas, group) for group in groups}
        return firsts in allowed and plan.replica_stride == plan.variant.width
    apart = strides(widths, cluster.devices)
    return plan.arrangement == "replica-major" and firsts == starts_of(widths) and plan.replica_stride in apart


def _placing_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Rule ``placement`` for stages of one width: an arrangement of the preset, in one of its placings."""
    arrangements = problem.preset.arrangements
    yield from _line_violations(problem, plan)
    allowed = _places_due(problem, plan, plan.arrangement if plan.arrangement in arrangements else arrangements[0])
    firsts = tuple(stage.first_device for stage in plan.stages)
    due = firsts if firsts in {each for each, _ in allowed} else allowed[0][0]
    for at, (first, start) in enumerate(zip(firsts, due, strict=True)):
        if first != start:
            yield Violation("placement", f"stage {at} starts at {first}, not at {start}")
    strides = list(dict.fromkeys(stride for starts, stride in allowed if starts == due))
    if plan.arrangement not in arrangements or plan.replica_stride not in strides:
        places = " or ".join(repr(each) for each in arrangements)
        yield Violation(
            "placement",
            f"arrangement {plan.arrangement!r} with stride {plan.replica_stride}; preset {problem.preset.name!r} "
            f"places {places} with stride {' or '.join(map(str, strides))}",
        )


def _places_due(problem: Problem, plan: Plan, arrangement: Arrangement) -> list[tuple[tuple[int, ...], int]]:
    """Return where the stages of replica 0 may start under an arrangement, and the stride of the replicas then."""
    if arrangement == "replica-major-reversed":
        ends = list(accumulate(stage.devices for stage in reversed(plan.stages)))
        return [(tuple(reversed([0, *ends[:-1]])), ends[-1])]
    shape = Shape(max(1, plan.stages[0].devices), len(plan.stages), plan.replicas)
    length = plan.line.length(problem.cluster.devices)
    found = placings(arrangement, shape, length, problem.cluster.group_sizes)
    starts = (plan.line.devices(np.array(each.starts(shape.stages), dtype=np.int64)).tolist() for each in found)
    return [(tuple(each), placing.stride) for each, placing in zip(starts, found, strict=True)]


def _line_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Rule ``placement``: a plan leaves out devices only around reserved ones, in blocks or whole groups."""
    reserved, cluster = Filters(problem).reserved, problem.cluster
    allowed = lines(cluster, plan.variant.width, reserved) if problem.preset.idles else (EVERY,)
    if plan.line.left_out not in {line.left_out for line in allowed}:
        yield Violation("placement", f"the plan leaves out {_left_out(plan.line)}; allowed: {_left_out(*allowed)}")
    elif plan.line not in allowed:
        what = f"the plan takes devices in the order {_shown(plan.line.order)}"
        yield Violation("placement", f"{what}; allowed: {' or '.join(_shown(line.order) for line in allowed)}")


def _left_out(*lines: Line) -> str:
    shown = dict.fromkeys(_shown(line.left_out) if line.left_out else "" for line in lines)
    return " or ".join(f"devices {text}" if text else "no device" for text in shown)


def _shown(ranges: Ranges) -> str:
    return " and ".join(f"{first} to {end - 1}" for first, end in ranges) or "of their numbers"


def _device_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Rule ``devices``: every device of every replica is one of the cluster, and every stage has one."""
    blocks = [plan.starts(at) for at in range(len(plan.stages)) if plan.replicas > 0]
    low = min((int(each.min()) for each in blocks), default=0)
    lasts = (int(each.max()) + stage.devices - 1 for each, stage in zip(blocks, plan.stages, strict=False))
    high = max(lasts, default=0)
    if min(stage.devices for stage in plan.stages) < 1:
        yield Violation("devices", "a stage has no device")
    elif low < 0 or high >= problem.cluster.devices:
        yield Violation("devices", f"the plan uses devices {low} to {high} of a cluster of {problem.cluster.devices}")


def memory_violations(problem: Problem, scale: Scale, figures: tuple[StageFigures, ...]) -> Iterator[Violation]:
    """Yield violations of ``memory``."""
    for at, stage in enumerate(figures):
        limit = problem.cluster.hbm_bytes_of(stage.classes)
        if stage.memory > quanta(limit, scale.quanta_per_byte):
            have = bytes_of(stage.memory, scale.quanta_per_byte)
            yield Violation("memory", f"stage {at} needs {have} bytes on each device, a device has {limit}")


def range_violations(scale: Scale, load: int, objective: int) -> Iterator[Violation]:
    """Yield violations of ``range``."""
    if load >= LONGEST or objective >= HARD_LIMIT:
        taken, limit = scale.time.seconds(objective), scale.time.seconds(HARD_LIMIT)
        yield Violation("range", f"an iteration takes {taken:.3g} s or more, beyond the {limit:.3g} s that ticks count")


def priced_sharding(problem: Problem, stage: Stage) -> tuple[int, int]:
    """Return ZeRO type and degree of a stage, as far as its sharding is of the kind that the preset prices."""
    sharding = stage.sharding
    return (sharding.zero, sharding.degree) if sharding.kind in (problem.preset.sharding, "stage") else (0, 1)
