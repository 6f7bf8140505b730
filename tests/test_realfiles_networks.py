"""Cluster and network descriptions as people have them, and what each should come to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nest.errors import InvalidProblem
from nest.files.cluster_file import read_network
from nest.hardware import Tier, device_named, system_named
from nest.networks import level_network, level_pairs, level_tree, one_root
from nest.networks.fabric import AGGREGATION, read_ibnetdiscover, read_netq
from nest.networks.hostfile import read_hostfile
from nest.networks.labels import read_node_labels, read_topograph, read_tpu_labels
from nest.networks.matrix import HostTable, read_nvidia_smi, read_rocm_smi
from nest.networks.nccl_xml import HostXml, read_nccl_xml
from nest.networks.planners import (
    read_aiconfigurator,
    read_llm_analysis,
    read_metis,
    read_sailor,
    read_scale_explorer,
    slower_ways,
    tiers_of_hosts,
)
from nest.networks.simulators import read_astra_sim, read_htsim, read_ns3
from nest.networks.slurm import SlurmTopology, devices_per_node, read_topology_conf
from nest.networks.slurm_yaml import HostTorus, read_topology_yaml, topology_kinds
from nest.networks.tree import Group

PLACES = [above / "shared" / "realfiles" / "files" for above in Path(__file__).resolve().parents]
FILES = next((place for place in PLACES if place.is_dir()), PLACES[0])

pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason=f"the descriptions are not in {FILES}")


def text(name: str) -> str:
    """Return the text of a file."""
    return (FILES / name).read_text()


def conf(name: str) -> SlurmTopology:
    """Return a topology of Slurm."""
    return read_topology_conf(text(f"{name}.topology.conf"))


def smi(name: str) -> HostTable:
    """Return a table of nvidia-smi."""
    return read_nvidia_smi(text(f"nvidia-smi-topo-{name}.txt"))


def xml(name: str) -> HostXml:
    """Return a topology of NCCL."""
    return read_nccl_xml(text(f"{name}.xml"))


def leaves(group: Group) -> list[Group]:
    """Return the switches of a tree that hold hosts."""
    inner = [leaf for member in group.members if isinstance(member, Group) for leaf in leaves(member)]
    return inner or [group]


def switches(group: Group) -> int:
    """Return how many switches a tree has."""
    return 1 + sum(switches(member) for member in group.members if isinstance(member, Group))


@pytest.mark.parametrize(
    ("name", "sizes", "roots"),
    [
        ("slurm-tree-4level", (10000, 529, 500, 4), ["root"]),
        ("slurm-tree-two-roots", (400, 22, 20, 2), ["grp10", "grp11"]),
        ("topograph-oci-tree", (96, 19, 12, 3), ["switch.3.1"]),
        ("slurmgcp-tree", (28, 11, 8, 3), ["nodeset-root", "nodeset_tpu-root"]),
        ("azure-ib-guid-tree", (128, 49, 40, 3), ["ibsw47"]),
    ],
)
def test_slurm_trees(name: str, sizes: tuple[int, int, int, int], roots: list[str]) -> None:
    """Nodes, switches, leaves, tiers and roots of every tree, also of those that list switches in both directions."""
    found = conf(name)
    nodes, count, leaf_count, height = sizes
    assert (found.kind, len(found.nodes)) == ("tree", nodes)
    assert sum(map(switches, found.roots)) == count
    assert sum(len(leaves(root)) for root in found.roots) == leaf_count
    assert max(root.height for root in found.roots) == height
    assert [root.name for root in found.roots] == roots


def test_large_tree_as_levels() -> None:
    """80,000 devices: leaves of 20 nodes, groups of 10 leaves at least; nobody pays less than the real tier."""
    hardware = read_network(FILES / "slurm-tree-4level.topology.conf", like="dgx-h100", gpus_per_node=8)
    assert [level.fanout for level in hardware.cluster.levels] == [8, 20, 10, 50]
    assert hardware.cluster.devices == len(set(hardware.order)) == 80_000
    assert "1600 to 3200 devices; the level has groups of 1600" in " ".join(hardware.notes)


def test_two_roots_have_to_be_chosen_from() -> None:
    """Nothing joins the two trees: neither may be guessed."""
    path = FILES / "slurm-tree-two-roots.topology.conf"
    with pytest.raises(InvalidProblem, match=r"choose one of grp10 \(200 nodes\), grp11"):
        read_network(path, like="dgx-h100", gpus_per_node=8)
    chosen = read_network(path, like="dgx-h100", gpus_per_node=8, root="grp11")
    assert chosen.cluster.devices == 1600
    assert chosen.order[0] == "peta10200/0"


def test_single_name_beside_ranges() -> None:
    """A range of one node without brackets, in a tree beside that of other devices."""
    pools = {root.name: root for root in conf("slurmgcp-tree").roots}
    assert "m22-bold-3" in pools["nodeset_tpu-root"].hosts
    assert len(pools["nodeset-root"].hosts) == 16


def test_dots_and_ranges() -> None:
    """A range inside a name with dots; padding and comments do not matter."""
    root = conf("topograph-oci-tree").roots[0]
    assert [member.name for member in root.members if isinstance(member, Group)][-1] == "switch.2.6"
    assert root.hosts[:2] == ("srv1101", "srv1102")


def test_ports_are_no_hosts() -> None:
    """Nodes named by port addresses, eight a host: never eight devices each."""
    found = conf("azure-ib-guid-tree")
    assert found.ports
    histogram = Counter(len(leaf.members) for leaf in leaves(found.roots[0]))
    assert histogram == {2: 16, 3: 16, 6: 8}
    with pytest.raises(InvalidProblem, match="addresses of ports"):
        devices_per_node(found, 8)
    hardware = read_network(FILES / "azure-ib-guid-tree.topology.conf", like="azure-ndv4")
    assert hardware.cluster.devices == 128
    assert "listed in" not in " ".join(hardware.notes)
    assert "both directions" in hardware.notes[0]


def test_gpus_per_node_are_asked_for() -> None:
    """Neither plugin says how many devices a node has."""
    with pytest.raises(InvalidProblem, match="gpus_per_node: not given for 32 nodes"):
        read_network(FILES / "slurm-block-8x4.topology.conf", like="dgx-h100")


def test_block_is_an_nvlink_domain() -> None:
    """18 nodes of 4 GB200 are one domain of 72, whatever their numbers; BlockSizes is no group."""
    hardware = read_network(FILES / "azure-gb200-block.topology.conf", like="gb200-nvl72", gpus_per_node=4)
    levels = hardware.cluster.levels
    assert [(level.name, level.fanout) for level in levels] == [("nvl72", 72), ("leaf", 4)]
    assert levels[0].bandwidth_bytes_per_s == 900e9
    assert hardware.cluster.devices == 288
    assert [name.split("/")[0] for name in hardware.order[:12:4]] == ["node-1", "node-5", "node-9"]


def test_block_sizes_beyond_the_cluster() -> None:
    """Sizes up to 64 although there are 32 nodes: a block has 4."""
    found = conf("slurm-block-8x4")
    assert (found.kind, len(found.nodes), found.nodes[0]) == ("block", 32, "node01")
    assert [len(block.members) for block in found.roots[0].members if isinstance(block, Group)] == [4] * 8
    hardware = read_network(FILES / "slurm-block-8x4.topology.conf", like="dgx-h100", gpus_per_node=8)
    assert [level.fanout for level in hardware.cluster.levels] == [8, 4, 8]


def test_topology_yaml() -> None:
    """Six topologies over the same nodes, one the default; flat in two spellings; a torus of 4 x 4 x 2."""
    file = text("slurm-topology.yaml")
    assert list(topology_kinds(file).values()) == ["tree", "block", "flat", "flat", "ring", "torus3d"]
    default = read_topology_yaml(file)
    assert isinstance(default, SlurmTopology)
    assert default.nodes == ("node01", "node02", "node03", "node04")
    torus = read_topology_yaml(file, "topo5")
    assert isinstance(torus, HostTorus)
    assert (torus.shape, len(torus.nodes)) == ((4, 4, 2), 32)
    block = read_topology_yaml(file, "topo2")
    assert isinstance(block, SlurmTopology)
    assert len(block.nodes) == 16
    for flat in ("topo3", "topo3a"):
        with pytest.raises(InvalidProblem, match="names no nodes"):
            read_topology_yaml(file, flat)
    with pytest.raises(InvalidProblem, match="2 parts that nothing joins"):
        read_topology_yaml(file, "topo4")
    hardware = read_network(FILES / "slurm-topology.yaml", like="dgx-h100", gpus_per_node=8, topology="topo5")
    assert hardware.cluster.devices == 256


@pytest.mark.parametrize(
    ("name", "gpus", "nics", "labels"),
    [
        ("2gpu-phb", 2, 0, {"PHB"}),
        ("3xa6000-nvlink-pair", 3, 0, {"NV4", "NODE"}),
        ("8xh100", 8, 0, {"NV18"}),
        ("8xh100-ansi-header-9nic", 8, 9, {"NV18"}),
        ("8xp40-old-SOC", 8, 1, {"PIX", "PXB"}),
        ("dgx1-v100", 8, 4, {"NV1", "NV2", "SYS"}),
    ],
)
def test_nvidia_smi(name: str, gpus: int, nics: int, labels: set[str]) -> None:
    """Devices, cards and labels: blanks or tabs, colours in the header, old names, cells that are missing."""
    table = smi(name)
    assert (len(table.gpus), len(table.nics)) == (gpus, nics)
    assert set(table.labels.values()) == labels


def test_links_are_counted() -> None:
    """NV18 is 18 links of 25 GB/s in one direction."""
    levelling = level_pairs(smi("8xh100").pairs(device_named("h100")), 1)
    assert [(level.fanout, level.bandwidth_bytes_per_s) for level in levelling.cluster.levels] == [(8, 450e9)]


def test_old_label_and_bond() -> None:
    """SOC is SYS; a bonded card has no device of its own."""
    assert set(smi("8xp40-old-SOC").nic_labels.values()) == {"SYS"}
    table = smi("8xh100-ansi-header-9nic")
    assert table.legend["NIC8"] == "mlx5_bond_0"
    assert "PXB" not in {table.nic_labels[gpu, 8] for gpu in range(8)}


def test_cards_out_of_order() -> None:
    """Columns mlx5_0, mlx5_2, mlx5_1, mlx5_3 keep their names; rows with fewer cells than columns read on."""
    table = smi("dgx1-v100")
    assert table.nics == ("mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3")
    assert (table.nic_labels[0, 0], table.nic_labels[2, 2], table.nic_labels[7, 3]) == ("PIX", "PIX", "PIX")


def test_cube_mesh() -> None:
    """6 links a device in all; pairs, quads, and the rest over the sockets, none of it optimistic."""
    table = smi("dgx1-v100")
    links = Counter[int]()
    for pair, label in table.labels.items():
        for gpu in pair:
            links[gpu] += int(label[2:]) if label.startswith("NV") else 0
    assert set(links.values()) == {6}
    levelling = level_pairs(table.pairs(device_named("v100")), 1)
    assert [level.fanout for level in levelling.cluster.levels] == [2, 2, 2]
    assert [level.bandwidth_bytes_per_s for level in levelling.cluster.levels] == [50e9, 25e9, 10e9]
    assert not levelling.optimistic


def test_pair_and_lone_device() -> None:
    """Two devices with NVLink and one on PCIe: an incomplete last group."""
    levelling = level_pairs(smi("3xa6000-nvlink-pair").pairs(device_named("a100")), 1)
    assert levelling.cluster.partial
    assert levelling.order == ("GPU0", "GPU1", "GPU2")


def test_rocm_smi() -> None:
    """A warning before the tables, hops always 1: one link of xGMI between any two."""
    table = read_rocm_smi(text("rocm-smi-showtopo-8xmi308x.txt"))
    assert (len(table.gpus), set(table.labels.values())) == (8, {"XGMI1"})
    levelling = level_pairs(table.pairs(device_named("mi300x")), 206_141_652_992)
    assert [level.bandwidth_bytes_per_s for level in levelling.cluster.levels] == [64e9]


@pytest.mark.parametrize(
    ("name", "counts", "links", "template"),
    [
        ("nccl-aws-p4d", (8, 4, 0), 0, True),
        ("nccl-azure-ndv4", (8, 8, 0), 0, True),
        ("nccl-oci-h100", (8, 8, 16), 18, False),
        ("rccl-mi300x-8gpu", (8, 8, 8), 7, False),
        ("proteus-dgx1-v100-n2", (2, 1, 1), 6, False),
    ],
)
def test_nccl(name: str, counts: tuple[int, int, int], links: int, template: bool) -> None:
    """Devices by element or by class, links added up, ports of cards."""
    host = xml(name)
    assert (len(host.gpus), len(host.nics), len(host.ports_bytes_per_s)) == counts
    assert {host.links_of(gpu) for gpu in host.gpus} == {links}
    assert host.template == template


def test_nccl_speeds_and_paths() -> None:
    """Speed is Mb/s; NVSwitch joins all with 18 links; devices below one bridge are nearest."""
    assert set(xml("nccl-oci-h100").ports_bytes_per_s) == {22.5e9}
    assert set(xml("rccl-mi300x-8gpu").ports_bytes_per_s) == {50e9}
    assert set(xml("nccl-oci-h100").table.labels.values()) == {"NV18"}
    aws = xml("nccl-aws-p4d")
    assert aws.bridges == 4
    assert Counter(aws.table.labels.values()) == {"PIX": 4, "PHB": 8, "SYS": 16}
    assert len({path[0] for path in xml("nccl-azure-ndv4").paths.values()}) == 4


def test_nccl_partial_node() -> None:
    """Links to devices that are not in the file lead nowhere: the two that are there share one."""
    assert dict(xml("proteus-dgx1-v100-n2").table.labels) == {(0, 1): "NV1"}


def test_nccl_template_is_refused() -> None:
    """Without NVLink in the file an A100 would be priced on PCIe."""
    with pytest.raises(InvalidProblem, match="a template without links"):
        read_network(FILES / "nccl-aws-p4d.xml", device="a100")


@pytest.mark.parametrize(
    ("name", "groups", "speeds", "delays"),
    [
        ("astrasim-hgx-h100-16.yml", [8, 16], [400e9, 50e9], [1.8725e-6, 1e-6]),
        ("astrasim-tpuv3-32-2dtorus.yml", [4, 32], [80e9, 80e9], [2e-6, 4e-6]),
        ("astrasim-tpuv4-32.yml", [2, 8, 32], [50e9, 50e9, 50e9], [5e-7, 1e-6, 1e-7]),
        ("astrasim-old-dgx2-256.json", [16, 256], [150e9, 6.25e9], [1e-6, 1e-6]),
    ],
)
def test_astra_sim(name: str, groups: list[int], speeds: list[float], delays: list[float]) -> None:
    """Values count, not the comments beside them; the old format is per link."""
    tiers = read_astra_sim(text(name))
    assert [tier.group for tier in tiers] == groups
    assert [tier.link_bytes_per_s for tier in tiers] == speeds
    assert [tier.latency_s for tier in tiers] == pytest.approx(delays)


def test_ns3() -> None:
    """Hosts and switches, Gb/s as bits, ms; leaves of 16 share eight ways up."""
    small, large = (read_ns3(text(f"ns3-{name}.topology.txt")) for name in ("8n-1sw", "128n-16sw"))
    assert (len(small.devices), len(small.switches), len(small.links)) == (8, 1, 8)
    assert (small.links[0].bandwidth_bytes_per_s, small.links[0].latency_s) == (50e9, 5e-7)
    assert (len(large.devices), len(large.switches), len(large.links)) == (128, 16, 192)
    assert {(link.bandwidth_bytes_per_s, link.latency_s) for link in large.links} == {(25e9, 5e-6), (25e9, 1.25e-5)}
    levelling = level_network(large, 1)
    assert [(level.fanout, level.bandwidth_bytes_per_s) for level in levelling.cluster.levels] == [
        (16, 25e9),
        (8, 12.5e9),
    ]


def test_htsim() -> None:
    """Three tiers of 2, 4 and 8 nodes, 200 Gb/s for each: twice as many links up at half the speed."""
    tiers = read_htsim(text("htsim-8nodes.topo"))
    assert [(tier.group, tier.link_bytes_per_s) for tier in tiers] == [(2, 25e9), (4, 25e9), (8, 25e9)]


def test_ibnetdiscover() -> None:
    """40 switches, 1646 ports listed; cables between switches once, no aggregation node as a host."""
    file = text("ibnetdiscover-ndr-40sw.switches-only.out")
    network = read_ibnetdiscover(file)
    assert len(network.switches) == 40
    listed = sum(line.startswith("[") for line in file.splitlines())
    inner = sum({link.source, link.target} <= set(network.switches) for link in network.links)
    assert listed == 1646 == len(network.devices) + 2 * inner + file.count(AGGREGATION)
    assert {link.bandwidth_bytes_per_s for link in network.links} == {50e9}
    levelling = level_network(network, 1)
    assert levelling.cluster.levels[-1].bandwidth_bytes_per_s < 50e9  # leaves have fewer ways up than hosts


def test_netq() -> None:
    """Eight hosts on two leaves and a spine; a link has as many cables as its size."""
    network = read_netq(text("netq-topology-graph.json"), 25e9)
    assert (len(network.devices), len(network.switches)) == (8, 3)
    assert max(link.bandwidth_bytes_per_s for link in network.links) == 28 * 25e9


def test_hostfile_and_metis() -> None:
    """``IP1 8`` with a blank at the end; bandwidths are bytes/s; kinds of devices must not be mixed."""
    _, slots = read_hostfile(text("metis-hostfile.txt"))
    assert (len(slots), sum(slots.values())) == (4, 32)
    hosts = read_metis(text("metis-clusterfile.json"))
    assert [host[0] for host in hosts.values()] == ["V100", "P100", "T4", "A100"]
    assert {host[2] for host in hosts.values()} == {312_500_000.0}
    assert [tier.link_bytes_per_s for tier in tiers_of_hosts(hosts)] == [5_312_500_000.0, 312_500_000.0]
    hardware = read_network(FILES / "metis-hostfile.txt", like="dgx-a100")
    assert [level.fanout for level in hardware.cluster.levels] == [8, 4]


def test_tpu_labels() -> None:
    """All factors of the shape count; a job of 16 pods has 4 chips each."""
    assert read_tpu_labels(text("xpk-tpu-node-labels.txt")).chips == 4
    job = read_tpu_labels(text("gke-tpu7x-4x4x4.nodeselector.yaml"))
    assert (job.chips, job.hosts, job.chips // job.hosts) == (64, 16, 4)
    hardware = read_network(FILES / "gke-tpu7x-4x4x4.nodeselector.yaml", device="tpu-v5p")
    assert hardware.cluster.devices == 64


def test_kubernetes_labels() -> None:
    """Eight workers in two blocks of two racks, whose names repeat."""
    root = read_node_labels(text("kueue-kind-tas-labels.yaml"))
    assert len(root.hosts) == 8
    assert [len(leaf.members) for leaf in leaves(root)] == [2, 2, 2, 2]


def test_topograph() -> None:
    """Domains of 18 nodes; racks without nodes are left out, others have 5 or 7 instead of 9."""
    regular, domains = read_topograph(text("topograph-nvl72.model.yaml"))
    assert (len(regular.nodes), {len(nodes) for nodes in domains.values()}, len(domains)) == (72, {18}, 4)
    uneven, domains = read_topograph(text("topograph-dual-irregular.model.yaml"))
    blocks = [leaf for root in uneven.roots for leaf in leaves(root)]
    assert (len(uneven.nodes), len(blocks)) == (255, 29)
    assert Counter(len(block.members) for block in blocks) == {9: 27, 7: 1, 5: 1}
    assert sum(map(len, domains.values())) == 255
    hardware = read_network(FILES / "topograph-dual-irregular.model.yaml", like="dgx-h100", gpus_per_node=8)
    assert hardware.cluster.devices == 255 * 8


def test_scale_explorer() -> None:
    """The rate called f32 is that of TF32, NVLink counts both directions, a port is bytes/s."""
    device, tiers, devices = read_scale_explorer(text("scaleexplorer-a100-1024.system.json"))
    assert (devices, device.peaks.fp32, device.peak("tf32")) == (1024, None, 156e12)
    assert [(tier.group, tier.link_bytes_per_s) for tier in tiers] == [(8, 300e9), (0, 6.25e9)]


def test_llm_analysis() -> None:
    """The bandwidth between nodes is that of a node of 8."""
    _, tiers = read_llm_analysis(text("llmanalysis-a100-sxm-80gb.gpu.json"))
    assert [tier.link_bytes_per_s for tier in tiers] == [300e9, 25e9]


def test_aiconfigurator() -> None:
    """Everything is bytes and of one device in one direction."""
    device, tiers = read_aiconfigurator(text("aiconfigurator-h100.system.yaml"))
    assert [(tier.group, tier.link_bytes_per_s) for tier in tiers] == [(8, 450e9), (0, 50e9)]
    assert device.peak("fp8") == 1978e12


def test_sailor() -> None:
    """209 pairs in 5 zones, 134 of them differ by direction: both ways get the slower one."""
    measured = read_sailor(text("sailor-multizone-bandwidths.json"))
    assert len(measured) == 209
    assert len({source.split("/")[0] for source, _ in measured}) == 5
    assert sum(measured.get((to, at), rate) != rate for (at, to), rate in measured.items()) == 134
    slower = slower_ways(measured)
    for (one, other), rate in measured.items():
        assert slower[min(one, other), max(one, other)] <= rate


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.glob("*.topology.conf")))
def test_no_tree_is_optimistic(name: str) -> None:
    """Whatever the tree looks like, no pair costs less than on the tree."""
    found = read_topology_conf(text(name))
    device = device_named("h100")
    tiers = read_tiers()
    for root in found.roots:
        count = devices_per_node(found, None if found.ports else 8)
        levelling = level_tree(one_root((root,), ""), count, tiers, device.hbm_bytes)
        assert not levelling.optimistic
        assert len(set(levelling.order)) == len(root.hosts) * count


def read_tiers() -> tuple[Tier, ...]:
    """Return the links of nodes with H100."""
    return system_named("dgx-h100").tiers
