"""Tables of measurements: columns whose names end in a unit, in CSV rows or in the rows of TOML and JSON."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from msgspec import UNSET, Meta, UnsetType

from nest.errors import InvalidProblem
from nest.files.document import Document
from nest.files.limits import Table
from nest.files.words import meant

TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Units of times, as they end the name of a column, in seconds."""

_OTHER_MARKS = {";": "semicolons", "\t": "tabs"}
"""What separates columns elsewhere."""

SIZES = {"bytes": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
"""Units of memory, in bytes."""

NotNegative = Annotated[float, Meta(ge=0, le=2**53, description="a number from 0")]

Figure = NotNegative | UnsetType
"""A time or a size in one of its units."""

Row = TypeVar("Row", bound=Table)


@dataclass(frozen=True)
class Columns:
    """How the cells of a CSV table are read, by the names of its columns; all others are numbers.

    Parameters
    ----------
    texts, whole, switches
        Columns of texts, of whole numbers, and of ``yes`` and ``no``.
    """

    texts: Collection[str]
    whole: Collection[str]
    switches: Collection[str] = field(default=())

    def rows(self, document: Document, kind: type[Row], *, may_lie: bool = False) -> Iterator[tuple[Row, str]]:
        """Yield the rows of a table in CSV, and where each stands; lines that begin with ``#`` are for people.

        Parameters
        ----------
        may_lie
            Whether the table may lie on its side, its columns below each other.

        Raises
        ------
        InvalidProblem
            Naming file, line, column and remedy; of the class that the document raises.
        """
        known = kind.__struct_fields__
        mark = _mark(first_line(document))
        if mark in _OTHER_MARKS:
            what = f"columns are separated by {_OTHER_MARKS[mark]}"
            document.fail("", what, "separate them by commas, and write decimals with a point")
        (where, names), *lines = _cells(document, lies=may_lie and _lies(document, known))
        for at, name in enumerate(names):
            if name in names[:at]:
                document.fail(where, f"two columns {name!r}", "take one out")
            if name not in known:
                remedy = meant(name, known, f"the columns are {', '.join(known)}")
                document.fail(where, f"there is no column {name!r}", remedy)
        for where, cells in lines:
            if len(cells) != len(names):
                document.fail(where, f"{len(cells)} cells for {len(names)} columns", "give one for each")
            tree = {name: self._value(name, cell) for name, cell in zip(names, cells, strict=True) if cell}
            yield document.convert(tree, kind, where), where

    def _value(self, name: str, cell: str) -> object:
        """Return a cell as what it should be; as text where it is not, for the check to name."""
        if name in self.texts:
            return cell
        if name in self.switches:
            return {"yes": True, "true": True, "no": False, "false": False}.get(cell.lower(), cell)
        try:
            return int(cell) if name in self.whole else float(cell)
        except ValueError:
            return cell


def figure(document: Document, row: Table, name: str, units: Mapping[str, float], where: str) -> float | None:
    """Return a figure in seconds or bytes, given in one unit at most; None if it is left out.

    Raises
    ------
    InvalidProblem
        If it is given twice; of the class that the document raises.
    """
    given = {unit: value for unit in units if (value := getattr(row, f"{name}_{unit}")) is not UNSET}
    if len(given) > 1:
        both = " and ".join(f"{name}_{unit}" for unit in given)
        document.fail(where, f"both {both}", "give one of them")
    return next((value * units[unit] for unit, value in given.items()), None)


def is_csv(document: Document) -> bool:
    """Whether the first line that says something has columns, and assigns nothing."""
    return not document.is_json and bool(next(iter(first_cells(document)), ""))


def first_line(document: Document) -> str:
    """Return the first line that says something, without what surrounds it; nothing where there is none."""
    lines = (line.strip() for line in document.text.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")


def first_cells(document: Document) -> list[str]:
    """Return the cells of the first line that says something; none where that is no line of a table."""
    line = first_line(document)
    mark = _mark(line)
    try:
        return _split(line, mark) if mark in line and "=" not in line else []
    except InvalidProblem:
        return []


def cells_in(lines: Iterable[str], mark: str = ",") -> Iterator[list[str]]:
    """Yield the cells of lines of CSV; raises `InvalidProblem` where one never ends."""
    try:
        yield from csv.reader(lines, delimiter=mark)
    except csv.Error as fault:
        raise InvalidProblem("", f"no table in CSV: {fault}", "give short cells, and close each quote") from None


def _mark(line: str) -> str:
    """Return what separates the cells of a line: a comma, or another mark that it has more of."""
    return max((",", *_OTHER_MARKS), key=line.count)


def _split(line: str, mark: str = ",") -> list[str]:
    return [cell.strip() for cell in next(cells_in([line], mark))]


def _cells(document: Document, *, lies: bool) -> list[tuple[str, list[str]]]:
    """Return the cells of each row, and where it stands."""
    numbered = ((at, line) for at, line in enumerate(document.text.splitlines(), start=1) if line.strip())
    said = [(f"line {at}", line) for at, line in numbered if not line.lstrip().startswith("#")]
    lines = [(where, _cells_at(document, where, line)) for where, line in said]
    if not lies:
        return lines
    for where, cells in lines:
        if len(cells) != len(lines[0][1]):
            document.fail(where, f"{len(cells)} cells, the first line has {len(lines[0][1])}", "give as many in each")
    sides = zip(*(cells for _, cells in lines), strict=True)
    return [(f"column {at}", list(cells)) for at, cells in enumerate(sides, start=1)]


def _cells_at(document: Document, where: str, line: str) -> list[str]:
    try:
        return _split(line)
    except InvalidProblem as fault:
        document.fail(where, fault.problem, fault.remedy)


def _lies(document: Document, known: Sequence[str]) -> bool:
    """Whether a table lies on its side: the names of columns are in the first cells of its lines."""
    lines = [cells for _, cells in _cells(document, lies=False)]
    below = [cells[0] for cells in lines]
    return len(below) > 1 and set(below) <= set(known) and not set(lines[0][1:]) & set(known)
