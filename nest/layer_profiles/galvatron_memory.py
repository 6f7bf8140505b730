"""Memory profiles of Galvatron: JSON, keyed by pipeline, tensor and data-parallel width; MiB of a rank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nest.errors import InvalidProblem
from nest.files.words import show
from nest.layer_profiles.values import MIB, number

UNITS = "MiB of a rank (named MB)"

_WIDTHS = re.compile(r"(?P<pipeline>\d+)_(?P<tensor>\d+)_(?P<data>\d+)(?P<with>(?:_(?:c|vtp|sp))*)")
_RUN = re.compile(
    r"layernum\[(?P<layers>[\d,]+)\]_bsz(?P<batch>\d+)_seq(?P<seq>[\d,]+)_rank(?P<rank>\d+)_(?P<what>ms|act|act_peak)"
)
_DERIVED = re.compile(r"(layertype_\d+|other_memory_pp_\w+?)(_sp)?")

_OPTIONS = {"c": "activation checkpoints", "vtp": "vocabulary cut", "sp": "sequence parallel"}
_WHAT = {"ms": "states_bytes", "act": "activation_bytes", "act_peak": "peak_bytes"}


@dataclass(frozen=True, slots=True)
class RankMemory:
    """What a rank held in a run of a model of so many layers; None for what the file leaves out.

    Attributes
    ----------
    pipeline, tensor, data
        Widths of the run.
    options
        What else it did, in words.
    layers
        Of the model, or of each of its stacks.
    batch, seq, rank
        Samples, tokens, and which rank.
    states_bytes, activation_bytes, peak_bytes
        Weights with gradients and optimizer state; activations that are kept, and at their peak.
    """

    pipeline: int
    tensor: int
    data: int
    options: str
    layers: str
    batch: int
    seq: str
    rank: int
    states_bytes: float | None = None
    activation_bytes: float | None = None
    peak_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """Memory that was measured, and what the file derives of it.

    Attributes
    ----------
    rows
        What ranks held.
    derived
        What the file says of a layer, and of what is no layer: by its own names, in bytes.
    warnings
        What a user has to know before he trusts the numbers.
    """

    rows: tuple[RankMemory, ...]
    derived: tuple[tuple[str, float], ...]
    warnings: tuple[str, ...]


def is_galvatron_memory(table: Mapping[str, object]) -> bool:
    """Whether a JSON file holds memory of Galvatron."""
    return any(_WIDTHS.fullmatch(key) and isinstance(value, dict) for key, value in table.items())


def read_galvatron_memory(table: Mapping[str, object]) -> MemoryProfile:
    """Return the memory of each run and rank, and what the file derives.

    Raises
    ------
    InvalidProblem
        If a key says nothing of widths, or a value is wrong.
    """
    rows: list[RankMemory] = []
    derived: list[tuple[str, float]] = []
    for key, value in table.items():
        widths = _WIDTHS.fullmatch(key)
        if not isinstance(value, dict):
            raise InvalidProblem(key, show(value), "give a table")
        if widths is not None:
            rows += _rows(widths, value)
        elif _DERIVED.fullmatch(key):
            derived += _flat(key, value)
        else:
            what = "a key that says nothing of widths or layers"
            raise InvalidProblem(key, what, "give keys as in 1_2_4_sp, pipeline, tensor and data-parallel width")
    return MemoryProfile(tuple(rows), tuple(derived), tuple(_warnings(rows)))


def _rows(widths: re.Match[str], runs: Mapping[str, object]) -> Iterator[RankMemory]:
    """Yield what each rank of each run of some widths held."""
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for key, value in runs.items():
        run = _RUN.fullmatch(key)
        if run is None:
            raise InvalidProblem(f"{widths.group()}.{key}", "a key that says nothing of a run", "give layernum keys")
        at = tuple(run[name] for name in ("layers", "batch", "seq", "rank"))
        found.setdefault(at, {})[_WHAT[run["what"]]] = MIB * number(value, f"{widths.group()}.{key}")
    options = ", ".join(_OPTIONS[each] for each in widths["with"].split("_") if each)
    for (layers, batch, seq, rank), held in found.items():
        yield RankMemory(
            int(widths["pipeline"]),
            int(widths["tensor"]),
            int(widths["data"]),
            options,
            layers,
            int(batch),
            seq,
            int(rank),
            *(held.get(name) for name in _WHAT.values()),
        )


def _flat(key: str, value: object) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    else:
        yield key, MIB * number(value, key)


def _warnings(rows: Sequence[RankMemory]) -> Iterator[str]:
    """Yield at which tensor widths a rank held the same states, and which widths were not measured."""
    groups: dict[tuple[object, ...], list[RankMemory]] = {}
    for row in rows:
        groups.setdefault((row.pipeline, row.options, row.layers, row.batch, row.seq, row.rank), []).append(row)
    for group in groups.values():
        for one, two in pairwise(sorted(group, key=_tensor)):
            if one.tensor < two.tensor and one.states_bytes == two.states_bytes:
                what = f"states of {one.layers} layers at pipeline width {one.pipeline}, tensor width {one.tensor} and"
                yield f"{what} {two.tensor} are the same: copied, it seems, and not measured"
    most = max((row.pipeline * row.tensor * row.data for row in rows), default=0)
    for pipeline in sorted({row.pipeline for row in rows}):
        wanted = {2**power for power in range(most.bit_length()) if 2**power * pipeline <= most}
        absent = sorted(wanted - {row.tensor for row in rows if row.pipeline == pipeline})
        if absent:
            yield f"pipeline width {pipeline}: tensor width {', '.join(map(str, absent))} not measured"


def _tensor(row: RankMemory) -> int:
    return row.tensor
