"""Runs that repeat in a row of signs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

MOST_SIGNS = 4000
"""Signs among which repetitions are looked for; each pair of places is compared."""


def tandem(signs: Sequence[Hashable]) -> tuple[int, int, int] | None:
    """Return the first place, length and number of the equal runs that together cover the most of a row.

    Of several that cover as much, the shortest run counts. None if no run of at least two signs, not all equal, occurs
    twice in a row.
    """
    if len(signs) > MOST_SIGNS:
        return None
    best: tuple[int, int, int, int] | None = None
    for length in range(2, len(signs) // 2 + 1):
        for start, equal in _stretches(signs, length):
            times = equal // length + 1
            if times > 1 and (best is None or times * length > best[0]) and len(set(signs[start : start + length])) > 1:
                best = times * length, start, length, times
    return best[1:] if best else None


def _stretches(signs: Sequence[Hashable], length: int) -> list[tuple[int, int]]:
    """Return where signs equal those ``length`` further on, and for how many places."""
    found, start = [], None
    for at in range(len(signs) - length + 1):
        alike = at + length < len(signs) and signs[at] == signs[at + length]
        if alike and start is None:
            start = at
        elif not alike and start is not None:
            found.append((start, at - start))
            start = None
    return found
