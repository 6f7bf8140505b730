"""Files that are right, to be spoilt by tests, and what a reader then says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nest.errors import InvalidPlan, InvalidProblem
from nest.files import read_plan

GOOD = """\
schema = "nest.problem/1"
name = "ten layers"
preset = "paper"

[cluster]
devices = 8
hbm_bytes = 1e9
levels = [
    { name = "node", fanout = 2, bandwidth_bytes_per_s = 1e9, latency_s = 1e-6 },
    { name = "rack", fanout = 4, bandwidth_bytes_per_s = 1e8, latency_s = 1e-5 },
]

[training]
microbatches = 16
optimizer = "adam"

[choices]
stages = "2..4"

[model]
layers = [{ kind = "in" }, { kind = "block", count = 8 }, { kind = "head" }]
skips = []
costs = [
    { kind = "in", forward_s = 1, backward_s = 2, parameter_bytes = 3, activation_bytes = 4, output_bytes = 5 },
    { kind = "block", forward_s = 6, backward_s = 7, parameter_bytes = 8, activation_bytes = 9, output_bytes = 10 },
    { kind = "head", forward_s = 1, backward_s = 2, parameter_bytes = 3, activation_bytes = 4 },
]
"""
INPUT: dict[str, Any] = {
    "maxDevices": 4,
    "maxMemoryPerDevice": 100,
    "devices_per_level": [2, 2],
    "bws": [400, 100],
    "latency_per_level": [0, 0.5],
    "mbsInBatch": 4096.0,
    "ep_degree": 1,
    "cp_degree": 1,
    "sp_enabled": False,
    "activationRecomputation": True,
    "optimizerAlgorithm": "Adam",
    "nodes": {
        "1": [
            {"id": at, "parameterSize": 10, "activationSize": 5, "optimalLatencyFw": 2, "optimalLatencyBw": 4}
            for at in range(4)
        ]
    },
    "edges": {"1": [{"sourceId": at, "destId": at + 1, "communicationCost": 3} for at in range(3)]},
}
COUNT = "give a whole number from 1 to 2147483648"
BYTES = "give bytes, a number from 0 to 2^53 = 9007199254740992"
SECONDS = "give seconds, a number from 0 to 1e9"
BANDWIDTH = "give bytes per second, a number above 0, from 1e-3 to 1e18"
SCHEMA = "or the artifact's own keys (maxDevices, nodes, edges, devices_per_level, ...)"


def message(read: Callable[[Path], object], path: Path) -> str:
    """Return the message of the error that a reader raises, without the name of the file at its beginning."""
    with pytest.raises(InvalidProblem) as caught:
        read(path)
    assert type(caught.value) is (InvalidPlan if read is read_plan else InvalidProblem)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")
