"""Layer times that were measured, in place of those that are modelled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from nest.costing.layer import Collective, Kept, LayerCost, OperatorCost
from nest.costing.setting import BYTES, Setting
from nest.errors import InvalidProblem


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one block took on one device, for one microbatch, collectives apart.

    Parameters
    ----------
    kind
        Of the block, as ``nest show`` names it; behind the name of its stack, and a dot, for that stack alone.
    microbatch, tensor, context
        Sequences, and the widths under which it was measured.
    forward_s, backward_s
        Seconds of its passes, without anything computed again.
    sequence, dtype
        Tokens of a sequence and data type of the products; None for those of the run.
    kept_bytes
        What it keeps until the backward pass with nothing computed again; None to leave what is modelled.
    source
        Where the figures are from, for people to read.
    where
        The row in its file, as errors name it.

    Raises
    ------
    InvalidProblem
        If a figure is out of range.
    """

    kind: str
    microbatch: int
    tensor: int
    forward_s: float
    backward_s: float
    context: int = 1
    sequence: int | None = None
    dtype: str | None = None
    kept_bytes: int | None = None
    source: str = ""
    where: str = ""

    def __post_init__(self) -> None:
        for name in ("microbatch", "tensor", "context", "sequence"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidProblem(self._key(name), f"{value}", "give a whole number from 1")
        for name in ("forward_s", "backward_s", "kept_bytes"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise InvalidProblem(self._key(name), f"{value}", "give a finite number from 0")
        if self.dtype is not None and self.dtype not in BYTES:
            raise InvalidProblem(self._key("dtype"), f"{self.dtype!r} is none", f"one of {', '.join(BYTES)}")

    def _key(self, name: str) -> str:
        return f"{self.where}: {name}" if self.where else name

    def is_of(self, setting: Setting) -> bool:
        """Whether it was measured under a setting."""
        widths = (setting.microbatch, setting.tensor, setting.context)
        run = (self.sequence or setting.sequence, self.dtype or setting.dtype)
        return widths == (self.microbatch, self.tensor, self.context) and run == (setting.sequence, setting.dtype)

    def names(self, stack: str, kind: str) -> bool:
        """Whether it is of a kind of block in a stack."""
        return self.kind in (kind, f"{stack}.{kind}")

    def replacing(self, cost: LayerCost) -> LayerCost:
        """Return the cost of a block with these times.

        Operators keep their shares of a pass, so that what recomputation repeats and what collectives hide behind
        change with it.
        """
        forward = _factor(self.forward_s, cost.forward_s)
        backward = _factor(self.backward_s, cost.backward_s)
        factors = {"forward": forward or 1.0, "backward": backward or 1.0}
        return replace(
            cost,
            operators=self._operators(cost, forward, backward),
            kept=cost.kept if self.kept_bytes is None else _kept(self.kept_bytes, cost.kept),
            exchanged=tuple(_scaled(each, factors[each.phase]) for each in cost.exchanged),
        )

    def _operators(self, cost: LayerCost, forward: float | None, backward: float | None) -> tuple[OperatorCost, ...]:
        operators = tuple(
            replace(
                each,
                forward_s=each.forward_s * (forward or 0.0),
                input_s=each.input_s * (backward or 0.0),
                weight_s=each.weight_s * (backward or 0.0),
            )
            for each in cost.operators
        )
        first = 0.0 if forward is not None else self.forward_s
        last = 0.0 if backward is not None else self.backward_s
        if not (first or last):
            return operators
        return (*operators, OperatorCost("measured", "measured", first, last))


@dataclass(frozen=True)
class LayerProfile:
    """Measurements of a model's blocks.

    Parameters
    ----------
    rows
        The measurements.
    source
        The file that holds them, as errors name it.
    """

    rows: tuple[Measurement, ...]
    source: str = ""

    def of(self, setting: Setting) -> tuple[Measurement, ...]:
        """Return the measurements of one setting."""
        return tuple(row for row in self.rows if row.is_of(setting))

    def applied(self, costs: Mapping[str, Sequence[LayerCost]], setting: Setting) -> dict[str, tuple[LayerCost, ...]]:
        """Return the costs of all blocks, by stack, with what was measured in the place of what is modelled.

        Blocks that nobody measured under the setting stay as they are.

        Raises
        ------
        InvalidProblem
            Naming the row: if the model has no such block, the run another sequence or data type, or if two rows
            say something of the same block.
        """
        self._check(costs, setting)
        rows = self.of(setting)
        made: dict[tuple[str, int], LayerCost] = {}
        for stack, blocks in costs.items():
            for cost in blocks:
                if (stack, id(cost)) not in made:
                    row = self._only(rows, stack, cost.kind)
                    made[stack, id(cost)] = cost if row is None else row.replacing(cost)
        return {stack: tuple(made[stack, id(cost)] for cost in blocks) for stack, blocks in costs.items()}

    def require_used(self, settings: Iterable[Setting]) -> None:
        """Refuse a profile of which no row was measured under any of some settings.

        Raises
        ------
        InvalidProblem
            Naming its first row.
        """
        if any(self.of(setting) for setting in settings):
            return
        if not self.rows:
            raise InvalidProblem("", "no rows", "give a row for each block that was measured", self.source)
        row = self.rows[0]
        what = f"nothing has microbatch {row.microbatch}, tensor width {row.tensor} and context width {row.context}"
        raise self._fault(row, f"{what}, and no other row fits either", "measure the widths that are planned")

    def _check(self, costs: Mapping[str, Sequence[LayerCost]], setting: Setting) -> None:
        known = {(stack, cost.kind): None for stack, blocks in costs.items() for cost in blocks}
        for row in self.rows:
            if not any(row.names(stack, kind) for stack, kind in known):
                kinds = dict.fromkeys(kind if len(costs) == 1 else f"{stack}.{kind}" for stack, kind in known)
                raise self._fault(row, f"the model has no block {row.kind!r}", f"one of {', '.join(kinds)}")
            for name in ("sequence", "dtype"):
                there, here = getattr(row, name), getattr(setting, name)
                if there is not None and there != here:
                    raise self._fault(row, f"measured with {name} {there}, and the run has {here}", "take the row out")

    def _only(self, rows: Sequence[Measurement], stack: str, kind: str) -> Measurement | None:
        found = [row for row in rows if row.names(stack, kind)]
        if len(found) > 1:
            raise self._fault(found[1], f"{kind!r} again, as in {found[0].where}", "give one row for each setting")
        return found[0] if found else None

    def _fault(self, row: Measurement, problem: str, remedy: str) -> InvalidProblem:
        return InvalidProblem(row.where, problem, remedy, self.source)


def _factor(measured: float, modelled: float) -> float | None:
    """Return what modelled times grow by; None where nothing is modelled that could."""
    return measured / modelled if modelled else None


def _scaled(each: Collective, factor: float) -> Collective:
    return replace(each, hidden_s=each.hidden_s * factor)


def _kept(measured: int, modelled: Kept) -> Kept:
    """Return what is kept by what is computed again: the attention core frees what it is modelled to."""
    selective = max(0, measured - (modelled.none - modelled.selective))
    return Kept(measured, selective, min(modelled.full, selective))
