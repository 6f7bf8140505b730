"""HTML from small parts: everything is escaped unless it was built here, since names come from files of anybody."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeAlias


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child: TypeAlias = "str | Html | Iterable[Html] | None"


def tag(element: str, *children: Child, **attributes: object) -> Html:
    """Return an element.

    Parameters
    ----------
    children
        Markup, or text, which is escaped; None is nothing.
    attributes
        By name, ``_`` for ``-`` and a trailing one for nothing (``class_``); True is an attribute without a value, None
        and False none.
    """
    given = "".join(_attribute(name, value) for name, value in attributes.items())
    return Html(f"<{element}{given}>{''.join(map(_text, children))}</{element}>")


def joined(parts: Iterable[Html]) -> Html:
    """Return parts one after the other."""
    return Html("".join(parts))


def data(document: object) -> Html:
    """Return JSON that may stand in a script element."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Child]], *, caption: str, numbers_from: int = 1, class_: str = ""
) -> Html:
    """Return a table whose first cells are heads of their rows.

    Parameters
    ----------
    caption
        For readers who do not see the table.
    numbers_from
        Column from which on cells are numbers.
    """

    def kind(at: int) -> str | None:
        """Return the class of a column's cells: numbers are aligned at their right."""
        return "n" if at >= numbers_from else None

    head = tag("tr", *(tag("th", name, scope="col", class_=kind(at)) for at, name in enumerate(heads)))
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=kind(at)) for at, cell in enumerate(row[1:], 1)),
        )
        for row in rows
    ]
    made = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body), class_=class_ or None)
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def folded(summary: str, *children: Child) -> Html:
    """Return what opens on demand."""
    return tag("details", tag("summary", summary), *children)


def section(name: str, title: str, lead: Child, *children: Child) -> Html:
    """Return a section of the page with a line on what it shows."""
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, tag("p", lead, class_="lead"), *children, id=name, aria_labelledby=f"{name}-title")


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    key = name.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{escape(str(value), quote=True)}"'


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    return escape(child) if isinstance(child, str) else "".join(child)
