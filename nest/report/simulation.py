"""What was simulated of a plan, for people and programs: busy and idle stages, the iteration beside its formulas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from nest.cost.schedule import iteration, summed
from nest.cost.schedules import in_flight, least_by_load, least_by_wait
from nest.evaluate import Evaluation
from nest.plan import Plan
from nest.problem import Problem
from nest.report.format import counted, duration, percent, plan_widths
from nest.report.layout import Column, Screen, Summary, render, ruled_table
from nest.report.terminal import title
from nest.report.timeline import CHUNKS, LEGEND, timeline
from nest.simulate import Run, sync_of


@dataclass(frozen=True)
class Played:
    """A plan, what the judge found about it, and its run."""

    problem: Problem
    plan: Plan
    evaluation: Evaluation
    run: Run

    def seconds(self, ticks: int) -> float:
        """Return ticks in seconds."""
        return self.evaluation.scale.time.seconds(ticks)

    @property
    def sync(self) -> int:
        """Ticks of synchronisation after the pipeline."""
        return sync_of(self.problem, self.evaluation)

    @property
    def iteration(self) -> int:
        """Ticks of the simulated iteration, synchronisation included."""
        return self.run.makespan + self.sync

    @property
    def formulas(self) -> dict[str, int]:
        """Ticks of the iteration as the objectives have it."""
        pipeline, loads = self.run.pipeline, [stage.load for stage in self.evaluation.stages]
        microbatches, slowest = pipeline.microbatches, max(loads)
        return {
            "bottleneck": iteration(slowest, microbatches, 1, len(loads), self.sync),
            "sum": summed(sum(loads), slowest, microbatches, self.sync, self.run.schedule.chunks),
        }

    @property
    def bounds(self) -> dict[str, int]:
        """Ticks below which the iteration cannot be, by the formulas for 1F1B whose stages wait for transfers."""
        pipeline = self.run.pipeline
        if self.run.schedule.name != "1f1b" or pipeline.overlapped:
            return {}
        forwards = [stage.forward_pass for stage in pipeline.stages]
        return {
            "by load": least_by_load(pipeline.loads, pipeline.microbatches) + self.sync,
            "by wait": least_by_wait(forwards, pipeline.loads, pipeline.microbatches) + self.sync,
        }

    @property
    def limits(self) -> list[int]:
        """The most microbatches in flight of each stage by the formula of the schedule."""
        stages, microbatches = len(self.run.starts), self.run.pipeline.microbatches
        return [in_flight(self.run.schedule, stages, at, microbatches) for at in range(stages)]


def simulation_document(played: Played) -> dict[str, object]:
    """Return everything `nest simulate` says, ready for JSON."""
    run, seconds = played.run, played.seconds
    return {
        "problem": played.problem.name,
        "preset": played.problem.preset.name,
        "schedule": run.schedule.name,
        "chunks": run.schedule.chunks,
        "microbatches": run.pipeline.microbatches,
        "overlapped": run.pipeline.overlapped,
        "legal": played.evaluation.legal,
        "tick_s": played.evaluation.scale.time.tick_s,
        "makespan_ticks": run.makespan,
        "makespan_s": seconds(run.makespan),
        "sync_s": seconds(played.sync),
        "iteration_s": seconds(played.iteration),
        "objective": played.problem.preset.objective,
        "formulas_s": {name: seconds(ticks) for name, ticks in played.formulas.items()},
        "bounds_s": {name: seconds(ticks) for name, ticks in played.bounds.items()},
        "stages": list(_stages(played)),
    }


def simulation_text(played: Played, screen: Screen) -> str:
    """Return the run as a table, a picture and a summary."""
    run = played.run
    summary = Summary()
    summary.add("Problem", title(played.problem))
    summary.add("Plan", f"{plan_widths(played.plan)}, {counted(played.plan.replicas, 'replica')}")
    if not played.evaluation.legal:
        broken = sorted({violation.rule for violation in played.evaluation.violations})
        summary.add("Broken", ", ".join(broken), "red")
    summary.add("Schedule", _schedule(run))
    sync = f" + {duration(played.seconds(played.sync))} sync" if played.sync else ""
    pipeline = f"{duration(played.seconds(run.makespan))} for the pipeline"
    summary.add("Simulated", f"{duration(played.seconds(played.iteration))} = {pipeline}{sync}")
    for name, ticks in played.formulas.items():
        mark = " (the objective of the preset)" if name == played.problem.preset.objective else ""
        summary.add("Formula", f"{name} {_beside(played, ticks)}{mark}")
    for name, ticks in played.bounds.items():
        summary.add("Bound", f"{name} {_beside(played, ticks)}")
    summary.add("Idle", f"{percent(sum(run.idle), len(run.idle) * max(run.makespan, 1))} of all stages' time")
    picture = "\n".join(timeline(run, played.evaluation.scale.time, screen.width)) if run.makespan else ""
    legend = f"{LEGEND};\n{CHUNKS}" if run.schedule.chunks > 1 else LEGEND
    return render(screen, _table(played), "", *([picture, legend, ""] if picture else []), summary.table)


def _schedule(run: Run) -> str:
    chunks = f", {counted(run.schedule.chunks, 'chunk')} a stage" if run.schedule.chunks > 1 else ""
    beside = ", transfers beside the work" if run.pipeline.overlapped else ""
    return f"{run.schedule.name}, {counted(run.pipeline.microbatches, 'microbatch')}{chunks}{beside}"


def _beside(played: Played, ticks: int) -> str:
    """Spell a time, and how far it is from the simulated one."""
    apart = f", {100 * (ticks - played.iteration) / played.iteration:+.2f} %" if played.iteration else ""
    return f"{duration(played.seconds(ticks))}{apart}"


def _table(played: Played) -> Table:
    columns = (
        Column("Stage"),
        Column("Load", number=True),
        Column("Busy", number=True),
        Column("Idle", number=True),
        Column("Bubble", number=True),
        Column("In flight", number=True),
    )
    return ruled_table(columns, [tuple(_cells(row)) for row in _stages(played)])


def _cells(row: dict[str, object]) -> Iterator[str]:
    yield str(row["stage"])
    for name in ("load_s", "busy_s", "idle_s"):
        yield duration(float(str(row[name])), aligned=True)
    yield f"{100 * float(str(row['bubble'])):.1f} %"
    yield str(row["in_flight"])


def _stages(played: Played) -> Iterator[dict[str, object]]:
    run = played.run
    columns = zip(run.busy, run.idle, run.ends, run.in_flight, played.limits, strict=True)
    for at, (busy, idle, end, held, most) in enumerate(columns):
        yield {
            "stage": at,
            "load_s": played.seconds(played.evaluation.stages[at].load),
            "busy_s": played.seconds(busy),
            "idle_s": played.seconds(idle),
            "end_s": played.seconds(end),
            "bubble": idle / run.makespan if run.makespan else 0.0,
            "in_flight": held,
            "in_flight_formula": most,
        }
