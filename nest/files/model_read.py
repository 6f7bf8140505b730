"""The ``[model]`` table -> one layer graph for each variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec import UNSET, UnsetType

from nest.errors import InvalidProblem
from nest.files.faults import item, key
from nest.files.limits import MOST_LAYERS
from nest.files.schema import (
    BytesRow,
    CollectiveTable,
    CostRow,
    EdgeTable,
    LayerRun,
    ModelTable,
    RecomputedTable,
)
from nest.files.variants import spell_variant, variant_of
from nest.files.words import meant, show
from nest.graph import Collective, Edge, Layer, LayerGraph, LayerId, Recomputed
from nest.problem import Variant
from nest.units import Number

Key = TypeVar("Key", str, LayerId)

Kinds: TypeAlias = Mapping[LayerId, str]
"""Kind of each layer, in the order of the file."""

Rows: TypeAlias = Mapping[LayerId, CostRow]
"""Cost row of each layer under one variant."""


class _Costs(NamedTuple):
    """Cost rows under one variant, those of each further class of devices, and of each kind of recomputation apart.

    Files have the last from before stages chose what they recompute.
    """

    plain: Rows
    again: Sequence[Rows]
    others: Mapping[str, Rows]


class _Link(NamedTuple):
    """An edge of every variant; ``sizes`` by variant, or None for the source's ``output_bytes``."""

    source: LayerId
    target: LayerId
    sizes: Mapping[Variant, Number] | None = None


def graphs_of(model: ModelTable) -> dict[Variant, LayerGraph]:
    """Return the layer graph of each variant for which there are cost rows, in the order of the rows.

    Raises
    ------
    InvalidProblem
        If rows are missing, double or name no layer, or the edges make no connected graph without cycles.
    """
    kinds = _kinds(model.layers)
    rows = _rows(model.costs, kinds)
    links = _links(model, kinds, rows)
    where = "model.skips" if model.edges is UNSET else "model.edges"
    table = None if model.table is UNSET else model.table
    if table is not None:
        _known_layer(table, kinds, "model.table")
    return {variant: _graph(kinds, rows[variant], (links, table), variant, where) for variant in rows}


def _kinds(runs: Sequence[LayerRun]) -> Kinds:
    kinds: dict[LayerId, str] = {}
    for at, run in enumerate(runs):
        for name in _run_ids(run, item("model.layers", at), len(kinds)):
            if name in kinds:
                raise InvalidProblem(item("model.layers", at), f"id {show(name)} is used twice", "ids are unique")
            kinds[name] = run.kind
        if len(kinds) > MOST_LAYERS:
            raise InvalidProblem("model.layers", f"{len(kinds)} layers", f"give at most {MOST_LAYERS}")
    return kinds


def _run_ids(run: LayerRun, where: str, place: int) -> Sequence[LayerId]:
    given = [name for name in ("id", "ids", "first_id") if getattr(run, name) is not UNSET]
    if len(given) > 1:
        raise InvalidProblem(where, f"{' and '.join(given)} are both given", "give one of id, ids and first_id")
    ids = run.ids if run.id is UNSET else [run.id]
    if ids is not UNSET:
        if run.count not in (UNSET, len(ids)):
            raise InvalidProblem(key(where, "count"), f"{run.count}, for {len(ids)} ids", "leave count out")
        return ids
    first = place if run.first_id is UNSET else run.first_id
    return range(first, first + (1 if run.count is UNSET else run.count))


def _rows(costs: Sequence[CostRow], kinds: Kinds) -> dict[Variant, _Costs]:
    """Return the cost rows of each layer, for each variant that has any row."""
    by_kind: dict[tuple[Variant, _Part], dict[str, CostRow]] = {}
    by_id: dict[tuple[Variant, _Part], dict[LayerId, CostRow]] = {}
    known = set(kinds.values())
    for at, row in enumerate(costs):
        where = item("model.costs", at)
        of = variant_of(row), _part(row, where)
        of_kind, of_id = by_kind.setdefault(of, {}), by_id.setdefault(of, {})
        if row.ids is UNSET:
            _enter(of_kind, _row_kind(row, known, where), row, where)
        for name in _row_ids(row, kinds, where):
            _enter(of_id, name, row, where)
    found: dict[Variant, dict[_Part, Rows]] = {}
    for each, of_kind in by_kind.items():
        found.setdefault(each[0], {})[each[1]] = _complete(kinds, of_kind, by_id[each], each)
    return {variant: _costs(variant, rows) for variant, rows in found.items()}


class _Part(NamedTuple):
    """Which rows belong together under one variant."""

    recompute: str = "none"
    of_class: str = ""


def _part(row: CostRow, where: str) -> _Part:
    if row.of_class and row.recompute != "none":
        remedy = "give what is computed again as recomputed"
        raise InvalidProblem(key(where, "recompute"), f"{show(row.recompute)} beside a class", remedy)
    return _Part(row.recompute, row.of_class)


def _costs(variant: Variant, rows: dict[_Part, Rows]) -> _Costs:
    if (plain := rows.pop(_Part(), None)) is None:
        what = f"with {spell_variant(variant)} there are only rows that recompute, or of a class"
        raise InvalidProblem("model.costs", what, "add rows without either, which say what all of them share")
    again = [each for part, each in rows.items() if not part.of_class]
    return _Costs(plain, again, {part.of_class: each for part, each in rows.items() if part.of_class})


def _row_kind(row: CostRow, known: set[str], where: str) -> str:
    kind = "" if row.kind is UNSET else row.kind
    if kind in known:
        return kind
    kinds = ", ".join(sorted(map(show, known)))
    if row.kind is UNSET:
        raise InvalidProblem(where, "neither kind nor ids are given", f"the kinds of the layers are {kinds}")
    raise InvalidProblem(
        key(where, "kind"), f"no layer is of kind {show(kind)}", meant(kind, known, f"the kinds are {kinds}")
    )


def _row_ids(row: CostRow, kinds: Kinds, where: str) -> Sequence[LayerId]:
    if row.ids is UNSET:
        return ()
    if row.kind is not UNSET:
        raise InvalidProblem(where, "kind and ids are both given", "give one of them")
    for name in row.ids:
        _known_layer(name, kinds, key(where, "ids"))
    return row.ids


def _enter(rows: dict[Key, CostRow], name: Key, row: CostRow, where: str) -> None:
    if name in rows:
        named = f"{'kind' if row.ids is UNSET else 'id'} {show(name)}"
        raise InvalidProblem(where, f"a second row for {named} with {spell_variant(variant_of(row))}", "give one")
    rows[name] = row


def _complete(kinds: Kinds, by_kind: Mapping[str, CostRow], by_id: Rows, of: tuple[Variant, _Part]) -> Rows:
    rows, (variant, part) = {}, of
    for name, kind in kinds.items():
        row = by_id.get(name) or by_kind.get(kind)
        if row is None:
            where = f" on class {show(part.of_class)}" if part.of_class else ""
            what = f"no costs for layer {show(name)} (kind {show(kind)}) with {spell_variant(variant)}{where}"
            raise InvalidProblem("model.costs", what, "add a row")
        rows[name] = row
    return rows


def _links(model: ModelTable, kinds: Kinds, rows: Mapping[Variant, _Costs]) -> list[_Link]:
    if model.edges is not UNSET:
        if model.skips:
            raise InvalidProblem("model.skips", "edges are given as well", "edges replace the chain: name all there")
        return list(_table_links(model.edges, "model.edges", kinds, rows))
    links = [_Link(source, target) for source, target in pairwise(kinds)]
    links += _table_links(model.skips, "model.skips", kinds, rows)
    place = {name: at for at, name in enumerate(kinds)}
    return sorted(links, key=lambda link: (place[link.source], place[link.target]))


def _table_links(
    tables: Sequence[EdgeTable], where: str, kinds: Kinds, variants: Mapping[Variant, _Costs]
) -> Iterator[_Link]:
    for at, table in enumerate(tables):
        here = item(where, at)
        _known_layer(table.source, kinds, key(here, "source"))
        sizes = _sizes(table.bytes, key(here, "bytes"), variants)
        for target in table.target if isinstance(table.target, list) else [table.target]:
            _known_layer(target, kinds, key(here, "target"))
            yield _Link(table.source, target, sizes)


def _known_layer(name: LayerId, kinds: Kinds, where: str) -> None:
    if name not in kinds:
        remedy = "name the id of a layer"  # a number that is close to another says nothing
        remedy = meant(name, kinds, remedy) if isinstance(name, str) else remedy
        raise InvalidProblem(where, f"{show(name)} is no layer", remedy)


def _sizes(
    given: Number | list[BytesRow] | UnsetType, where: str, variants: Mapping[Variant, _Costs]
) -> Mapping[Variant, Number] | None:
    if given is UNSET:
        return None
    if not isinstance(given, list):
        return dict.fromkeys(variants, given)
    sizes: dict[Variant, Number] = {}
    for at, row in enumerate(given):
        variant = variant_of(row)
        if row.recompute != "none" and sizes.get(variant) == row.bytes:
            continue  # a file of before stages chose for themselves
        if variant in sizes or variant not in variants:
            what = "a second row for" if variant in sizes else "model.costs has no row with"
            raise InvalidProblem(item(where, at), f"{what} {spell_variant(variant)}", "give one for each variant")
        sizes[variant] = row.bytes
    if missing := [variant for variant in variants if variant not in sizes]:
        raise InvalidProblem(where, f"no row with {spell_variant(missing[0])}", "give one for each variant")
    return sizes


def _graph(
    kinds: Kinds, rows: _Costs, joined: tuple[Sequence[_Link], LayerId | None], variant: Variant, where: str
) -> LayerGraph:
    links, table = joined
    layers = [_layer(name, row, kinds[name], [each[name] for each in rows.again]) for name, row in rows.plain.items()]
    edges = [Edge(link.source, link.target, _size(link, rows.plain[link.source], variant)) for link in links]
    others = [
        (of, [_layer(name, row, kinds[name], ()) for name, row in each.items()]) for of, each in rows.others.items()
    ]
    try:
        return LayerGraph.sort(layers, edges, table, others)
    except InvalidProblem as fault:
        raise InvalidProblem("model.costs" if fault.where == "layers" else where, fault.problem, fault.remedy) from None


def _layer(name: LayerId, row: CostRow, kind: str, again: Sequence[CostRow]) -> Layer:
    return Layer(
        name,
        row.forward_s,
        row.backward_s,
        row.parameter_bytes,
        row.activation_bytes,
        kind,
        row.expert_parameter_bytes,
        row.working_bytes,
        _collectives(row.collectives),
        (
            *(_recomputed(each) for each in row.recomputed),
            *filter(None, (_converted(name, row, each) for each in again)),
        ),
        row.tied_bytes,
        None if row.weight_share is UNSET else row.weight_share,
        row.result_bytes,
    )


def _collectives(tables: Sequence[CollectiveTable]) -> tuple[Collective, ...]:
    return tuple(Collective(each.kind, each.bytes, each.axis, each.when, each.hidden_s) for each in tables)


def _recomputed(table: RecomputedTable) -> Recomputed:
    collectives = _collectives(table.collectives)
    return Recomputed(table.kind, table.repeated_s, table.activation_bytes, table.working_bytes, collectives)


def _converted(name: LayerId, row: CostRow, again: CostRow) -> Recomputed | None:
    """Return what a row says that recomputes, as files had it once; None where it says what the row without does."""
    for figure in (
        "forward_s",
        "backward_s",
        "parameter_bytes",
        "expert_parameter_bytes",
        "tied_bytes",
        "result_bytes",
    ):
        if getattr(row, figure) != getattr(again, figure):
            what = (
                f"{figure} of layer {show(name)} with {spell_variant(variant_of(row))} is another where it recomputes"
            )
            raise InvalidProblem("model.costs", what, "give it alike; what is computed again is recompute_s")
    repeated = tuple(each for each in again.collectives if each.when == "recompute")
    if [each for each in again.collectives if each.when != "recompute"] != row.collectives:
        what = f"collectives of layer {show(name)} with {spell_variant(variant_of(row))} are others where it recomputes"
        raise InvalidProblem("model.costs", what, 'give those alike that are not when = "recompute"')
    same = (row.activation_bytes, row.working_bytes) == (again.activation_bytes, again.working_bytes)
    if again.recompute == "none" or (same and not again.recompute_s and not repeated):
        return None
    return Recomputed(
        again.recompute, again.recompute_s, again.activation_bytes, again.working_bytes, _collectives(repeated)
    )


def _size(link: _Link, row: CostRow, variant: Variant) -> Number:
    if link.sizes is not None:
        return link.sizes[variant]
    if row.output_bytes is UNSET:
        what = f"no output_bytes for layer {show(link.source)} with {spell_variant(variant)}"
        raise InvalidProblem("model.costs", what, f"give what it sends to layer {show(link.target)}, 0 if nothing")
    return row.output_bytes
