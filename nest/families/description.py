"""What a model file says: the model, and whatever it says besides about training and parallel widths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from nest.families.architecture import Architecture

Stated: TypeAlias = int | str | tuple[int, ...]
"""What a file may say of a setting: a number, whether something is done, a name, or a number for each stage."""


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
        What the file gives besides, as far as it does. Whole numbers: ``tensor``, ``pipeline``, ``virtual``,
        ``context``, ``expert``, ``expert_tensor``, ``data``, ``devices``, ``microbatch``, ``global_batch``,
        ``sequence``, ``target_sequence`` (of a decoder beside an encoder), ``zero``, ``padding``,
        ``recompute_layers``; ``stage_layers``, one for each stage, or each chunk in the order of the pipeline. Truth
        values: ``sequence_parallel``, ``flash``. Names: ``recompute``, ``dtype``, ``recipe``, ``context_kind``.
    software
        Framework whose file it is, by its name in `nest.costing`; empty where files of that format are of none.
    """

    kind: str
    model: Architecture
    settings: Mapping[str, Stated] = field(default_factory=dict)
    software: str = ""


def number(settings: Mapping[str, Stated], name: str, usual: int = 1) -> int:
    """Return a whole number that was read, or what is usual."""
    value = settings.get(name, usual)
    return value if isinstance(value, int) else usual


def spelt(settings: Mapping[str, Stated]) -> str:
    """Return settings for people, as in ``tensor 8, stage_layers 5-6-6, flash``."""
    texts = []
    for name, value in settings.items():
        if isinstance(value, bool):
            texts.append(name if value else f"no {name}")
        else:
            shown = "-".join(map(str, value)) if isinstance(value, tuple) else value
            texts.append(f"{name} {shown}")
    return ", ".join(texts)
