"""Answers to other objectives than time as JSON: what was minimised, and fronts under ``nest.frontier/1``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from nest.certify import Proof
from nest.explain import Explanation
from nest.files.certificate_file import prover_document
from nest.files.plan_file import plan_document, result_document
from nest.objectives import Claim, Frontier, Least, Point, PriceFrontier, PricePoint

FRONTIER_SCHEMA = "nest.frontier/1"


def least_document(
    least: Least, proofs: Sequence[Proof] | None = None, explanation: Explanation | None = None
) -> dict[str, Any]:
    """Return the least of a quantity as a result under ``nest.result/1`` with one more key, ``minimized``.

    Amounts are whole devices, or bytes on each device of the fullest stage.

    Parameters
    ----------
    proofs
        What the checker found about each claim, where it was asked.
    explanation
        Why there is no plan, where there is none.
    """
    return result_document(least.result, None, explanation) | {
        "minimized": {
            "quantity": least.quantity,
            "time_at_most_s": least.time_at_most_s,
            "least": least.size,
            "too_little": least.size_below,
            "proven": least.proven,
            "claims": _claims(least.claims(), proofs),
        }
    }


def frontier_document(
    frontier: Frontier,
    versions: Mapping[str, str],
    proofs: Sequence[Proof] | None = None,
    explanation: Explanation | None = None,
) -> dict[str, Any]:
    """Return a front as plain objects: seconds, bytes, ticks, and the objective in the problem's own unit.

    Parameters
    ----------
    versions
        What it was computed with, by name.
    proofs, explanation
        As of `least_document`.
    """
    problem = frontier.problem
    return {
        "schema": FRONTIER_SCHEMA,
        "problem": problem.name,
        "preset": problem.preset.name,
        "devices": problem.cluster.devices,
        "time_unit_s": problem.time_unit_s,
        "tick_s": frontier.time.tick_s,
        "complete": frontier.complete,
        "settled_from_devices": frontier.settled_from,
        "reason": frontier.reason,
        "conflict": None if explanation is None else list(explanation.conflict),
        "points": [_point(frontier, point) for point in frontier.points],
        "claims": _claims(frontier.claims(), proofs),
        "wall_s": frontier.wall_s,
        "provenance": dict(versions),
    }


def price_frontier_document(
    frontier: PriceFrontier, versions: Mapping[str, str], explanation: Explanation | None = None
) -> dict[str, Any]:
    """Return a front of price and time as plain objects, under the schema of fronts, with ``price`` in each point.

    Parameters
    ----------
    versions, explanation
        As of `frontier_document`.
    """
    problem = frontier.problem
    return {
        "schema": FRONTIER_SCHEMA,
        "problem": problem.name,
        "preset": problem.preset.name,
        "time_unit_s": problem.time_unit_s,
        "tick_s": frontier.time.tick_s,
        "complete": frontier.complete,
        "reason": frontier.reason,
        "conflict": None if explanation is None else list(explanation.conflict),
        "points": [{"price": float(point.price), **_timed(frontier, point)} for point in frontier.points],
        "wall_s": frontier.wall_s,
        "provenance": dict(versions),
    }


def _timed(frontier: Frontier | PriceFrontier, point: Point | PricePoint) -> dict[str, Any]:
    """Return the time of a point, and its plan."""
    taken = point.ticks * frontier.time.tick
    return {
        "objective": float(taken / Fraction(repr(frontier.problem.time_unit_s))),
        "objective_s": float(taken),
        "objective_ticks": point.ticks,
        "plan": plan_document(point.plan),
    }


def _point(frontier: Frontier, point: Point) -> dict[str, Any]:
    timed = _timed(frontier, point)
    plan = timed.pop("plan")
    return {
        "devices": point.devices,
        **timed,
        "proven": point.proven,
        "memory_bytes": point.memory_bytes,
        "plan": plan,
    }


def _claims(claims: Iterable[Claim], proofs: Sequence[Proof] | None) -> list[dict[str, Any]]:
    return [
        {
            "text": claim.text,
            "constraints": [constraint.text for constraint in claim.problem.constraints],
            "no_less_than_ticks": claim.value,
            "checked": None if proof is None else prover_document(proof),
        }
        for claim, proof in zip_longest(claims, proofs or ())
    ]
