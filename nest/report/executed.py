"""What `nest run` says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from nest.execute import TOLERANCE, Outcome, StageOutcome
from nest.execute.shape import Shape, StageShape
from nest.report.format import count, counted, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table

WIDTHS = ("tensor", "context", "expert")


def executed_document(outcome: Outcome, problem: str, notes: Sequence[str]) -> dict[str, object]:
    """Return everything `nest run` says, ready for JSON; ``notes`` say in what the plan differs."""
    job, shape = outcome.job, outcome.job.shape
    return {
        "problem": problem,
        "model": {**asdict(job.model), "layers": job.model.layers},
        "schedule": shape.schedule,
        "processes": shape.processes,
        "replicas": shape.replicas,
        **{name: getattr(shape, name) for name in WIDTHS},
        "sequence": shape.sequence,
        "microbatch": shape.microbatch,
        "microbatches": job.microbatches,
        "steps": job.steps,
        "seed": job.seed,
        "notes": list(notes),
        "equal": outcome.equal,
        "tolerance": TOLERANCE,
        "losses": list(outcome.losses),
        "single_losses": list(outcome.single_losses),
        "loss_difference": outcome.loss_difference,
        "weights": outcome.weights,
        "weight_difference": outcome.difference,
        "wall_s": outcome.wall_s,
        "stages": [
            {"zero": part.zero, "recompute": list(part.again), **_figures(stage)}
            for part, stage in zip(shape.stages, outcome.stages, strict=True)
        ],
    }


def executed_text(outcome: Outcome, problem: str, notes: Sequence[str], screen: Screen) -> str:
    """Return the run as a table of stages and a summary."""
    job, shape = outcome.job, outcome.job.shape
    summary = Summary()
    summary.add("Problem", problem)
    summary.add("Ran", _shape_text(shape))
    summary.add("Model", f"tiny, {counted(job.model.layers, 'layer')}{_experts(outcome)}")
    each = f"{counted(job.microbatches, 'microbatch')} of {counted(shape.microbatch, 'sequence')} a replica"
    summary.add("Training", f"{counted(job.steps, 'step')}, {each}, {shape.schedule}, {outcome.wall_s:.1f} s")
    summary.extend("Not as in plan", notes)
    losses = " ".join(f"{loss:.6f}" for loss in outcome.losses)
    summary.add("Loss", f"{losses}, at most {outcome.loss_difference:.1e} from one process")
    summary.add("Weights", f"{count(outcome.weights)} compared, at most {outcome.difference:.1e} from one process")
    besides = max(stage.runtime_bytes for stage in outcome.stages)
    summary.add("Kept", f"of which up to {size(besides)} a microbatch are PyTorch's, not counted by nest.costing")
    summary.add("State", _state(outcome))
    verdict = f"yes, within {TOLERANCE:.0e}" if outcome.equal else f"no: more than {TOLERANCE:.0e} apart"
    summary.add("Equal", verdict, "green" if outcome.equal else "red")
    return render(screen, _table(outcome), "", summary.table)


def _figures(stage: StageOutcome) -> dict[str, object]:
    return {**asdict(stage), "predicted_bytes": stage.predicted_bytes}


def _shape_text(shape: Shape) -> str:
    sizes = [counted(len(shape.stages), "stage"), counted(shape.replicas, "replica")]
    sizes += [f"{name} {getattr(shape, name)}" for name in WIDTHS if getattr(shape, name) > 1]
    mode = ", sequence parallel" if shape.sequence else ""
    number = f"{shape.processes} process{'es' if shape.processes > 1 else ''}"
    return f"{' x '.join(sizes)} = {number}{mode}"


def _state(outcome: Outcome) -> str:
    """Spell weights and moments of the stage that holds most, and whether every stage holds what was predicted."""
    most = max(outcome.stages, key=lambda stage: stage.weight_bytes + stage.optimizer_bytes)
    held = f"weights {size(most.weight_bytes)}, moments {size(most.optimizer_bytes)} on the fullest device"
    right = all(
        (stage.weight_bytes, stage.optimizer_bytes) == (stage.weight_predicted, stage.optimizer_predicted)
        for stage in outcome.stages
    )
    predicted = f"weights {size(most.weight_predicted)}, moments {size(most.optimizer_predicted)}"
    return f"{held}, {'as predicted' if right else f'not {predicted}'}"


def _experts(outcome: Outcome) -> str:
    experts = outcome.job.model.experts
    return f", {counted(experts, 'expert')} in each block" if experts else ""


def _table(outcome: Outcome) -> Table:
    columns = (
        Column("Stage", number=True),
        Column("Layers", number=True),
        Column("Recomp", folds=True),
        Column("ZeRO", number=True),
        Column("In flight", number=True),
        Column("Kept", number=True),
        Column("Predicted", number=True),
        Column("Measured", number=True),
        Column("Apart", number=True),
    )
    stages = zip(outcome.job.shape.stages, outcome.stages, strict=True)
    return ruled_table(columns, [_cells(at, part, stage) for at, (part, stage) in enumerate(stages)])


def _cells(at: int, part: StageShape, stage: StageOutcome) -> tuple[str, ...]:
    flight = str(stage.in_flight)
    predicted = stage.predicted_bytes
    if not predicted:
        flight = "-"  # an embedding keeps nothing by which microbatches could be told
    elif stage.in_flight != stage.in_flight_formula:
        flight = f"{flight}, not {stage.in_flight_formula}"
    return (
        str(at),
        str(stage.layers),
        _again(part),
        str(part.zero),
        flight,
        size(stage.costing_bytes + stage.runtime_bytes, aligned=True),
        size(predicted, aligned=True),
        size(stage.peak_bytes, aligned=True),
        f"{100 * (stage.peak_bytes - predicted) / predicted:+.1f} %" if predicted else "-",
    )


def _again(part: StageShape) -> str:
    """Spell what the layers of a stage compute again, as in ``full`` or ``full 2, none 3``."""
    kinds = Counter(part.again)
    if len(kinds) == 1:
        return part.again[0]
    return ", ".join(f"{kind} {number}" for kind, number in kinds.items())
