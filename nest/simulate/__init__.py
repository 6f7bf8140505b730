"""Plays the schedule of a pipeline, event by event, in whole ticks."""

from nest.simulate.best import Best, best_simulated
from nest.simulate.judged import pipeline_of, sync_of
from nest.simulate.pipeline import Pipeline, StageTimes
from nest.simulate.play import simulate
from nest.simulate.run import Event, Run

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
