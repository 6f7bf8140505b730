"""``nest estimate``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest.cli.asked import AskedPlan, asked_cluster, asked_model
from nest.cli.exits import ExitCode
from nest.cli.options import json_option
from nest.cli.output import check_files, give, screen
from nest.cli.run_options import SCHEDULES, WHOLE, cluster_options, model_options, profile_option, typed_profile
from nest.cli.tabled import estimated_table

if TYPE_CHECKING:
    from nest.costing import Layout, Setting
    from nest.families import Description
    from nest.hardware import Hardware


def _plan_options(command: Any) -> Any:
    """Add the widths and sizes of the plan."""
    for name, text in reversed(
        (
            ("seq", "Tokens of a sequence."),
            ("global-batch", "Sequences of an iteration."),
            ("microbatch", "Sequences that a rank takes at a time.  [default: 1]"),
            ("tensor", "Tensor-parallel width.  [default: 1]"),
            ("pipeline", "Stages.  [default: 1]"),
            ("virtual", "Chunks of each stage, interleaved.  [default: 2 with --schedule interleaved, else 1]"),
            ("data", "Replicas.  [default: what the devices are enough for]"),
            ("context", "Context-parallel width.  [default: 1]"),
            ("expert", "Expert-parallel width.  [default: 1]"),
        )
    ):
        command = click.option(f"--{name}", metavar="N", type=WHOLE, help=text)(command)
    return command


def _counts(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Return the whole numbers of a list that was typed."""
    if value is None:
        return None
    if not all(each.strip().isdecimal() for each in value.split(",")):
        raise click.BadParameter(f"{value!r} is no list of whole numbers; give one as in 10,11,11,8")
    return tuple(int(each) for each in value.split(","))


def _usual(text: str, usual: object) -> str:
    """Return a text for people with what holds where neither they nor the model's file say otherwise."""
    return f"{text}  [default: {usual}]".strip()


@click.command("estimate")
@model_options
@cluster_options(required=True)
@_plan_options
@click.option("--schedule", type=click.Choice(SCHEDULES), help="Order of passes; zb-h1 is played.  [default: 1f1b]")
@click.option(
    "--first-class",
    metavar="DEVICE",
    help="Of several classes of devices that of the first stages.  [default: as given]",
)
@click.option("--sequence-parallel/--no-sequence-parallel", default=None, help="Share the sequence over --tensor.")
@click.option("--context-kind", type=click.Choice(("ring", "gather", "exchange")), help=_usual("", "ring"))
@click.option("--expert-tensor", metavar="N", type=WHOLE, help=_usual("Devices of one expert.", 1))
@click.option("--imbalance", metavar="X", type=float, default=1.0, show_default=True, help="Busiest rank to mean.")
@click.option("--capacity", metavar="X", type=float, default=0.0, help="Rows that an expert takes, to their mean.")
@click.option("--recompute", type=click.Choice(("none", "selective", "full")), help=_usual("", "none"))
@click.option("--recompute-layers", metavar="N", type=click.IntRange(min=0), help="Only so many layers of each stage.")
@click.option("--stage-layers", metavar="N,...", callback=_counts, help=_usual("Of each, or each chunk.", "equal"))
@click.option("--zero", type=click.IntRange(0, 3), help=_usual("ZeRO over the replicas.", 0))
@click.option(
    "--zero-groups", metavar="N", type=WHOLE, help=_usual("Groups of replicas that each have all that it spreads.", 1)
)
@click.option("--dtype", type=click.Choice(("bf16", "fp16", "fp8", "fp32")), help=_usual("", "bf16"))
@click.option("--recipe", metavar="NAME", help=_usual("Bytes per parameter.", "mixed"))
@click.option(
    "--framework",
    metavar="NAME",
    help=_usual("What trains it, as megatron-core.", "what such a run was or is trained with"),
)
@click.option(
    "--flash/--no-flash",
    default=None,
    help="Fused attention.  [default: where --framework has it]",
)
@click.option("--padding", metavar="N", type=click.IntRange(min=0), help=_usual("Of the vocabulary.", 128))
@click.option("--reserve", metavar="GIB", type=click.FloatRange(min=0), help="Of framework and network.  [default: 0]")
@click.option(
    "--technologies", metavar="NAME,...", help="Of levels with a menu: what their links are, innermost first."
)
@profile_option
@click.option("-o", "--output", metavar="FILE.json", type=click.Path(path_type=Path), help="Write what --json prints.")
@json_option
def estimate_command(
    *, model_path: Path | None, cluster_source: str, output: Path | None, as_json: bool, **options: Any
) -> int:
    """Estimate time and memory of a plan that you already have.

    Widths that a model file gives are taken from it, unless they are typed. A table of layers may stand for the model.

    Exit codes: 0 the plan fits, 3 a stage needs more memory than a device has.
    """
    from nest.report.estimate import Estimated, estimate_document, estimate_text
    from nest.runs import Given, estimate

    check_files(model_path or Path(), {"-o": output})
    hardware = _with_links(asked_cluster(cluster_source, options), options["technologies"])
    of_table = None if model_path is None else estimated_table(model_path, hardware, options, output, as_json=as_json)
    if of_table is not None:
        return of_table
    description = asked_model(model_path, options)
    asked = AskedPlan(options, description, hardware)
    setting, layout, recipe = asked.setting(), asked.layout(), asked.recipe()
    _check(description, hardware, setting, layout)
    profile = typed_profile(options)
    priced = estimate(Given(description.model, hardware, setting, layout, recipe, profile))
    why = asked.assumed.why if asked.assumed else ""
    found = Estimated(description, hardware, setting, layout, recipe, priced, asked.taken, profile, why)
    give(estimate_document(found), lambda: estimate_text(found, screen()), output, as_json=as_json)
    return ExitCode.OK if found.fits else ExitCode.INFEASIBLE


def _with_links(hardware: Hardware, typed: str | None) -> Hardware:
    """Return hardware whose links are settled: one technology of each menu, as typed."""
    from nest.errors import InvalidProblem

    cluster = hardware.cluster
    names = tuple(name.strip() for name in (typed or "").split(",") if name.strip())
    if cluster.technologies or not (names or cluster.menus):
        return hardware
    found = cluster.named(names)
    if found is None or not cluster.menus:
        menus = [f"{level.name} {' or '.join(each.name for each in level.alternatives)}" for level in cluster.menus]
        remedy = f"give one for each of {', '.join(menus)}" if menus else "leave it out: no level of it has a menu"
        raise InvalidProblem("--technologies", ", ".join(names) or "missing", remedy)
    return replace(hardware, cluster=cluster.built(found))


def _check(description: Description, hardware: Hardware, setting: Setting, layout: Layout) -> None:
    """Refuse widths that ``nest solve`` does not take either: nobody could run the plan."""
    from nest.runs import Run, check_widths, require_batch

    require_batch(layout, setting.expert * setting.microbatch)
    run = Run(
        description.model,
        hardware,
        setting.sequence,
        layout.global_batch,
        padding=setting.padding,
        cut_experts=setting.expert_tensor > 1,
    )
    check_widths(run, setting)
