"""The look of every text for a terminal: tables, a summary of labelled lines, and how they become text."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_WIDEST = 10_000
"""Columns that no text needs."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Where the text goes: columns, and whether it shows colours."""

    width: int = 80
    colour: bool = False


class Summary:
    """Lines of a label and a text; a label that repeats is written once."""

    def __init__(self) -> None:
        self.table = Table.grid(padding=(0, 2, 0, 0))
        self.table.add_column(style="bold", no_wrap=True)
        self.table.add_column(overflow="fold")
        self._last = ""

    def add(self, label: str, text: str, style: str = "") -> None:
        """Append a line; an empty text is nothing worth a line."""
        if text:
            self.table.add_row("" if label == self._last else label, Text(text, style))
            self._last = label

    def extend(self, label: str, lines: Iterable[str], style: str = "") -> None:
        """Append several lines under one label."""
        for text in lines:
            self.add(label, text, style)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    One that ``folds`` goes on in the next line where the screen is too narrow, but is ``least`` characters wide.
    """

    header: str
    number: bool = False
    folds: bool = False
    least: int = 0


def ruled_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], emphasised: Container[int] = ()) -> Table:
    """Return a table of columns two spaces apart with a rule under their heads; ``emphasised`` rows are bold."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
        table.add_column(
            column.header,
            justify="right" if column.number else "left",
            overflow="fold",
            no_wrap=not column.folds,
            min_width=column.least if column.folds else max(map(cell_len, (column.header, *cells))),
        )
    for at, row in enumerate(rows):
        table.add_row(*row, style="bold" if at in emphasised else "")
    return table


def render(screen: Screen, *parts: RenderableType) -> str:
    """Return the parts as text, one below the other, without trailing spaces.

    A part that cannot be made as narrow as the screen without leaving something out is wider.
    """
    console = Console(
        file=StringIO(),
        width=_WIDEST,
        force_terminal=screen.colour,
        markup=False,
        highlight=False,
        emoji=False,
    )
    with console.capture() as capture:
        for part in parts:
            narrowest = Measurement.get(console, console.options, part).minimum
            console.print(part, width=max(screen.width, narrowest))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
