"""The best plan that a framework can run, and the one nearest to a plan that it cannot."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from nest.constraints import LocalConstraint, Mask, Outer, Site
from nest.constraints import Run as Layers
from nest.errors import Infeasible, InvalidProblem
from nest.export.base import Framework, Inexpressible
from nest.export.numbers import ModelNumbers, numbers_of
from nest.export.parts import AlikeSearch, all_layers
from nest.plan import Plan
from nest.presets import SCHEDULES
from nest.problem import RECOMPUTE, Choices, Problem, Recompute
from nest.result import Report, Result
from nest.runs import Run


@dataclass(frozen=True)
class RunsOn(LocalConstraint):
    """A side constraint: plans that a framework can run, as far as it is settled by the outer choice and by places.

    Parameters
    ----------
    framework, run, model
        The framework, what is trained, and the numbers of its model.
    """

    framework: Framework
    run: Run
    model: ModelNumbers

    kind: ClassVar[str] = "runs_on"
    places_layers: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """What it asks for."""
        return f"{self.framework.title} can run it"

    def admits(self, problem: Problem, outer: Outer) -> bool:
        """Whether the framework has the widths, and one of the ways to shard that are allowed."""
        framework = self.framework
        if framework.faults(self.run, self.model, outer):
            return False
        each = problem.copy_ranks(outer.variant, 1)[0]
        degrees = [each * size for size in problem.shard_groups(outer.variant, outer.replicas)]
        fitting = [1, *(degree for degree in degrees if not framework.degree_faults(degree, outer))]
        types = [zero for zero in problem.choices.zero if not framework.zero_faults(zero, outer)]
        return any(zero == 0 or len(fitting) > 1 for zero in types)

    def admits_place(self, problem: Problem, outer: Outer, run: Layers, site: Site) -> Mask:  # noqa: ARG002 - a hook
        """Return stages that begin where the ranks before them end, if their replicas are neighbours."""
        width, before = outer.variant.width, outer.stages - site.position
        due = site.line.devices(np.array(before * width * outer.replicas))
        fits = (site.start == due) & (outer.replicas == 1 or site.stride == width)
        return np.broadcast_to(fits, np.broadcast(run.first, run.end, site.start).shape)

    def reserves(self, problem: Problem) -> Collection[int]:
        """Return the nodes that have a device which other constraints reserve: launchers start on whole nodes.

        On a cluster of one node they may be started on some of its devices.
        """
        node, devices = problem.cluster.group_sizes[0], problem.cluster.devices
        others = (each for each in problem.constraints if isinstance(each, LocalConstraint) and each is not self)
        down = {device // node for each in others for device in each.reserves(problem)} if devices > node else ()
        return [device for at in sorted(down) for device in range(at * node, min((at + 1) * node, devices))]


def problem_for(problem: Problem, run: Run, framework: Framework) -> Problem:
    """Return the problem of the plans that a framework can run, but that each stage may shard and recompute for itself.

    Raises
    ------
    Infeasible
        If the framework has none of the ZeRO types, of the schedules, or of what may be recomputed, that the problem
        allows.
    InvalidProblem
        If the model is none that frameworks have, or the problem allows fewer layers to recompute than a stage may have
        and the framework recomputes all of them.
    """
    choices = problem.choices
    zeros = choices.zero & framework.zeros
    if not zeros:
        types = ", ".join(map(str, sorted(framework.zeros)))
        raise Infeasible(f"{framework.title} has ZeRO types {types}, of which the problem allows none")
    kinds = framework.recomputes & {kind for variant in problem.variants for kind in problem.recomputes(variant)}
    if not kinds:
        known = ", ".join(kind for kind in RECOMPUTE if kind in framework.recomputes)
        raise Infeasible(f"{framework.title} recomputes {known}, of which the problem allows nothing")
    schedules = choices.schedules & framework.schedules
    if not schedules:
        known = ", ".join(each for each in SCHEDULES if each in framework.schedules)
        raise Infeasible(f"{framework.title} is written with {known}, of which the problem allows nothing")
    constraint = RunsOn(framework, run, numbers_of(run.model))
    hybrid = choices.hybrid and framework.hybrid
    chunks = choices.chunks if "interleaved" in schedules else None
    asked = replace(problem, choices=choices.alike).with_choices(
        zero=zeros, stage_recompute=kinds, hybrid=hybrid, schedules=schedules, chunks=chunks
    )
    asked = asked.with_constraints(*problem.constraints, constraint)
    parts = framework.parts if "interleaved" not in schedules else frozenset[Recompute]()
    whole = [kind for kind in RECOMPUTE if kind in kinds - parts - {"none"}]
    if choices.recomputed and whole and max(choices.recomputed) < max(len(graph) for graph in problem.graphs.values()):
        stage = "a stage of chunks" if framework.parts > parts else "a stage"
        what = f"at most {max(choices.recomputed)}: {framework.title} recomputes {whole[0]!r} in all layers of {stage}"
        raise InvalidProblem("choices.recomputed", what, "leave it out")
    some = kinds & framework.parts and not asked.training.recomputes_last  # frameworks take the first layers
    return asked if some else all_layers(asked)


@dataclass(frozen=True, slots=True)
class BestFor:
    """The best plan that a framework can run.

    Parameters
    ----------
    result
        Its bound is of all plans that the framework can run.
    parts
        Problems that hold, together, all of these plans: what a prover is to be asked about.
    """

    result: Result
    parts: tuple[Problem, ...]


def best_for(
    problem: Problem,
    run: Run,
    framework: Framework,
    *,
    time_limit_s: float | None = None,
    report: Report | None = None,
    better_than: int | None = None,
    within: float = 0.0,
) -> BestFor:
    """Find the best plan that a framework can run.

    All of its stages shard alike, and recompute alike, where the framework has one setting for all. Stages are free to
    differ at first; where the best such plan has stages that do, the space is parted until the best plan of the part
    that has the least bound is one that the framework can run.

    Parameters
    ----------
    problem, run
        A problem, and the run that posed it.
    time_limit_s, report, better_than, within
        As in `nest.solve.solve`; the limit is of all parts together.

    Raises
    ------
    Infeasible, InvalidProblem
        As `problem_for` does.
    """
    begin = time.perf_counter()
    search = AlikeSearch(problem_for(problem, run, framework), framework, report, better_than, within)
    result = search.best(None if time_limit_s is None else begin + time_limit_s)
    choice = f"the best that {framework.title} can run"
    return BestFor(replace(result, wall_s=time.perf_counter() - begin, choice=choice), search.parts)


def nearest(problem: Problem, run: Run, plan: Plan, framework: Framework, time_limit_s: float | None = None) -> Result:
    """Return the best plan that a framework can run and that keeps as much of a plan's outer choice as can be.

    Variant, stages and replicas are kept if some such plan exists, else the variant, else nothing.

    Raises
    ------
    Inexpressible
        If the framework can run no plan of the problem.
    """
    result: Result | None = None
    for choices in _ever_wider(problem.choices, plan):
        result = best_for(replace(problem, choices=choices), run, framework, time_limit_s=time_limit_s).result
        if result.plan is not None:
            return result
    why = "" if result is None or result.reason is None else f": {result.reason}"
    raise Inexpressible("problem", f"{framework.title} can run no plan of it{why}")


def _ever_wider(choices: Choices, plan: Plan) -> Iterator[Choices]:
    """Yield the choices that leave a plan's outer choice, then its variant, then all that the problem has."""
    variant = plan.variant
    same = replace(
        choices,
        tensor=frozenset({variant.tensor}),
        expert=frozenset({variant.expert}),
        context=frozenset({variant.context}),
        microbatch=frozenset({variant.microbatch}),
        sequence=variant.sequence,
    )
    yield replace(same, stages=frozenset({len(plan.stages)}), replicas=frozenset({plan.replicas}))
    yield same
    yield choices
