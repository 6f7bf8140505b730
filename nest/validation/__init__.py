"""Published measurements, and what the cost model says to them."""

from nest.validation.case import Case
from nest.validation.catalogue import FACTS, table_named
from nest.validation.compare import Comparison, Summary, compare, summarise
from nest.validation.contradictions import Contradiction, contradictions
from nest.validation.fact import Fact, FactTable
from nest.validation.memory_bounds import MemoryBound, contradicted_memory
from nest.validation.ordering import GOOD, Order, Ranking, ranking, scatter
from nest.validation.tables import TABLES, Table
from nest.validation.twins import Twins, contradicted_times, twins

__all__ = [
    "FACTS",
    "GOOD",
    "TABLES",
    "Case",
    "Comparison",
    "Contradiction",
    "Fact",
    "FactTable",
    "MemoryBound",
    "Order",
    "Ranking",
    "Summary",
    "Table",
    "Twins",
    "compare",
    "contradicted_memory",
    "contradicted_times",
    "contradictions",
    "ranking",
    "scatter",
    "summarise",
    "table_named",
    "twins",
]
