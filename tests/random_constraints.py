"""Random side constraints of a random problem, drawn around a random plan so that many of them bind and few kill."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import oracle
import oracle_constraints
from random_problems import random_plan

from nest.constraints import (
    AllowedDegrees,
    Apart,
    Budget,
    Constraint,
    CutsAt,
    DistinctStages,
    Divides,
    EqualStages,
    LevelTraffic,
    MaxDevices,
    MaxStages,
    MemoryHeadroom,
    Pin,
    ReservedDevices,
    SameSharding,
    Together,
    WithinLevel,
)
from nest.cost.scale import scale_of
from nest.graph import LayerId
from nest.plan import Plan
from nest.problem import Problem

LOCAL_KINDS = (
    *("allowed_degrees", "divides", "max_stages", "max_devices", "reserved_devices", "memory_headroom", "together"),
    *("apart", "cuts_at", "equal_stages", "within_level", "within_level", "pin", "pin"),
)
COUPLING_KINDS = ("level_traffic", "budget", "distinct_stages", "same_sharding")


def random_constraints(
    seed: int, problem: Problem, kinds: tuple[str, ...] = LOCAL_KINDS + COUPLING_KINDS
) -> tuple[Constraint, ...]:
    """Return one to three side constraints of some kinds."""
    rng = random.Random(seed)
    plan = random_plan(rng.randrange(10**6), problem)
    draw = _Draw(rng, problem, plan)
    return tuple(draw.one(rng.choice(kinds)) for _ in range(rng.choice([1, 1, 2, 3])))


class _Draw:
    """Draws constraints of each kind; what they ask for lies around a plan."""

    def __init__(self, rng: random.Random, problem: Problem, plan: Plan) -> None:
        self.rng, self.problem, self.plan = rng, problem, plan
        self.ids: list[LayerId] = [layer.id for layer in problem.graphs[plan.variant].layers]
        self.devices, self.levels = problem.cluster.devices, len(problem.cluster.levels)
        self.fits = plan.replicas * plan.replica_stride <= self.devices

    def one(self, kind: str) -> Constraint:
        """Return a constraint of a kind."""
        drawn: Constraint = getattr(self, f"_{kind}")()
        return drawn

    def some(self, least: int = 1, most: int | None = None) -> list[LayerId]:
        """Return a few layers."""
        most = min(most or len(self.ids), len(self.ids))
        return self.rng.sample(self.ids, self.rng.randint(min(least, most), most))

    def _allowed_degrees(self) -> Constraint:
        variant, rng = self.plan.variant, self.rng
        values = {
            "tensor": variant.tensor,
            "expert": variant.expert,
            "context": variant.context,
            "microbatch": variant.microbatch,
            "replicas": self.plan.replicas,
            "stages": len(self.plan.stages),
        }
        axis: Any = rng.choice([*values, "stages", "replicas"])
        others = {rng.randint(1, 6) for _ in range(rng.randint(0, 2))}
        return AllowedDegrees(axis, {values[axis], *others})

    def _divides(self) -> Constraint:
        rng, variant = self.rng, self.plan.variant
        given: dict[str, Any] = {"batch": rng.random() < 0.5}
        own = {"heads": variant.tensor, "kv_heads": variant.tensor, "vocabulary": variant.tensor}
        own |= {"experts": variant.expert, "sequence": variant.context}
        for name, width in own.items():
            if rng.random() < 0.3:
                given[name] = rng.choice([width, 2 * width, 3 * width, rng.randint(1, 6)])
        given["replicate_kv"] = rng.random() < 0.5
        return Divides(**given) if given["batch"] or len(given) > 2 else Divides(batch=True)

    def _max_stages(self) -> Constraint:
        return MaxStages(self.rng.choice([len(self.plan.stages), self.rng.randint(1, len(self.ids))]))

    def _max_devices(self) -> Constraint:
        used = self.plan.replicas * self.plan.replica_stride
        return MaxDevices(max(1, self.rng.choice([used, used - 1, self.rng.randint(1, self.devices)])))

    def _reserved_devices(self) -> Constraint:
        low = self.rng.choice([0, self.devices // 2, self.devices // 2])
        few = range(low, self.devices)
        return ReservedDevices(self.rng.sample(few, self.rng.randint(1, min(3, len(few)))))

    def _memory_headroom(self) -> Constraint:
        """Often so much that a stage of the plan just fits, or lacks a byte."""
        have = oracle._decimal(self.problem.cluster.hbm_bytes)
        free = [have - need for need in self._priced().memory if need <= have] if self.fits else []
        if free and self.rng.random() < 0.6:
            spare = float(self.rng.choice(free)) + self.rng.choice([0, 0, 1, 0.5])
            if spare < self.problem.cluster.hbm_bytes:
                return MemoryHeadroom(bytes=int(spare) if spare == int(spare) else spare)
        return MemoryHeadroom(fraction=self.rng.choice([0, 0.05, 0.1, 1 / 3, 0.5]))

    def _together(self) -> Constraint:
        stage = self.rng.choice(self.plan.stages).layers
        return Together(self.rng.choice([stage, self.rng.sample(stage, 1), self.some(2, 2)]))

    def _apart(self) -> Constraint:
        ends = [stage.layers[self.rng.choice([0, -1])] for stage in self.plan.stages]
        return Apart(self.rng.choice([ends, self.some(2, 3)]))

    def _cuts_at(self) -> Constraint:
        firsts = {stage.layers[0] for stage in self.plan.stages}
        return CutsAt([name for name in self.ids if name in {*firsts, *self.some()}])

    def _equal_stages(self) -> Constraint:
        counting = self.some() if self.rng.random() < 0.5 else None
        return EqualStages(self.rng.choice([0, 0, 1]), self.rng.choice([0, 0, 1, 2]), counting)

    def _within_level(self) -> Constraint:
        what: Any = self.rng.choice(["tensor", "context", "expert", "stage", "stage"])
        return WithinLevel(what, self.rng.choice([0, self.rng.randrange(self.levels)]))

    def _pin(self) -> Constraint:
        at = self.rng.randrange(len(self.plan.stages))
        stage = self.plan.stages[at]
        low = min(stage.first_device, self.devices - 1)
        high = min(low + stage.devices - 1, self.devices - 1)
        if self.rng.random() < 0.7:
            low, high = self.rng.randint(0, low), self.rng.randint(high, self.devices - 1)
        if self.rng.random() < 0.5:
            return Pin((low, high), layer=self.rng.choice(stage.layers))
        return Pin((low, high), stage=self.rng.choice([at, at - len(self.plan.stages)]))

    def _level_traffic(self) -> Constraint:
        level = self.rng.randrange(self.levels)
        crossing = oracle_constraints.traffic(self._case(), level) if self.fits else Fraction(100)
        return LevelTraffic(level, float(crossing * self._around()))

    def _budget(self) -> Constraint:
        """Often what the plan itself costs."""
        case = self._case() if self.fits else None
        cost = len(case.all_devices()) * case.iteration_s if case else Fraction(10)
        cost *= self._around()
        if self.rng.random() < 0.5:
            return Budget(float(cost), rate_per_device_s=1)
        return Budget(float(cost / 1800), price_per_device_hour=2, unit="USD")

    def _distinct_stages(self) -> Constraint:
        return DistinctStages(self.rng.randint(1, max(1, len(self.plan.stages) - 1)))

    def _same_sharding(self) -> Constraint:
        return SameSharding(self.some(2, 3))

    def _around(self) -> Fraction:
        return Fraction(self.rng.choice([1, 2, 2, 4]), 2)

    def _priced(self) -> oracle.Price:
        return oracle.price(self.problem, self.plan, self._exponent)

    def _case(self) -> oracle_constraints.Case:
        return oracle.case_of(self.problem, self.plan, self._priced(), self._exponent)

    @property
    def _exponent(self) -> int:
        return scale_of(self.problem).time.exponent
