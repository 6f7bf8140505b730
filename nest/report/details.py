"""What the figures of stages consist of, as tables: loads by what takes the time, memory by what is held."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.table import Table

from nest.breakdown import LoadParts, MemoryParts
from nest.constraints import Filters
from nest.report.figures import PricedPlan
from nest.report.format import duration, level_name, number_range, number_ranges, percent, share, size
from nest.report.layout import Column, ruled_table
from nest.report.stage_table import groups, stage_name

LOAD_NAMES = {
    "compute": "Compute",
    "recompute": "Recomp",
    "tensor": "Tensor",
    "context": "Context",
    "expert": "Expert",
    "transfer": "P2P",
    "sharding": "ZeRO",
}
"""Heads of the parts of a load."""

MEMORY_NAMES = {
    "weights": "Weights",
    "gradients": "Grads",
    "optimizer": "Optimizer",
    "activations": "Activ.",
    "working": "Working",
    "overhead": "Reserve",
    "stepping": "Stepping",
}
"""Heads of the parts of memory."""

SPENT_NAMES = {
    "compute": "compute",
    "recompute": "recomputation",
    "tensor": "tensor",
    "context": "context",
    "expert": "expert",
    "transfer": "p2p",
    "sharding": "ZeRO",
    "bubble": "bubble",
    "sync": "sync",
    "step": "optimizer step",
}
"""Names of the parts of an iteration in a line of text."""


def load_table(priced: PricedPlan) -> Table:
    """Return a row for each stage, or for several that are alike: what its load consists of."""

    def cells(at: int, names: Sequence[str]) -> list[str]:
        """Return the named parts of the load of a stage, and all of it."""
        parts = priced.loads[at].as_dict()
        return [_time(priced, parts[name]) for name in names] + [_time(priced, priced.loads[at].total)]

    return _table(priced, LOAD_NAMES, LoadParts, ("Load",), cells)


def memory_table(priced: PricedPlan) -> Table:
    """Return a row for each stage, or the fullest of several that are alike: what each of its devices holds."""

    def cells(at: int, names: Sequence[str]) -> list[str]:
        """Return the named parts of the memory of a stage, all of it, and the share of the device."""
        parts, total = priced.memory[at].as_dict(), priced.bytes(priced.memory[at].total)
        held = [size(priced.bytes(parts[name]), aligned=True) if parts[name] else "-" for name in names]
        return [*held, size(total, aligned=True), percent(total, priced.capacity(at))]

    return _table(priced, MEMORY_NAMES, MemoryParts, ("Total", "Of device"), cells)


def crossing_table(priced: PricedPlan) -> Table:
    """Return a row for each level: the bytes that an iteration sends over it or one outside it, and their mean."""
    devices = priced.devices_used - priced.devices_idle
    columns = [Column("Level"), *(Column(name, number=True) for name in ("Bytes", "Of each device"))]
    rows = [
        (level_name(priced.problem.cluster, at), f"{sent:,}", size(sent / devices, aligned=True))
        for at, sent in enumerate(priced.crossing)
    ]
    return ruled_table(columns, rows)


def spent_text(priced: PricedPlan) -> str:
    """Return the shares of an iteration, the largest first, and nothing that takes no time."""
    parts = {SPENT_NAMES[name]: ticks for name, ticks in priced.spent.as_dict().items() if ticks}
    largest = sorted(parts.items(), key=lambda each: -each[1])
    return ", ".join(f"{name} {share(ticks, priced.objective_ticks)}" for name, ticks in largest)


def _table(
    priced: PricedPlan,
    heads: Mapping[str, str],
    kind: type[LoadParts] | type[MemoryParts],
    last: tuple[str, ...],
    cells: Callable[[int, Sequence[str]], list[str]],
) -> Table:
    """Return a table with a column for each part that any stage has."""
    every = priced.loads if kind is LoadParts else priced.memory
    names = [name for name in heads if any(getattr(each, name) for each in every)]
    columns = [Column("Stage"), *(Column(heads[name], number=True) for name in names)]
    columns += [Column(name, number=True) for name in last]
    rows = [(stage_name(priced, group), *cells(_fullest(priced, group), names)) for group in groups(priced)]
    return ruled_table(columns, rows)


def _fullest(priced: PricedPlan, group: range) -> int:
    return max(group, key=lambda at: priced.evaluation.stages[at].memory)


def _time(priced: PricedPlan, ticks: int) -> str:
    return duration(priced.seconds(ticks), aligned=True) if ticks else "-"


def line_text(priced: PricedPlan) -> str:
    """Say in which order a plan takes devices, where not in that of their numbers, and what it leaves out for which."""
    left_out, order = (", ".join(number_range(first, end - 1) for first, end in each) for each in priced.plan.line)
    reserved = number_ranges(sorted(Filters(priced.problem).reserved))
    why = f"stands around reserved {reserved}: " if reserved else "takes whole blocks: "
    said = [f"in the order {order}"] if order else []
    return "; ".join([*said, f"{why}leaves out {left_out}"] if left_out else said)
