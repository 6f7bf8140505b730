"""Plays the schedule of a pipeline, event by event, in whole ticks."""

from nest.pipeline.durations import shared
from nest.pipeline.flying import Flight, flights, shown_waves
from nest.pipeline.play import simulate
from nest.pipeline.run import Event, Run
from nest.pipeline.times import Pipeline, StageTimes

__all__ = ["Event", "Flight", "Pipeline", "Run", "StageTimes", "flights", "shared", "shown_waves", "simulate"]
