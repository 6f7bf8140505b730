"""Networks as they were read, as levels: text for a person, and JSON."""

from __future__ import annotations

from collections.abc import Iterator

from nest.cluster import PLAIN_LINK, Cluster, Level
from nest.hardware import Hardware, LevelFacts
from nest.report.format import bandwidth, count, counted, duration, level_name, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table

SCHEMA = "nest.network/1"

_NAMED = 8
"""Of the names of devices so many are shown."""

_HEADS = ("Fan-out", "Devices", "Bandwidth", "Latency", "Pair", "Oversubscribed")
_COLUMNS = (Column("Level", folds=True), *(Column(head, number=True) for head in _HEADS))


def network_table_text(hardware: Hardware, screen: Screen) -> str:
    """Return the levels that a network becomes, its devices, and what the levels do not say."""
    cluster, summary = hardware.cluster, Summary()
    groups = cluster.group_sizes
    rows = [
        (_named(hardware, at), count(level.fanout), count(groups[at]), *_figures(level, hardware.facts[at]))
        for at, level in enumerate(cluster.levels)
    ]
    summary.add("Network", cluster.name)
    summary.extend("Devices", _kinds(hardware))
    if hardware.order:
        more = f" and {len(hardware.order) - _NAMED:,} more" if len(hardware.order) > _NAMED else ""
        summary.add("On the line", ", ".join(hardware.order[:_NAMED]) + more)
    summary.extend("Source", dict.fromkeys(fact.source for fact in hardware.facts if fact.source))
    summary.extend("Noted", hardware.notes)
    return render(screen, ruled_table(_COLUMNS, rows), summary.table)


def network_facts(hardware: Hardware) -> dict[str, object]:
    """Return what the text says, ready for JSON, and the name of every device in order."""
    cluster = hardware.cluster
    return {
        "schema": SCHEMA,
        "name": cluster.name,
        "device": hardware.device.name,
        "devices": cluster.devices,
        "hbm_bytes": cluster.hbm_bytes,
        **({"classes": _classes(cluster)} if cluster.classes else {}),
        "levels": [
            {
                "name": level.name,
                "fanout": level.fanout,
                "devices": cluster.group_sizes[at],
                "bandwidth_bytes_per_s": level.bandwidth_bytes_per_s,
                "latency_s": level.latency_s,
                "pair_bytes_per_s": level.pair_bytes_per_s,
                "link": level.link,
                "oversubscription": hardware.facts[at].oversubscription,
            }
            for at, level in enumerate(cluster.levels)
        ],
        "order": list(hardware.order),
        "notes": list(hardware.notes),
    }


def _kinds(hardware: Hardware) -> Iterator[str]:
    """Yield how many devices of each class there are, and what each holds."""
    cluster = hardware.cluster
    if not cluster.classes:
        yield f"{counted(cluster.devices, 'device')} of {hardware.device.name}, {size(cluster.hbm_bytes)} each"
    for name in cluster.class_names:
        yield f"{counted(cluster.count_of(name), 'device')} of {name}, {size(cluster.hbm_bytes_of({name}))} each"


def _classes(cluster: Cluster) -> list[dict[str, object]]:
    """Return the devices of each class, the cluster's own first."""
    return [
        {"device": name, "devices": cluster.count_of(name), "hbm_bytes": cluster.hbm_bytes_of({name})}
        for name in cluster.class_names
    ]


def _named(hardware: Hardware, at: int) -> str:
    name, link = level_name(hardware.cluster, at), hardware.cluster.levels[at].link
    return name if link == PLAIN_LINK else f"{name} ({link})"


def _figures(level: Level, facts: LevelFacts) -> tuple[str, str, str, str]:
    pair = level.pair_bytes_per_s
    return (
        bandwidth(level.bandwidth_bytes_per_s),
        duration(level.latency_s),
        "" if pair is None else bandwidth(pair),
        f"{facts.oversubscription:g}" if facts.oversubscription != 1 else "",
    )
