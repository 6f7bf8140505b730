"""The stages: what each works on, where it stands, what its time and its memory go to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from nest.breakdown import LoadParts, MemoryParts
from nest.report.figures import PricedPlan
from nest.report.format import counted, duration, layer_range, level_name, number_range, percent, size
from nest.report.page.bars import LOADS, MEMORY, inline, legend, stacked
from nest.report.page.facts import Reported
from nest.report.page.html import Child, Html, folded, section, table, tag
from nest.report.stage_table import groups, recompute_text, sharding_text


def stages_section(report: Reported) -> Html:
    """Return bars of load and memory for each stage, or for several that are alike, and all figures as a table."""
    priced = report.priced
    rows = groups(priced)
    capacity = " or ".join(dict.fromkeys(size(priced.capacity(at)) for at in range(len(priced.plan.stages))))
    lead = (
        f"Load: what one microbatch keeps a stage busy with; the slowest sets the pace. "
        f"Memory: what each device holds of its {capacity}."
    )
    heads = tag(
        "div",
        tag("span", "Stage"),
        tag("span", f"Load, up to {duration(priced.load_s)}"),
        tag("span", f"Memory, limit {capacity}"),
        class_="row heads",
        aria_hidden="true",
    )
    return section(
        "stages",
        "Stages",
        lead,
        tag(
            "div", heads, *(_row(priced, group) for group in rows), class_="stages many" if len(rows) > 16 else "stages"
        ),
        tag("div", legend(LOADS, _used(priced.loads)), legend(MEMORY, _used(priced.memory)), class_="legends"),
        folded("Layers and devices as a table", _place_table(priced, rows)),
        folded("Load as a table", _load_table(priced, rows)),
        folded("Memory as a table", _memory_table(priced, rows)),
    )


def _used(parts: tuple[LoadParts, ...] | tuple[MemoryParts, ...]) -> Mapping[str, int]:
    sums: Counter[str] = Counter()
    for each in parts:
        sums.update(each.as_dict())
    return sums


def _row(priced: PricedPlan, group: range) -> Html:
    """Return a row: the name of a stage, its load, and the memory of the fullest of those that are alike."""
    fullest = max(group, key=lambda at: priced.evaluation.stages[at].memory)
    name = number_range(group.start, group.stop - 1)
    layers = layer_range([name for at in group for name in priced.plan.stages[at].layers])
    place = tag(
        "div",
        tag("strong", name),
        tag("small", f"layers {layers}", title=layers),
        class_="name",
    )
    return tag("div", place, _load(priced, group.start, name), _memory(priced, fullest, name), class_="row")


def _load(priced: PricedPlan, at: int, name: str) -> Html:
    parts = priced.loads[at].as_dict()
    texts = {part: duration(priced.seconds(ticks)) for part, ticks in parts.items()}
    total = duration(priced.evaluation.loads_s[at], aligned=True)
    label = f"Stage {name}, load {total}: {_listed(LOADS, texts, parts)}"
    slowest = max(each.total for each in priced.loads)
    text = tag("span", total, tag("em", " slowest") if at in priced.slowest else None)
    return tag("div", stacked(parts, slowest or 1, LOADS, texts, label=label), text, class_="cell")


def _memory(priced: PricedPlan, at: int, name: str) -> Html:
    parts, capacity = priced.memory[at].as_dict(), priced.capacity(at)
    held = {part: priced.bytes(quanta) for part, quanta in parts.items()}
    texts = {part: size(count) for part, count in held.items()}
    total = priced.bytes(priced.memory[at].total)
    label = f"Stage {name}, memory {size(total)} of {size(capacity)}: {_listed(MEMORY, texts, parts)}"
    most = max(*(priced.capacity(each) for each in range(len(priced.memory))), *priced.evaluation.memory_bytes)
    limit = tag("i", class_="limit", style=f"left:{100 * capacity / most:.2f}%", aria_hidden="true")
    whole = priced.evaluation.scale.quanta_per_byte * most
    track = tag("div", stacked(parts, whole, MEMORY, texts, label=label), limit, class_="track")
    text = f"{size(total, aligned=True)} · {percent(total, capacity)}"
    return tag("div", track, tag("span", text, class_="over" if total > capacity else None), class_="cell")


def _listed(names: Mapping[str, str], texts: Mapping[str, str], parts: Mapping[str, int]) -> str:
    return ", ".join(f"{inline(names[part])} {texts[part]}" for part in names if parts[part])


def _place_table(priced: PricedPlan, rows: list[range]) -> Html:
    heads = ["Stage", "Layers", "Number", "Devices of replica 0", "Recomputes", "ZeRO", "To the next"]
    if priced.plan.uneven:
        heads.insert(4, "Tensor width")
    heads += ["Class"] if priced.problem.cluster.classes else []
    return table(heads, map(list, _places(priced, rows)), caption="Layers and devices of each stage", numbers_from=9)


def _places(priced: PricedPlan, rows: list[range]) -> Iterator[list[Child]]:
    for group in rows:
        stages = priced.plan.stages[group.start : group.stop]
        first = [stage.first_device for stage in stages]
        level = priced.boundaries[group.start : group.start + 1]
        yield [
            number_range(group.start, group.stop - 1),
            layer_range([name for stage in stages for name in stage.layers]),
            counted(len(stages[0].layers), "layer") + (" each" if len(stages) > 1 else ""),
            number_range(min(first), max(first) + stages[0].devices - 1),
            *([str(stages[0].variant(priced.plan.variant).tensor)] if priced.plan.uneven else []),
            recompute_text(priced.problem, priced.plan, stages[0]),
            sharding_text(priced.problem, priced.plan, stages[0]),
            level_name(priced.problem.cluster, level[0]) if level else "-",
            *([priced.classes_text(group.start)] if priced.problem.cluster.classes else []),
        ]


def _load_table(priced: PricedPlan, rows: list[range]) -> Html:
    used = _used(priced.loads)
    names = [name for name in LOADS if used[name]]
    cells: list[list[Child]] = []
    for group in rows:
        parts = priced.loads[group.start].as_dict()
        times = [duration(priced.seconds(parts[name]), aligned=True) for name in names]
        total = duration(priced.evaluation.loads_s[group.start], aligned=True)
        cells.append([number_range(group.start, group.stop - 1), *times, total])
    heads = ["Stage", *(LOADS[name] for name in names), "Load"]
    return table(heads, cells, caption="What one microbatch keeps each stage busy with")


def _memory_table(priced: PricedPlan, rows: list[range]) -> Html:
    used = _used(priced.memory)
    names = [name for name in MEMORY if used[name]]
    cells: list[list[Child]] = []
    for group in rows:
        fullest = max(group, key=lambda at: priced.evaluation.stages[at].memory)
        parts, total = priced.memory[fullest].as_dict(), priced.evaluation.memory_bytes[fullest]
        sizes = [size(priced.bytes(parts[name]), aligned=True) for name in names]
        numbers = number_range(group.start, group.stop - 1)
        cells.append([numbers, *sizes, size(total, aligned=True), percent(total, priced.capacity(fullest))])
    heads = ["Stage", *(MEMORY[name] for name in names), "Total", "Of the device"]
    return table(heads, cells, caption="What each device of a stage holds")
