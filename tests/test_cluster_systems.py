"""Systems as other planners describe them, in the place of a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nest.cli.evaluate import evaluate_command
from nest.cli.show import show_command
from nest.cli.solve import solve_command
from nest.errors import InvalidProblem
from nest.files.cluster_file import ClusterText, cluster_of
from nest.files.cluster_systems import Wanted, system_kind, system_text
from nest.hardware import Hardware, device_named

METIS = {
    "one": {"instance_type": "V100", "inter_bandwidth": 3e8, "intra_bandwidth": 5e9, "memory": 32},
    "two": {"instance_type": "T4", "inter_bandwidth": 2e8, "intra_bandwidth": 6e9, "memory": 15},
    "three": {"instance_type": "V100", "inter_bandwidth": 3e8, "intra_bandwidth": 5e9, "memory": 32},
}
EXPLORER = {
    "name": "cloud",
    "num_devices": 64,
    "num_nodes": 8,
    "f32_flops": 156e12,
    "f16_flops": 312e12,
    "mem_cap": 40e9,
    "mem_bw": 1555e9,
    "num_nvlinks": 12,
    "bw_per_nvlink": 50e9,
    "num_ibroce_ports": 8,
    "ibroce_bw": 6.25e9,
}
CONFIGURATOR = """
gpu: {mem_bw: 3350000000000, mem_capacity: 85899345920, bfloat16_tc_flops: 989000000000000}
node: {num_gpus_per_node: 8, inter_node_bw: 50000000000, intra_node_bw: 450000000000, p2p_latency: 0.00001}
"""
NETQ = [
    {
        "links": [
            {"src": "a", "target": "s", "size": 4, "compounded_links": []},
            {"src": "b", "target": "s", "size": 4},
        ],
        "nodes": [
            {
                "compounded_nodes": [
                    {"id": "a", "name": "host a", "device_type": "host"},
                    {"id": "b", "name": "host b", "device_type": "host"},
                    {"id": "s", "name": "leaf", "device_type": "switch"},
                ]
            }
        ],
    }
]
GPT = ("--family", "gpt", "--layers", "2", "--hidden", "256", "--heads", "4", "--vocab", "512", "--seq", "128")
TYPED = (*GPT, "--global-batch", "8", "--data", "4", "--zero", "0", "--microbatch", "1")


def hardware(text: str, wanted: Wanted | None = None) -> Hardware:
    """Return what a description comes to."""
    wanted = wanted or Wanted()
    return cluster_of(ClusterText("name", system_text(system_kind(text), text, wanted, "name")))


def answered(*arguments: str) -> dict[str, Any]:
    """Return what ``nest solve`` prints for programs."""
    result = CliRunner().invoke(solve_command, (*arguments, "--json"), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def refused(*arguments: str) -> str:
    """Return what ``nest solve`` refuses, in words."""
    return str(CliRunner().invoke(solve_command, arguments, standalone_mode=False).exception)


def test_hosts_of_metis() -> None:
    """Hosts of one kind are neighbours and a class; memory is the file's, the slowest links count for all."""
    found = hardware(json.dumps(METIS), Wanted(hosts="three 4 \ntwo 4\none 4\n"))
    cluster = found.cluster
    assert cluster.class_names == ("v100-32gb", "t4")
    assert (cluster.devices, cluster.classes[0].ranges) == (12, ((8, 12),))
    assert (cluster.hbm_bytes, cluster.classes[0].hbm_bytes) == (32 * 10**9, 15 * 10**9)
    assert [(level.fanout, level.bandwidth_bytes_per_s) for level in cluster.levels] == [(4, 5e9), (3, 2e8)]
    assert found.device.peaks == device_named("v100-32gb").peaks


def test_hosts_of_different_sizes() -> None:
    """A host with more devices comes first on the line, and classes still say which devices are whose."""
    found = hardware(json.dumps(METIS), Wanted(hosts="one 2\ntwo 4\nthree 2\n")).cluster
    assert (found.devices, found.class_names, found.classes[0].ranges) == (8, ("v100-32gb", "t4"), ((0, 4),))


def test_scale_explorer() -> None:
    """NVLink counts both directions; the number of devices may be another."""
    found = hardware(json.dumps(EXPLORER))
    assert [(each.fanout, each.bandwidth_bytes_per_s) for each in found.cluster.levels] == [(8, 300e9), (8, 6.25e9)]
    assert (found.device.name, found.device.links, found.cluster.devices) == ("cloud", 12, 64)
    assert hardware(json.dumps(EXPLORER), Wanted(devices=20)).cluster.partial


def test_ai_configurator(tmp_path: Path) -> None:
    """The number of devices stands behind the name of the file; a plan carries the system."""
    path, plan = tmp_path / "h100.yaml", tmp_path / "plan.json"
    path.write_text(CONFIGURATOR)
    assert "does not say how many devices; add :N, as in FILE:64" in refused(*TYPED, "--cluster", str(path))
    assert answered(*TYPED, "--cluster", f"{path}:16", "-o", str(plan))["status"] == "optimal"
    path.unlink()
    assert CliRunner().invoke(evaluate_command, [str(plan)], standalone_mode=False).return_value == 0


def test_metis_on_the_command_line(tmp_path: Path) -> None:
    """Devices of hosts come from a list of hosts, or all hosts have as many; nothing else is asked for."""
    path, hosts = tmp_path / "cluster.json", tmp_path / "hosts"
    path.write_text(json.dumps(METIS))
    hosts.write_text("one 4 \ntwo 4\n")
    assert "give --hostfile FILE, or --gpus-per-node N" in refused(*TYPED, "--cluster", str(path))
    assert "with links of its own" in refused(*TYPED, "--cluster", str(path), "--like", "dgx-a100")
    assert answered(*TYPED, "--dtype", "fp16", "--cluster", str(path), "--hostfile", str(hosts))["status"] == "optimal"
    assert answered(*TYPED, "--device", "a100", "--cluster", str(path), "--gpus-per-node", "4")["status"] == "optimal"
    hosts.write_text("four 4\n")
    assert "a host 'four'; the cluster file has one, two" in refused(
        *TYPED, "--cluster", str(path), "--hostfile", str(hosts)
    )
    assert "goes with a cluster file of Metis" in refused(*TYPED, "--cluster", "dgx-h100:8", "--hostfile", str(hosts))


def test_netq(tmp_path: Path) -> None:
    """Cables of a host are shared by its devices, with the latencies of a system that is like it."""
    path, problem = tmp_path / "netq.json", tmp_path / "problem.toml"
    path.write_text(json.dumps(NETQ))
    like = ("--cluster", str(path), "--like", "dgx-h100", "--gpus-per-node", "8")
    answered(*TYPED, *like, "--write-problem", str(problem))
    assert (
        'fanout = 8, bandwidth_bytes_per_s = 450_000_000_000, latency_s = 3.4e-06, link = "nvlink"'
        in problem.read_text()
    )
    assert "fanout = 2, bandwidth_bytes_per_s = 25_000_000_000, latency_s = 1.4e-05" in problem.read_text()
    assert "gpus_per_node: not given" in refused(*TYPED, *like[:4])


@pytest.mark.parametrize("name", ["mine.toml", "mine"])
def test_cluster_without_a_schema(name: str, tmp_path: Path) -> None:
    """A cluster file of ours that lacks its schema was taken for the description of a network."""
    path = tmp_path / name
    path.write_text('device = "h100-sxm"\ndevices = 8\nlevels = []\n')
    assert 'schema: missing; give schema = "nest.cluster/1"' in refused(*TYPED, "--cluster", str(path))


def test_own_device_with_links(tmp_path: Path) -> None:
    """A whole number of links in a table of figures was read as 12.0, and refused."""
    path = tmp_path / "mine.toml"
    figures = "hbm_gib = 40, hbm_gb_per_s = 1555, bf16_tflops = 312, link_gb_per_s = 25, links = 12"
    levels = 'levels = [{ name = "node", fanout = 8, bandwidth_gb_per_s = 300, latency_us = 3 }]'
    path.write_text(f'schema = "nest.cluster/1"\ndevices = 8\ndevice = {{ {figures} }}\n{levels}\n')
    assert answered(*TYPED, "--cluster", str(path))["status"] == "optimal"


@pytest.mark.parametrize("value", [None, -1, 0, float("nan"), float("inf"), 1e300, 10**400, "8", [], {}, True])
@pytest.mark.parametrize("described", [METIS, EXPLORER], ids=["Metis", "ScaleExplorer"])
def test_figures_that_nothing_has(described: dict[str, Any], value: object) -> None:
    """Each figure, and each table, is refused where it is none; never by an error of Python's."""
    hosts = described is METIS
    for key, inner in described.items():
        others = [value, *({**inner, name: value} for name in inner)] if hosts else [value]
        for other in others:
            if key == "name":
                continue
            text = json.dumps({**described, key: other})
            with pytest.raises(InvalidProblem):
                hardware(text, Wanted(gpus_per_node=4 if hosts else None))


def test_tables_that_are_none() -> None:
    """What is no table, and nodes that do not share devices evenly, are named."""
    for text, what in (
        (json.dumps({**METIS, "one": 3}), "one: 3; give a table for each host"),
        (json.dumps({**EXPLORER, "num_nodes": 0}), "num_nodes: 0; give a number above 0"),
        (json.dumps({**EXPLORER, "num_nodes": 7}), "on 7 nodes; give as many for each node"),
        (json.dumps({**EXPLORER, "num_devices": 1.5}), "num_devices: 1.5; give a whole number from 1"),
        (CONFIGURATOR.replace("gpu: {", "gpu: {fp8_tc_flops: x, "), "fp8_tc_flops: 'x'"),
        ('{"intra_bandwidth": ' + "[" * 100_000 + '"inter_bandwidth" "instance_type"', "nested too deeply"),
    ):
        with pytest.raises(InvalidProblem) as caught:
            hardware(text, Wanted(gpus_per_node=4) if "intra_bandwidth" in text else Wanted(devices=8))
        assert what in str(caught.value)


def test_show_says_which_devices(tmp_path: Path) -> None:
    """Of several classes only the first was named, for all devices."""
    path, hosts = tmp_path / "cluster.json", tmp_path / "hosts"
    path.write_text(json.dumps(METIS))
    hosts.write_text("one 4\ntwo 4\n")
    typed = [str(path), "--hostfile", str(hosts)]
    shown = CliRunner().invoke(show_command, typed, standalone_mode=False).stdout
    assert "4 devices of v100-32gb, 29.8 GiB each" in shown
    assert "4 devices of t4, 14 GiB each" in shown
    found = json.loads(CliRunner().invoke(show_command, [*typed, "--json"], standalone_mode=False).stdout)
    assert [(each["device"], each["devices"]) for each in found["classes"]] == [("v100-32gb", 4), ("t4", 4)]
