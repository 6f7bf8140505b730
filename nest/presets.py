"""The named readings of the space: how a plan is priced under each preset, as data.

Everything in which `artifact` (the original solver's own evaluation, faults included) and `paper` (what the paper
means) differ is a field here, so that the cost formulas are written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nest.errors import InvalidProblem


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
    """

    name: str
    network_factor: float
    boundary: Literal["first", "block"]
    repeated_pass: Literal["forward", "backward"]
    all_replicas: bool
    sync_all_stages: bool
    sync_sharded: bool
    sync_factor: float


ARTIFACT = Preset("artifact", 1e-3, "first", "backward", False, False, False, 1.0)
PAPER = Preset("paper", 1.0, "block", "forward", True, True, True, 1.0)
PRESETS = {preset.name: preset for preset in (ARTIFACT, PAPER)}


def preset_named(name: str) -> Preset:
    """Return a preset by its name.

    Raises
    ------
    InvalidProblem
        If there is none of that name.
    """
    if name == "default":
        remedy = f"choose one of {', '.join(PRESETS)}"
        raise InvalidProblem("preset", "'default', the realistic cost model, is not available yet", remedy)
    if name not in PRESETS:
        raise InvalidProblem("preset", f"{name!r} is no preset", f"choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
