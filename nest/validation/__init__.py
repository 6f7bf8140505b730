"""Published measurements, and what the cost model says to them."""

from nest.validation.case import Case
from nest.validation.catalogue import FACTS, table_named
from nest.validation.compare import Comparison, Order, Summary, compare, orders, scatter, summarise
from nest.validation.fact import Fact, FactTable
from nest.validation.tables import TABLES, Table

__all__ = [
    "FACTS",
    "TABLES",
    "Case",
    "Comparison",
    "Fact",
    "FactTable",
    "Order",
    "Summary",
    "Table",
    "compare",
    "orders",
    "scatter",
    "summarise",
    "table_named",
]
