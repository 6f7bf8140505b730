"""The named readings of the space: which plans there are and how they are priced under each preset, as data.

Everything in which `artifact` (the original solver's own evaluation, faults included), `paper` (what the paper means),
`default` (the realistic reading) and `simulated` (the same, its schedule played) differ is a field here, so that the
cost formulas are written once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from nest.errors import InvalidProblem

ScheduleName: TypeAlias = Literal["1f1b", "gpipe", "interleaved", "zb-h1"]
"""In which order stages take their passes; see `nest.cost.schedules`."""

SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)

Arrangement: TypeAlias = Literal["replica-major", "replica-major-reversed", "stage-major"]
"""Which blocks are neighbours on the line: of one replica, in pipeline order or reversed, or of one stage."""


@dataclass(frozen=True, slots=True)
class Preset:
    """How a plan is priced.

    Parameters
    ----------
    name
        As on the command line.
    network_factor
        What every network time is multiplied with. The original solver adds seconds of network to milliseconds of
        compute, which makes its network a thousand times too fast.
    boundary
        Level of the boundary between two stages: shared by their first devices (``"first"``), or by the whole pair of
        blocks, from the first device of the lower to the last of the upper (``"block"``).
    repeated_pass
        What recomputation is charged with: the forward pass, or (a slip of the original) the backward pass.
    all_replicas
        Price every replica at its true position and let the slowest count, instead of replica 0 alone.
    sync_all_stages
        Wait for the gradient synchronisation of the slowest stage, instead of that of the first stage.
    sync_sharded
        Under ZeRO-3 inside the stage synchronise the shard only, not all parameters.
    sync_factor
        What gradient synchronisation is multiplied with besides: 1, or 0 where it shall be free (`nest.ablate`).
    arrangements
        How a plan may lay out its blocks.
    sharding
        Whether ZeRO spreads over devices added to the stage, or over the ranks that hold copies of a weight.
    recompute
        Who says what is computed again: the problem's choices, for all stages but the last, or each stage for itself.
    nesting
        Whether the widths of a variant have to nest with the groups of the network.
    transfers
        What crosses a boundary: single edges, from a layer to the layer that waits for them, twice above the innermost
        level; or every tensor alive across the cut, passed on from stage to stage.
    collectives
        What network times besides transfers are: ``"levels"``, the formulas of the original; or ``"groups"``, the
        alpha-beta cost of the members' places, collectives of the layers included.
    objective
        How loads make an iteration: ``"bottleneck"``, the largest counts for every round, or ``"sum"``, each counts
        once and the largest for every further microbatch, or ``"simulated"``, as the schedule of the plan is played.
    in_flight_capped
        Whether a stage has no more microbatches in flight than a replica has at all.
    schedules
        Those that the objective prices.
    """

    name: str
    network_factor: float
    boundary: Literal["first", "block"]
    repeated_pass: Literal["forward", "backward"]
    all_replicas: bool
    sync_all_stages: bool
    sync_sharded: bool
    sync_factor: float
    arrangements: tuple[Arrangement, ...] = ("replica-major-reversed",)
    sharding: Literal["stage", "replicas"] = "stage"
    recompute: Literal["choices", "stage"] = "choices"
    nesting: bool = False
    transfers: Literal["edges", "cut"] = "edges"
    collectives: Literal["levels", "groups"] = "levels"
    objective: Literal["bottleneck", "sum", "simulated"] = "bottleneck"
    in_flight_capped: bool = False
    schedules: tuple[ScheduleName, ...] = ("1f1b",)

    @property
    def idles(self) -> bool:
        """Whether plans may leave devices idle between their blocks, and stand around reserved ones."""
        return "replica-major-reversed" not in self.arrangements

    @property
    def branches(self) -> bool:
        """Whether models may branch: where all that is alive across a cut is priced, whichever layers are before it."""
        return self.transfers == "cut"

    def require_prices(self) -> None:
        """Raise `InvalidProblem` if nobody prices plans so: fields of `paper` and `default` that only go together."""
        realistic = (
            self.sharding == "replicas",
            self.recompute == "stage",
            self.transfers == "cut",
            self.collectives == "groups",
            self.objective in ("sum", "simulated"),
            self.in_flight_capped,
            self.nesting,
            self.idles,
        )
        if any(realistic) and not (all(realistic) and self.sync_all_stages and self.arrangements):
            what = f"{self.name!r} mixes fields of 'paper' and 'default' that only go together"
            raise InvalidProblem("preset", what, "change one of the named presets in other fields only")


ARTIFACT = Preset("artifact", 1e-3, "first", "backward", False, False, False, 1.0)
PAPER = Preset("paper", 1.0, "block", "forward", True, True, True, 1.0)
DEFAULT = Preset(
    "default",
    network_factor=1.0,
    boundary="first",
    repeated_pass="forward",
    all_replicas=True,
    sync_all_stages=True,
    sync_sharded=True,
    sync_factor=1.0,
    arrangements=("stage-major", "replica-major"),
    sharding="replicas",
    recompute="stage",
    nesting=True,
    transfers="cut",
    collectives="groups",
    objective="sum",
    in_flight_capped=True,
    schedules=("1f1b", "gpipe", "interleaved"),
)
SIMULATED = replace(
    DEFAULT, name="simulated", objective="simulated", schedules=("1f1b", "gpipe", "interleaved", "zb-h1")
)
PRESETS = {preset.name: preset for preset in (ARTIFACT, PAPER, DEFAULT, SIMULATED)}


def preset_named(name: str) -> Preset:
    """Return a preset by its name.

    Raises
    ------
    InvalidProblem
        If there is none of that name.
    """
    if name not in PRESETS:
        raise InvalidProblem("preset", f"{name!r} is no preset", f"choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
