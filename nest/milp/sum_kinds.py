"""Stages of both kinds of outer choices: all of one form, and with widths of their own."""

from __future__ import annotations

from typing import Any, Protocol

from nest.milp.sum_choices import AnyChoice, SumChoice
from nest.milp.sum_stages import StageWays
from nest.milp.sum_ways import Kept, Ways
from nest.milp.wide_stages import WideWays
from nest.problem import Variant
from nest.tables import Tables, UnevenTables


class AnyWays(Protocol):
    """What a search asks of the stages of outer choices, each kind of those that are of it."""

    @property
    def work(self) -> int:
        """Ticks that the loads of all stages of a plan add up to at least."""

    @property
    def most_sent(self) -> tuple[int, ...]:
        """Bytes that all stages of a plan together may send, by column of `Ways.sent`."""

    def cuts_of(self, choice: Any) -> int:
        """Return how many cuts, or states, the paths of an outer choice have."""

    def below(self, choice: Any, limit: int) -> list[Ways]:
        """Return the stages of plans of a choice below a limit, by position; some has none where there is no plan."""

    def positions(self, choice: Any) -> list[Ways]:
        """Return the stages of a choice, by position from the end."""


class Stages:
    """The stages of all outer choices of a problem.

    Parameters
    ----------
    tables
        Of the problem.
    kept
        As for `nest.milp.sum_stages.StageWays`.
    """

    def __init__(self, tables: Tables, kept: Kept) -> None:
        self.tables, self.kept = tables, kept
        self._ways: dict[Variant | UnevenTables, AnyWays] = {}

    def of(self, choice: AnyChoice) -> AnyWays:
        """Return what has the stages of an outer choice."""
        key = choice.variant if isinstance(choice, SumChoice) else choice.tables
        if key not in self._ways:
            self._ways[key] = self._made(key)
        return self._ways[key]

    def _made(self, key: Variant | UnevenTables) -> AnyWays:
        if isinstance(key, UnevenTables):
            return WideWays(key, self.kept)
        return StageWays(self.tables.of_variant(key), self.kept)
