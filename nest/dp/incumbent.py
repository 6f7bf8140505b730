"""The best plan so far, as decisions, and how decisions become a plan."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    _tables: VariantTables | None = None
    _stages: list[StageChoice] = field(default_factory=list)
    _replicas: int = 0

    @property
    def found(self) -> bool:
        """Whether there is a plan."""
        return self._tables is not None

    def offer(self, objective: int, tables: VariantTables, stages: list[StageChoice], replicas: int) -> None:
        """Keep a plan if it is better than the best so far."""
        if objective < self.objective:
            self.objective, self._tables, self._stages, self._replicas = objective, tables, stages, replicas

    def load_cap(self, rounds: int, sync: int = 0) -> int:
        """Largest load with which a plan would still be better, and in range."""
        return min((self.objective - 1 - sync) // rounds, LONGEST - 1)

    def plan(self) -> Plan | None:
        """Return the best plan, its stages placed from the last on."""
        if self._tables is None:
            return None
        return to_plan(self._tables, self._stages, self._replicas)


class First(Incumbent):
    """Takes the first plan, and lets none be better."""

    def offer(self, objective: int, tables: VariantTables, stages: list[StageChoice], replicas: int) -> None:
        """Keep the first plan."""
        super().offer(objective, tables, stages, replicas)
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
    return Plan(tables.variant, replicas, position, tuple(reversed(stages)))
