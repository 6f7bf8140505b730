"""Which profile a file is, by content; its name counts only where the format puts facts there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nest.errors import InvalidProblem
from nest.families.documents import json_table
from nest.files.disk import read_text
from nest.layer_profiles.aceso import is_aceso, read_aceso
from nest.layer_profiles.deepspeed import is_deepspeed, read_deepspeed
from nest.layer_profiles.galvatron import is_galvatron, read_galvatron
from nest.layer_profiles.galvatron_memory import MemoryProfile, is_galvatron_memory, read_galvatron_memory
from nest.layer_profiles.metis import is_metis, read_metis
from nest.layer_profiles.nest_estimates import is_nest_estimates, read_nest_estimates
from nest.layer_profiles.pipedream import is_pipedream, read_pipedream
from nest.layer_profiles.profile import LayerProfile
from nest.layer_profiles.simai import is_simai, read_simai
from nest.layer_profiles.torch_trace import is_torch_trace, read_torch_trace

_JSON_MARKS = ('"execution_memory"', '"layernum[', '"traceEvents"', '"estimation_time"')
"""One of these is in every JSON profile, so that a large file that is none is not parsed for nothing."""


def is_layer_profile(path: Path) -> bool:
    """Whether a file is a layer profile of a known format; False for one that cannot be read."""
    if not path.is_file():
        return False
    try:
        return _told(read_text(path, InvalidProblem))
    except InvalidProblem:
        return False


def read_layer_profiles(path: Path) -> tuple[LayerProfile, ...]:
    """Return the profiles of a file: one, or one for each batch where a file holds several.

    Raises
    ------
    InvalidProblem
        Naming the file, if it is of no known format or a value is missing or wrong.
    """
    try:
        return profiles_of(read_text(path, InvalidProblem), path.name)
    except InvalidProblem as fault:
        raise fault.at(str(path)) from None


def read_memory_profile(path: Path) -> MemoryProfile | None:
    """Return the memory profile that a file is, None where it is none.

    Raises
    ------
    InvalidProblem
        Naming the file, if a value is missing or wrong.
    """
    if not path.is_file():
        return None
    try:
        table = _json(read_text(path, InvalidProblem))
    except InvalidProblem:
        return None
    if table is None or not is_galvatron_memory(table):
        return None
    try:
        return read_galvatron_memory(table)
    except InvalidProblem as fault:
        raise fault.at(str(path)) from None


def profiles_of(text: str, file_name: str = "") -> tuple[LayerProfile, ...]:
    """Return the profiles that a text holds; the name of its file may carry tensor width, batch and device.

    Raises
    ------
    InvalidProblem
        If the text is of no known format, or a value is missing or wrong.
    """
    table = _json(text)
    found = _of_json(table, file_name) if table is not None else _of_text(text, file_name)
    if not found:
        known = "Metis, Galvatron, PipeDream, Aceso (operators), SimAI, torch traces, DeepSpeed's flops profiler"
        raise InvalidProblem("", "no layer profile that is known", f"known are {known}")
    return found


def _of_json(table: Mapping[str, object], file_name: str) -> tuple[LayerProfile, ...]:
    """Return the profiles of a JSON object; none where it is of no known format."""
    if is_metis(table):
        return (read_metis(table, file_name),)
    if is_galvatron(table):
        return read_galvatron(table)
    if is_torch_trace(table):
        return (read_torch_trace(table),)
    return read_nest_estimates(table, file_name) if is_nest_estimates(table) else ()


def _of_text(text: str, file_name: str) -> tuple[LayerProfile, ...]:
    """Return the profiles of a text that is no JSON; none where it is of no known format."""
    if is_pipedream(text):
        return (read_pipedream(text),)
    if is_aceso(text):
        return (read_aceso(text, file_name),)
    if is_deepspeed(text):
        return (read_deepspeed(text),)
    return (read_simai(text, file_name),) if is_simai(text) else ()


def _told(text: str) -> bool:
    table = _json(text)
    if table is not None:
        return is_metis(table) or is_galvatron(table) or is_torch_trace(table) or is_nest_estimates(table)
    return is_pipedream(text) or is_aceso(text) or is_deepspeed(text) or is_simai(text)


def _json(text: str) -> Mapping[str, object] | None:
    """Return a JSON object that may be a profile, or None."""
    return json_table(text) if any(mark in text for mark in _JSON_MARKS) else None
