"""Integer tables of a problem: the only thing that solvers read.

`levelled` has those of the presets whose network times follow from levels, `grouped` those of the preset whose network
times follow from the places of all members of a group; `Tables` are those of all variants of a problem.
"""

from nest.tables.banded import GroupedBand
from nest.tables.branched import BranchedBand, BranchedTables
from nest.tables.chunked import ChunkedBand
from nest.tables.crossing import Crossing
from nest.tables.family import TooManyStages
from nest.tables.grouped import Ends, GroupedTables
from nest.tables.inside import InsideTables
from nest.tables.levelled import Band, VariantTables
from nest.tables.sums import UNLIMITED, prefix, prefixes
from nest.tables.uneven import UnevenTables
from nest.tables.whole import Tables, band_of

__all__ = [
    "UNLIMITED",
    "Band",
    "BranchedBand",
    "BranchedTables",
    "ChunkedBand",
    "Crossing",
    "Ends",
    "GroupedBand",
    "GroupedTables",
    "InsideTables",
    "Tables",
    "TooManyStages",
    "UnevenTables",
    "VariantTables",
    "band_of",
    "prefix",
    "prefixes",
]
