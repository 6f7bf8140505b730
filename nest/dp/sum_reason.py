"""Why no plan exists under the objective `sum`: the reason that rules out the most, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nest.dp.agenda import settle_sums
from nest.dp.incumbent import First
from nest.dp.uneven_search import settle_uneven
from nest.dp.watch import Watch
from nest.problem import Problem, Variant
from nest.tables import GroupedTables, InsideTables, Tables
from nest.tables.alone import alone
from nest.units import bytes_of, quanta

UNCUT = 1.0
"""How far a variant is from having a plan of which each layer fits a device, but no cut does."""


def why_no_sum(tables: Tables) -> str | None:
    """Return why no plan exists, or None where one does but for the side constraints."""
    problem = tables.problem
    plain = Tables(problem.with_constraints(), tables.scale) if tables.filters.local else tables
    first = First()
    settle_sums(plain, Watch(None, None, first))
    if not first.found:
        settle_uneven(plain, Watch(None, None, first))
    if first.found:
        return None
    inside = (form for each in plain.uneven for form in each.forms if isinstance(form, InsideTables))
    reasons = [*_missing(problem, plain), *(_why(each) for each in [*plain.grouped, *inside])]
    text, least = min(reasons, key=lambda reason: reason[1])
    if least == UNCUT or len(reasons) == 1:
        return text
    alike = all(excess == least for _, excess in reasons)
    return f"{text} ({'other variants are no closer' if alike else 'no other variant is closer'} to fitting)"


def _missing(problem: Problem, tables: Tables) -> Iterator[tuple[str, float]]:
    """Yield why variants have no tables, and how far each is from having a plan: needed over available."""
    made = {each.variant for each in tables.grouped}
    for variant in problem.variants:
        if variant in made:
            continue
        if pair := problem.unnested(variant):
            text = f"groups of {pair[0]} devices do not nest with groups of {pair[1]} of the network"
            yield f"{_variant(variant)}: {text}", float("inf")
        else:
            devices = problem.cluster.devices
            text = f"a stage takes {variant.width} devices, the cluster has {devices}"
            yield f"{_variant(variant)}: {text}", variant.width / devices


def _variant(variant: Variant) -> str:
    return f"variant {variant}"


def _name(tables: GroupedTables) -> str:
    if not isinstance(tables, InsideTables):
        return _variant(tables.variant)
    split = ", with a part of the batch on each" if tables.form.splits else ""
    return f"{_variant(tables.form.whole)}, sharded inside over {tables.form.inside}{split}"


def _why(tables: GroupedTables) -> tuple[str, float]:
    choices, blocks = tables.problem.choices, tables.devices // tables.width
    name = _name(tables)
    if choices.stages is not None and min(choices.stages) > min(tables.layers, blocks):
        asked, most = min(choices.stages), min(tables.layers, blocks)
        text = f"{asked} stages are asked for, there are {tables.layers} layers and room for {blocks} stages"
        return f"{name}: {text}", asked / most
    most = min(tables.microbatches, blocks)
    if choices.replicas is not None and min(choices.replicas) > most:
        asked = min(choices.replicas)
        text = f"{asked} replicas are asked for, there are {tables.microbatches} microbatches and room for {blocks}"
        return f"{name}: {text}", asked / most
    return _devices(tables, blocks) or _chunks(tables, blocks) or _memory(tables, most)


def _devices(tables: GroupedTables, blocks: int) -> tuple[str, float] | None:
    """Say that stages and replicas that there is room for one by one take too many devices together."""
    choices, width = tables.problem.choices, tables.width
    stages, replicas = min(choices.stages or {1}), min(choices.replicas or {1})
    if stages * replicas <= blocks:
        return None
    taken = f"stages x replicas x width, {stages} x {replicas} x {width}, are {stages * replicas * width} devices"
    return f"{_name(tables)}: {taken}, the cluster has {tables.devices}", stages * replicas / blocks


def _chunks(tables: GroupedTables, blocks: int) -> tuple[str, float] | None:
    """Say that nothing divides the layers as interleaving asks for (C16), where nothing else is allowed."""
    choices, graph, count = tables.problem.choices, tables.graph, tables.layers
    if choices.schedules != {"interleaved"}:
        return None
    stages = [each for each in range(2, min(count, blocks) + 1) if choices.stages is None or each in choices.stages]
    chunks = [each for each in range(2, count + 1) if choices.chunks is None or each in choices.chunks]
    if any(graph.equal_parts(each * number) for each in stages for number in chunks):
        return None
    left = count - sum(graph.riding)
    if not stages:
        text = f"interleaved takes 2 stages at least, and there are {count} layers and room for {blocks}"
        return f"{_variant(tables.variant)}: {text}", float("inf")
    text = f"interleaved, and no two or more stages of two or more chunks that are allowed divide {left} layers"
    return f"{_variant(tables.variant)}: {text}", max(2.0, stages[0] * min(chunks, default=2) / left)


def _memory(tables: GroupedTables, replicas: int) -> tuple[str, float]:
    """Name the layer that needs the most memory alone, in the last stage, or say that no cut of the layers fits.

    There are as many replicas as there can be, and the stage shards and recomputes in the way that leaves the least.
    """
    name, capacity, options = _name(tables), tables.capacity, tables.options(replicas, 1)
    if not options:
        return f"{name}: every stage has to shard, and no degree is allowed that its replicas make", float("inf")
    needs = np.minimum.reduce([alone(tables, option) for option in options])
    worst = int(np.argmax(needs))
    have, beside = _bytes(tables, max(capacity, 0)), _beside_reserve(tables)
    if needs[worst] <= capacity:
        text = f"no cut of the layers fits the {have} that are free on a device{beside}, though each layer alone does"
        return f"{text}: not with the others of its stage and the microbatches in flight", UNCUT
    layer, needed = tables.graph.layers[worst].id, _bytes(tables, int(needs[worst]))
    needing = f"the stage that holds layer {layer!r} needs at least {needed} on each device"
    text = f"{needing}, {have} are free on one{beside}"
    return f"{name}: {text}", int(needs[worst]) / max(capacity, 1)


def _beside_reserve(tables: GroupedTables) -> str:
    """Say what is kept in reserve, which is not free."""
    reserve = quanta(tables.problem.training.overhead_bytes, tables.scale.quanta_per_byte)
    size = bytes_of(reserve, tables.scale.quanta_per_byte)
    said = f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size:,} bytes"
    return f" beside the reserve of {said}" if reserve else ""


def _bytes(tables: GroupedTables, count: int) -> str:
    size = bytes_of(count, tables.scale.quanta_per_byte)
    return f"{size:,} bytes ({size / 2**30:.1f} GiB)" if size >= 2**30 else f"{size:,} bytes"
