"""What each part of the optimisation is worth: plans of solvers that do not see it, judged by the full truth."""

from nest.ablate.blindings import BLINDINGS, Blinding, blinding_named
from nest.ablate.rows import FULL, Outcome, Overflow, Row, Verdict
from nest.ablate.study import ablate
from nest.ablate.sweeps import Point, apply_point, points_of
from nest.ablate.tasks import digest

__all__ = [
    "BLINDINGS",
    "FULL",
    "Blinding",
    "Outcome",
    "Overflow",
    "Point",
    "Row",
    "Verdict",
    "ablate",
    "apply_point",
    "blinding_named",
    "digest",
    "points_of",
]
