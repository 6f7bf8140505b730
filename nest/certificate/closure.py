"""The reachable states of a family, closed: none of its plans keeps to the caps where layer 0 is not among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nest.certificate.family import Family, Setting
from nest.certificate.stages import Sharding
from nest.constraints import Outer, Run, Site
from nest.plan import Plan, Stage, inside_stage
from nest.problem import Recompute
from nest.units import Ints, distinct

FAR = 2**40
"""More blocks than any cluster has."""


class Step(NamedTuple):
    """A stage on the way back to the start; neighbours by number."""

    first: int
    end: int
    way: Sharding
    place: int
    below: int
    above: int


class Closure:
    """Closes the set of states of a family that can be reached within its caps.

    A state is what the rest of a pipeline can see of the stages placed so far. The states after ``q`` stages are an
    array of booleans by first layer, number of the degree of the stage placed last, number of that of the next, and
    blocks used. Degrees are numbered from 1 on; 0 is no stage.
    """

    def __init__(self, setting: Setting, family: Family) -> None:
        self.setting, self.family, self.stages, self.band = setting, family, setting.stages, setting.stages.band
        self.layers, self.blocks, self.load = self.band.tables.layers, max(family.strides), setting.load_cap(family)
        room = self.blocks - (family.stages[0] - 1) * self.stages.degrees[0]
        self.degrees = [degree for degree in self.stages.degrees if degree <= room]
        self.numbers, self.filters = len(self.degrees) + 1, setting.choices.filters
        self.run = Run(np.arange(self.layers)[:, None], np.minimum(self.band.end, self.layers))
        self.limits = {way: self._limit(way) for degree in self.degrees for way in self.stages.ways[degree]}

    def _limit(self, way: Sharding) -> Ints:
        """Most microbatches in flight with which stages fit (C11), 0 where they are late or may hold no such layers."""
        usable = self.setting.sync(way, self.family.height) <= self.family.most
        admitted = self.filters.run(self.band.tables.variant, self.run)
        return np.where(usable if admitted is None else usable & admitted, self.band.most_in_flight(*way), 0)

    def fewest(self) -> list[Ints]:
        """Return the fewest blocks that complete a pipeline if every stage sees the nearest levels that it can.

        Where a stage stands then does not matter. Entry ``[q][first, number]`` is what the stages beyond the ``q``-th
        from the end need to hold the layers before ``first``, the next of them having that degree; `FAR` or more
        where nothing will do.
        """
        usable, fewest = self._usable_nearest(), list[Ints]()
        for position in range(self.family.stages[-1] + 1, 0, -1):
            self.setting.choices.watch()
            row = np.full((self.layers + 1, self.numbers), FAR)
            row[0, 0] = 0 if position - 1 in self.family.stages else FAR
            if fewest:
                before = np.concatenate([np.full(self.band.depth - 1, FAR), fewest[-1].min(axis=1)[:-1]])
                rest = np.where(usable >= position, sliding_window_view(before, self.band.depth), FAR)
                row[1:, 1:] = rest.min(axis=2).T + self.degrees
            fewest.append(row)
        return fewest[::-1]

    def _usable_nearest(self) -> Ints:
        """Most microbatches in flight with which stages may be used; by degree, last layer, column, longest first."""
        most = np.zeros((len(self.degrees), *self.band.valid.shape), dtype=np.int64)
        for way, limit in self.limits.items():
            row = most[self.degrees.index(way[1])]
            np.maximum(row, np.where(self.stages.nearest[way] <= self.load, limit, 0), out=row)
        columns = np.arange(self.band.depth)[::-1]
        firsts = np.arange(self.layers)[:, None] - columns
        return np.where(firsts >= 0, most[:, np.maximum(firsts, 0), columns], 0)

    def path(self, fewest: list[Ints]) -> list[Step] | None:
        """Return stages, the first one first, that stay within the caps and hold all layers; None where none do."""
        within = np.s_[: self.numbers, : self.numbers, : self.blocks]
        self.codes = [[self.setting.codes(degree, at)[within] for at in self.family.known] for degree in self.degrees]
        usable = [self._usable(own) for own in range(1, self.numbers)]
        rows = [np.zeros((self.layers + 1, self.numbers, self.numbers, self.blocks + 1), dtype=bool)]
        rows[0][-1, 0, 1:, 0] = True
        for position in range(1, self.family.stages[-1] + 1):
            self.setting.choices.watch()
            room = self.blocks - fewest[position][:, None, :, None]
            reached = self._place(rows[-1], [most >= position for most in usable], position)
            rows.append(reached & (np.arange(self.blocks + 1) <= room))
            if not rows[-1].any():
                return None
            for stride in self.family.strides:
                if rows[-1][0, :, 0, stride].any():
                    return self._walk_back(rows, stride)
        return None

    def _usable(self, own: int) -> Ints:
        """Most microbatches in flight with which a stage may be used; by first layer, column, code of its levels.

        In several replicas it may be used as the least of them says: a higher type of ZeRO is slower at all levels,
        and takes less memory and synchronisation.
        """
        most = np.zeros((*self.band.valid.shape, self.stages.base**3), dtype=np.int64)
        for code in distinct(np.concatenate(self.codes[own - 1])).tolist():
            for way in self.stages.ways[self.degrees[own - 1]]:
                within = np.where(self.stages.load(way, code) <= self.load, self.limits[way], 0)
                np.maximum(most[..., code], within, out=most[..., code])
        return most

    def _admitted(self, position: int, degree: int) -> np.ndarray:
        """Return which stages (first layer, column, place) side constraints admit in some plan of the family.

        Those that look at places are left out until the family has one number of stages and one stride.
        """
        variant, width = self.band.tables.variant, self.stages.width
        admitted = np.broadcast_to(True, (*self.band.valid.shape, self.blocks))
        if self.filters.by_stage:
            counts = [count for count in self.family.stages if count >= position]
            masks = [self.filters.stage(variant, count, position, self.run) for count in counts]
            admitted = admitted & np.any([mask for mask in masks if mask is not None], axis=0)[:, :, None]
        if self.filters.by_place and len(self.family.stages) == len(self.family.strides) == 1:
            site = Site(position, np.arange(self.blocks) * width, degree * width, self.blocks * width)
            run = Run(self.run.first[:, :, None], self.run.end[:, :, None])
            mask = self.filters.place(Outer(variant, *self.family.stages, self.setting.replicas), run, site)
            admitted = admitted if mask is None else admitted & mask
        return admitted

    def _place(self, row: np.ndarray, usable: list[np.ndarray], position: int) -> np.ndarray:
        """Place one more stage behind every state of a row (C2, C3)."""
        reached = np.zeros_like(row)
        for own, degree in enumerate(self.degrees, 1):
            behind = row[:, :, own, : self.blocks + 1 - degree]
            if not behind.any():
                continue
            ends, places = _extent(behind, (1, 2)), _extent(behind, (0, 1))
            after = slice(places.start + degree, places.stop + degree)
            seen, admitted = [codes[:, :, places] for codes in self.codes[own - 1]], self._admitted(position, degree)
            for column in range(self.band.depth):
                firsts = slice(max(ends.start - column - 1, 0), max(ends.stop - column - 1, 0))
                stages = usable[own - 1][firsts, column]
                if stages.any():
                    legal = behind[firsts.start + column + 1 : firsts.stop + column + 1, :, None, places]
                    legal = legal & admitted[firsts, column, None, None, places]
                    for codes in seen:
                        legal = legal & stages.take(codes, axis=1)
                    reached[firsts, own, :, after] |= legal.any(axis=1)
        return reached

    def _walk_back(self, rows: list[np.ndarray], stride: int) -> list[Step]:
        """Return the stages of a path from the start to the first layer."""
        own, above, first, place, path = int(np.flatnonzero(rows[-1][0, :, 0, stride])[0]), 0, 0, stride, list[Step]()
        for position in range(len(rows) - 1, 0, -1):
            place -= self.degrees[own - 1]
            admitted = self._admitted(position, self.degrees[own - 1])[first, :, place]
            states = rows[position - 1][first + 1 : first + self.band.depth + 1, :, own, place]
            steps = (
                Step(first, first + column + 1, way, place, below, above)
                for column, below in np.argwhere(states).tolist()
                for way in self.stages.ways[self.degrees[own - 1]]
                if self.limits[way][first, column] >= position and admitted[column]
            )
            path.append(next(step for step in steps if not any(self._slow(step, at) for at in self.family.known)))
            own, above, first = path[-1].below, own, path[-1].end
        return path

    def _slow(self, step: Step, offset: int) -> bool:
        """Whether a stage is beyond the cap on loads in a replica that starts at an offset."""
        code = int(self.setting.codes(step.way[1], offset)[step.below, step.above, step.place])
        return bool(self.stages.load(step.way, code)[step.first, step.end - step.first - 1] > self.load)

    def slow(self, path: list[Step]) -> int | None:
        """Return where a replica starts in which some stage is beyond the cap on loads."""
        offsets = sorted(self.family.strides[path[0].place + path[0].way[1]])
        return next((offset for offset in offsets if any(self._slow(step, offset) for step in path)), None)

    def plan(self, path: list[Step]) -> Plan:
        """Return the plan of a path."""
        tables, width, stages = self.band.tables, self.stages.width, list[Stage]()
        for first, end, way, place, *_ in path:
            recompute: Recompute = "full" if tables.recompute and end < self.layers else "none"
            ids = tuple(layer.id for layer in tables.graph.layers[first:end])
            stages.append(Stage(ids, place * width, way[1] * width, recompute, inside_stage(*way)))
        stride, technologies = stages[0].first_device + stages[0].devices, tables.problem.cluster.technologies
        return Plan(tables.variant, self.setting.replicas, stride, tuple(stages), technologies=technologies)


def _extent(states: np.ndarray, others: tuple[int, int]) -> slice:
    """Return from where to where there are any states along the axis that is not among the others."""
    found = np.flatnonzero(states.any(axis=others))
    return slice(int(found[0]), int(found[-1]) + 1)
