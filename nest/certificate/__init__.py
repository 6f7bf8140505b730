"""The optimality checker: is there a plan faster than a claimed value? Written to be read in one sitting.

It shares no code with the solvers. Arguments on whole outer choices come first (`choices`). What they leave is looked
at in families of plans (`family`): whether the first layer can be reached with stages (`stages`) that keep to the load
and the synchronisation that the value leaves, first at the nearest levels, then in their places (`closure`). Under the
objective `sum` that is what modules named ``sum_...`` do: with boxes of plans (`sum_boxes`), and of interleaved
pipelines, which have one cut, stage by stage (`sum_chunks`); where stages have widths of their own, the paths are those
of `sum_widths`. Under the objective `simulated` modules named ``played_...`` bound what is left by paths through the
passes of a schedule (`played_paths`, `played_rest`), and play it (`played_plans`, `played_chunks`).
"""

from nest.certificate.check import check
from nest.certificate.verdict import Closed, Outcome, Verdict

__all__ = ["Closed", "Outcome", "Verdict", "check"]
