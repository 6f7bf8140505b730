"""Executes the shape of a plan: real training in PyTorch, on a few processes of this machine, beside one process alone.

`prepare` says what of a plan is executed, `execute` does it: a tiny model, cut into stages as the plan cuts its own, on
processes that exchange what replicas, stages and widths exchange. What comes of it is an `Outcome`: losses and weights
beside those of a single process, and what stages kept beside what `nest.costing` predicts. PyTorch is only loaded by
the processes that are started.
"""

from nest.execute.launch import RankFailed
from nest.execute.outcome import TOLERANCE, Outcome, StageOutcome, execute
from nest.execute.prepare import Asked, Prepared, prepare

__all__ = ["TOLERANCE", "Asked", "Outcome", "Prepared", "RankFailed", "StageOutcome", "execute", "prepare"]
