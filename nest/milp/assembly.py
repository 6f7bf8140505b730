"""How the models of the programme come about: what is posted for rules, side constraints and costs, in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from nest.constraints.answers import HOOKS

Made = TypeVar("Made")

Post: TypeAlias = Callable[[Made], None]
"""Posts a rule or a cost to a model; it has the name of what it posts."""

RULE_ORDER = (
    "variant",
    "cover",
    "order",
    "replicas",
    "stages",
    "recompute",
    "sharding",
    "block",
    "placement",
    "devices",
    "memory",
    "range",
    "nesting",
    "technology",
    "schedule",
    "chunks",
)
"""C1 to C16."""

SIDE_ORDER = (*HOOKS, "coupling")
"""Hooks of local side constraints, and those that tie stages together."""


def in_order(order: tuple[str, ...], kept: Mapping[str, str], *posted: Post[Made]) -> Mapping[str, Post[Made] | str]:
    """Return for each name the function that posts it, or where the index sets keep it.

    Parameters
    ----------
    order
        All names.
    kept
        For which of them there is nothing to post, and what keeps them.
    posted
        Functions for the others.

    Raises
    ------
    ValueError
        If a name has neither or both, or is not in the order.
    """
    functions = {post.__name__: post for post in posted}
    if sorted([*kept, *functions]) != sorted(order):
        raise ValueError(f"{[*kept, *functions]} are not {order}")
    return {name: functions[name] if name in functions else kept[name] for name in order}


def assembled(made: Made, *catalogues: Mapping[str, Post[Made] | str] | Mapping[str, Post[Made]]) -> Made:
    """Return a model after everything that some catalogues say has been posted to it."""
    for catalogue in catalogues:
        for post in catalogue.values():
            if not isinstance(post, str):
                post(made)
    return made
