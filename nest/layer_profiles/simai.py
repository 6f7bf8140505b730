"""Workloads of SimAI and ASTRA-sim: a header of keys, the number of rows, then a row of tabs for each layer."""

from __future__ import annotations

import re
from collections import Counter

from nest.errors import InvalidProblem
from nest.layer_profiles.profile import LayerProfile, ProfiledLayer
from nest.layer_profiles.values import number

UNITS = "not in the file: times taken as nanoseconds, messages as bytes"

_HEAD = re.compile(r"HYBRID_\w+[ \t]+(?P<keys>\w+: .*)")
_KEY = re.compile(r"(?P<name>\w+): (?P<value>\S+)")
_BATCH = re.compile(r"(?<![a-z])mbs(?P<number>\d+)", re.IGNORECASE)
_CELLS = 12
_NS = 1e-9

UNSTATED = "no unit is in the file: times are taken as nanoseconds, as ASTRA-sim does"
ONES = "times of 1 stand for what was not timed"


def is_simai(text: str) -> bool:
    """Whether a text is a workload, by its header."""
    return _HEAD.fullmatch(text.partition("\n")[0].strip()) is not None


def read_simai(text: str, file_name: str) -> LayerProfile:
    """Return the profile: times without messages, which each layer's kind names; its names are not unique."""
    head, *lines = text.splitlines()
    keys = dict(_KEY.findall(head))
    if not lines or not lines[0].strip().isdecimal():
        raise InvalidProblem("line 2", "no number of rows", "give it below the header")
    rows = [(at, line.split("\t")) for at, line in enumerate(lines[1:], 3) if line.strip()]
    layers = tuple(_layer(cells, f"line {at}") for at, cells in rows)
    names = Counter(layer.name for layer in layers)
    several = sum(count > 1 for count in names.values())
    batch = _BATCH.search(file_name)
    width = keys.get("model_parallel_NPU_group", "")
    warnings = [UNSTATED]
    if int(lines[0]) != len(rows):
        warnings.append(f"the file says that it has {int(lines[0])} rows, and has {len(rows)}")
    if several:
        warnings.append(f"{len(layers)} rows of {len(names)} names: {several} of them come several times")
    if any(cells[column] == "1" for _, cells in rows for column in (2, 5, 8)):
        warnings.append(ONES)
    return LayerProfile(
        "SimAI workload",
        UNITS,
        layers,
        tensor=int(width) if width.isdecimal() else None,
        microbatch=int(batch["number"]) if batch else None,
        warnings=tuple(warnings),
    )


def _layer(cells: list[str], where: str) -> ProfiledLayer:
    """Return a layer: name, dependency (-1 for none), then of three passes the time, what is sent and its bytes."""
    if len(cells) != _CELLS:
        raise InvalidProblem(where, f"{len(cells)} cells", f"give {_CELLS}, with tabs between them")
    forward, inputs, weights = (_NS * number(cells[at], where) for at in (2, 5, 8))
    sent = ", ".join(f"{cells[at].lower()} {cells[at + 1]}" for at in (3, 6, 9) if cells[at] != "NONE")
    return ProfiledLayer(cells[0], sent, forward_s=forward, backward_s=inputs + weights)
