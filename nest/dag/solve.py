"""The best plan on a graph with branches, with its proof; or the best of a smaller space, labelled so."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from nest.dag import split, staged
from nest.dag.load import Load
from nest.dag.plan import DagStage, Price, judge
from nest.dag.problem import DagProblem
from nest.dag.replicated import ReplicatedTables, replicated_tables
from nest.dag.result import DagResult
from nest.dag.split import Chain, SplitSearch
from nest.dag.staged import Line, StagedSearch
from nest.dag.tables import SplitTables, folded, split_tables
from nest.downsets import MOST_DOWNSETS, Downsets, TooManyDownsets, all_downsets, downsets_along, topological_orders
from nest.errors import LimitReached, NestError
from nest.result import Status

MOST_REPLICATED_DOWNSETS = 4_000
"""The limit where stages have replicas, unless asked otherwise: each pair is looked at in many shapes."""


@dataclass
class _Answer:
    """What a search knows; ``bound`` and the value of the plan in parts of a tick."""

    bound: int = 0
    value: int | None = None
    stages: tuple[DagStage, ...] = ()
    reason: str = ""
    downsets: int = 0
    complete: bool = True
    settled: bool = False
    """Whether the bound is that of the whole space, so that no plan is missing where there is none."""


@dataclass(frozen=True)
class _Watch:
    """Stops a search that takes too long."""

    limit_s: float | None
    begin: float = field(default_factory=time.perf_counter)

    def check(self) -> None:
        """Raise `LimitReached` after the limit."""
        if self.limit_s is not None and time.perf_counter() - self.begin > self.limit_s:
            raise LimitReached(f"the time limit of {self.limit_s:g} s was reached")


def solve_dag(problem: DagProblem, *, limit: int | None = None, time_limit_s: float | None = None) -> DagResult:
    """Return the best plan of a problem, with its proof.

    Where there are more downsets than the limit, the answer is the best plan over a few topological orders, with a
    lower bound for all plans: its status is `FEASIBLE`, or `UNKNOWN` without a plan, and its reason says so.

    Parameters
    ----------
    limit
        Downsets up to which all are searched; None for `MOST_DOWNSETS`, or `MOST_REPLICATED_DOWNSETS` with replicas.

    Raises
    ------
    InvalidProblem
        If its figures cannot be counted in ticks.
    """
    watch = _Watch(time_limit_s)
    if problem.preset.replicas:
        answer = _replicated(problem, MOST_REPLICATED_DOWNSETS if limit is None else limit, watch)
    else:
        answer = _split(problem, MOST_DOWNSETS if limit is None else limit, watch)
    return _judged(problem, answer, time.perf_counter() - watch.begin)


def _judged(problem: DagProblem, answer: _Answer, wall_s: float) -> DagResult:
    """Have the plan judged; a claim that the judge does not confirm is an internal error."""
    load = Load(problem)
    prices: tuple[Price, ...] = ()
    if answer.value is None:
        status = Status.INFEASIBLE if answer.settled else Status.UNKNOWN
    else:
        verdict = judge(problem, answer.stages)
        if verdict.violations or verdict.objective != answer.value:
            what = verdict.violations or f"its load is {verdict.objective}, not {answer.value}"
            raise NestError(f"the judge does not confirm the plan: {what}")
        status = Status.OPTIMAL if answer.bound == answer.value else Status.FEASIBLE
        prices = verdict.prices
    bound = None if status is Status.INFEASIBLE else answer.bound
    return DagResult(
        problem,
        load,
        status,
        answer.value,
        bound,
        answer.stages,
        prices,
        answer.reason if status is not Status.OPTIMAL else "",
        answer.downsets,
        answer.complete,
        wall_s,
    )


def _family(before: tuple[int, ...], limit: int, answer: _Answer) -> Downsets:
    """Return all downsets, or those of a few topological orders, and note which."""
    try:
        family = all_downsets(before, limit)
    except TooManyDownsets as error:
        family = downsets_along(topological_orders(before), len(before))
        answer.reason = f"{error}; this is the best plan over {len(family.sets)} downsets of a few topological orders"
    answer.downsets, answer.complete = len(family.sets), family.complete
    return family


def _split(problem: DagProblem, limit: int, watch: _Watch) -> _Answer:
    """Search stages of one device; leaves are folded, and where memory may forbid that, fewer of them try after try."""
    tables, answer = split_tables(problem), _Answer()
    reason = split.misfit(tables)
    if reason:
        return _Answer(reason=reason, settled=True)
    answer.bound = split.lower_bound(tables)
    try:
        for size in _sizes(tables):
            fold = folded(tables, size)
            family = _family(fold.kept.before, limit, answer)
            orders = downsets_along(topological_orders(fold.kept.before), len(fold.kept.units))
            _improve(answer, SplitSearch(fold.kept, orders, watch.check))
            if not family.complete:
                break
            _bound(answer, SplitSearch(fold.relaxed, family, watch.check), exact=fold.exact)
            if not answer.settled:
                _improve(answer, SplitSearch(fold.kept, family, watch.check))
            if answer.settled or answer.value == answer.bound:
                break
    except LimitReached as error:
        answer.reason = str(error)
    if answer.settled and answer.value is None:
        answer.reason = split.shortage(tables)
    return answer


def _improve(answer: _Answer, search: SplitSearch) -> None:
    """Take the best plan of a search if it is better."""
    chain = search.best(answer.bound, _upper(answer, search.tables))
    if chain is not None:
        _take(answer, search.tables, chain)


def _bound(answer: _Answer, search: SplitSearch, *, exact: bool) -> None:
    """Raise the bound to the best of a search that misses no plan; it is a plan itself where ``exact``."""
    try:
        chain = search.best(answer.bound, _upper(answer, search.tables))
    except LimitReached:
        answer.bound = search.lower
        raise
    if chain is None:
        answer.settled = True
        answer.bound = answer.bound if answer.value is None else answer.value
        return
    answer.bound = chain.value
    if exact:
        answer.settled = True
        _take(answer, search.tables, chain)


def _upper(answer: _Answer, tables: SplitTables) -> int:
    """Return a load below which a chain is worth finding."""
    if answer.value is not None:
        return answer.value
    return int(tables.ticks.max(axis=0).sum()) + sum(ticks for _, ticks in tables.tensors) + 1


def _take(answer: _Answer, tables: SplitTables, chain: Chain) -> None:
    problem = tables.load.problem
    stages = []
    for kind, units in chain.stages:
        places = sorted(layer for unit in units for layer in tables.units[unit].layers)
        name = problem.classes[kind].name
        layers = [problem.layers[at] for at in places]
        options = tuple(layer.options[name, 1][0].name for layer in layers)
        stages.append(DagStage(tuple(layer.id for layer in layers), name, options))
    answer.value, answer.stages = chain.value, tuple(stages)


def _sizes(tables: SplitTables) -> list[int | None]:
    """Return how large a leaf may be to be folded, try after try: any size first, nothing that takes memory last."""
    if not tables.memory_binds:
        return [None]
    sizes = {int(size) for size in tables.memory[~tables.ticks.any(axis=0)]} | {0}
    return [None, *sorted(sizes - {max(sizes)} | {0}, reverse=True)]


def _replicated(problem: DagProblem, limit: int, watch: _Watch) -> _Answer:
    """Search stages with replicas."""
    tables, answer = replicated_tables(problem), _Answer()
    reason = staged.misfit(tables)
    if reason:
        return _Answer(reason=reason, settled=True)
    answer.bound = staged.lower_bound(tables)
    family = _family(tables.before, limit, answer)
    search = StagedSearch(tables, family, watch.check)
    try:
        line = search.best(answer.bound, tables.load.most_parts)
        answer.settled = family.complete
    except LimitReached as error:
        line, answer.reason = search.found, str(error)
    if line is not None:
        answer.value, answer.stages = line.value, _stages(tables, line)
    elif answer.settled:
        answer.reason = "no way to cut the graph, with any shapes of stages and options of layers, fits into memory"
    if family.complete:
        answer.bound = search.lower if line is None or not answer.settled else line.value
    return answer


def _stages(tables: ReplicatedTables, line: Line) -> tuple[DagStage, ...]:
    problem = tables.load.problem
    stages = []
    for placed in line.stages:
        layers = tuple(problem.layers[at].id for at in placed.layers)
        chosen = zip(placed.layers, placed.options, strict=True)
        options = tuple(tables.options(at, placed.shape.width)[option].name for at, option in chosen)
        stages.append(DagStage(layers, problem.classes[0].name, options, *placed.shape))
    return tuple(stages)
