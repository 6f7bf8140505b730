"""Plans in the words of training frameworks: files that they start from, checked against their own rules."""

from __future__ import annotations

from collections.abc import Mapping

from nest.export.accelerate import Accelerate
from nest.export.base import Assignment, Export, Fault, Framework, Inexpressible
from nest.export.certifying import certify_for, certify_least_for
from nest.export.deepspeed import DeepSpeed
from nest.export.exporting import Exported, export_plan, exported
from nest.export.megatron import Megatron
from nest.export.nearest import BestFor, best_for, nearest, problem_for
from nest.export.ranks import Rank, ranks_csv, ranks_json, ranks_of
from nest.export.torchtitan import Torchtitan

FRAMEWORKS: Mapping[str, Framework] = {
    each.name: each for each in (Megatron(), Torchtitan(), DeepSpeed(), Accelerate())
}
"""Frameworks by name."""


__all__ = [
    "FRAMEWORKS",
    "Assignment",
    "BestFor",
    "Export",
    "Exported",
    "Fault",
    "Framework",
    "Inexpressible",
    "Rank",
    "best_for",
    "certify_for",
    "certify_least_for",
    "export_plan",
    "exported",
    "nearest",
    "problem_for",
    "ranks_csv",
    "ranks_json",
    "ranks_of",
]
