"""Published measurements, and what the cost model says to them."""

from nest.validation.case import Case
from nest.validation.compare import Comparison, Summary, compare, summarise
from nest.validation.tables import TABLES, Table, table_named

__all__ = ["TABLES", "Case", "Comparison", "Summary", "Table", "compare", "summarise", "table_named"]
