"""Pieces put together: what each keeps that no earlier one does, and what goes from one to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from nest.capture.measure import Measured, Source

Storage: TypeAlias = tuple[int | str, object]
"""A storage of a module: the place of the piece that made it and its number there, or an input by name."""


@dataclass(frozen=True)
class Placed:
    """A piece in its module, whatever it was cut from.

    Parameters
    ----------
    name, label, kind, block
        The submodule; what it is; the structure, equal where pieces are; whether it is a block.
    inputs, outputs
        Names of the values that it takes and makes.
    sizes
        Bytes of each output as it is sent.
    weights
        Numbers in each of its parameters, by name.
    measured
        What it does.
    constant
        Outputs that depend on no input and no parameter: every stage can make them itself.
    """

    name: str
    label: str
    kind: int
    block: bool
    inputs: tuple[object, ...]
    outputs: tuple[object, ...]
    sizes: tuple[int, ...]
    weights: dict[str, int]
    measured: Measured
    constant: frozenset[object] = frozenset()


@dataclass(frozen=True)
class Sized:
    """A module at one batch.

    Parameters
    ----------
    pieces
        In the order in which they run.
    given
        Bytes of the user's inputs, by name.
    """

    pieces: tuple[Placed, ...]
    given: dict[object, int]


@dataclass(frozen=True)
class Shares:
    """What is counted once in a module, by the place of a piece.

    Parameters
    ----------
    kept, entering
        As in `nest.capture.captured.CapturedLayer`.
    parameters, tied
        Likewise.
    sent
        Bytes by source and target.
    """

    kept: tuple[int, ...]
    entering: tuple[int, ...]
    parameters: tuple[int, ...]
    tied: tuple[int, ...]
    sent: dict[tuple[int, int], int]


def compose(sized: Sized) -> Shares:
    """Put the pieces of a module together."""
    storages: dict[object, tuple[Storage, int] | None] = {
        name: (("given", name), size) for name, size in sized.given.items()
    }
    kept, entering = _Once(), _Once()
    for place, piece in enumerate(sized.pieces):
        inputs = [storages[name] for name in piece.inputs]
        held = [_held(place, source, size, inputs) for source, size in piece.measured.kept.items()]
        kept.add(held)
        entering.add(inputs if piece.block else held)
        for name, (source, size, _) in zip(piece.outputs, piece.measured.outputs, strict=True):
            storages[name] = None if source is None else _held(place, source, size, inputs)
    own, tied = _parameters(sized.pieces)
    return Shares(tuple(kept.new), tuple(entering.new), own, tied, _sent(sized.pieces))


class _Once:
    """Bytes that are new at each step."""

    def __init__(self) -> None:
        self.known: set[Storage] = set()
        self.new: list[int] = []

    def add(self, held: Iterable[tuple[Storage, int] | None]) -> None:
        """Note storages with their bytes; append to ``new`` the bytes of those that were not known."""
        fresh = {each[0]: each[1] for each in held if each is not None and each[0] not in self.known}
        self.known.update(fresh)
        self.new.append(sum(fresh.values()))


def _held(place: int, source: Source, size: int, inputs: Sequence[Any]) -> tuple[Storage, int] | None:
    """Return a storage and its bytes; that of an input is what its own piece made of it."""
    whose, number = source
    return inputs[number] if whose == "input" else ((place, number), size)


def _parameters(pieces: Sequence[Placed]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    known: set[str] = set()
    own, tied = [], []
    for piece in pieces:
        own.append(sum(size for name, size in piece.weights.items() if name not in known))
        tied.append(sum(size for name, size in piece.weights.items() if name in known))
        known.update(piece.weights)
    return tuple(own), tuple(tied)


def _sent(pieces: Sequence[Placed]) -> dict[tuple[int, int], int]:
    """Return the bytes of edges; neighbours that nothing joins get one without bytes, which says what runs first."""
    made: dict[object, tuple[int, int]] = {}
    sent: dict[tuple[int, int], int] = {}
    for place, piece in enumerate(pieces):
        for name in dict.fromkeys(piece.inputs):
            if name in made:
                source, size = made[name]
                sent[source, place] = sent.get((source, place), 0) + size
        if place:
            sent.setdefault((place - 1, place), 0)
        sizes = zip(piece.outputs, piece.sizes, strict=True)
        made.update({name: (place, size) for name, size in sizes if name not in piece.constant})
    return dict(sorted(sent.items()))
