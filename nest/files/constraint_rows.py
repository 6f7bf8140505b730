"""``[[constraints]]`` of our problem format <-> the classes of `nest.constraints`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from msgspec import UNSET

from nest.constraints import KINDS, Constraint
from nest.errors import InvalidProblem
from nest.files.allowed import RANGES_ADVICE, parse_allowed, spell_allowed
from nest.files.constraint_schema import ConstraintTable
from nest.files.faults import item
from nest.files.toml import Value, Values, size
from nest.problem import Problem


def with_constraints(problem: Problem, tables: Sequence[ConstraintTable]) -> Problem:
    """Return a problem with the side constraints that tables declare.

    Raises
    ------
    InvalidProblem
        Naming the table and its key, where one makes no sense or does not go with the problem.
    """
    constraints = []
    for at, table in enumerate(tables):
        kind = str(table.__struct_config__.tag)
        try:
            constraint = KINDS[kind](**_arguments(table, kind))
            constraint.check(problem)
        except InvalidProblem as fault:
            where = item("constraints", at) + fault.where.removeprefix(kind)
            raise InvalidProblem(where, fault.problem, fault.remedy) from None
        constraints.append(constraint)
    return problem.with_constraints(*constraints) if constraints else problem


def constraint_values(constraint: object) -> Values:
    """Return the keys of the table that declares a constraint, without those that have their default.

    Raises
    ------
    InvalidProblem
        If files do not know its kind.
    """
    if not isinstance(constraint, Constraint) or KINDS.get(constraint.kind) is not type(constraint):
        what = f"{type(constraint).__name__} is no side constraint that files know"
        raise InvalidProblem("constraints", what, f"files know {', '.join(KINDS)}")
    values: Values = {"kind": constraint.kind}
    for spec in fields(constraint):  # type: ignore[arg-type]
        value = getattr(constraint, spec.name)
        if spec.default is MISSING or value != spec.default:
            values[spec.name] = _spelt(value)
    return values


def _arguments(table: ConstraintTable, kind: str) -> dict[str, Any]:
    given = {name: getattr(table, name) for name in table.__struct_fields__}
    return {
        name: _degrees(kind, value) if name == "values" else value
        for name, value in given.items()
        if value is not UNSET
    }


def _degrees(kind: str, value: int | list[int] | str) -> frozenset[int] | None:
    if not isinstance(value, str):
        return frozenset([value] if isinstance(value, int) else value)
    try:
        return parse_allowed(value)
    except ValueError as fault:
        raise InvalidProblem(f"{kind}.values", str(fault), f"give {RANGES_ADVICE}") from None


def _spelt(value: Any) -> Value:
    if isinstance(value, frozenset):
        return spell_allowed(value)
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, bool | str) else size(value)
