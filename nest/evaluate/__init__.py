"""The judge: what a plan costs and which rules it breaks, from the definition.

It never reads the solvers' tables. It walks every stage of every replica at its true position, with the formulas of
`nest.cost`, and names each broken rule as `docs/formulation.md` does.
"""

from nest.evaluate.crossing import crossing
from nest.evaluate.judge import evaluate
from nest.evaluate.played import pipeline_of, sync_of
from nest.evaluate.rules import sharing_replicas
from nest.evaluate.verdict import Evaluation, Levels, StageFigures, Violation

__all__ = [
    "Evaluation",
    "Levels",
    "StageFigures",
    "Violation",
    "crossing",
    "evaluate",
    "pipeline_of",
    "sharing_replicas",
    "sync_of",
]
