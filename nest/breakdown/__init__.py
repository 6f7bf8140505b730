"""What a judged plan's figures consist of: loads by what takes the time, memory by what is held, links by their load.

Nothing here decides a price. Parts are priced with the formulas of `nest.cost` at the places that the judge found, and
add up to its figures exactly, in ticks and quanta.
"""

from nest.breakdown.iteration import IterationParts, compute_limit, iteration_parts
from nest.breakdown.load import LoadParts, load_parts
from nest.breakdown.memory import MemoryParts, kept_quanta, memory_parts
from nest.breakdown.traffic import Uplink, uplinks

__all__ = [
    "IterationParts",
    "LoadParts",
    "MemoryParts",
    "Uplink",
    "compute_limit",
    "iteration_parts",
    "kept_quanta",
    "load_parts",
    "memory_parts",
    "uplinks",
]
