"""Which table of collectives a file is, by content; its name counts only where the format puts facts there."""

from __future__ import annotations

from pathlib import Path

from nest.collective_tables.readers import (
    is_aceso_collective,
    is_aceso_p2p,
    is_galvatron_bandwidth,
    is_nnscaler,
    read_aceso_collective,
    read_aceso_p2p,
    read_galvatron_bandwidth,
    read_nnscaler,
)
from nest.collective_tables.table import CollectiveTable
from nest.errors import InvalidProblem
from nest.families.documents import json_table
from nest.files.disk import read_text

_MOST_CHARACTERS = 2**20
"""No such table is larger; what is, is not parsed for nothing."""


def is_collective_table(path: Path) -> bool:
    """Whether a file is a table of collectives of a known format; False for one that cannot be read."""
    if not path.is_file():
        return False
    try:
        return _told(read_text(path, InvalidProblem))
    except InvalidProblem:
        return False


def read_collective_table(path: Path) -> CollectiveTable:
    """Return the collectives of a file.

    Raises
    ------
    InvalidProblem
        Naming the file, if it is of no known format or a value is missing or wrong.
    """
    try:
        return collectives_of(read_text(path, InvalidProblem), path.name)
    except InvalidProblem as fault:
        raise fault.at(str(path)) from None


def collectives_of(text: str, file_name: str = "") -> CollectiveTable:
    """Return the collectives that a text holds; the name of its file may carry the collective and the ranks.

    Raises
    ------
    InvalidProblem
        If the text is of no known format, or a value is missing or wrong.
    """
    if is_aceso_collective(text):
        return read_aceso_collective(text, file_name)
    if is_aceso_p2p(text):
        return read_aceso_p2p(text)
    table = json_table(text)
    if table is not None and is_galvatron_bandwidth(table):
        return read_galvatron_bandwidth(table)
    if table is not None and is_nnscaler(table):
        return read_nnscaler(table, file_name)
    raise InvalidProblem("", "no table of collectives that is known", "known are those of Aceso, Galvatron, nnScaler")


def _told(text: str) -> bool:
    if len(text) > _MOST_CHARACTERS:
        return False
    if is_aceso_collective(text) or is_aceso_p2p(text):
        return True
    table = json_table(text)
    return table is not None and (is_galvatron_bandwidth(table) or is_nnscaler(table))
