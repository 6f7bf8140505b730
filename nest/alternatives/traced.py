"""The search for the best plan once more, with what it does with each outer choice that it looks at."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nest.dp.search import optimum
from nest.dp.trace import Looked, Trace
from nest.problem import Problem
from nest.tables import Tables


def looked_at(problem: Problem, *, time_limit_s: float | None = None) -> Sequence[Looked]:
    """Return the outer choices that come up in a search, those with the least bounds first.

    Choices that never come up, since their bounds are above the best plan from the start, are not among them. Nothing
    is known of problems of other presets than `default`, and of those whose constraints tie stages together.
    """
    tables = Tables.of(problem)
    if problem.preset.objective != "sum" or not tables.grouped_prices or tables.filters.coupling:
        return ()
    trace = Trace()
    optimum(tables, None if time_limit_s is None else time.perf_counter() + time_limit_s, None, trace=trace)
    return trace.looked
