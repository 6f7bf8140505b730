"""The structured dynamic program.

`search` takes the outer choices of `outer` in the order of their bounds; `uniform` settles those whose stages are
equally wide, `sharded` those whose stages differ in width by sharding; `profile` says which levels a position sees,
`traceback` turns decisions into a plan and `reason` says why there is none.
"""

from nest.dp.reason import why_constrained, why_infeasible
from nest.dp.search import Outcome, along_one_order, optimum

__all__ = ["Outcome", "along_one_order", "optimum", "why_constrained", "why_infeasible"]
