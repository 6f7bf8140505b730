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


LONGER = {
    "activation_recomputation_2205_05198": "recomputation",
    "megatron_sc21_table1": "megatron_sc21",
    "bloom_flat": "bloom",
    "simumax_b200_v12": "b200",
    "torchtitan_llama3_h100_202412": "torchtitan",
    "llmfoundry_mpt": "llm_foundry",
    "mist_tuned_plans": "mist",
    "issue_facts": "issues",
    "nccl_allreduce_8xh100_single_node": "nccl_sweep",
    "mleng_allreduce_table": "nodes_sweep",
    "collective_busbw_nvidia_gtc": "bus_bandwidth",
    "zero_bubble_schedules": "schedules",
    "nvidia_bridge_starting_points": "starts",
    "scalingbook_tpu": "tpu",
}
"""Longer names of the tables, which say where their rows were published."""


def table_named(name: str) -> Table | FactTable:
    """Return a table by its name, or by its longer one.

    Raises
    ------
    InvalidProblem
        If there is none.
    """
    every = (*TABLES, *FACTS)
    for table in every:
        if table.name == LONGER.get(name, name):
            return table
    raise InvalidProblem("table", f"{name!r} is none", f"one of {', '.join(table.name for table in every)}")
