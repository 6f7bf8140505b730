"""Why a problem has no plan, which of its constraints clash, and the least change of each kind that helps."""

from nest.explain.explanation import Explanation, Relaxation, explain

__all__ = ["Explanation", "Relaxation", "explain"]
