"""Faults in the place of what is right, so that it is known which tests would notice them; and time that is up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from nest.certificate.choices import Undecided

Wrong: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

Fault: TypeAlias = tuple[Any, str, Wrong]
"""Where a function is, its name, and what makes a wrong one of it."""


def noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch, confirm: Callable[[], None]) -> None:
    """Assert that what confirms answers fails with a fault."""
    owner, name, wrong = fault
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    with pytest.raises(AssertionError):
        confirm()


def without_first(method: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out the first of what is found."""
    return lambda *arguments, **named: _sequence(method(*arguments, **named))[1:]


def without_last(method: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out the last of what is found."""
    return lambda *arguments, **named: _sequence(method(*arguments, **named))[:-1]


def _sequence(found: Any) -> Any:
    return found if hasattr(found, "__getitem__") else list(found)


def plus(more: int) -> Wrong:
    """Add to what is found."""
    return lambda method: lambda *arguments, **named: method(*arguments, **named) + more


def with_more(field: str) -> Wrong:
    """Add 1 to a field of what is found, if anything is."""

    def faulty(method: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(*arguments: Any) -> Any:
            found = method(*arguments)
            return found and found._replace(**{field: getattr(found, field) + 1})

        return wrong

    return faulty


def tight(method: Callable[..., Any]) -> Callable[..., Any]:
    """Take a quarter of its room from what has the method, whenever that is called."""

    def wrong(self: Any, *arguments: Any) -> Any:
        self.room = self.room * 3 // 4
        return method(self, *arguments)

    return wrong


def time_is_up_after(readings: int) -> Callable[[Any], None]:
    """Return what stops a check when it has looked at the time so often."""
    left = iter(range(readings))

    def watch(_: Any) -> None:
        if next(left, None) is None:
            raise Undecided

    return watch
