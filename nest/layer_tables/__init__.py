"""Layers that somebody measured, as a table: by tensor width and microbatch, read, posed as a problem, estimated.

Nothing is extrapolated: what was not measured is not tried, and it is said what that is.
"""

from nest.layer_tables.given import GivenTable, table_estimate
from nest.layer_tables.layers_file import (
    is_layer_table,
    layer_table_csv,
    layers_schema,
    read_layer_table,
    write_layer_table,
)
from nest.layer_tables.pose import PosedTable, TableRun, require_apart, table_problem
from nest.layer_tables.profiled import Said, is_profiled, read_profiled
from nest.layer_tables.table import LayerFigures, LayerTable, Point, TableRow

__all__ = [
    "GivenTable",
    "LayerFigures",
    "LayerTable",
    "Point",
    "PosedTable",
    "Said",
    "TableRow",
    "TableRun",
    "is_layer_table",
    "is_profiled",
    "layer_table_csv",
    "layers_schema",
    "read_layer_table",
    "read_profiled",
    "require_apart",
    "table_estimate",
    "table_problem",
    "write_layer_table",
]
