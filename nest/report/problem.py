"""Text for a terminal: what was read from a problem, so that a person can check that it says what it should."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table

from nest.cluster import PLAIN_LIBRARY, PLAIN_LINK, Level, Technology
from nest.graph import Layer
from nest.problem import Problem
from nest.report.facts import VariantFacts, choice_values, variant_facts
from nest.report.format import (
    bandwidth,
    count,
    counted,
    duration,
    layer_range,
    level_name,
    number_range,
    short_widths,
    size,
)
from nest.report.layout import Column, Screen, Summary, render, ruled_table

_MOST_ROWS = 12
"""More variants than this are put together by tensor width; of more kinds of layers the rest is counted."""


def problem_text(problem: Problem, screen: Screen) -> str:
    """Return what was read from a problem's file."""
    facts = variant_facts(problem)
    summary = Summary()
    summary.add("Problem", problem.name)
    summary.add("Source", problem.source)
    summary.add("Preset", problem.preset.name)
    summary.add("Cluster", _cluster(problem))
    training = problem.training
    batch = (training.global_batch, "sequence") if training.global_batch else (training.microbatches, "microbatch")
    summary.add("Training", f"{counted(*batch)}, {training.optimizer}")
    summary.add("Choices", _choices(problem))
    summary.extend("Asked for", (f"{each.kind}: {each.text}" for each in problem.constraints))
    aside = ", side constraints aside" if problem.constraints else ""
    plans = f"{count(sum(variant.plans for variant in facts))} plans{_counted(problem)}"
    summary.add("Space", f"{plans} fit on the devices{aside}")
    return render(screen, summary.table, "", _level_table(problem), "", *_layers(problem), "", *_variants(facts))


def _counted(problem: Problem) -> str:
    """Return which plans are counted, where that is not all of them."""
    if problem.choices.uneven:
        return " whose stages are all of one width"
    branches = any(graph.unordered_pair is not None for graph in problem.graphs.values())
    return " along one order of the layers" if branches else ""


def _layers(problem: Problem) -> Iterator[RenderableType]:
    """Yield the layers of the narrowest variant, equal ones in one row."""
    variant = min(problem.variants, key=lambda each: (each.width, each.microbatch))
    kinds = _alike(problem.graphs[variant].layers)
    rows = [
        (
            layer_range([each.id for each in layers]),
            count(len(layers)),
            layers[0].kind or "-",
            size(layers[0].parameter_bytes, aligned=True),
            size(layers[0].activation_bytes, aligned=True),
            duration(layers[0].forward_s, aligned=True),
            duration(layers[0].backward_s, aligned=True),
        )
        for layers in kinds[:_MOST_ROWS]
    ]
    columns = [Column("Layers", folds=True, least=8), Column("Number", number=True), Column("Kind")]
    heads = ("Parameters", "Kept", "Forward", "Backward")
    yield ruled_table([*columns, *(Column(head, number=True) for head in heads)], rows)
    more = len(kinds) - _MOST_ROWS
    rest = f" Layers of {more} more kinds are not shown." if more > 0 else ""
    of_class = f" of class {problem.cluster.own_class}" if problem.cluster.classes else ""
    yield f"Each layer, on one device{of_class}, under {short_widths(variant)} (tensor x expert x context).{rest}"


def _alike(layers: Iterable[Layer]) -> list[list[Layer]]:
    """Return layers with the same figures together, in the order of the first of them."""
    found: dict[object, list[Layer]] = {}
    for each in layers:
        figures = (each.kind, each.parameter_bytes, each.activation_bytes, each.forward_s, each.backward_s)
        found.setdefault(figures, []).append(each)
    return list(found.values())


def _variants(facts: Sequence[VariantFacts]) -> Iterator[RenderableType]:
    """Yield the variants, one a row, or those of a tensor width in one where there are many."""
    if len(facts) <= _MOST_ROWS:
        yield _variant_table(facts)
        yield "Widths: tensor x expert x context. Sizes and times: one device, all layers."
    else:
        yield _width_table(facts)
        yield f"{counted(len(facts), 'variant')}, each with --json. Sizes: the least of a row, one device, all layers."


def _variant_table(facts: Iterable[VariantFacts]) -> Table:
    rows = [
        (
            short_widths(each.variant),
            count(each.layers),
            size(each.parameter_bytes, aligned=True),
            size(each.activation_bytes, aligned=True),
            duration(each.forward_s, aligned=True),
            duration(each.backward_s, aligned=True),
            count(each.plans),
        )
        for each in facts
    ]
    return _number_table("Widths", ("Layers", "Parameters", "Activations", "Forward", "Backward", "Plans"), rows)


def _width_table(facts: Iterable[VariantFacts]) -> Table:
    """Return a row for each tensor width, with and without sequence parallel."""
    groups: dict[tuple[int, bool], list[VariantFacts]] = {}
    for each in facts:
        groups.setdefault((each.variant.tensor, each.variant.sequence), []).append(each)
    rows = [
        (
            count(tensor),
            "yes" if sequence else "no",
            _spanned(each.variant.expert for each in group),
            _spanned(each.variant.context for each in group),
            _spanned(each.variant.microbatch for each in group),
            size(min(each.parameter_bytes for each in group), aligned=True),
            size(min(each.activation_bytes for each in group), aligned=True),
            count(sum(each.plans for each in group)),
        )
        for (tensor, sequence), group in sorted(groups.items())
    ]
    heads = ("Seq. par", "Expert", "Context", "Microbatch", "Weights", "Kept", "Plans")
    return _number_table("Tensor", heads, rows)


def _spanned(values: Iterable[int]) -> str:
    """Return the least and the most of some numbers, one where they are the same."""
    found = sorted(set(values))
    return number_range(found[0], found[-1])


def _cluster(problem: Problem) -> str:
    cluster = problem.cluster
    name = f"{cluster.name}: " if cluster.name else ""
    places = cluster.group_sizes[-1]
    missing = f", places for {count(places)}" if places > cluster.devices else ""
    library = "" if cluster.library == PLAIN_LIBRARY else f", collectives by {cluster.library}"
    kinds = [(cluster.own_class, cluster.hbm_bytes), *((each.name, each.hbm_bytes) for each in cluster.classes)]
    each = (f"{count(cluster.count_of(kind))} {kind} of {size(memory)}" for kind, memory in kinds)
    held = f": {', '.join(each)}" if cluster.classes else f" of {size(cluster.hbm_bytes)}"
    return f"{name}{counted(cluster.devices, 'device')}{held}{missing}{library}"


def _choices(problem: Problem) -> str:
    """List what is not free to choose."""
    values = choice_values(problem.choices)
    if problem.preset.recompute != "choices":
        del values["recompute"]  # which the preset leaves to something else
    if problem.choices.hybrid:
        del values["hybrid"]
    if problem.choices.shard_inside is None:
        del values["splits_batch"]
    if problem.choices.schedules == {"1f1b"}:
        del values["schedules"]
    fixed = [f"{name} {_choice(value)}" for name, value in values.items() if value not in (None, [0, 1, 2, 3])]
    return "; ".join([*fixed, "everything else free"])


def _choice(value: object) -> str:
    return ", ".join(str(each) for each in value) if isinstance(value, list) else str(value).lower()


def _level_table(problem: Problem) -> Table:
    cluster, rows = problem.cluster, []
    for at, level in enumerate(cluster.levels):
        name, sizes = level_name(cluster, at), (count(level.fanout), count(cluster.group_sizes[at]))
        if not level.alternatives:
            rows.append((_linked(name, level), *sizes, *_figures(level)))
        for each in level.alternatives:
            rows.append((_linked(f"{name}: {each.name}", each), *sizes, *_figures(each)))
    return _number_table("Level", ("Fan-out", "Devices", "Bandwidth", "Latency"), rows)


def _figures(links: Level | Technology) -> tuple[str, str]:
    return bandwidth(links.bandwidth_bytes_per_s), duration(links.latency_s)


def _linked(name: str, links: Level | Technology) -> str:
    return name if links.link == PLAIN_LINK else f"{name} ({links.link})"


def _number_table(name: str, headers: Iterable[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of numbers, each row of which begins with a name."""
    return ruled_table([Column(name, folds=True), *(Column(header, number=True) for header in headers)], rows)
