"""A table of layers: what somebody measured of each, by tensor width and microbatch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import isfinite
from typing import NamedTuple

from nest.errors import InvalidProblem

MOST_LISTED = 4
"""Of many names so many are told."""


class Point(NamedTuple):
    """What the figures of layers are for: ranks among which their matrices are cut, and sequences at a time."""

    tensor: int
    microbatch: int

    def __str__(self) -> str:
        """Return both, in words."""
        return f"tensor {self.tensor}, microbatch {self.microbatch}"


@dataclass(frozen=True, slots=True)
class LayerFigures:
    """What was measured of a layer for one microbatch on one of its devices; None for what was not.

    Parameters
    ----------
    forward_s, backward_s
        Seconds of its passes.
    together_s
        Seconds of both, where they were not kept apart.
    parameters
        Their number on the device.
    weight_bytes
        Bytes of weights on the device.
    kept_bytes
        What it keeps until its backward pass.
    memory_bytes
        All that the device has in use for it: weights, gradients, optimizer state and what one microbatch keeps.
    output_bytes
        The tensor that goes to the next layer, whole.
    input_bytes
        The tensor that it is given, which is what it keeps where it is computed again; None for what the layer before
        it sends.
    working_bytes
        What it has in use for a moment during its backward pass, besides.
    exchanged_bytes
        What its tensor ranks all-reduce in each pass; None where the times contain what they exchange.

    Raises
    ------
    InvalidProblem
        If a figure is no finite number from 0, or two say the same thing.
    """

    forward_s: float | None = None
    backward_s: float | None = None
    together_s: float | None = None
    parameters: int | None = None
    weight_bytes: int | None = None
    kept_bytes: int | None = None
    memory_bytes: int | None = None
    output_bytes: int | None = None
    input_bytes: int | None = None
    working_bytes: int | None = None
    exchanged_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise InvalidProblem(name, f"{value}", "give a finite number from 0")
        apart = self.forward_s is not None or self.backward_s is not None
        for one, two, both in (
            ("together", "forward and backward", apart and self.together_s is not None),
            ("parameters", "weights", self.parameters is not None and self.weight_bytes is not None),
            ("kept", "memory", self.kept_bytes is not None and self.memory_bytes is not None),
        ):
            if both:
                raise InvalidProblem("", f"{one} beside {two}", "give one of them")

    @property
    def lacking(self) -> tuple[str, ...]:
        """What a plan needs and nobody measured, what goes to the next layer apart; each with its columns."""
        timed = self.together_s is not None or None not in (self.forward_s, self.backward_s)
        found = {
            "time of the forward pass (forward_ms)": timed or self.forward_s is not None,
            "time of the backward pass (backward_ms)": timed or self.backward_s is not None,
            "weights (parameters, weights_bytes)": (self.parameters, self.weight_bytes) != (None, None),
            "bytes kept until the backward pass (kept_bytes, or memory_bytes of all)": (
                (self.kept_bytes, self.memory_bytes) != (None, None)
            ),
        }
        return tuple(what for what, has in found.items() if not has)


OUTPUT = "bytes that go to the next layer (output_bytes)"


@dataclass(frozen=True, slots=True)
class TableRow:
    """A layer under one tensor width and microbatch.

    Parameters
    ----------
    name
        Of the layer.
    point, figures
        See there.
    kind
        What it is, for people to read, and for equal stages, with which a first or last layer of its own kind rides.
    place
        Of the layer in the model; None where the order of the rows says it.
    count
        So many such layers follow each other.
    repeats
        Whether it may be computed again.
    where
        The row in its file, as errors name it.

    Raises
    ------
    InvalidProblem
        If a number is out of range.
    """

    name: str
    point: Point
    figures: LayerFigures
    kind: str = ""
    place: int | None = None
    count: int = 1
    repeats: bool = True
    where: str = ""

    def __post_init__(self) -> None:
        for name, value in (
            ("tensor", self.point.tensor),
            ("microbatch", self.point.microbatch),
            ("count", self.count),
        ):
            if value < 1:
                raise InvalidProblem(f"{self.where}: {name}" if self.where else name, f"{value}", "give 1 or more")

    @property
    def key(self) -> int | str:
        """Which layer it is of."""
        return self.name if self.place is None else self.place

    @property
    def alike(self) -> tuple[object, ...]:
        """What is the same in all rows of a layer."""
        return self.name, self.kind, self.count, self.repeats


@dataclass(frozen=True)
class LayerTable:
    """Measured layers of a model.

    Parameters
    ----------
    name
        Of the model.
    rows
        Of each layer, for each tensor width and microbatch that was measured; in any order where they have places.
    source
        The file, as errors name it.
    edges
        Places of layers of which the first sends its output to the second; None for a chain.
    recipe
        Name of the bytes per parameter that go with the weights, unless somebody says otherwise.
    notes
        What was assumed of the file.
    unsaid
        What decides about all layers, and the file leaves to be said besides.
    device
        On what it was measured, where the file says that.
    refused
        Why the layers of some points are not planned with, although rows have them.

    Raises
    ------
    InvalidProblem
        Naming the row, if there is none, two are of the same, or they do not agree on what the layers are.
    """

    name: str
    rows: tuple[TableRow, ...]
    source: str = ""
    edges: tuple[tuple[int, int], ...] | None = None
    recipe: str = "mixed"
    notes: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    device: str = ""
    refused: Mapping[Point, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rows:
            raise InvalidProblem("", "no rows", "give a row for each layer", self.source)
        placed = [row for row in self.rows if row.place is not None]
        if placed and len(placed) < len(self.rows):
            row = next(row for row in self.rows if row.place is None)
            raise self._fault(row, "no place, which other rows have", "give all of them a place, or none")
        seen: dict[tuple[Point, int | str], TableRow] = {}
        for row in self.rows:
            before = seen.setdefault((row.point, row.key), row)
            if before is not row:
                what = f"layer {row.key!r} again at {row.point}" + f", as in {before.where}" * bool(before.where)
                raise self._fault(row, what, "give layers names of their own, or a place each")
            first = self._first[row.key]
            if row.alike != first.alike:
                what = f"layer {row.key!r} has another name, kind, count or repeats than {first.where or 'before'}"
                raise self._fault(row, what, "give the same in all rows of a layer")
        if not placed:
            self._check_order()

    @cached_property
    def _first(self) -> dict[int | str, TableRow]:
        """The first row of each layer, in the order of the model."""
        found: dict[int | str, TableRow] = {}
        for row in self.rows:
            found.setdefault(row.key, row)
        return {key: found[key] for key in sorted(found, key=_place)} if self._placed else found

    @property
    def _placed(self) -> bool:
        return self.rows[0].place is not None

    def _check_order(self) -> None:
        """Refuse rows whose order is another one at another point: which is the model's, nobody says."""
        order = {key: at for at, key in enumerate(self._first)}
        last: dict[Point, TableRow] = {}
        for row in self.rows:
            before = last.get(row.point)
            if before is not None and order[row.key] < order[before.key]:
                what = f"layer {row.name!r} comes behind {before.name!r} at {row.point}, and before it elsewhere"
                raise self._fault(row, what, "put the rows in the model's order, or give each a place")
            last[row.point] = row

    @property
    def layers(self) -> tuple[TableRow, ...]:
        """A row of each layer, in the order of the model."""
        return tuple(self._first.values())

    @property
    def points(self) -> tuple[Point, ...]:
        """All that something was measured for."""
        return tuple(sorted({row.point for row in self.rows}))

    def at(self, point: Point) -> tuple[TableRow, ...]:
        """Return the rows of a point, in the order of the model."""
        return tuple(self._by_point[point][key] for key in self._first if key in self._by_point[point])

    @cached_property
    def _by_point(self) -> dict[Point, dict[int | str, TableRow]]:
        found: dict[Point, dict[int | str, TableRow]] = {point: {} for point in self.points}
        for row in self.rows:
            found[row.point][row.key] = row
        return found

    @cached_property
    def missing(self) -> dict[Point, str]:
        """Points of the widths and microbatches that occur that cannot be planned with, and why."""
        tensors, microbatches = ({point[at] for point in self.points} for at in (0, 1))
        points = [Point(*pair) for pair in product(sorted(tensors), sorted(microbatches))]
        return {point: why for point in points if (why := self._missing_at(point))}

    def _missing_at(self, point: Point) -> str:
        if point not in self._by_point:
            return "not measured"
        lacking = [repr(row.name) for key, row in self._first.items() if key not in self._by_point[point]]
        return f"no row for layer {listed(lacking)}" if lacking else self.refused.get(point, "")

    @property
    def complete(self) -> tuple[Point, ...]:
        """Points at which every layer was measured."""
        return tuple(point for point in self.points if point not in self.missing)

    @property
    def apart(self) -> bool:
        """Whether forward and backward passes were timed apart, everywhere."""
        return all(row.figures.together_s is None for row in self.rows)

    @cached_property
    def lacking(self) -> tuple[str, ...]:
        """What a plan needs and the table does not say, with the layers that lack it; nothing where it says all."""
        without: dict[str, list[TableRow]] = {}
        asked = self.complete or self.points
        for row in (row for row in self.rows if row.point in asked):
            for what in row.figures.lacking:
                without.setdefault(what, []).append(row)
            if row.figures.output_bytes is None and self.sends(row.key):
                without.setdefault(OUTPUT, []).append(row)
        return (*self.unsaid, *(f"no {what} of {self._of(rows)}" for what, rows in without.items()))

    def sends(self, key: int | str) -> bool:
        """Whether a layer's output goes to another one."""
        at = list(self._first).index(key)
        if self.edges is None:
            return at < len(self._first) - 1
        return any(source == at for source, _ in self.edges)

    def _of(self, rows: list[TableRow]) -> str:
        """Return of which layers something is, in words."""
        names = list(dict.fromkeys(row.name for row in rows))
        if len({row.key for row in rows}) == len(self._first) > 1:
            return "any layer"
        return f"{rows[0].where}, " * bool(rows[0].where) + f"layer {listed([repr(name) for name in names])}"

    def require_whole(self) -> None:
        """Refuse a table that lacks something that a plan needs.

        Raises
        ------
        InvalidProblem
            Naming all of it.
        """
        if self.lacking:
            remedy = "add it: nest show FILE -o layers.csv writes the table with its cells empty"
            raise InvalidProblem("", "; ".join(self.lacking), remedy, self.source)
        if not self.complete:
            (point, why), *_ = self.missing.items()
            raise InvalidProblem("", f"{point}: {why}, and no other is complete", "measure all layers", self.source)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What looks wrong in the figures: the same at different tensor widths, or at different microbatches."""
        return tuple(self._copied())

    def _copied(self) -> Iterator[str]:
        for at, two in enumerate(self.points):
            for one in self.points[:at]:
                if one.microbatch == two.microbatch:
                    yield from self._same(one, two, _WIDTHS)
                elif one.tensor == two.tensor:
                    yield from self._same(one, two, _MICROBATCHES)

    def _same(self, one: Point, two: Point, compared: Mapping[str, tuple[tuple[str, ...], str]]) -> Iterator[str]:
        """Yield what is the same in all layers at two points, and what that means."""
        pairs = [
            (row.figures, self._by_point[two][row.key].figures)
            for row in self.at(one)
            if row.key in self._by_point[two]
        ]
        for what, (names, then) in compared.items():
            values = [(_values(left, names), _values(right, names)) for left, right in pairs]
            told = [pair for pair in values if any(pair[0])]
            if told and all(left == right for left, right in told):
                yield f"{what} at {self._named(one)} and at {self._named(two)} are the same: {then}"

    def _named(self, point: Point) -> str:
        """Return a point, with its file where it has one."""
        files = {row.where for row in self.at(point)}
        return f"{point} ({files.pop()})" if len(files) == 1 and self._by_file else str(point)

    @cached_property
    def _by_file(self) -> bool:
        """Whether each point is of a file of its own."""
        return len({row.where for row in self.rows}) == len(self.points) > 1

    def _fault(self, row: TableRow, problem: str, remedy: str) -> InvalidProblem:
        return InvalidProblem(row.where, problem, remedy, self.source)


_TIMES = ("forward_s", "backward_s", "together_s")
_KEPT = ("kept_bytes", "memory_bytes")
_COPIED = "copied, it seems, and not measured"

_WIDTHS = {
    "the times": (_TIMES, _COPIED),
    "the weights": (("parameters", "weight_bytes"), "those of whole layers, it seems, and not of one device"),
    "the bytes kept": (_KEPT, _COPIED),
}
"""What should differ between tensor widths."""

_MICROBATCHES = {
    "the times": (_TIMES, "those of one sequence, it seems, and not of a microbatch"),
    "the bytes kept": (_KEPT, "those of one sequence, it seems, and not of a microbatch"),
}
"""What should differ between microbatches."""


def _values(figures: LayerFigures, names: tuple[str, ...]) -> tuple[float | None, ...]:
    return tuple(getattr(figures, name) for name in names)


def _place(key: int | str) -> int:
    assert isinstance(key, int), "all rows have places"
    return key


def listed(words: list[str]) -> str:
    """Return the first of some words, and how many more there are."""
    more = len(words) - MOST_LISTED
    return ", ".join(words[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
