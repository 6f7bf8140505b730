"""Bars of parts, their legends and tables: what a stage or an iteration consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nest.report.format import duration, share
from nest.report.page.html import Child, Html, joined, tag

LOADS: Mapping[str, str] = {
    "compute": "Compute",
    "recompute": "Recomputation",
    "tensor": "Tensor parallel",
    "context": "Context parallel",
    "expert": "Expert parallel",
    "transfer": "Between stages",
    "sharding": "ZeRO, each microbatch",
}

SPENT: Mapping[str, str] = {**LOADS, "bubble": "Pipeline bubble", "sync": "Gradient sync", "step": "Optimizer step"}

MEMORY: Mapping[str, str] = {
    "weights": "Weights",
    "gradients": "Gradients",
    "optimizer": "Optimizer",
    "activations": "Activations",
    "working": "Working memory",
    "overhead": "Reserve",
    "stepping": "Optimizer step",
}

_LETTER, _AROUND = 0.007, 0.017
"""Of a letter and the space around a name, as parts of the whole width: segments as wide have their name in them."""


def stacked(
    parts: Mapping[str, int], whole: float, names: Mapping[str, str], texts: Mapping[str, str], *, label: str
) -> Html:
    """Return a bar whose segments are parts of a whole, which the bar's full width stands for.

    Parameters
    ----------
    texts
        What each part comes to, for people to read.
    label
        What the bar shows, for those who do not see it.
    """
    segments = [
        _segment(name, value / whole, f"{names[name]}: {texts[name]}", _fitting(names[name], value / whole))
        for name, value in parts.items()
        if value
    ]
    return tag("div", *segments, class_="bar", role="img", aria_label=label)


def _fitting(name: str, part: float) -> str:
    """Return a name where it fits on a part of the whole width."""
    return name if part >= _LETTER * len(name) + _AROUND else ""


def inline(name: str) -> str:
    """Return the name of a part as it stands inside a sentence."""
    return name if name.startswith("ZeRO") else f"{name[0].lower()}{name[1:]}"


def legend(names: Mapping[str, str], used: Mapping[str, int]) -> Html:
    """Return the colours of the parts that are used."""
    shown = [tag("li", swatch(name), title) for name, title in names.items() if used.get(name)]
    return tag("ul", *shown, class_="legend", aria_hidden="true")


def swatch(name: str) -> Html:
    """Return a patch of a part's colour."""
    return tag("span", class_=f"swatch c-{name}", aria_hidden="true")


def meter(part: float, whole: float, label: str) -> Html:
    """Return a small bar of a single share."""
    wide = min(1.0, part / whole) if whole else 0.0
    over = " over" if part > whole else ""
    filled = tag("span", style=f"width:{100 * wide:.2f}%", class_=f"fill{over}")
    return tag("span", filled, class_="meter", role="img", aria_label=label)


def spent_rows(parts: Mapping[str, int], whole: int, seconds: Mapping[str, float]) -> Iterator[list[Child]]:
    """Yield a row for each part of an iteration that takes any time: name, time, share."""
    for name, ticks in parts.items():
        if ticks:
            yield [joined([swatch(name), Html(f" {SPENT[name]}")]), duration(seconds[name]), share(ticks, whole)]


def _segment(name: str, part: float, title: str, text: str) -> Html:
    return tag(
        "span", tag("b", text) if text else None, class_=f"c-{name}", style=f"width:{100 * part:.3f}%", title=title
    )
