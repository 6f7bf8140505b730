"""Readers of tables of collectives: Aceso, Galvatron, nnScaler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from nest.collective_tables.table import CollectiveRow, CollectiveTable, Kind
from nest.errors import InvalidProblem
from nest.files.columns import cells_in
from nest.files.words import show
from nest.layer_profiles.values import MIB, MS, number

_GB = 1e9
_GIB = 2**30

_HEAD = re.compile(r"\s*data_size\(MB\)\s*,\s*time\(ms\)\s*")
_PAIR = re.compile(r"\s*[\d.]+(\s*,\s*[\d.]+)+\s*")
_REDUCED = re.compile(r"allreduce_size_(?P<ranks>\d+)_consec_(?P<near>[01])")
_PIPED = re.compile(r"pp_size_(?P<ranks>\d+)")
_NAMED = re.compile(r"(?P<kind>all_reduce|all_gather|reduce_scatter|all_to_all|allreduce)", re.IGNORECASE)
_RANKS = re.compile(r"(?<!\d)(?P<ranks>\d+)gpus", re.IGNORECASE)
_INTRA = re.compile(r"(?:intra|inter)_?(?P<ranks>\d+)")

_KINDS: Mapping[str, Kind] = {
    "all reduce": "all-reduce",
    "allreduce": "all-reduce",
    "all gather": "all-gather",
    "reduce scatter": "reduce-scatter",
    "all to all": "all-to-all",
}

_NOT_RUN_S = 1000.0
"""Aceso writes a million milliseconds and more for what it did not run."""


def is_aceso_collective(text: str) -> bool:
    """Whether a text is a table of collectives of Aceso, by its head."""
    return _HEAD.fullmatch(text.partition("\n")[0]) is not None


def read_aceso_collective(text: str, file_name: str) -> CollectiveTable:
    """Return the collectives of a file of Aceso; which one, and of how many ranks, is in its name alone."""
    named, of = _NAMED.search(file_name), _RANKS.search(file_name)
    if named is None:
        what = "neither it nor its name says which collective this is"
        raise InvalidProblem("", what, "name the file as Aceso does, as in prim_gpt_1_3B_all_reduce_8gpus.csv")
    kind, ranks = _KINDS[named["kind"].lower().replace("_", " ")], int(of["ranks"]) if of else None
    warnings = [] if ranks else ["the file's name, which alone could say it, has no number of GPUs: no bus bandwidth"]
    if kind == "all-gather" and ranks is None:
        raise InvalidProblem("", "an all-gather of how many ranks, its name does not say", "name the file by it")
    found, skipped = [], 0
    for at, cells in enumerate(cells_in(text.splitlines()[1:]), 2):
        if not cells:
            continue
        if len(cells) != 2:
            raise InvalidProblem(f"line {at}", f"{len(cells)} cells", "give a size and a time")
        size, ms = (number(cell, f"line {at}") for cell in cells)
        if ms * MS >= _NOT_RUN_S:
            skipped += 1
            continue
        whole = size * MIB * (ranks or 1 if kind == "all-gather" else 1)  # each rank's part is what the file has
        found.append(CollectiveRow(kind, ranks, whole, ms * MS))
    if skipped:
        warnings.append(f"{skipped} sizes were not run, for which the file has a placeholder")
    return CollectiveTable("Aceso collectives", "MiB (named MB), ms", _sorted(found), tuple(warnings))


def is_aceso_p2p(text: str) -> bool:
    """Whether a text is two rows of numbers alone, the first of them ascending: sizes, and bandwidths below them."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) != 2 or not all(_PAIR.fullmatch(line) for line in lines):
        return False
    try:
        sizes, speeds = ([float(cell) for cell in line.split(",")] for line in lines)
    except ValueError:
        return False
    return len(sizes) == len(speeds) and sizes == sorted(set(sizes))


def read_aceso_p2p(text: str) -> CollectiveTable:
    """Return the transfers of a transposed table of Aceso, which has no names."""
    lines = [line.split(",") for line in text.splitlines() if line.strip()]
    sizes, speeds = ([number(cell.strip(), f"row {at}") for cell in line] for at, line in enumerate(lines, 1))
    pairs = [(MIB * size, _GIB * speed) for size, speed in zip(sizes, speeds, strict=True)]
    rows = (CollectiveRow("p2p", 2, size, size / speed if speed else None) for size, speed in pairs)
    note = "a transposed table without names: sizes in its first row, bandwidths in its second"
    return CollectiveTable("Aceso p2p", "MiB, GiB/s (named MB and GB/s)", _sorted(rows), (note,))


def is_galvatron_bandwidth(table: Mapping[str, object]) -> bool:
    """Whether JSON holds bandwidths of Galvatron: flat keys of groups, and nothing else."""
    return bool(table) and all(_REDUCED.fullmatch(key) or _PIPED.fullmatch(key) for key in table)


def read_galvatron_bandwidth(table: Mapping[str, object]) -> CollectiveTable:
    """Return the bandwidths of a file of Galvatron: one for each group, of no size that it says."""
    rows = []
    for key, value in table.items():
        reduced, piped = _REDUCED.fullmatch(key), _PIPED.fullmatch(key)
        speed = _GB * number(value, key)
        if reduced:
            near = "neighbours" if reduced["near"] == "1" else "ranks far apart"
            rows.append(CollectiveRow("all-reduce", int(reduced["ranks"]), bus_bytes_per_s=speed, group=near))
        elif piped:
            rows.append(CollectiveRow("p2p", 2, bus_bytes_per_s=speed, group=f"pipeline of {piped['ranks']} stages"))
    note = "bandwidths of the largest messages alone: what smaller ones take, the file does not say"
    return CollectiveTable("Galvatron bandwidths", "GB/s, bus bandwidth as nccl-tests print it", _sorted(rows), (note,))


def is_nnscaler(table: Mapping[str, object]) -> bool:
    """Whether JSON holds collectives of nnScaler: two lists for each."""
    return bool(table) and all(
        key in _KINDS and isinstance(value, list) and len(value) == 2 for key, value in table.items()
    )


def read_nnscaler(table: Mapping[str, object], file_name: str) -> CollectiveTable:
    """Return the collectives of a file of nnScaler, of as many ranks as its name says."""
    of = _INTRA.search(file_name)
    ranks = int(of["ranks"]) if of else None
    rows: list[CollectiveRow] = []
    for key, value in table.items():
        assert isinstance(value, list), "told by it"
        sizes, times = value
        if not (isinstance(sizes, list) and isinstance(times, list) and len(sizes) == len(times)):
            raise InvalidProblem(key, show(value), "give two lists of one length, sizes and times")
        pairs = zip(sizes, times, strict=True)
        rows += [CollectiveRow(_KINDS[key], ranks, MIB * number(size, key), number(time, key)) for size, time in pairs]
    warnings = ["units are not in the file: sizes are taken as MiB of the whole tensor, times as seconds"]
    if ranks is None:
        warnings.append("the file's name, which alone could say it, has no number of GPUs: no bus bandwidth")
    return CollectiveTable("nnScaler collectives", "MiB, s (not in the file)", _sorted(rows), tuple(warnings))


def _sorted(rows: Iterable[CollectiveRow]) -> tuple[CollectiveRow, ...]:
    """Return rows by kind, group, ranks and size: files have them in any order."""
    return tuple(sorted(rows, key=lambda row: (row.kind, row.group, row.ranks or 0, row.bytes or 0.0)))
