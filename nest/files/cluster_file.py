"""Clusters: by name, from a file of our own, and from descriptions of networks that other programs write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from nest.cluster import MOST_CLASSES, Cluster, DeviceClass, Level
from nest.cost.links import library_named, link_kind_named
from nest.errors import InvalidProblem
from nest.files.disk import read_text
from nest.files.document import Document
from nest.files.limits import Bandwidth, Capacity, Count, Ends, Price, Seconds, Switch, Table, Text
from nest.files.words import show
from nest.hardware import (
    BANDWIDTHS,
    LATENCIES,
    Device,
    Hardware,
    LevelFacts,
    Peaks,
    Tier,
    Torus,
    cluster_named,
    converted,
    device_named,
    linked,
    parse_shape,
    system_named,
    technology,
)
from nest.networks import Asked, hardware_of, level_torus

SCHEMA = "nest.cluster/1"

Positive: TypeAlias = Annotated[float, Meta(gt=0, le=1e18, description="a number above 0")]
Factor: TypeAlias = Annotated[float, Meta(ge=1, le=1e6, description="a factor from 1")]


class Figures(Table, kw_only=True):
    """Bandwidth of a device in one direction and latency of a message, each in one unit of several."""

    bandwidth_bytes_per_s: Bandwidth | UnsetType = UNSET
    bandwidth_gb_per_s: Positive | UnsetType = UNSET
    bandwidth_gib_per_s: Positive | UnsetType = UNSET
    bandwidth_gbit_per_s: Positive | UnsetType = UNSET
    latency_s: Seconds | UnsetType = UNSET
    latency_ms: Seconds | UnsetType = UNSET
    latency_us: Seconds | UnsetType = UNSET
    latency_ns: Seconds | UnsetType = UNSET
    round_trip_s: Seconds | UnsetType = UNSET
    round_trip_ms: Seconds | UnsetType = UNSET
    round_trip_us: Seconds | UnsetType = UNSET


class TierTable(Figures, kw_only=True):
    """Links of one kind: inside a node, or of one tier of switches."""

    name: Text = ""
    oversubscription: Factor = 1.0
    pair_gb_per_s: Positive | UnsetType = UNSET
    in_network_reduction: Switch = False
    link: Text = ""


class TechnologyTable(TierTable, kw_only=True):
    """What the links of a level may be: one entry of its menu. Prices are in any unit that all menus share."""

    price_per_device: Price = 0


class FanoutTable(TierTable, kw_only=True):
    """One level: how many groups of the level below it joins; where it has ``alternatives``, its links stand there."""

    fanout: Count
    alternatives: Annotated[list[TechnologyTable], Meta(max_length=64, description="a list of technologies")] = field(
        default_factory=list
    )


class TorusTable(Figures, kw_only=True):
    """A torus or mesh; bandwidth and latency are those of one link."""

    shape: Annotated[str, Meta(description='a shape, as in "4x4x8"')]
    wrap: Annotated[
        bool | list[bool], Meta(description="true, false, or one of them for each axis: whether it closes to a ring")
    ] = True
    link: Text = ""


class DeviceTable(Table, kw_only=True):
    """A device with figures of one's own; rates are dense, in TFLOP/s."""

    name: Text = "device"
    hbm_bytes: Capacity | UnsetType = UNSET
    hbm_gb: Positive | UnsetType = UNSET
    hbm_gib: Positive | UnsetType = UNSET
    hbm_gb_per_s: Positive
    fp32_tflops: Positive | UnsetType = UNSET
    tf32_tflops: Positive | UnsetType = UNSET
    bf16_tflops: Positive | UnsetType = UNSET
    fp16_tflops: Positive | UnsetType = UNSET
    fp8_tflops: Positive | UnsetType = UNSET
    link_gb_per_s: Positive | UnsetType = UNSET
    links: Count | UnsetType = UNSET
    pcie_gb_per_s: Positive | UnsetType = UNSET


class ClassRow(Table, kw_only=True):
    """Devices of another kind: the name of one, or its figures, and which they are."""

    device: Annotated[
        str | dict[str, int | float | str], Meta(description="the name of a device, or a table of its figures")
    ]
    devices: Annotated[list[Ends], Meta(min_length=1, description="a list of ranges of devices")]


class ClusterFile(Table, kw_only=True):
    """A cluster for `nest`: the kind of device, and one of ``levels``, ``torus`` and ``network``."""

    schema: Annotated[Literal["nest.cluster/1"], Meta(description='"nest.cluster/1", the version read here')]
    device: Annotated[
        str | dict[str, int | float | str], Meta(description="the name of a device, or a table of its figures")
    ]
    name: Text = ""
    devices: Count | UnsetType = UNSET
    partial: Switch = False
    library: Text = ""
    levels: (
        Annotated[
            list[FanoutTable],
            Meta(min_length=1, max_length=32, description="a list of 1 to 32 levels, innermost first"),
        ]
        | UnsetType
    ) = UNSET
    classes: Annotated[list[ClassRow], Meta(max_length=MOST_CLASSES - 1, description="a list of classes")] = field(
        default_factory=list
    )
    torus: TorusTable | UnsetType = UNSET
    network: Annotated[str, Meta(min_length=1, description="a file, next to this one")] | UnsetType = UNSET
    gpus_per_node: Count | UnsetType = UNSET
    tiers: Annotated[list[TierTable], Meta(min_length=2, description="a list of at least 2 tiers")] | UnsetType = UNSET
    like: Text = ""
    root: Text = ""
    topology: Text = ""


def is_cluster(path: Path) -> bool:
    """Whether a file is a cluster of ours, by the schema that it names."""
    if not path.is_file():
        return False
    try:
        document = Document.read(path)
        return SCHEMA in document.text and document.tree.get("schema") == SCHEMA
    except InvalidProblem:
        return False


def read_cluster(source: str | Path) -> Hardware:
    """Return a cluster by name (``dgx-h100:512``), or from a file in our format, TOML or JSON.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy.
    """
    path = Path(source)
    if not path.exists() and path.suffix not in (".toml", ".json"):
        if ":" in str(source):
            return cluster_named(str(source))
        if path.parent == Path():
            remedy = "give a file, or a name and a number of devices, as in dgx-h100:512"
            raise InvalidProblem("", "there is no such file", remedy, str(source))
    return cluster_of(cluster_text(path))


@dataclass(frozen=True, slots=True)
class ClusterText:
    """A cluster file as text, with all that it refers to.

    Parameters
    ----------
    name
        Of the cluster, where the text gives none.
    text
        Under the schema ``nest.cluster/1``.
    network
        Text of the file that it names as its network; empty where it names none.
    source, network_source
        As errors name them.
    """

    name: str
    text: str
    network: str = ""
    source: str = ""
    network_source: str = ""


def cluster_text(path: Path) -> ClusterText:
    """Return the texts of a cluster file; raises `InvalidProblem` as `read_cluster` does."""
    document = Document.read(path)
    table = _table(document)
    if table.network is UNSET:
        return ClusterText(path.stem, document.text, source=document.source)
    file = path.parent / table.network
    return ClusterText(path.stem, document.text, read_text(file, InvalidProblem), document.source, str(file))


def cluster_of(given: ClusterText) -> Hardware:
    """Return the cluster that texts describe; raises `InvalidProblem` as `read_cluster` does."""
    document = Document(given.source, given.text, InvalidProblem)
    table = _table(document)
    try:
        hardware = _hardware(table, _known_device(document, table.device, "device"), given)
        others = [_known_device(document, row.device, f"classes[{at}].device") for at, row in enumerate(table.classes)]
        return _divided(hardware, table, others) if others else hardware
    except InvalidProblem as fault:
        raise (fault if fault.source else fault.at(document.source)) from None


def _known_device(document: Document, given: str | dict[str, int | float | str], where: str) -> Device:
    """Return a device of the catalogue, or one with the figures that a file gives."""
    if isinstance(given, str):
        return device_named(given)
    return _device(document.convert(given, DeviceTable, where))


def _divided(hardware: Hardware, table: ClusterFile, others: Sequence[Device]) -> Hardware:
    """Return hardware of which some devices are of other classes."""
    if table.levels is UNSET:
        raise InvalidProblem("classes", "given without levels", "give the network of several classes as levels")
    classes = tuple(
        DeviceClass(device.name, tuple((first, last + 1) for first, last in row.devices), device.hbm_bytes)
        for device, row in zip(others, table.classes, strict=True)
    )
    try:
        cluster = replace(hardware.cluster, own_class=hardware.device.name, classes=classes)
    except InvalidProblem as fault:
        raise InvalidProblem(fault.where.removeprefix("cluster."), fault.problem, fault.remedy) from None
    return replace(hardware, cluster=cluster, others=tuple(others))


def _table(document: Document) -> ClusterFile:
    document.require_schema(SCHEMA, ", or a name such as dgx-h100:512")
    return document.decode(ClusterFile)


def read_network(
    path: str | Path,
    *,
    device: str = "",
    like: str = "",
    gpus_per_node: int | None = None,
    root: str = "",
    topology: str = "",
) -> Hardware:
    """Return a cluster from a file that another program wrote; which kind it is, its content says.

    Parameters
    ----------
    device
        Name of a device of the catalogue; that of ``like`` if empty.
    like
        Name of a system whose links the network has; files of schedulers say nothing about bandwidth.
    gpus_per_node, root, topology
        What the file does not say, or which part of it is meant.

    Raises
    ------
    InvalidProblem
        Naming file, key, value and remedy.
    """
    try:
        system = system_named(like) if like else None
        if system is None and not device:
            raise InvalidProblem("device", "not given", "name a device, or a system that the cluster is like")
        kind = device_named(device or (system.device if system else ""))
        asked = Asked(kind, gpus_per_node, system.tiers if system else (), root, topology)
        return hardware_of(read_text(path, InvalidProblem), asked, Path(path).name)
    except InvalidProblem as fault:
        raise (fault if fault.source else fault.at(str(path))) from None


def _hardware(table: ClusterFile, device: Device, text: ClusterText) -> Hardware:
    if table.library:
        library_named(table.library, "library")
    given = [name for name in ("levels", "torus", "network") if getattr(table, name) is not UNSET]
    if len(given) != 1:
        what = f"both {given[0]} and {given[1]}" if given else "no network"
        raise InvalidProblem("", what, "give one of levels, torus and network")
    name = table.name or text.name
    if table.torus is not UNSET:
        return _torus(table, table.torus, device, name)
    if table.network is not UNSET:
        return _network(table, table.network, device, name, text)
    return _levels(table, device, name)


def _levels(table: ClusterFile, device: Device, name: str) -> Hardware:
    assert table.levels is not UNSET
    if table.devices is UNSET:
        raise InvalidProblem("devices", "missing", "give the number of devices")
    made = [_level(row, device, f"levels[{at}]") for at, row in enumerate(table.levels)]
    levels, facts = tuple(level for level, _ in made), tuple(fact for _, fact in made)
    try:
        cluster = Cluster(table.devices, device.hbm_bytes, levels, name, table.partial)
    except InvalidProblem as fault:
        raise InvalidProblem(fault.where.removeprefix("cluster."), fault.problem, fault.remedy) from None
    return Hardware(device, linked(cluster, device, facts, table.library), facts)


def _level(row: FanoutTable, device: Device, where: str) -> tuple[Level, LevelFacts]:
    """Return a level with its facts; those of a level with a menu are of its first technology."""
    if not row.alternatives:
        tier = _tier(row, where)
        return tier.level(row.fanout), tier.facts
    given = [name for name in (*BANDWIDTHS, *LATENCIES) if getattr(row, name) is not UNSET]
    if given:
        raise InvalidProblem(f"{where}.{given[0]}", "given beside alternatives", "give it in each of them only")
    rows = [(each, _tier(each, f"{where}.alternatives[{at}]")) for at, each in enumerate(row.alternatives)]
    menu = [technology(tier, row.name, device, each.price_per_device) for each, tier in rows]
    return Level.menu(row.fanout, menu, row.name), rows[0][1].facts


def _torus(table: ClusterFile, torus: TorusTable, device: Device, name: str) -> Hardware:
    shape = parse_shape(torus.shape, "torus.shape")
    wrap = tuple(torus.wrap) if isinstance(torus.wrap, list) else (torus.wrap,) * len(shape)
    grid = Torus(shape, wrap, _figure(torus, BANDWIDTHS, "torus"), _figure(torus, LATENCIES, "torus"))
    if table.devices not in (UNSET, grid.devices):
        raise InvalidProblem("devices", f"{table.devices}", f"shape {torus.shape} has {grid.devices}")
    levelling = level_torus(grid, device.hbm_bytes, name=name)
    fact = LevelFacts(pair_bytes_per_s=grid.link_bytes_per_s, link=_link(torus.link, "torus") or "ici")
    facts = (fact,) * len(levelling.cluster.levels)
    cluster = linked(levelling.cluster, device, facts, table.library)
    return Hardware(device, cluster, facts, levelling.order, pairs=levelling.pairs)


def _network(table: ClusterFile, network: str, device: Device, name: str, text: ClusterText) -> Hardware:
    given = () if table.tiers is UNSET else tuple(_tier(row, f"tiers[{at}]") for at, row in enumerate(table.tiers))
    if given and table.like:
        raise InvalidProblem("like", "both like and tiers", "give one of them")
    tiers = system_named(table.like).tiers if table.like else given
    count = None if table.gpus_per_node is UNSET else table.gpus_per_node
    asked = Asked(device, count, tiers, table.root, table.topology, table.library)
    try:
        hardware = hardware_of(text.network, asked, name)
    except InvalidProblem as fault:
        raise fault.at(text.network_source) from None
    if table.devices not in (UNSET, hardware.cluster.devices):
        raise InvalidProblem("devices", f"{table.devices}", f"{show(network)} describes {hardware.cluster.devices}")
    return hardware


def _tier(row: TierTable, where: str) -> Tier:
    return Tier(
        row.name,
        0,
        _figure(row, BANDWIDTHS, where),
        _figure(row, LATENCIES, where),
        row.oversubscription,
        0.0 if row.pair_gb_per_s is UNSET else row.pair_gb_per_s * 1e9,
        row.in_network_reduction,
        link=_link(row.link, where),
    )


def _link(name: str, where: str) -> str:
    """Return the name of a kind of links that there is, or nothing for nothing."""
    return link_kind_named(name, f"{where}.link").name if name else ""


def _figure(row: Figures, units: Mapping[str, Fraction], where: str) -> float:
    """Return a figure in bytes/s or seconds, given in exactly one unit."""
    given = {name: value for name in units if (value := getattr(row, name)) is not UNSET}
    if len(given) != 1:
        what = f"both {' and '.join(given)}" if given else f"no {next(iter(units)).partition('_')[0]}"
        raise InvalidProblem(where, what, f"give one of {', '.join(units)}")
    ((name, value),) = given.items()
    return converted(value, units[name])


def _device(table: DeviceTable) -> Device:
    sizes: dict[str, float] = {"hbm_bytes": 1, "hbm_gb": 1e9, "hbm_gib": 2**30}
    given = {name: value for name in sizes if (value := getattr(table, name)) is not UNSET}
    if len(given) != 1:
        what = f"both {' and '.join(given)}" if given else "no memory"
        raise InvalidProblem("device", what, f"give one of {', '.join(sizes)}")
    ((name, value),) = given.items()
    rates = {kind: getattr(table, f"{kind}_tflops") for kind in ("fp32", "tf32", "bf16", "fp16", "fp8")}
    peaks = Peaks(**{kind: float(rate) * 1e12 for kind, rate in rates.items() if rate is not UNSET})
    return replace(
        Device(table.name, peaks, int(float(value) * sizes[name]), table.hbm_gb_per_s * 1e9, "given"),
        link_bytes_per_s=0.0 if table.link_gb_per_s is UNSET else table.link_gb_per_s * 1e9,
        links=0 if table.links is UNSET else table.links,
        pcie_bytes_per_s=0.0 if table.pcie_gb_per_s is UNSET else table.pcie_gb_per_s * 1e9,
    )
