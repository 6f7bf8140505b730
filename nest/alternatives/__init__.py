"""What else there is: the best plans of other outer choices, and what the problem's figures change about a plan."""

from nest.alternatives.runners import RunnerUp, runners_up
from nest.alternatives.sensitivity import CHANGES, Change, Changed, sensitivity
from nest.alternatives.traced import looked_at

__all__ = ["CHANGES", "Change", "Changed", "RunnerUp", "looked_at", "runners_up", "sensitivity"]
