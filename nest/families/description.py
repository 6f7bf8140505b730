"""What a model file says: the model, and whatever it says besides about training and parallel widths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nest.families.architecture import Architecture


@dataclass(frozen=True)
class Description:
    """A model file, read.

    Parameters
    ----------
    kind
        The format, as people call it.
    model
        The model.
    settings
        Whole numbers that the file gives besides, as far as it does: ``tensor``, ``pipeline``, ``virtual``,
        ``context``, ``expert``, ``data``, ``devices``, ``microbatch``, ``global_batch``, ``sequence``,
        ``target_sequence`` (of a decoder beside an encoder).
    """

    kind: str
    model: Architecture
    settings: Mapping[str, int] = field(default_factory=dict)
