"""Which problems the programme covers: what it does not say is refused in one line, and no smaller space is solved."""

from __future__ import annotations

from dataclasses import MISSING, fields

from nest.constraints import Budget, Filters
from nest.errors import OutOfScope
from nest.presets import Preset
from nest.problem import Choices, Problem

REMEDY = "use the dynamic program"

KNOWN = frozenset(
    {"tensor", "expert", "context", "microbatch", "sequence", "replicas", "stages", "zero", "zero_degree", "recompute"}
    | {"stage_recompute", "recomputed", "hybrid", "price_at_most", "schedules", "chunks"}
    | {"stage_tensor", "shard_inside", "splits_batch"}
)
"""Choices that the programme takes into account."""


def sums(preset: Preset) -> bool:
    """Whether plans are priced as under `default`: a sum of loads, network times by the places of all members."""
    return (preset.objective, preset.sharding, preset.collectives) == ("sum", "replicas", "groups")


def levelled(preset: Preset) -> bool:
    """Whether plans are priced as under `artifact` and `paper`."""
    return (preset.objective, preset.sharding, preset.collectives) == ("bottleneck", "stage", "levels")


def played(preset: Preset) -> bool:
    """Whether plans are priced as under `simulated`: as their schedules are played."""
    return (preset.objective, preset.sharding, preset.collectives) == ("simulated", "replicas", "groups")


def family_of(preset: Preset) -> str:
    """Return how the names of modules begin that have the programme of a preset."""
    return "sum_" if sums(preset) else "played_" if played(preset) else ""


def require_scope(problem: Problem) -> None:
    """Raise `OutOfScope` where the programme does not say what the problem asks for."""
    preset = problem.preset
    if not (sums(preset) or levelled(preset) or played(preset)):
        what = f"the mathematical programme does not price as preset {preset.name!r} does"
        raise OutOfScope("preset", what, REMEDY)
    for name in problem.choices.uneven:
        _require_budgets(problem, f"choices.{name}")
    if played(preset) and (tied := Filters(problem).coupling):
        what = f"the programme of preset {preset.name!r} does not keep what ties stages together ({tied[0].kind})"
        raise OutOfScope("constraints", what, "leave it out, or take preset 'default'")
    for each in fields(Choices):
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if each.name not in KNOWN and getattr(problem.choices, each.name) != default:
            what = f"the mathematical programme does not know what {each.name} asks for"
            raise OutOfScope(f"choices.{each.name}", what, REMEDY)


def _require_budgets(problem: Problem, where: str) -> None:
    """Refuse what ties stages together beside stages with widths of their own, but for what a whole plan costs."""
    for each in Filters(problem).coupling:
        if not isinstance(each, Budget):
            what = f"the programme does not keep side constraint {each.kind} where stages have widths of their own"
            raise OutOfScope(where, what, "leave that constraint or this choice out")
