"""Tables of measured collectives that other planners wrote, in bytes, seconds and bytes per second."""

from nest.collective_tables.reading import collectives_of, is_collective_table, read_collective_table
from nest.collective_tables.table import CollectiveRow, CollectiveTable

__all__ = ["CollectiveRow", "CollectiveTable", "collectives_of", "is_collective_table", "read_collective_table"]
