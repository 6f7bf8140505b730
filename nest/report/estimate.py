"""An estimate of a plan as `nest estimate` prints it: text for a terminal, and JSON of ``nest.estimate/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import groupby

from rich.table import Table

from nest.costing import FRAMEWORKS, LayerProfile, Layout, Measurement, Recipe, Setting
from nest.families import Description
from nest.families.description import Stated, spelt
from nest.hardware import Hardware
from nest.report.format import counted, duration, number_range, percent, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table
from nest.report.model import parameter_facts
from nest.runs import Estimate, default_reserve_bytes
from nest.runs.reserve import OTHERS

SCHEMA = "nest.estimate/1"

CONVENTION = (
    "model FLOPs as Megatron-LM counts them: products of the forward pass three times, scores in full although half "
    "are masked, nothing that is computed again"
)


@dataclass(frozen=True)
class Estimated:
    """An estimate with what was asked.

    Parameters
    ----------
    description, hardware, setting, layout, recipe
        The plan.
    estimate
        Its time and memory.
    taken
        What the model's file decided of the plan.
    profile
        Measured times that it was made with, None without.
    assumed
        Why the framework was taken; empty where the user named it.
    """

    description: Description
    hardware: Hardware
    setting: Setting
    layout: Layout
    recipe: Recipe
    estimate: Estimate
    taken: Mapping[str, Stated] = field(default_factory=dict)
    profile: LayerProfile | None = None
    assumed: str = ""

    @property
    def measured(self) -> tuple[Measurement, ...]:
        """Rows of the profile that stand for modelled times."""
        return () if self.profile is None else self.profile.of(self.setting)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed of the model, devices without work, and how a batch is counted that slots do not divide."""
        layout, setting = self.layout, self.setting
        counted_too = layout.microbatches(setting) * layout.data * setting.expert * setting.microbatch
        notes, have = (*self._unmade, *self.description.model.notes), self.hardware.cluster.devices
        if self.estimate.devices < have:
            notes = (f"{have - self.estimate.devices:,} of the {have:,} devices have no work", *notes)
        if counted_too == layout.global_batch:
            return notes
        slots = f"{layout.data} x {setting.expert} x {setting.microbatch} (replicas x expert x microbatch)"
        what = f"{slots} do not divide a batch of {layout.global_batch}: its time is that of {counted_too} sequences"
        return (what, *notes)

    @property
    def _unmade(self) -> tuple[str, ...]:
        """What the plan does not keep of what the schedule asks for, and what counts otherwise than expected."""
        layout, notes = self.layout, self.estimate.notes
        if layout.zero == 3 and layout.stages > 1:
            notes = (
                *notes,
                "in a pipeline, weights that ZeRO-3 gathers stay whole for the iteration, and gradients too",
            )
        if layout.passes == "zb-h1":
            notes = (*notes, "zb-h1 is played pass by pass, where other schedules are counted by a formula")
        if layout.virtual > 1 and layout.recomputed:
            return (*notes, "the layers that recompute are the first of each stage, where Megatron-LM counts by chunk")
        return notes

    @property
    def room_bytes(self) -> int:
        """Bytes that the fullest device has left: up to so much more reserve the plan fits."""
        return self.estimate.room_bytes

    @property
    def fits(self) -> bool:
        """Whether every stage fits."""
        return self.room_bytes >= 0

    @property
    def utilisation(self) -> float:
        """Model FLOP/s over the peak of the data type (MFU), of several classes the mean over the devices at work."""
        peaks = self.hardware.peaks(self.setting.dtype)
        peak = sum(count * each for count, each in zip(self.estimate.counts, peaks, strict=True))
        return self.estimate.model_flops / self.estimate.iteration_s / peak


def estimate_document(found: Estimated) -> dict[str, object]:
    """Return everything that is said of an estimate, ready for JSON; times in seconds, memory in bytes."""
    estimate, memory = found.estimate, found.hardware.cluster.hbm_bytes
    return {
        "schema": SCHEMA,
        "model": found.description.model.name or found.description.model.family,
        "parameters": parameter_facts(found.description.model),
        "active_parameters": found.description.model.active_parameters,
        "from_file": dict(found.taken),
        "measured": [row.kind for row in found.measured],
        "cluster": found.hardware.cluster.name,
        "devices": estimate.devices,
        "sequence": found.setting.sequence,
        "global_batch": found.layout.global_batch,
        "dtype": found.setting.dtype,
        "framework": found.setting.framework.name,
        "framework_why": f"assumed: {found.assumed}" if found.assumed else "named by the user",
        "flash": found.setting.flash,
        "recipe": found.recipe.name,
        "schedule": found.layout.passes,
        "iteration_s": estimate.iteration_s,
        "pipeline_s": estimate.pipeline_s,
        "sync_s": estimate.sync_s,
        "step_s": estimate.step_s,
        "tokens_per_s": found.layout.global_batch * found.setting.sequence / estimate.iteration_s,
        "tflops_per_device": estimate.flops_per_device / 1e12,
        "model_flops": estimate.model_flops,
        "mfu": found.utilisation,
        "convention": CONVENTION,
        "fits": found.fits,
        "hbm_bytes": memory,
        **reserve_facts(estimate, found.hardware, found.layout),
        "stages": stage_facts(estimate),
        "notes": list(found.notes),
    }


def stage_facts(estimate: Estimate) -> list[dict[str, object]]:
    """Return memory and times of each stage, and of several classes of devices which it stands on, ready for JSON."""
    classes = [{"class": name} for name in estimate.classes] or [{}] * len(estimate.stages)
    return [
        {
            **on,
            "hbm_bytes": held,
            "memory_bytes": stage.total,
            "memory": {spec.name: getattr(stage, spec.name) for spec in fields(stage)},
            "load_s": time.load,
            "time": {spec.name: getattr(time, spec.name) for spec in fields(time)},
        }
        for on, held, stage, time in zip(classes, estimate.capacities, estimate.memory, estimate.stages, strict=True)
    ]


def estimate_text(found: Estimated, screen: Screen) -> str:
    """Return the memory of each stage by component, and where the time goes."""
    estimate, layout, setting = found.estimate, found.layout, found.setting
    summary = Summary()
    summary.add("Training", f"{counted(layout.global_batch, 'sequence')} of {_tokens(found)}, {setting.dtype}")
    summary.add("Plan", _plan(setting, layout))
    summary.add("From file", spelt(found.taken))
    if found.profile is not None:
        kinds, rows = ", ".join(row.kind for row in found.measured), counted(len(found.profile.rows), "row")
        summary.add("Measured", f"{kinds}: {len(found.measured)} of {rows} of {found.profile.source}")
    add_iteration(summary, estimate)
    rate = f"{estimate.flops_per_device / 1e12:.1f} TFLOP/s a device, {100 * found.utilisation:.1f} % of its peak"
    summary.add("Throughput", f"{rate}, {layout.global_batch * setting.sequence / estimate.iteration_s:,.0f} tokens/s")
    summary.add("", CONVENTION)
    if found.utilisation > 1:
        summary.add("", "more than the peak only because masked scores, which are not computed, count")
    add_memory(summary, estimate, found.hardware, layout)
    summary.add("Recipe", spread(found.recipe, layout))
    attention = "fused attention" if setting.flash else "attention not fused"
    summary.add("Software", f"{setting.framework.name}, {attention} (--framework, --flash)")
    summary.add("", _why(found))
    summary.extend("Noted", found.notes)
    return render(screen, stage_table(estimate), summary.table)


def add_iteration(summary: Summary, estimate: Estimate) -> None:
    """Add the time of an iteration, and its parts."""
    summary.add("Iteration", duration(estimate.iteration_s))
    summary.add("", f"= {duration(estimate.pipeline_s)} pipeline + {duration(estimate.sync_s)} sync of gradients")
    summary.add("", f"+ {duration(estimate.step_s)} optimizer")


def spread(recipe: Recipe, layout: Layout) -> str:
    """Return the bytes of a parameter, and over what they are spread, in words."""
    apart = f" in {counted(layout.zero_groups, 'group')} of replicas" if layout.zero_groups > 1 else ""
    return f"{recipe.name}: {recipe.total:g} bytes per parameter, ZeRO-{layout.zero}{apart}"


def _why(found: Estimated) -> str:
    """Return why the framework was assumed, and how to have another; nothing where it was named."""
    today = FRAMEWORKS[0].name
    other = f"; --framework {today} for that of today" if found.setting.framework.name != today else ""
    return f"assumed: {found.assumed}{other}" if found.assumed else ""


HEADERS = ("Stage", "Load", "Weights", "Grads", "Optimizer", "Kept", "Working", "Total", "Of device")


def stage_table(estimate: Estimate) -> Table:
    """Return a table with a row for each stage; neighbours that are alike share one."""
    classes = estimate.classes or ("",) * len(estimate.stages)
    loads = (time.load for time in estimate.stages)
    stages = enumerate(zip(estimate.memory, loads, estimate.capacities, classes, strict=True))
    rows = []
    for (memory, load, held, on), run in groupby(stages, key=lambda each: each[1]):
        places = [at for at, _ in run]
        parts = (memory.weights, memory.gradients, memory.optimizer, memory.activations, memory.working)
        which = (number_range(places[0], places[-1]), *([on] if estimate.classes else []))
        rows.append((*which, duration(load), *map(size, (*parts, memory.total)), percent(memory.total, held)))
    names = HEADERS[:1] + ("Class",) * bool(estimate.classes) + HEADERS[1:]
    return ruled_table(tuple(Column(name, number=name not in ("Stage", "Class")) for name in names), rows)


def _tokens(found: Estimated) -> str:
    """Return the tokens of a sequence in each stream, as they are estimated."""
    given = dict(found.setting.lengths)
    streams = found.description.model.streams
    lengths = {each.name: given.get(each.name) or each.tokens or found.setting.sequence for each in streams}
    if len(set(lengths.values())) == 1:
        return counted(next(iter(lengths.values())), "token")
    return f"{' and '.join(f'{tokens:,} {name}' for name, tokens in lengths.items())} tokens"


def staged(layout: Layout) -> str:
    """Return the stages, and their schedule where it is not the usual one, in words."""
    if layout.virtual > 1:
        return f"{counted(layout.stages, 'stage')} of {layout.virtual} chunks"
    return counted(layout.stages, "stage") + ("" if layout.passes == "1f1b" else f" under {layout.passes}")


def _plan(setting: Setting, layout: Layout) -> str:
    widths = f"tensor {setting.tensor} x context {setting.context} x expert {setting.expert}"
    microbatches = counted(layout.microbatches(setting), "microbatch")
    return f"{widths}, {staged(layout)}, {counted(layout.data, 'replica')} with {microbatches} of {setting.microbatch}"


def reserve_facts(estimate: Estimate, hardware: Hardware, layout: Layout) -> dict[str, object]:
    """Return how much is kept in reserve, how much could be, and whether that is less than runs keep by default."""
    largest = layout.reserve + estimate.room_bytes
    default = default_reserve_bytes(hardware.cluster)
    return {
        "reserve_bytes": layout.reserve,
        "largest_reserve_bytes": largest,
        "default_reserve_bytes": default,
        "tight": layout.reserve <= largest < default,
    }


def add_memory(summary: Summary, estimate: Estimate, hardware: Hardware, layout: Layout) -> None:
    """Add whether every stage fits, how much room there is where there is the least, and that it is little."""
    stages = zip(estimate.capacities, estimate.memory, strict=True)
    capacity, most = min(((held, each.total) for held, each in stages), key=lambda pair: int(pair[0]) - pair[1])
    held, room = f"at most {size(most)} of {size(capacity)} ({percent(most, capacity)})", estimate.room_bytes
    beside = f" beside the reserve of {size(layout.reserve)}" if layout.reserve else ""
    fits = f"fits, with {size(room)} to spare{beside}"
    summary.add("Memory", f"{held}: {fits if room >= 0 else f'does not fit, {size(-room)} too much'}")
    if reserve_facts(estimate, hardware, layout)["tight"]:
        summary.add("Memory", f"tight: {OTHERS}", "yellow")
