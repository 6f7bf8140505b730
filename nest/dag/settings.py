"""Bounds on the least time of a stage within memory, for many stages at once.

A *setting* is the shape of a stage with the microbatches in flight: on these the memory of options depends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nest.dag.knapsack import Step, front, in_order, steps_of
from nest.dag.replicated import ReplicatedTables
from nest.units import Ints

SLACK = 1 + 1e-9
"""Bounds that are computed in floats are loosened by this factor."""


@dataclass
class Settings:
    """The settings that were asked for so far, a row for each.

    Parameters
    ----------
    tables
        The problem's integers.
    fast, least
        Memory of each layer under its fastest option, and under its smallest.
    layers, times, saved
        The steps of all layers in the order of the greedy walk, see `nest.dag.knapsack`; then steps that save nothing.
    """

    tables: ReplicatedTables
    fast: Ints = field(init=False)
    least: Ints = field(init=False)
    layers: Ints = field(init=False)
    times: Ints = field(init=False)
    saved: Ints = field(init=False)

    def __post_init__(self) -> None:
        layers = range(len(self.tables.load.problem.layers))
        most = [max(len(self.tables.options(layer, width)) for width in self.tables.widths) for layer in layers]
        self._steps = max(1, sum(max(count - 1, 0) for count in most))
        self._row: dict[int, int] = {}
        for name, columns in (("fast", len(layers)), ("least", len(layers)), *_WALK):
            setattr(self, name, np.zeros((0, columns or self._steps), np.int64))

    def rows(self, shapes: Ints, in_flight: Ints) -> Ints:
        """Return the rows of settings, given by the number of the shape and the microbatches."""
        keys = in_flight * len(self.tables.shapes) + shapes
        distinct, inverse = np.unique(keys, return_inverse=True)
        new = [key for key in distinct.tolist() if key not in self._row]
        if new:
            self._add(new)
        rows: Ints = np.array([self._row[key] for key in distinct.tolist()], np.int64)[inverse]
        return rows

    def delays(self, rows: Ints, held: Ints, needs: Ints) -> tuple[Ints, Ints]:
        """Return bounds of the time that it costs to save memory: of the relaxation, and of its last step taken whole.

        Parameters
        ----------
        rows
            The setting of each stage.
        held
            Whether a stage has a layer: a row for each.
        needs
            Quanta to save; 0 or less where nothing has to be saved.
        """
        taken = np.take_along_axis(held, self.layers[rows], axis=1)
        saves, times = self.saved[rows], self.times[rows]
        saved, spent = np.cumsum(taken * saves, axis=1), np.cumsum(taken * times, axis=1)
        at, last = np.arange(len(rows)), (saved >= needs[:, None]).argmax(axis=1)
        most = np.where(needs > 0, spent[at, last], 0)
        spare = np.where(needs > 0, saved[at, last] - needs, 0) / np.maximum(saves[at, last], 1) * times[at, last]
        return np.maximum(most - np.ceil(spare * SLACK).astype(np.int64) - 1, 0), most

    def _add(self, keys: list[int]) -> None:
        fast, least, walks = [], [], []
        for key in keys:
            self._row[key] = len(self._row)
            in_flight, shape = divmod(key, len(self.tables.shapes))
            fronts = [
                front(self.tables.choices(layer, self.tables.shapes[shape], in_flight)) or [(0, 0, 0)]
                for layer in range(len(self.tables.load.problem.layers))
            ]
            fast.append([choices[0][1] for choices in fronts])
            least.append([choices[-1][1] for choices in fronts])
            steps = in_order([step for layer, choices in enumerate(fronts) for step in steps_of(layer, choices)])
            walks.append(steps + [Step(0, 0, 0)] * (self._steps - len(steps)))
        new = {"fast": fast, "least": least}
        for name, figure in (("layers", "layer"), ("times", "time"), ("saved", "saved")):
            new[name] = [[getattr(step, figure) for step in steps] for steps in walks]
        for name, rows in new.items():
            setattr(self, name, np.concatenate([getattr(self, name), np.array(rows, np.int64)]))


_WALK = (("layers", 0), ("times", 0), ("saved", 0))
