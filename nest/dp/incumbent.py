"""The best plan so far, as decisions, and how decisions become a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nest.plan import Plan, Stage, StageChoice, inside_stage
from nest.tables import VariantTables
from nest.units import LONGEST, NEVER


@dataclass
class Incumbent:
    """The best plan so far, kept as decisions.

    Attributes
    ----------
    objective
        In ticks. Before there is a plan, what one has to beat: `NEVER`, the end of the range (rule C12), or a value.
    """

    objective: int = NEVER
    _build: Callable[[], Plan] | None = None

    @property
    def found(self) -> bool:
        """Whether there is a plan."""
        return self._build is not None

    def keep(self, objective: int, build: Callable[[], Plan]) -> None:
        """Keep a plan, by how it is built, if it is better than the best so far."""
        if objective < self.objective:
            self.objective, self._build = objective, build

    def offer(self, objective: int, tables: VariantTables, stages: list[StageChoice], replicas: int) -> None:
        """Keep a plan whose blocks follow each other from the last stage on, if it is better than the best so far."""
        self.keep(objective, partial(to_plan, tables, stages, replicas))

    def load_cap(self, rounds: int, sync: int = 0) -> int:
        """Largest load with which a plan would still be better, and in range."""
        return min((self.objective - 1 - sync) // rounds, LONGEST - 1)

    def plan(self) -> Plan | None:
        """Return the best plan, its stages placed."""
        return None if self._build is None else self._build()


class First(Incumbent):
    """Takes the first plan, and lets none be better."""

    def keep(self, objective: int, build: Callable[[], Plan]) -> None:
        """Keep the first plan."""
        super().keep(objective, build)
        self.objective = 0


def to_plan(tables: VariantTables, choices: list[StageChoice], replicas: int) -> Plan:
    """Place stages, given from the first of the pipeline on, and name their layers."""
    layers = tables.graph.layers
    position, stages = 0, []
    for choice in reversed(choices):
        devices = tables.width * choice.degree
        stages.append(
            Stage(
                layers=tuple(layer.id for layer in layers[choice.first : choice.end]),
                first_device=position,
                devices=devices,
                recompute="full" if tables.recompute and choice.end < tables.layers else "none",
                sharding=inside_stage(choice.zero, choice.degree),
            )
        )
        position += devices
    technologies = tables.problem.cluster.technologies
    return Plan(tables.variant, replicas, position, tuple(reversed(stages)), technologies=technologies)
