"""An estimate of a plan of measured layers as `nest estimate` prints it: text, and JSON of ``nest.estimate/1``."""

from __future__ import annotations

from nest.layer_tables import GivenTable
from nest.report.estimate import (
    SCHEMA,
    add_iteration,
    add_memory,
    reserve_facts,
    spread,
    stage_facts,
    stage_table,
    staged,
)
from nest.report.format import counted
from nest.report.layout import Screen, Summary, render
from nest.runs import Estimate


def table_estimate_document(given: GivenTable, estimate: Estimate) -> dict[str, object]:
    """Return everything that is said, ready for JSON; null for what a table of layers does not say."""
    layout, hbm, room = given.layout, given.hardware.cluster.hbm_bytes, estimate.room_bytes
    return {
        "schema": SCHEMA,
        "model": given.run.table.name,
        "table": given.run.table.source,
        "cluster": given.hardware.cluster.name,
        "devices": estimate.devices,
        "global_batch": layout.global_batch,
        "framework": given.run.framework.name,
        "recipe": given.run.paid.name,
        "schedule": layout.passes,
        "iteration_s": estimate.iteration_s,
        "pipeline_s": estimate.pipeline_s,
        "sync_s": estimate.sync_s,
        "step_s": estimate.step_s,
        "sequences_per_s": layout.global_batch / estimate.iteration_s,
        "tflops_per_device": None,
        "mfu": None,
        "fits": room >= 0,
        "hbm_bytes": hbm,
        **reserve_facts(estimate, given.hardware, layout),
        "stages": stage_facts(estimate),
        "notes": [*estimate.notes, *given.notes],
    }


def table_estimate_text(given: GivenTable, estimate: Estimate, screen: Screen) -> str:
    """Return the memory of each stage by component, and where the time goes."""
    layout, summary = given.layout, Summary()
    summary.add("Training", f"{counted(layout.global_batch, 'sequence')}, layers of {given.run.table.source}")
    summary.add("Plan", _plan(given))
    add_iteration(summary, estimate)
    summary.add("Throughput", f"{layout.global_batch / estimate.iteration_s:,.1f} sequences/s; a table has no FLOPs")
    add_memory(summary, estimate, given.hardware, layout)
    summary.add("Recipe", spread(given.run.paid, layout))
    summary.add("Software", f"{given.run.framework.name} (--framework)")
    idle = given.hardware.cluster.devices - estimate.devices
    summary.extend("Noted", [f"{idle:,} devices have no work"] if idle else [])
    summary.extend("Noted", (*estimate.notes, *given.notes))
    return render(screen, stage_table(estimate), summary.table)


def _plan(given: GivenTable) -> str:
    layout = given.layout
    each = f"with {counted(given.microbatches, 'microbatch')} of {given.point.microbatch}"
    return f"tensor {given.point.tensor}, {staged(layout)}, {counted(layout.data, 'replica')} {each}"
