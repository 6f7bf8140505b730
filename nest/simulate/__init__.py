"""Plans as they are simulated: the pipelines that they make, and the best of given plans."""

from nest.evaluate import pipeline_of, sync_of
from nest.pipeline import Event, Pipeline, Run, StageTimes, simulate
from nest.simulate.best import Best, best_simulated

__all__ = [
    "Best",
    "Event",
    "Pipeline",
    "Run",
    "StageTimes",
    "best_simulated",
    "pipeline_of",
    "simulate",
    "sync_of",
]
