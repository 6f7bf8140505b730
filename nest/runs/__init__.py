"""From a real model and a real cluster to a problem: which variants there are, and what each costs.

A `Run` is what a person has: a model, a cluster, a sequence, a batch. `problem_of` poses the problem under preset
``default``, with the costs of `nest.costing`; `read_run` reads a run from a file.
"""

from nest.files.left_out import LeftOut
from nest.runs.carried import SelfContained, read_self_contained
from nest.runs.contenders import all_if_few, contenders
from nest.runs.estimate import estimate
from nest.runs.figures import Estimate, StageMemory, StageTime
from nest.runs.given import Given, require_batch
from nest.runs.pairs import PairGap, pair_gap
from nest.runs.pose import Posed, problem_of
from nest.runs.reserve import Reserve, default_reserve_bytes
from nest.runs.run import Run
from nest.runs.run_file import is_run, read_run
from nest.runs.tried import EVERY_PLAN, Tried
from nest.runs.variants import check_widths

__all__ = [
    "EVERY_PLAN",
    "Estimate",
    "Given",
    "LeftOut",
    "PairGap",
    "Posed",
    "Reserve",
    "Run",
    "SelfContained",
    "StageMemory",
    "StageTime",
    "Tried",
    "all_if_few",
    "check_widths",
    "contenders",
    "default_reserve_bytes",
    "estimate",
    "is_run",
    "pair_gap",
    "problem_of",
    "read_run",
    "read_self_contained",
    "require_batch",
]
