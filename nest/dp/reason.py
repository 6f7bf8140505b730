"""Why no plan exists: the reason that rules out the most, in one sentence."""

from __future__ import annotations

from nest.tables import Tables


def why_infeasible(tables: Tables) -> str:
    return "TODO"
