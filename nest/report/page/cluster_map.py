"""The cluster: which stage stands on which devices, and how long the ways up from each group carry something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from nest.breakdown import Uplink, uplinks
from nest.report.figures import PricedPlan
from nest.report.format import bandwidth, count, counted, duration, level_name, number_range, share, size
from nest.report.page.facts import Reported
from nest.report.page.html import Child, Html, folded, section, table, tag

MOST_GROUPS = 2048
"""Of so many innermost groups each is drawn; of more the first ones."""

_WIDTH, _APART = 1060, 8
"""Of the map and between groups, in pixels, as it fits on a laptop."""

_LETTER = 7
"""Of a number on the map, in pixels."""

_MOST_REPLICAS = 64
"""From so many replicas on, none has a button."""


def cluster_section(report: Reported) -> Html:
    """Return the map, its legends, and tables of the levels and of the places of stages."""
    drawn = _Map(report.priced)
    lead = (
        "Devices in their order on the line, in the groups of the network. A box is a group; the bar on its top is the "
        "way up from it, coloured by the share of the iteration for which it carries what nothing hides."
    )
    return section(
        "cluster",
        "Cluster",
        lead,
        drawn.controls(),
        drawn.picture(),
        tag("p", drawn.omitted, class_="note") if drawn.omitted else None,
        folded("Network levels as a table", table(drawn.heads, list(drawn.levels()), caption="Levels of the network")),
        folded("Places as a table", table(_PLACES, list(drawn.places()), caption="First devices of replicas")),
    )


_LEVELS = ("Level", "Groups", "Devices each", "Bandwidth of a device", "Latency", "Busiest way up", "Mean way up")
_SENT = "Sent over it or beyond"
_PLACES = ("Stage", "Devices each", "Replicas", "Devices of the first", "Devices of the last")


@dataclass(frozen=True)
class _Map:
    priced: PricedPlan

    @cached_property
    def links(self) -> dict[tuple[int, int], Uplink]:
        """Ways up with what the plan sends over them, by level and group."""
        priced = self.priced
        found = uplinks(priced.problem, priced.plan, priced.evaluation, priced.loads)
        return {(link.level, link.group): link for link in found}

    @cached_property
    def busiest(self) -> float:
        """The largest share of the iteration of any way up."""
        return max((link.ticks / self.priced.objective_ticks for link in self.links.values()), default=0.0)

    @property
    def hottest(self) -> float:
        """The share that has the hottest colour: a link in use for less than a tenth of the time is no problem."""
        return max(self.busiest, 0.1)

    @cached_property
    def owners(self) -> list[tuple[int, int] | None]:
        """Stage and replica of each device."""
        plan, owners = self.priced.plan, [None] * self.priced.problem.cluster.devices
        held: list[tuple[int, int] | None] = list(owners)
        for at, stage in enumerate(plan.stages):
            for replica, first in enumerate(plan.starts(at).tolist()):
                held[first : first + stage.devices] = [(at, replica)] * stage.devices
        return held

    @property
    def omitted(self) -> str:
        """What is not drawn, if anything."""
        cluster = self.priced.problem.cluster
        groups = -(-cluster.devices // cluster.group_sizes[0])
        name = level_name(cluster, 0)
        return "" if groups <= MOST_GROUPS else f"The first {count(MOST_GROUPS)} of {counted(groups, name)} are drawn."

    def controls(self) -> Html:
        """Return a menu of replicas, and what the colours mean."""
        plan = self.priced.plan
        options = [tag("option", "all", value="")]
        options += [tag("option", str(replica), value=str(replica)) for replica in range(plan.replicas)]
        menu = tag("label", "Replica ", tag("select", *options, id="replica"))
        last = len(plan.stages) - 1
        ramp = tag("li", "stage 0 ", tag("span", class_="ramp stages-ramp"), f" {last}") if last else None
        several = len(self.priced.problem.cluster.levels) > 1
        loads = (
            tag("li", "way up 0 % ", tag("span", class_="ramp loads-ramp"), f" {100 * self.hottest:.0f} %")
            if several
            else None
        )
        idle = tag("li", tag("span", class_="swatch c-bubble"), "unused") if None in self.owners else None
        choose = menu if 1 < plan.replicas <= _MOST_REPLICAS else tag("span")
        return tag("div", choose, tag("ul", ramp, loads, idle, class_="legend"), class_="controls")

    def picture(self) -> Html:
        """Return the groups of the outermost level, each with its own inside."""
        cluster, plan = self.priced.problem.cluster, self.priced.plan
        used = f"{counted(len(plan.stages), 'stage')} in {counted(plan.replicas, 'replica')}"
        label = f"{used} on {counted(cluster.devices, 'device')}; the tables below have all places and ways up."
        top = len(cluster.levels) - 1
        inside = self._inside(top, 0) if top else iter([self._box(0, 0)])
        style = f"--cell:{self.cell:.2f}px"
        return tag("div", *inside, class_="map", role="img", aria_label=label, tabindex="0", style=style)

    def _label(self, at: int, devices: int) -> str:
        """Return the number of a stage, where it fits on so many devices."""
        return str(at) if devices * self.cell >= _LETTER * len(str(at)) + 2 else ""

    @cached_property
    def cell(self) -> float:
        """Return the width of a device, so that 16 innermost groups go beside each other, or of very many more."""
        cluster = self.priced.problem.cluster
        groups = -(-cluster.devices // cluster.group_sizes[0])
        beside = 16 if groups <= 256 else 32 if groups <= 1024 else 64
        widest = 34.0 if groups == 1 else 17.0
        return max(1.5, min(widest, (_WIDTH / beside - _APART) / min(cluster.group_sizes[0], 16)))

    @property
    def heads(self) -> tuple[str, ...]:
        """Return the heads of the table of levels: bytes only where the preset counts them."""
        return (*_LEVELS, _SENT) if self.priced.crossing else _LEVELS

    def levels(self) -> Iterator[list[Child]]:
        """Yield a row for each level: its groups, its links, and how long the ways up from its groups carry."""
        cluster, whole = self.priced.problem.cluster, self.priced.objective_ticks
        for at, level in enumerate(cluster.levels):
            ticks = [link.ticks for link in self.links.values() if link.level == at]
            busy = [share(max(ticks), whole), share(sum(ticks) // len(ticks), whole)] if ticks else ["-", "-"]
            yield [
                level_name(cluster, at),
                count(-(-cluster.devices // cluster.group_sizes[at])),
                count(cluster.group_sizes[at]),
                bandwidth(level.bandwidth_bytes_per_s),
                duration(level.latency_s),
                *busy,
                *map(size, self.priced.crossing[at : at + 1]),
            ]

    def places(self) -> Iterator[list[Child]]:
        """Yield a row for each stage: where its first and its last replica stand."""
        plan = self.priced.plan
        for at, stage in enumerate(plan.stages):
            ends = plan.starts(at)[[0, -1]].tolist()
            shown = [number_range(first, first + stage.devices - 1) for first in ends]
            yield [str(at), count(stage.devices), count(plan.replicas), *shown]

    def _inside(self, level: int, group: int) -> Iterator[Html]:
        """Yield the boxes in a group of a level."""
        if level == 0:
            yield from self._cells(group)
            return
        cluster = self.priced.problem.cluster
        below, size = level - 1, cluster.group_sizes[level - 1]
        first, fanout = group * cluster.levels[level].fanout, cluster.levels[level].fanout
        last = min(first + fanout, -(-cluster.devices // size))
        for child in range(first, last):
            if child * size // cluster.group_sizes[0] >= MOST_GROUPS:
                return
            yield self._box(below, child)

    def _box(self, level: int, group: int) -> Html:
        cluster, link = self.priced.problem.cluster, self.links.get((level, group))
        part = link.ticks / self.priced.objective_ticks if link else 0.0
        name = f"{level_name(cluster, level)} {group}"
        style = f"--load:{part / self.hottest:.3f}"
        title = f"{name}: way up in use for {100 * part:.2g} % of the iteration"
        top = level == len(cluster.levels) - 1  # from which nothing leads up
        way = None if top else tag("i", class_="up", style=style, title=title)
        named = tag("small", name) if level else None
        return tag("div", way, named, tag("div", *self._inside(level, group), class_="in"), class_=f"group l{level}")

    def _cells(self, group: int) -> Iterator[Html]:
        """Yield the stages in an innermost group, each as wide as it has devices there."""
        size, last = self.priced.problem.cluster.group_sizes[0], len(self.priced.plan.stages) - 1
        for owner, run in groupby(self.owners[group * size : (group + 1) * size]):
            devices = len(list(run))
            if owner is None:
                yield tag("span", class_="none", style=f"--n:{devices}", title=counted(devices, "unused device"))
                continue
            at, replica = owner
            style = f"--n:{devices};--at:{at / last if last else 0:.3f}"
            title = f"stage {at}, replica {replica}: {counted(devices, 'device')} here"
            yield tag("span", self._label(at, devices), style=style, data_r=str(replica), title=title)
