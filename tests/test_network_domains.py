"""NVLink beyond a node, as far as files say, and hosts whose devices have links of their own to each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nest.files.cluster_file import read_network
from nest.hardware import Hardware, cluster_named

RACKS = """
switches:
  core: {switches: [spine]}
  spine: {switches: [leaf-1, leaf-2]}
blocks:
- switch: leaf-1
  nodes: ["n[01-18]"]
  annotations: {accelerator.topology.test/domain: rack-1}
- switch: leaf-2
  nodes: ["n[19-36]"]
  annotations: {accelerator.topology.test/domain: rack-2}
"""
TREE = "SwitchName=a Nodes=n[01-18]\nSwitchName=b Nodes=n[19-36]\nSwitchName=top Switches=a,b\n"
BLOCKS = "BlockName=a Nodes=n[01-{size}]\nBlockName=b Nodes=m[01-{size}]\n"


def _levels(hardware: Hardware) -> list[tuple[str, int]]:
    return [(level.name, level.fanout) for level in hardware.cluster.levels]


def _read(folder: Path, text: str, like: str = "gb200-nvl72", gpus: int = 4) -> Hardware:
    file = folder / "network"
    file.write_text(text)
    return read_network(file, like=like, gpus_per_node=gpus)


def test_domains_of_racks(tmp_path: Path) -> None:
    """Catches NVLink that ends at nodes of four where the file names the racks that it joins."""
    hardware = _read(tmp_path, RACKS)
    assert _levels(hardware) == [("nvl72", 72), ("spine", 2)]
    assert hardware.notes == ()


def test_two_domains_below_one_switch(tmp_path: Path) -> None:
    """Catches domains taken for switches: a leaf may hold several, and what joins them is no NVLink."""
    one_leaf = RACKS.replace("[leaf-1, leaf-2]", "[leaf-1]").replace("switch: leaf-2", "switch: leaf-1")
    assert _levels(_read(tmp_path, one_leaf)) == [("nvl72", 72), ("leaf", 2)]


def test_links_within_a_host_stay_there(tmp_path: Path) -> None:
    """Catches blocks of hosts taken for NVLink where a system has NVSwitch within a host, here half equipped."""
    assert _levels(_read(tmp_path, BLOCKS.format(size="04"), "dgx-h100"))[0] == ("nvswitch", 4)
    assert _levels(_read(tmp_path, RACKS, "dgx-h100"))[0] == ("nvswitch", 4)


def test_ends_at_the_node_unless_said(tmp_path: Path) -> None:
    """Catches silence where a file leaves open which nodes are a rack, or has blocks too large for one."""
    for text, said in ((TREE, "does not say which"), (BLOCKS.format(size="36"), "has groups of 144 devices")):
        hardware = _read(tmp_path, text)
        assert _levels(hardware)[0] == ("nvl72", 4)
        assert any(f"nvl72 joins 72 devices, and the file {said}" in note for note in hardware.notes)
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"h{at} slots=4\n" for at in range(4)))
    assert any("ends at the node" in note for note in read_network(hosts, like="gb200-nvl72").notes)


def test_ports_do_not_tell_hosts(tmp_path: Path) -> None:
    """Catches NVLink left out in silence where nodes are named by addresses of ports."""
    file = tmp_path / "network"
    file.write_text("SwitchName=a Nodes=0x155dfffd33ff7d,0x155dfffd33ffbd\n")
    assert any("nvswitch is left out" in note for note in read_network(file, like="azure-ndv4").notes)


MESH = "\n".join(
    ["=== Link Type between two GPUs ===", " ".join(f"GPU{at}" for at in range(8))]
    + [f"GPU{at} " + " ".join("0" if to == at else "XGMI" for to in range(8)) for at in range(8)]
)
CUBE = """\
\tGPU0\tGPU1\tGPU2\tGPU3
GPU0\t X \tNV2\tNV1\tNV1
GPU1\tNV2\t X \tNV1\tNV1
GPU2\tNV1\tNV1\t X \tNV2
GPU3\tNV1\tNV1\tNV2\t X
"""


def test_a_fully_linked_host_is_the_system_of_that_name(tmp_path: Path) -> None:
    """Catches seven links to seven others counted as one: collectives took seven times as long as by name."""
    file = tmp_path / "showtopo"
    file.write_text(MESH)
    read, named = read_network(file, device="mi300x").cluster, cluster_named("mi300x:8").cluster
    (level,), (known,) = read.levels, named.levels
    assert (level.bandwidth_bytes_per_s, level.pair_bytes_per_s) == (448e9, 64e9)
    assert level == replace(known, name=level.name)


def test_own_links_add_up_level_by_level(tmp_path: Path) -> None:
    """Catches the two single links of a quad counted as one, and links through a switch counted more than once."""
    file = tmp_path / "topo"
    file.write_text(CUBE)
    levels = read_network(file, device="v100-16gb").cluster.levels
    assert [(level.bandwidth_bytes_per_s, level.pair_bytes_per_s) for level in levels] == [(50e9, None), (50e9, 25e9)]
    file.write_text(CUBE.replace("NV2", "NV6").replace("NV1", "NV6"))
    assert [level.bandwidth_bytes_per_s for level in read_network(file, device="v100-16gb").cluster.levels] == [150e9]
    file.write_text(CUBE.replace("NV1", "SYS"))
    assert [level.bandwidth_bytes_per_s for level in read_network(file, device="v100-16gb").cluster.levels][1] == 10e9
