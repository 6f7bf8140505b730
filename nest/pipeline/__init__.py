"""Plays the schedule of a pipeline, event by event, in whole ticks."""

from nest.pipeline.play import simulate
from nest.pipeline.run import Event, Run
from nest.pipeline.times import Pipeline, StageTimes

__all__ = ["Event", "Pipeline", "Run", "StageTimes", "simulate"]
