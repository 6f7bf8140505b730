"""Published measurements beside what the cost model says of them, each computed once in a test run."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from nest.validation import Comparison, Fact, FactTable, Table, compare, table_named

compare_once = cache(compare)
"""`compare`, of each case once."""


@cache
def table_once(name: str) -> Table | FactTable:
    """Return a table; one of other figures computes its rows once."""
    table = table_named(name)
    return replace(table, facts=cache(table.facts)) if isinstance(table, FactTable) else table


@cache
def compared(name: str) -> tuple[Comparison, ...]:
    """Return all comparisons of a table."""
    table = table_named(name)
    assert isinstance(table, Table)
    return tuple(compare_once(case) for case in table.cases())


def facts(name: str) -> tuple[Fact, ...]:
    """Return all rows of a table of other figures."""
    table = table_once(name)
    assert isinstance(table, FactTable)
    return table.facts()
