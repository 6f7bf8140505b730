"""Objectives beside time: the fewest devices or the least memory that keep a time, and all trade-offs of the two.

Each answer is the least because the solver proves a claim: under a side constraint that allows a little less, no plan
is fast enough. The cluster never changes, so that ticks mean the same in every search.
"""

from nest.objectives.certified import CertifiedLeast, certify_least
from nest.objectives.claim import Claim, MemoryAtMost, confirm_claims
from nest.objectives.frontier import Frontier, Point, frontier
from nest.objectives.least import Least, Quantity, amount_text, least, period_s, seconds_text
from nest.objectives.price import PriceFrontier, PricePoint, price_frontier
from nest.objectives.search import Search

__all__ = [
    "CertifiedLeast",
    "Claim",
    "Frontier",
    "Least",
    "MemoryAtMost",
    "Point",
    "PriceFrontier",
    "PricePoint",
    "Quantity",
    "Search",
    "amount_text",
    "certify_least",
    "confirm_claims",
    "frontier",
    "least",
    "period_s",
    "price_frontier",
    "seconds_text",
]
