"""Lists of hosts with slots: as MPI, DeepSpeed and Metis write them."""

from __future__ import annotations

import re

from nest.errors import InvalidProblem
from nest.networks.hostlist import hosts
from nest.networks.tree import Group

SLOTS = re.compile(r"(?:slots|max_slots|max-slots)\s*=\s*([0-9]{1,7})", re.ASCII | re.IGNORECASE)


def read_hostfile(text: str, gpus_per_node: int | None = None) -> tuple[Group, dict[str, int]]:
    """Return hosts as one group, and the devices of each.

    A line is ``host slots=8`` (MPI, DeepSpeed), ``host:8`` (MPICH), ``host 8`` (Metis) or ``host`` alone; host lists
    in brackets are expanded. A host that is there again has so many slots more, as in MPI.

    Parameters
    ----------
    gpus_per_node
        Devices of hosts whose line does not say.

    Raises
    ------
    InvalidProblem
        If a line is none of these, a host has no slots, or there is no host.
    """
    slots: dict[str, int] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        if line:
            names, count = _line(line, f"line {number}", gpus_per_node)
            for name in names:
                slots[name] = slots.get(name, 0) + count
    if not slots:
        raise InvalidProblem("", "no host", "give lines such as 'node1 slots=8'")
    return Group("hosts", tuple(slots)), slots


def _line(line: str, where: str, gpus_per_node: int | None) -> tuple[tuple[str, ...], int]:
    name, _, rest = re.sub(r"\s+", " ", line).partition(" ")
    name, colon, digits = name.rpartition(":") if re.search(r":[0-9]+$", name) else (name, "", "")
    rest = digits if colon else rest.strip()
    keyed = SLOTS.search(rest)
    count = keyed[1] if keyed else rest
    if not count:
        if gpus_per_node is None:
            raise InvalidProblem(where, f"{name!r} without slots", "add slots=8, or give --gpus-per-node")
        return hosts(name, where), gpus_per_node
    if not re.fullmatch("[0-9]{1,7}", count, re.ASCII) or int(count) < 1:
        raise InvalidProblem(where, f"{rest!r} is no number of slots", "write 'host slots=8', 'host:8' or 'host 8'")
    return hosts(name, where), int(count)
