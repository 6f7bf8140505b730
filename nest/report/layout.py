"""The look of every text for a terminal: tables, a summary of labelled lines, and how they become text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text


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


def ruled_table() -> Table:
    """Return a table without columns yet: they will be two spaces apart, with a rule under their heads."""
    return Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def number_table(name: str, *headers: str) -> Table:
    """Return a table whose first column, ``name``, is text that may be broken over lines, and the others numbers."""
    table = ruled_table()
    table.add_column(name, overflow="fold")
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def render(screen: Screen, *parts: RenderableType) -> str:
    """Return the parts as text, one below the other, without trailing spaces."""
    console = Console(
        file=StringIO(),
        width=screen.width,
        force_terminal=screen.colour,
        markup=False,
        highlight=False,
        emoji=False,
    )
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
