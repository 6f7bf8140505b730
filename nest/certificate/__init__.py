"""The optimality checker: is there a plan faster than a claimed value? Written to be read in one sitting.

It shares no code with the solvers. For a variant, a number of stages ``S`` and of replicas ``d``, a plan is faster
than ``value`` if its largest load ``T`` and its synchronisation ``sync`` (D6) have ``R * T + sync < value``, where
``R = ceil(M / d) + S - 1``. Whether one exists is a question of reachability: start with no stage, place one stage
after the other from the end of the pipeline on, using only stages within the load that ``value`` leaves, and see
whether the first layer is ever reached. The states that can be reached are closed, and that is the proof (`closure`).

Three arguments settle most outer choices ``(variant, S, d)`` without it, the cheapest first: of numbers of replicas
that make the same number of rounds the least suffices, the mean stage is too slow, and the first layer is not reached
even where every stage sees the nearest levels that it can (`choices`).
"""

from nest.certificate.check import Closed, Outcome, Verdict, check

__all__ = ["Closed", "Outcome", "Verdict", "check"]
