"""Topology files of NCCL and RCCL: the PCIe tree of a host with devices, network cards, and links between devices.

Dumps have `<gpu>`, `<nvlink>` or `<xgmi>`, and `<net>`; templates (as clouds ship them) only have PCI entries, to be
told apart by their class: 0x0302 and 0x1200 are devices, 0x0200 and 0x0207 network cards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree import ElementTree

from nest.errors import InvalidProblem
from nest.networks.figures import figure_of
from nest.networks.matrix import HostTable

GPU_CLASSES, NIC_CLASSES = ("0x0302", "0x1200"), ("0x0200", "0x0207")
BRIDGE_CLASS, SWITCH_CLASS = "0x0604", "0x0680"
MEGABIT_BYTES = 1e6 / 8


@dataclass(frozen=True)
class HostXml:
    """What a topology file says.

    Parameters
    ----------
    gpus
        Bus ids of the devices, in the order of the file.
    links
        For each device, links to each target (bus id): another device, or a switch that is not in the file.
    paths
        For each device, the bus ids of the NUMA node and the bridges above it, outermost first.
    nics
        Bus ids of network cards.
    ports_bytes_per_s
        Bandwidth of each network port; none in templates.
    bridges
        How many PCIe bridges there are.
    switched
        For each device, how many of its links lead to switches.
    template
        Whether the file only has PCI entries, as clouds ship them: links between devices may exist all the same.
    """

    gpus: tuple[str, ...]
    links: dict[str, dict[str, int]]
    paths: dict[str, tuple[str, ...]]
    nics: tuple[str, ...]
    ports_bytes_per_s: tuple[float, ...]
    bridges: int
    switched: dict[str, int]
    template: bool

    def links_of(self, gpu: str) -> int:
        """Return all links of a device."""
        return sum(self.links[gpu].values())

    @property
    def table(self) -> HostTable:
        """Labels of every pair: links where there are any, directly or through switches, otherwise the path on PCIe.

        Links to switches reach every device that has such links, with all of them; those to devices that the file does
        not have lead nowhere.
        """
        labels = {}
        for high, other in enumerate(self.gpus):
            for low, one in enumerate(self.gpus[:high]):
                labels[low, high] = self._label(one, other)
        return HostTable(self.gpus, labels)

    def _label(self, one: str, other: str) -> str:
        direct = max(self.links[one].get(other, 0), self.links[other].get(one, 0))
        switched = min(self.switched[one], self.switched[other])
        if direct or switched:
            return f"NV{max(direct, switched)}"
        common = 0
        for left, right in zip(self.paths[one], self.paths[other], strict=False):
            if left != right:
                break
            common += 1
        if common == 0:
            return "SYS"
        if common == 1:
            return "PHB"
        return "PIX" if common == len(self.paths[one]) == len(self.paths[other]) else "PXB"


@dataclass
class _Found:
    gpus: list[str] = field(default_factory=list)
    links: dict[str, dict[str, int]] = field(default_factory=dict)
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nics: list[str] = field(default_factory=list)
    ports: list[float] = field(default_factory=list)
    bridges: int = 0
    switched: dict[str, int] = field(default_factory=dict)
    template: bool = True


def read_nccl_xml(text: str) -> HostXml:
    """Return the host that a topology file describes.

    Raises
    ------
    InvalidProblem
        If it is no such file, or has no device.
    """
    try:
        root = ElementTree.fromstring(text.strip())
    except ElementTree.ParseError as fault:
        raise InvalidProblem("", f"no valid XML: {fault}", "mend it there") from None
    if root.tag != "system":
        what = "a file of rings and trees" if root.tag == "graphs" else f"<{root.tag}>"
        raise InvalidProblem("", f"{what}, no topology", "give the file that NCCL_TOPO_DUMP_FILE names: <system>...")
    found = _Found()
    for cpu in root.iter("cpu"):
        _walk(cpu, (f"numa {cpu.get('numaid')}",), found)
    if not found.gpus:
        raise InvalidProblem("", "no device", "give a topology with PCI entries of class 0x0302 or 0x1200")
    return HostXml(
        tuple(found.gpus),
        found.links,
        found.paths,
        tuple(found.nics),
        tuple(found.ports),
        found.bridges,
        found.switched,
        found.template,
    )


def _walk(parent: ElementTree.Element, path: tuple[str, ...], found: _Found) -> None:
    for pci in parent.findall("pci"):
        bus, kind = pci.get("busid", ""), pci.get("class", "")
        if kind.startswith(GPU_CLASSES) or pci.find("gpu") is not None:
            found.gpus.append(bus)
            found.paths[bus] = path
            found.links[bus] = _links(pci, "")
            found.switched[bus] = sum(_links(pci, SWITCH_CLASS).values())
            found.template &= pci.find("gpu") is None
        elif kind.startswith(NIC_CLASSES):
            found.nics.append(bus)
            speeds = (figure_of(net.get("speed", "0"), f"{bus}: speed", may_be_zero=True) for net in pci.iter("net"))
            found.ports.extend(speed * MEGABIT_BYTES for speed in speeds)
        else:
            found.bridges += kind.startswith(BRIDGE_CLASS)
            _walk(pci, (*path, bus), found)


def _links(pci: ElementTree.Element, kind: str) -> dict[str, int]:
    """Return the number of links to each target of a class, added up."""
    counts: dict[str, int] = {}
    for name in ("nvlink", "xgmi"):
        for link in pci.iter(name):
            if link.get("tclass", "").startswith(kind):
                target = link.get("target", "")
                counts[target] = counts.get(target, 0) + int(
                    figure_of(link.get("count", "0"), f"{name}: count", may_be_zero=True)
                )
    return counts
