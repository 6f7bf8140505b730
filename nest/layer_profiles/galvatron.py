"""Profiles of Galvatron: JSON, flat keys that hold layers, batch and sequence."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nest.errors import InvalidProblem
from nest.layer_profiles.profile import LayerProfile, ProfiledLayer
from nest.layer_profiles.values import MS, number

UNITS = "ms of the forward pass of one sample; here times the batch"

_RUN = re.compile(r"layernum\[[\d,]+\]_bsz\d+_seq[\d,]+")
_LAYER = re.compile(r"layertype_(?P<kind>\w+?)_bsz(?P<batch>\d+)_seq(?P<seq>\d+)")

TOGETHER = "the layer named 'other' is whatever is no layer of the stack: embedding, head and loss together"


def is_galvatron(table: Mapping[str, object]) -> bool:
    """Whether a JSON file holds computation times of Galvatron."""
    return any(_RUN.fullmatch(key) for key in table)


def read_galvatron(table: Mapping[str, object]) -> tuple[LayerProfile, ...]:
    """Return a profile for each batch and sequence: the derived times of a layer, not the runs of whole models."""
    groups: dict[tuple[int, int], list[tuple[str, float]]] = {}
    for key, value in table.items():
        found = _LAYER.fullmatch(key)
        if found:
            point = int(found["seq"]), int(found["batch"])
            groups.setdefault(point, []).append((found["kind"], number(value, key)))
        elif not _RUN.fullmatch(key):
            raise InvalidProblem(key, "a key that says nothing of layers", "give layernum[..] and layertype_.. keys")
    if not groups:
        what = "run times of whole models alone, no layertype keys"
        raise InvalidProblem("", what, "let Galvatron derive the times of its layers first")
    warnings = (TOGETHER, *_batches(groups))
    return tuple(
        LayerProfile(
            "Galvatron computation JSON",
            UNITS,
            tuple(_layer(kind, ms, batch) for kind, ms in sorted(groups[seq, batch])),
            microbatch=batch,
            seq=seq,
            warnings=warnings,
        )
        for seq, batch in sorted(groups)
    )


def _layer(kind: str, ms_per_sample: float, batch: int) -> ProfiledLayer:
    name = "other" if kind == "other" else f"layer type {kind}"
    return ProfiledLayer(name, forward_s=MS * ms_per_sample * batch)


def _batches(groups: Mapping[tuple[int, int], list[tuple[str, float]]]) -> list[str]:
    """Return that times per sample differ by batch, and which batches in between were not measured."""
    warnings = []
    for seq in sorted({seq for seq, _ in groups}):
        batches = sorted(batch for each, batch in groups if each == seq)
        absent = sorted(set(range(batches[0], batches[-1])) - set(batches)) if batches[-1] < 2**16 else []
        warnings += [f"sequence {seq}: batch {', '.join(map(str, absent))} not measured"] if absent else []
        for kind in sorted({kind for batch in batches for kind, _ in groups[seq, batch]} - {"other"}):
            times = [ms for batch in batches for each, ms in groups[seq, batch] if each == kind]
            if min(times) < max(times):
                spread = f"{min(times):.4g} to {max(times):.4g} ms"
                warnings.append(f"layer type {kind} takes {spread} per sample, by batch: one does not scale to another")
    return warnings
