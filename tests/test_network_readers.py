"""Readers of network descriptions, on small texts: what is read, and what is refused."""

from __future__ import annotations

import json

import networkx
import pytest
from test_networks import fanouts, speeds

from nest.errors import InvalidProblem
from nest.hardware import Tier, device_named, system_named
from nest.networks import (
    Asked,
    Link,
    hardware_of,
    kind_of,
    level_network,
    level_pairs,
    network_of,
    pairwise,
    read_graph,
)
from nest.networks.fabric import read_ibnetdiscover
from nest.networks.hostfile import read_hostfile
from nest.networks.hostlist import hosts
from nest.networks.labels import read_node_labels, read_tpu_labels
from nest.networks.matrix import read_nvidia_smi, read_rocm_smi
from nest.networks.nccl_xml import read_nccl_xml
from nest.networks.planners import read_metis, slower_ways, tiers_of_hosts
from nest.networks.simulators import read_astra_sim, read_htsim, read_ns3
from nest.networks.slurm import devices_per_node, read_topology_conf
from nest.networks.slurm_yaml import HostTorus, read_topology_yaml


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n[001-003]", ("n001", "n002", "n003")),
        ("n[1,3],m7", ("n1", "n3", "m7")),
        ("sw.1.[1-2]", ("sw.1.1", "sw.1.2")),
        ("r[1-2]n[08-09]", ("r1n08", "r1n09", "r2n08", "r2n09")),
        ("n[9-10]", ("n9", "n10")),
        (" a , b ", ("a", "b")),
        ("", ()),
    ],
)
def test_host_lists(text: str, expected: tuple[str, ...]) -> None:
    """Ranges keep leading zeros, and commas in brackets do not split names."""
    assert hosts(text) == expected


@pytest.mark.parametrize("text", ["n[1-2", "n1-2]", "n[2-1]", "n[a]", "n[]", "n[1-99999999]", "a b", "n[[1]]"])
def test_wrong_host_lists(text: str) -> None:
    """What is no host list is refused."""
    with pytest.raises(InvalidProblem):
        hosts(text)


def test_topology_conf_spellings() -> None:
    """Keys in any case, comments anywhere, joined lines, and parents after their children."""
    text = "# tree\nswitchname=l0 NODES=a[1-2] # here\nSwitchName=l1 \\\n  Nodes = a[3-4] LinkSpeed=1\n\n"
    text += "SWITCHNAME=r Switches=l[0-1]\n"
    found = read_topology_conf(text)
    assert [(root.name, root.height) for root in found.roots] == [("r", 2)]
    assert found.nodes == ("a1", "a2", "a3", "a4")


def test_lone_leaf_is_a_root() -> None:
    """A file with one switch is a tree."""
    assert read_topology_conf("SwitchName=s Nodes=a,b").roots[0].height == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no switch and no block"),
        ("#BlockName=b Nodes=a\n# BlockSizes=1", "no switch and no block"),
        ("SwitchName=s Switches=t", "there is no switch 't'"),
        ("SwitchName=s Nodes=a\nSwitchName=s Nodes=b", "'s' is there twice"),
        ("SwitchName=s Nodes=a\nSwitchName=t Nodes=a", "node 'a' is also under 's'"),
        ("SwitchName=s Node=a", "no known Key=Value"),
        ("Nodes=a", "no SwitchName, BlockName or BlockSizes"),
        ("SwitchName=s", "has no member"),
        ("SwitchName=s Nodes=a\nBlockName=b Nodes=c", "both switches and blocks"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a", "form a cycle"),
        ("SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n", "is under 'a' and 'b'"),
        (
            "SwitchName=r Nodes=x\nSwitchName=a Switches=b\nSwitchName=b Switches=a,c\nSwitchName=c Switches=b",
            "has no member",
        ),
    ],
)
def test_wrong_topology_conf(text: str, message: str) -> None:
    """What Slurm could not use either is refused with the line or the switch."""
    with pytest.raises(InvalidProblem, match=message):
        read_topology_conf(text)


def test_both_ways_is_a_tree() -> None:
    """Switches that list each other hang from the one in the middle."""
    text = "SwitchName=a Nodes=x\nSwitchName=b Nodes=y\nSwitchName=m Switches=a,t\n"
    text += "SwitchName=n Switches=b,t\nSwitchName=t Switches=m,n\n"
    found = read_topology_conf(text)
    assert [(root.name, root.height) for root in found.roots] == [("t", 3)]
    assert "both directions" in found.notes[0]


def test_gpus_per_node_are_asked_for() -> None:
    """Neither plugin says how many devices a node has; ports have one each."""
    nodes = read_topology_conf("SwitchName=s Nodes=a,b")
    with pytest.raises(InvalidProblem, match="give the number of devices of a node"):
        devices_per_node(nodes, None)
    with pytest.raises(InvalidProblem, match="give at least 1"):
        devices_per_node(nodes, 0)
    ports = read_topology_conf("SwitchName=s Nodes=0x155dfffd33ff7d,0x155dfffd33ffbd")
    assert devices_per_node(ports, None) == 1
    with pytest.raises(InvalidProblem, match="addresses of ports"):
        devices_per_node(ports, 8)


def test_topology_yaml() -> None:
    """A ring and a torus name their nodes; a flat topology does not."""
    text = "- topology: r\n  ring:\n    rings:\n      - ring: a\n        nodes: n[1-4]\n- topology: f\n  flat: true\n"
    assert read_topology_yaml(text, "r") == HostTorus((4,), ("n1", "n2", "n3", "n4"))
    with pytest.raises(InvalidProblem, match="names no nodes"):
        read_topology_yaml(text, "f")
    with pytest.raises(InvalidProblem, match="choose one of r, f"):
        read_topology_yaml(text)
    with pytest.raises(InvalidProblem, match="no list of topologies"):
        read_topology_yaml("a: 1")


SMI = """
\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity
GPU0\t X \tNV4\tSYS\tPIX\t0-3
GPU1\tNV4\t X \tSYS\tPIX\t0-3
GPU2\tSYS\tSYS\t X
"""


def test_nvidia_smi() -> None:
    """Links count, cells that are missing come from the other half of the table, a lone device is last."""
    table = read_nvidia_smi(SMI)
    assert dict(table.labels) == {(0, 1): "NV4", (0, 2): "SYS", (1, 2): "SYS"}
    assert dict(table.nic_labels) == {(0, 0): "PIX", (1, 0): "PIX"}
    levelling = level_pairs(table.pairs(device_named("a100")), 1)
    assert (fanouts(levelling), speeds(levelling), levelling.cluster.partial) == ([2, 2], [100e9, 10e9], True)


def test_nvidia_smi_takes_the_slower_half() -> None:
    """Where the two halves differ, the slower label counts, whichever it is."""
    for one, other in (("NV4", "NV2"), ("NV2", "NV4"), ("NV2", "PIX"), ("SYS", "NV1")):
        slower = {"NV4NV2": "NV2", "NV2NV4": "NV2", "NV2PIX": "PIX", "SYSNV1": "SYS"}[one + other]
        assert read_nvidia_smi(f"\tGPU0\tGPU1\nGPU0\tX\t{one}\nGPU1\t{other}\tX\n").labels[0, 1] == slower


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no table of links"),
        ("\tGPU0\tCPU Affinity\nGPU0\t X \t0-3\n", "a table of one device"),
        ("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPIX\tPIX\n", "GPU1, GPU2: the table has no cell"),
    ],
)
def test_wrong_nvidia_smi(text: str, message: str) -> None:
    """A table that was cut off, or none, is refused."""
    with pytest.raises(InvalidProblem, match=message):
        read_nvidia_smi(text)


def test_links_that_a_device_does_not_have() -> None:
    """NVLink in the table of a device without it is a mistake in the name of the device."""
    with pytest.raises(InvalidProblem, match="l4 has no such links"):
        read_nvidia_smi(SMI).pairs(device_named("l4"))


def test_rocm_smi_refuses_other_text() -> None:
    """Without the table of link types there is nothing to read."""
    with pytest.raises(InvalidProblem, match="no table of link types"):
        read_rocm_smi("GPU0 GPU1\n")


XML = """
<system version="1"><cpu numaid="0"><pci busid="a" class="0x060400">
<pci busid="g0" class="0x030200"><gpu dev="0"><nvlink target="s0" count="2" tclass="0x068000"/>
<nvlink target="s1" count="3" tclass="0x068000"/></gpu></pci>
<pci busid="g1" class="0x030200"><gpu dev="1"><nvlink target="s0" count="5" tclass="0x068000"/></gpu></pci>
<pci busid="n" class="0x020000"><nic><net name="x" speed="100000"/></nic></pci></pci></cpu></system>
"""


def test_nccl_xml() -> None:
    """Links to switches are added up; network speed is Mb/s."""
    host = read_nccl_xml(XML)
    assert (host.gpus, host.nics, host.ports_bytes_per_s) == (("g0", "g1"), ("n",), (12.5e9,))
    assert [host.links_of(gpu) for gpu in host.gpus] == [5, 5]
    assert host.table.labels[0, 1] == "NV5"
    assert not host.template


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<graphs version='1'/>", "a file of rings and trees"),
        ("<system></system>", "no device"),
        ("<system>", "no valid XML"),
    ],
)
def test_wrong_nccl_xml(text: str, message: str) -> None:
    """Files that only look alike are refused."""
    with pytest.raises(InvalidProblem, match=message):
        read_nccl_xml(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a slots=8\nb slots=4 # half\n", {"a": 8, "b": 4}),
        ("a 8 \nb\t8\n", {"a": 8, "b": 8}),
        ("a:2\na:3\n", {"a": 5}),
        ("n[1-2] max_slots=4\n", {"n1": 4, "n2": 4}),
        ("a\nb\n", {"a": 6, "b": 6}),
    ],
)
def test_hostfiles(text: str, expected: dict[str, int]) -> None:
    """All ways to write slots; a host that comes again has more of them."""
    assert read_hostfile(text, gpus_per_node=6)[1] == expected


@pytest.mark.parametrize("text", ["", "# nothing\n", "a slots=x\n", "a slots=0\n", "a b c\n"])
def test_wrong_hostfiles(text: str) -> None:
    """Hosts without a number of slots are refused."""
    with pytest.raises(InvalidProblem):
        read_hostfile(text)


def test_hostfile_without_slots() -> None:
    """A bare host needs the number of devices from elsewhere."""
    with pytest.raises(InvalidProblem, match="--gpus-per-node"):
        read_hostfile("a\n")


def graph_text() -> str:
    """Return a node-link graph: two devices on each of two switches."""
    nodes = [{"id": f"s{at}", "kind": "switch"} for at in (0, 1)] + [{"id": f"d{at}"} for at in range(4)]
    links = [
        {"source": f"d{at}", "target": f"s{at // 2}", "bandwidth_gbit_per_s": 400, "latency_us": 1} for at in range(4)
    ]
    links.append({"source": "s0", "target": "s1", "bandwidth_gb_per_s": 25, "latency_us": 2})
    return json.dumps({"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "links": links})


def test_node_link_graph() -> None:
    """Units are in the names of the attributes; the trunk is shared."""
    levelling = level_network(read_graph(graph_text()), 1)
    assert (fanouts(levelling), speeds(levelling)) == ([2, 2], [50e9, 12.5e9])


def test_graphml() -> None:
    """GraphML reads as the same network."""
    graph = networkx.node_link_graph(json.loads(graph_text()), edges="links")
    network = read_graph("\n".join(networkx.generate_graphml(graph)))
    assert level_network(network, 1).cluster == level_network(read_graph(graph_text()), 1).cluster


def test_directed_graph_takes_the_slower_way() -> None:
    """Where the directions differ, what both can do counts."""
    graph = networkx.DiGraph()
    graph.add_edge("b", "a", bandwidth_gb_per_s=4)
    graph.add_edge("a", "b", bandwidth_gb_per_s=3)
    assert network_of(graph).links == (Link("a", "b", 3e9),)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"bandwidth_gb_per_s": 25, ', "", "edge s0 - s1: no bandwidth"),
        ('"bandwidth_gb_per_s": 25', '"bandwidth_gb_per_s": "fast"', "give a number"),
        ('"latency_us": 2', '"latency_us": 2, "latency_s": 2', "both latency_s and latency_us"),
        ('"kind": "switch"', '"kind": "toaster"', "kind 'toaster'"),
        ('"nodes"', '"knots"', "no graph"),
    ],
)
def test_wrong_graphs(old: str, new: str, message: str) -> None:
    """What is wrong in a graph is named with its edge or node."""
    assert old in graph_text()
    with pytest.raises(InvalidProblem, match=message):
        read_graph(graph_text().replace(old, new))


def test_astra_sim() -> None:
    """GB/s and ns; a switch is two links away, a ring half its length; the old format has links to multiply."""
    tiers = read_astra_sim("topology: [Switch, Ring]\nnpus_count: [8, 4]\nbandwidth: [400, 50]\nlatency: [100, 1000]\n")
    assert [(tier.group, tier.link_bytes_per_s, tier.latency_s) for tier in tiers] == [
        (8, 4e11, 2e-7),
        (32, 5e10, 2e-6),
    ]
    with pytest.raises(InvalidProblem, match=r"bandwidth\[0\]: 'tbd'"):
        read_astra_sim("topology: [Ring]\nnpus_count: [8]\nbandwidth: [tbd]\nlatency: [1]\n")
    with pytest.raises(InvalidProblem, match="different length"):
        read_astra_sim("topology: [Ring]\nnpus_count: [8]\nbandwidth: [1, 2]\nlatency: [1]\n")


def test_ns3() -> None:
    """Gb/s are bits; a file that was cut off is refused."""
    text = "3 1 2\n2\n0 2 400Gbps 0.0005ms 0\n1 2 400Gbps 0.0005ms 0\n"
    assert read_ns3(text).links[0] == Link("0", "2", 50e9, 5e-7)
    with pytest.raises(InvalidProblem, match="was the file cut off"):
        read_ns3(text.rpartition("1 2 400")[0])


def test_htsim() -> None:
    """A tier that has more ways up than down gives a device more; radix and speed multiply."""
    tier = "Downlink_speed_Gbps 200\nRadix_Down 2\nDownlink_Latency_ns 500\n"
    text = f"Nodes 4\nTiers 2\nPodsize 2\nTier 0\nRadix_Up 1\n{tier}Tier 1\n{tier}"
    tiers = read_htsim(text)
    assert [(tier.group, tier.link_bytes_per_s, tier.latency_s) for tier in tiers] == [
        (2, 25e9, 1e-6),
        (4, 12.5e9, 2e-6),
    ]
    with pytest.raises(InvalidProblem, match="radix_up: missing"):
        read_htsim(text.replace("Radix_Up 1\n", ""))


def test_labels() -> None:
    """All factors of a slice count; racks of two blocks may share a name; a cluster without labels is refused."""
    assert read_tpu_labels("gke-tpu-topology: 2x2x1").chips == 4
    with pytest.raises(InvalidProblem, match="none"):
        read_tpu_labels("kind: Pod")
    nodes = "".join(
        f"- role: worker\n  labels:\n    x/topology-block: b{at // 2}\n    x/topology-rack: r{at % 2}\n"
        for at in range(4)
    )
    assert read_node_labels("nodes:\n" + nodes).height == 3
    with pytest.raises(InvalidProblem, match="no worker with labels"):
        read_node_labels("nodes:\n- role: control-plane\n")


def test_ibnetdiscover() -> None:
    """Cables between switches are listed twice and count once; what adds inside a switch is no host."""
    port = '[{at}]\t"{peer}"[1](0) \t\t# "{name}" lid 1 4xNDR\n'
    text = 'Switch\t65 "S-1"\t\t# "leaf" enhanced port 0 lid 1 lmc 0\n'
    text += port.format(at=1, peer="H-a", name="host-a mlx5_0") + port.format(at=2, peer="S-2", name="leaf 2")
    text += port.format(at=3, peer="H-f", name="Mellanox Technologies Aggregation Node")
    text += 'Switch\t65 "S-2"\t\t# "leaf 2" enhanced port 0 lid 2 lmc 0\n'
    text += port.format(at=1, peer="H-b", name="") + port.format(at=2, peer="S-1", name="leaf")
    network = read_ibnetdiscover(text)
    assert (network.devices, network.switches) == (("H-a", "H-b"), ("S-1", "S-2"))
    assert pairwise(network).bandwidth_bytes_per_s[0, 1] == 50e9
    with pytest.raises(InvalidProblem, match="unknown rate ZDR"):
        read_ibnetdiscover(text.replace("4xNDR", "4xZDR"))


def test_metis_is_bytes() -> None:
    """Bandwidths are bytes/s, of one kind of device."""
    text = json.dumps({"a": {"instance_type": "V100", "inter_bandwidth": 2e9, "intra_bandwidth": 5e9, "memory": 16}})
    inner, outer = tiers_of_hosts(read_metis(text))
    assert (inner.link_bytes_per_s, outer.link_bytes_per_s) == (5e9, 2e9)
    with pytest.raises(InvalidProblem, match="no host"):
        read_metis("{}")


def test_slower_way() -> None:
    """Of two directions the slower one counts, whichever came first."""
    assert slower_ways({("a", "b"): 2.0, ("b", "a"): 1.0, ("c", "a"): 5.0}) == {("a", "b"): 1.0, ("a", "c"): 5.0}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (XML, "nccl"),
        ("<!-- by hand -->\n<system version='1'></system>", "nccl"),
        ("<?xml version='1.0'?>\n<system version='1'></system>", "nccl"),
        (SMI, "nvidia"),
        ("switchname=a nodes=b", "slurm"),
        ("---\n- topology: a\n", "slurm yaml"),
        ("a slots=8", "hostfile"),
        (graph_text(), "graph"),
        ("<graphml></graphml>", "graph"),
        ("3 1 2\n2\n0 2 1Gbps 1ms 0\n", "ns3"),
        ("Nodes 8\nTiers 3\n", "htsim"),
        ('{"units-count": [1]}', "astra"),
    ],
)
def test_kinds(text: str, kind: str) -> None:
    """The content says what a description is."""
    assert kind_of(text) == kind


def test_empty_description() -> None:
    """An empty file is refused."""
    with pytest.raises(InvalidProblem, match="the file is empty"):
        kind_of(" \n")
    with pytest.raises(InvalidProblem, match="no description of a network that is known"):
        kind_of('{"hosts": 3}')


def test_described_hardware() -> None:
    """A list of hosts becomes levels with the links of a system, and names each device."""
    system = system_named("dgx-a100")
    hardware = hardware_of("a slots=8\nb slots=8\n", Asked(device_named("a100"), tiers=system.tiers), "mine")
    assert [(level.fanout, level.bandwidth_bytes_per_s) for level in hardware.cluster.levels] == [(8, 300e9), (2, 25e9)]
    assert (hardware.cluster.name, hardware.order[8]) == ("mine", "b/0")
    with pytest.raises(InvalidProblem, match="the description has no bandwidths"):
        hardware_of("a slots=8\n", Asked(device_named("a100")))


def test_described_gap_is_noted() -> None:
    """Levels that are far from what pairs cost alone are mentioned."""
    hardware = hardware_of(graph_text(), Asked(device_named("a100")))
    assert len(hardware.notes) == 1
    assert "4 pairs cost" in hardware.notes[0]


def test_template_is_refused() -> None:
    """A template of a cloud has no links between devices that have some: its PCIe tree would be far too slow."""
    text = '<system><cpu numaid="0"><pci busid="a" class="0x030200"/><pci busid="b" class="0x030200"/></cpu></system>'
    with pytest.raises(InvalidProblem, match="a template without links"):
        hardware_of(text, Asked(device_named("a100")))
    assert hardware_of(text, Asked(device_named("l4"))).cluster.devices == 2


def test_tables_of_a_host_name_links() -> None:
    """NVLink is that of the devices, and a level with a pair on PCIe is one of PCIe."""
    table = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV4\tSYS\nGPU1\tNV4\tX\tSYS\nGPU2\tSYS\tSYS\tX\n"
    for device, links in (("a100", ["nvlink", "pcie"]), ("b200", ["nvlink5", "pcie"])):
        assert [level.link for level in hardware_of(table, Asked(device_named(device))).cluster.levels] == links
    mesh = "Link Type between two GPUs\n GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n"
    assert [level.link for level in hardware_of(mesh, Asked(device_named("mi300x"))).cluster.levels] == ["xgmi"]


def test_tiers_without_names_keep_their_links() -> None:
    """Each level has what its own tier says, also where no tier has a name."""
    tiers = (
        Tier("", 8, 450e9, 3e-6, pair_bytes_per_s=64e9, link="xgmi"),
        Tier("", 0, 50e9, 1e-5, oversubscription=2, link="tcp"),
    )
    levels = hardware_of("a slots=8\nb slots=8\n", Asked(device_named("a100"), tiers=tiers)).cluster.levels
    assert [(level.link, level.pair_bytes_per_s) for level in levels] == [("xgmi", 64e9), ("tcp", None)]
