"""``nest show`` of networks, clusters and graphs with branches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_cluster_systems import CONFIGURATOR, METIS
from test_dag_files import PARTITIONING, PIPERS

from nest.cli.program import run

SLURM = "SwitchName=root Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=a[1-2]\nSwitchName=leaf2 Nodes=a[3-4]\n"
CLUSTER = """schema = "nest.cluster/1"
device = "h100-sxm"
devices = 8
levels = [{ fanout = 8, bandwidth_gb_per_s = 450, latency_us = 1 }]
"""


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """Return what is shown as JSON, after the text was, too."""
    assert run(["show", *arguments]) == 0
    assert capsys.readouterr().out
    assert run(["show", *arguments, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Levels and devices of a tree of switches, once it is said what its nodes are."""
    path = tmp_path / "topology.conf"
    path.write_text(SLURM)
    facts = shown(capsys, str(path), "--like", "dgx-h100", "--gpus-per-node", "8")
    assert (facts["schema"], facts["devices"]) == ("nest.network/1", 32)
    levels = facts["levels"]
    assert isinstance(levels, list)
    assert [(level["fanout"], level["devices"]) for level in levels] == [(8, 8), (2, 16), (2, 32)]
    for more, what in (
        ([], "say of which devices with --device NAME, or --like SYSTEM"),
        (["--like", "dgx-h100"], "gpus_per_node"),
        (["--like", "dgx-h100", "--gpus-per-node", "8", "--vocab", "3"], "'--vocab' says nothing of a network"),
        (["--like", "dgx-h100", "-o", str(tmp_path / "x.csv")], "'-o' is for measured layers"),
    ):
        assert run(["show", str(path), *more]) == 2
        error = capsys.readouterr().err
        assert what in error
        assert error.count("\n") == 1


def test_a_list_of_hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no mark of its own: options say that it is one."""
    path = tmp_path / "hosts"
    path.write_text("a slots=8\nb slots=8\n")
    assert shown(capsys, str(path), "--like", "dgx-h100", "--gpus-per-node", "8")["devices"] == 16


def test_a_cluster_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its levels, and nothing that a network leaves open."""
    path = tmp_path / "mine.toml"
    path.write_text(CLUSTER)
    facts = shown(capsys, str(path))
    assert (facts["name"], facts["device"], facts["devices"]) == ("mine", "h100-sxm", 8)
    assert run(["show", str(path), "--gpus-per-node", "8"]) == 2
    assert "'--gpus-per-node' says nothing of a cluster file of ours" in capsys.readouterr().err


@pytest.mark.parametrize(("tree", "name"), [(PARTITIONING, "dnn-partitioning"), (PIPERS, "piper")])
def test_a_graph_with_branches(
    tree: dict[str, Any], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes, edges, devices and sums of inputs of other planners."""
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(tree))
    facts = shown(capsys, str(path))
    assert (facts["schema"], facts["preset"]) == ("nest.dag/1", name)
    assert (facts["nodes"], facts["edges"]) == (len(tree["nodes"]), len(tree["edges"]))
    totals = facts["totals"]
    assert isinstance(totals, list)
    expected = {"dnn-partitioning": [("accelerator", 1, 4, 4)], "piper": [("device", 1, 2, 2), ("device", 2, 1, 1)]}
    found = [tuple(each[key] for key in ("class", "width", "layers", "options")) for each in totals]
    assert found[: len(expected[name])] == expected[name]
    assert facts["backward_nodes"] == (1 if name == "dnn-partitioning" else 0)
    assert run(["show", str(path), "--like", "dgx-h100"]) == 2
    assert "'--like' says nothing of an input of" in capsys.readouterr().err


def test_systems_of_other_planners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What they leave open stands behind the name, or in a file beside."""
    path, hosts = tmp_path / "system.yaml", tmp_path / "hosts"
    path.write_text(CONFIGURATOR)
    assert shown(capsys, f"{path}:16")["devices"] == 16
    assert run(["show", str(path)]) == 2
    assert "does not say how many devices; add :N" in capsys.readouterr().err
    path.write_text(json.dumps(dict.fromkeys(("one", "two"), METIS["one"])))
    hosts.write_text("one slots=4\ntwo slots=4\n")
    assert shown(capsys, str(path), "--hostfile", str(hosts))["devices"] == 8
