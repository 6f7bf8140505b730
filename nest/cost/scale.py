"""The tick and the byte quantum of a problem, chosen so that rounding cannot matter.

The choice depends on model, cluster, training and preset only, never on what the solver may choose, so that a plan has
the same ticks under every restriction of the choices.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import is_

from nest.cost.extremes import extremes_of
from nest.errors import InvalidProblem
from nest.graph import Layer
from nest.problem import Problem
from nest.units import EXACT_LIMIT, HARD_LIMIT, LONGEST, Number, TimeScale, byte_scale, finest_exponent

WEIGHT_SHARE = 0.5
"""Part of a backward pass that takes gradients of weights: a product of matrices takes as long for either gradient."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Tick and byte quantum of a problem."""

    time: TimeScale
    quanta_per_byte: int

    def weight_ticks(self, layer: Layer, otherwise: float = WEIGHT_SHARE) -> int:
        """Return what of a layer's backward pass takes gradients of weights, rounded down.

        Parameters
        ----------
        otherwise
            The part of it, where the layer does not say.
        """
        share = otherwise if layer.weight_share is None else layer.weight_share
        return int(self.time.ticks(layer.backward_s) * Fraction(share))


def scale_of(problem: Problem) -> Scale:
    """Choose the scale of a problem.

    The tick is the finest for which the largest objective stays within `EXACT_LIMIT` without sharding, and within
    `HARD_LIMIT` with it. Where that would be so coarse that rounding could move an objective by more than
    `RELATIVE_ERROR`, it is made as fine as that needs, as long as no load without sharding exceeds `EXACT_LIMIT`. Where
    prices follow from the places of groups, variants lie far apart (one device or a thousand for a stage, one sequence
    or hundreds), and all sums are of 64-bit integers: there loads may be as long as `LONGEST`.

    Raises
    ------
    InvalidProblem
        If the times of the problem lie too far apart for any such tick, or its byte counts are too large.
    """
    return _scale(_Deciding(problem))


class _Deciding:
    """A problem as what decides about its scale sees it: alike where all of that is the same objects.

    A command asks several times, for one problem and for others that differ in choices and side constraints alone, and
    with a thousand variants each answer takes longer than many a search.
    """

    __slots__ = ("problem",)

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @property
    def _parts(self) -> tuple[object, ...]:
        return self.problem.graphs, self.problem.cluster, self.problem.training, self.problem.preset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Deciding) and all(map(is_, self._parts, other._parts))

    def __hash__(self) -> int:
        return hash(tuple(map(id, self._parts)))


@lru_cache(maxsize=2)
def _scale(deciding: _Deciding) -> Scale:
    problem = deciding.problem
    ranges = extremes_of(problem)
    load, sync = max(each.load_s for each in ranges), max(each.sync_s for each in ranges)
    microbatches = max(problem.microbatches(variant) for variant in problem.graphs)
    rounds = microbatches + max(len(graph) for graph in problem.graphs.values()) - 1
    needed = max(each.exponent for each in ranges)
    most = LONGEST if problem.preset.collectives == "groups" else EXACT_LIMIT
    coarsest = min(finest_exponent(load, most), finest_exponent(sync, LONGEST))
    if needed > coarsest:
        needed = max(each.exponent for each in extremes_of(problem, closer=True))
    sharded = (load + max(each.sharding_s for each in ranges)) * rounds + sync
    finest = min(finest_exponent(load * rounds + sync, EXACT_LIMIT), finest_exponent(sharded, HARD_LIMIT))
    exponent = max(finest, needed)
    if coarsest < exponent:
        raise InvalidProblem(
            "times",
            f"one stage may take {load:.3g} s, or {sync:.3g} s to synchronise, yet layers are so short that they ask "
            f"for ticks of 1e{-needed} s",
            "check the units of layer times, bandwidths and latencies",
        )
    return Scale(TimeScale(exponent), _quanta_per_byte(problem))


def _quanta_per_byte(problem: Problem) -> int:
    scale, most = byte_scale([problem.training.overhead_bytes]), 0.0
    for graph in problem.graphs.values():
        counts = Counter(map(_sizes, graph.layers))
        sent = [edge.bytes for edge in graph.edges]
        scale = max(scale, byte_scale([*sent, *(size for sizes in counts for size in sizes)]))
        most = max(most, sum(sent) + sum(count * sum(sizes) for sizes, count in counts.items()))
    copies = problem.training.held
    whole = copies.gathered.as_integer_ratio()[0]
    times = max(10, copies.optimizer + 2 * copies.gradients + 1 + whole + copies.stepped)  # of a weight on one device
    if (most + problem.training.overhead_bytes) * scale * times > HARD_LIMIT:
        raise InvalidProblem("bytes", f"the sizes of the model add up to {most:.3g} bytes", "check their unit")
    return scale


def _sizes(layer: Layer) -> tuple[Number, ...]:
    """Return all byte counts of a layer."""
    own = (
        layer.parameter_bytes,
        layer.activation_bytes,
        layer.expert_parameter_bytes,
        layer.working_bytes,
        layer.tied_bytes,
        layer.result_bytes,
    )
    return own + tuple(size for each in layer.recomputed for size in (each.activation_bytes, each.working_bytes))
