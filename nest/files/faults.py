"""Where plain objects do not fit a declared structure: the key, its value, and what would be right.

The structure is declared once, as `msgspec` structs. `msgspec` checks against it quickly but names neither the key of
a mapping nor the value, so that after a failure the same declaration is walked here, key by key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import msgspec

from nest.files.words import meant, missing, show


class Fault(NamedTuple):
    """One thing that is wrong, as `nest.errors.InvalidProblem` takes it."""

    where: str
    problem: str
    remedy: str


def first_fault(value: object, kind: Any, where: str = "") -> Fault | None:
    """Return the first fault of ``value``, found at the key ``where``, or None if it is of ``kind``.

    What would be right is the ``description`` of the type's `msgspec.Meta`.
    """
    return next(_faults(value, kind, where), None)


def key(where: str, name: str) -> str:
    """Return the path of a key in the table at ``where``."""
    return f"{where}.{name}" if where else name


def item(where: str, index: int | str) -> str:
    """Return the path of an item of the list or mapping at ``where``."""
    return f"{where}[{index if isinstance(index, int) else json.dumps(index)}]"


def _faults(value: object, kind: Any, where: str) -> Iterator[Fault]:
    bare = _arm(value, _bare(kind))
    if isinstance(value, dict):
        yield from _tag_faults(value, bare, where)
    if isinstance(value, dict) and isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        yield from _table_faults(value, bare, where)
    elif isinstance(value, dict) and get_origin(bare) is dict:
        for name, entry in value.items():
            yield from _faults(entry, get_args(bare)[1], item(where, name))
    elif isinstance(value, list) and get_origin(bare) is list:
        for index, entry in enumerate(value):
            yield from _faults(entry, get_args(bare)[0], item(where, index))
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as failure:
        yield Fault(where, show(value), _advice(kind) or str(failure))


def _table_faults(table: dict[str, object], kind: type[msgspec.Struct], where: str) -> Iterator[Fault]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    unknown = [name for name in table if name not in (*fields, kind.__struct_config__.tag_field)]
    if kind.__struct_config__.forbid_unknown_fields:
        for name in unknown:
            remedy = meant(name, fields.keys() - table.keys(), f"known keys are {', '.join(fields)}")
            yield Fault(key(where, name), "unknown key", remedy)
    for name, field in fields.items():
        if name in table:
            yield from _faults(table[name], field.type, key(where, name))
        elif field.required:
            yield Fault(key(where, name), missing(name, unknown), _advice(field.type))


def _tag_faults(table: dict[str, object], kind: Any, where: str) -> Iterator[Fault]:
    """Yield the fault of a table that does not say which one of a union of tables it is."""
    tagged = _tagged(kind)
    if not tagged:
        return
    name = next(iter(tagged.values())).__struct_config__.tag_field or ""
    remedy = f"give one of {', '.join(tagged)}"
    if name not in table:
        yield Fault(key(where, name), missing(name, table), remedy)
    elif table[name] not in list(tagged):
        yield Fault(key(where, name), show(table[name]), meant(table[name], tagged, remedy))


def _tagged(kind: Any) -> dict[str, type[msgspec.Struct]]:
    """Return the tables of a union by the tags that tell them apart; nothing for any other type."""
    arms = _arms(kind)
    tables = [arm for arm in arms if isinstance(arm, type) and issubclass(arm, msgspec.Struct)] if arms[1:] else []
    return {str(table.__struct_config__.tag): table for table in tables if table.__struct_config__.tag is not None}


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _arm(value: object, kind: Any) -> Any:
    """Return the arm of a union that the value's shape or its tag points to, or the type itself if there is none."""
    if isinstance(value, dict):
        for tag, table in _tagged(kind).items():
            if value.get(str(table.__struct_config__.tag_field)) == tag:
                return table
        tables = [arm for arm in _arms(kind) if isinstance(arm, type) and issubclass(arm, msgspec.Struct)]
        if len(tables) == 1:
            return tables[0]
    shape = list if isinstance(value, list) else dict
    return next((arm for arm in _arms(kind) if get_origin(arm) is shape), kind)


def _arms(kind: Any) -> list[Any]:
    """Return the types that a union, of unions or not, is made of."""
    if get_origin(kind) not in (Union, UnionType):
        return [kind]
    return [arm for part in get_args(kind) for arm in _arms(_bare(part))]


def _advice(kind: Any) -> str:
    """Return what would be right: the last description given, else what the first arm of a union has."""
    notes = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    for note in reversed(notes):
        if isinstance(note, msgspec.Meta) and note.description:
            return f"give {note.description}"
    bare = _bare(kind)
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return f"give a table with the keys {', '.join(bare.__struct_encode_fields__)}"
    return next(filter(None, map(_advice, get_args(bare))), "")
