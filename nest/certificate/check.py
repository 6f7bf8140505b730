"""The claim that no plan takes less than a value: put to every outer choice, and what came out."""

from __future__ import annotations

from nest.certificate.choices import OuterChoices, Undecided
from nest.certificate.closure import Closure
from nest.certificate.family import Setting
from nest.certificate.played_check import settle_played
from nest.certificate.sum_check import settle_sums
from nest.certificate.verdict import Closed, Outcome, Verdict
from nest.cost.scale import scale_of
from nest.evaluate import evaluate
from nest.plan import Plan
from nest.problem import Problem
from nest.tables import Tables


def check(problem: Problem, value: int, deadline: float | None = None) -> Verdict:
    """Check the claim that no plan of a problem takes less than ``value`` ticks.

    Parameters
    ----------
    deadline
        Reading of `time.perf_counter` from which on the claim is left undecided.

    Returns
    -------
    Verdict
        A proof, a better plan as the judge prices it, or what was settled before the deadline.

    Raises
    ------
    LimitReached
        If a model branches so much that its cuts are too many.
    OutOfScope
        If stages may have widths of their own, and a side constraint is one for stages of one.
    """
    verdict, tables = Verdict(value), Tables(problem, scale_of(problem))
    try:
        if problem.preset.objective == "simulated":
            settle_played(tables, verdict, deadline)
        elif tables.grouped_prices:
            settle_sums(tables, verdict, deadline)
        else:
            _settle(tables, verdict, deadline)
        verdict.outcome = Outcome.PROVEN if verdict.better is None else Outcome.REFUTED
    except Undecided:
        pass
    return verdict


def _settle(tables: Tables, verdict: Verdict, deadline: float | None) -> None:
    """Settle the outer choices of a problem whose network times follow from levels."""
    variants = [OuterChoices(each, verdict.value, deadline) for each in tables.variants]
    verdict.choices = sum(len(replicas) for choices in variants for _, replicas in choices)
    for choices in variants:
        for replicas, counts in _left(choices, verdict).items():
            verdict.better = verdict.better or _faster(Setting(choices, replicas, counts), verdict)


def _left(choices: OuterChoices, verdict: Verdict) -> dict[int, list[int]]:
    """Return numbers of stages, by numbers of replicas, that neither fewer replicas nor the mean rule out."""
    left: dict[int, list[int]] = {}
    for stages, replicas in choices:
        choices.watch()
        fewest = choices.fewest_replicas(stages, replicas)
        fast = [count for count in fewest if choices.fast_enough(stages, count)]
        verdict.by_replicas += len(replicas) - len(fewest)
        verdict.by_mean += len(fewest) - len(fast)
        for count in fast:
            left.setdefault(count, []).append(stages)
    return left


def _faster(setting: Setting, verdict: Verdict) -> Plan | None:
    """Return a plan that takes less than the value, and write down what was ruled out."""
    families, closed = list(setting.families()), set[int]()
    while families:
        closure = Closure(setting, families.pop())
        fewest = closure.fewest()
        if int(fewest[0][-1].min()) > closure.blocks:
            continue
        closed |= set(closure.family.stages)
        path = closure.path(fewest)
        if path is not None:
            plan = closure.plan(path)
            judged = evaluate(setting.problem, plan)
            faster = judged.objective_ticks is not None and judged.objective_ticks < verdict.value
            if faster and judged.legal:
                return plan
            families += setting.halves(closure.family) if faster else setting.parts(closure.family, closure.slow(path))
    verdict.by_levels += len(setting.counts) - len(closed)
    verdict.closed += [Closed(setting.choices.tables.variant, count, setting.replicas) for count in sorted(closed)]
    return None
