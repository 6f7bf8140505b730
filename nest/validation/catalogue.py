"""Every table, by name."""

from __future__ import annotations

from nest.errors import InvalidProblem
from nest.validation.activations import activations
from nest.validation.collectives import bus_bandwidths, nccl_sweep, nodes_sweep
from nest.validation.fact import FactTable
from nest.validation.issues import issues
from nest.validation.ratings import tpu_ratings
from nest.validation.schedules import schedules
from nest.validation.starts import starts
from nest.validation.tables import TABLES, Table

FACTS = (
    FactTable("issues", issues),
    FactTable("activations", activations),
    FactTable("nccl_sweep", nccl_sweep),
    FactTable("nodes_sweep", nodes_sweep),
    FactTable("bus_bandwidth", bus_bandwidths),
    FactTable("schedules", schedules),
    FactTable("starts", starts),
    FactTable("tpu", tpu_ratings),
)
"""All tables of other figures."""


def table_named(name: str) -> Table | FactTable:
    """Return a table by its name.

    Raises
    ------
    InvalidProblem
        If there is none.
    """
    every = (*TABLES, *FACTS)
    for table in every:
        if table.name == name:
            return table
    raise InvalidProblem("table", f"{name!r} is none", f"one of {', '.join(table.name for table in every)}")
