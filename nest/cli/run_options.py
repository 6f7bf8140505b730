"""A training run as it is typed: options of ``nest solve`` that stand for a problem file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest.cli.asked import (
    asked_cluster,
    asked_model,
    check_sequence,
    expert_tensor,
    network_text,
    reserve_bytes,
    typed_family,
)
from nest.cli.options import model_option

if TYPE_CHECKING:
    from nest.costing import LayerProfile
    from nest.families import Description
    from nest.files.origin import Origin
    from nest.problem import Choices
    from nest.runs import Run

FAMILIES = ("gpt", "llama", "moe", "bert", "t5")
WHOLE = click.IntRange(1, 2**31)
"""A count, at most as large as files may have it."""

_MEANING = {
    "layers": "layers (also of a profile of one)",
    "hidden": "width of the model (also of a profile that leaves it out)",
    "heads": "heads",
    "kv_heads": "key-value heads",
    "ffn": "width of the MLP",
    "vocab": "tokens of the vocabulary (also for files that leave them to a tokenizer)",
    "experts": "routed experts of a layer",
    "top_k": "experts that a token passes",
}

WIDTHS = ("tensor", "context", "expert", "microbatch")
"""Widths of a variant that have an option of their name."""

CHOICES = {"pipeline": "stages", "data": "replicas", "recompute": "stage_recompute", "schedule": "schedules"}
"""Choices that options settle which have another name."""

SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1")

PINS = (*WIDTHS, "pipeline", "data", "sequence_parallel", "recompute", "zero", "schedule", "chunks")
"""Options that settle a choice, free where they are not typed."""


def model_options(command: Any) -> Any:
    """Add where the model comes from: a file, or a family and its numbers."""
    for name, meaning in reversed(_MEANING.items()):
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, name, metavar="N", type=WHOLE, help=f"With --family: {meaning}.")(command)
    family = click.option("--family", type=click.Choice(FAMILIES), help="Instead of a file.")
    model = model_option("A model file: config.json or its folder, arguments of Megatron-LM, and others.")
    return model(family(command))


def cluster_options(*, required: bool) -> Callable[[Any], Any]:
    """Return what adds where the cluster comes from, and what a file of a network leaves open."""
    what = "A cluster, as in dgx-h100:512, or a file: of ours, or of a network (topology.conf and others)."
    option = click.option("--cluster", "cluster_source", metavar="NAME:N", required=required, help=what)

    def added(command: Any) -> Any:
        """Return a command with the options."""
        return option(network_options(command))

    return added


def network_options(command: Any) -> Any:
    """Add what a file of a network leaves open."""
    for option in (
        click.option(
            "--hostfile",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="With hosts of Metis: how many devices each has.",
        ),
        click.option("--topology", metavar="NAME", help="Which of several topologies in it."),
        click.option("--root", metavar="NAME", help="Which of several trees in it."),
        click.option("--gpus-per-node", metavar="N", type=WHOLE, help="With it: devices of a node."),
        click.option("--like", metavar="SYSTEM", help="With it: a system that has the same links."),
        click.option("--device", metavar="NAME", help="With a file of a network: what its devices are."),
    ):
        command = option(command)
    return command


def software_options(command: Any) -> Any:
    """Add what the software does and holds, the same for every plan."""
    for option in (
        click.option(
            "--reserve", metavar="GIB", type=click.FloatRange(min=0), help="Kept free of each device.  [default: 5 %]"
        ),
        click.option("--padding", metavar="N", type=click.IntRange(min=0), help="Of the vocabulary.  [default: 128]"),
        click.option(
            "--flash/--no-flash",
            default=None,
            help="Fused attention.  [default: where --framework has it]",
        ),
        click.option("--framework", metavar="NAME", help="What runs it.  [default: megatron-core]"),
        click.option("--recipe", metavar="NAME", help="Bytes per parameter.  [default: mixed]"),
        click.option("--dtype", type=click.Choice(("bf16", "fp16", "fp8", "fp32")), help="[default: bf16]"),
        click.option("--capacity", metavar="X", type=float, help="Rows that an expert takes, to their mean."),
        click.option("--imbalance", metavar="X", type=float, help="Busiest rank to mean.  [default: 1]"),
        click.option("--expert-tensor", metavar="N", type=WHOLE, help="Devices of one expert.  [default: 1]"),
        click.option("--context-kind", type=click.Choice(("ring", "gather", "exchange")), help="[default: ring]"),
        profile_option,
    ):
        command = option(command)
    return command


def profile_option(command: Any) -> Any:
    """Add measured times of layers."""
    what = "Measured times of layers, in CSV, JSON or TOML, in place of those that are modelled."
    return click.option("--profile", "profile_path", metavar="FILE", type=click.Path(path_type=Path), help=what)(
        command
    )


def pin_options(command: Any) -> Any:
    """Add the choices that may be settled."""
    for option in (
        click.option("--zero", type=click.IntRange(0, 3), help="Only this ZeRO type."),
        click.option("--recompute", type=click.Choice(("none", "selective", "full")), help="Only this recomputation."),
        click.option("--schedule", type=click.Choice(SCHEDULES), help="Only this; zb-h1 is played.  [default: 1f1b]"),
        click.option("--chunks", metavar="N", type=WHOLE, help="With interleaved: only so many of each stage."),
        click.option("--sequence-parallel/--no-sequence-parallel", default=None, help="Share the sequence, or not."),
        click.option("--microbatch", metavar="N", type=WHOLE, help="Only so many sequences of a rank at a time."),
        click.option("--expert", metavar="N", type=WHOLE, help="Only this expert-parallel width."),
        click.option("--context", metavar="N", type=WHOLE, help="Only this context-parallel width."),
        click.option("--data", metavar="N", type=WHOLE, help="Only so many replicas."),
        click.option("--pipeline", metavar="N", type=WHOLE, help="Only so many stages."),
        click.option("--tensor", metavar="N", type=WHOLE, help="Only this tensor-parallel width."),
    ):
        command = option(command)
    return command


def run_options(command: Any) -> Any:
    """Add what stands for a problem file: the model, the cluster, sizes, and everything above."""
    for option in (
        software_options,
        pin_options,
        click.option("--global-batch", metavar="N", type=WHOLE, help="Sequences of an iteration."),
        click.option("--seq", metavar="N", type=WHOLE, help="Tokens of a sequence."),
        cluster_options(required=False),
        model_options,
    ):
        command = option(command)
    return command


def typed_run(problem_path: Path | None, options: Mapping[str, Any], preset: str | None = None) -> Run | None:
    """Return the run that was typed instead of a problem file, None where there is such a file.

    Raises
    ------
    click.UsageError
        If there are both, neither, or something is missing.
    InvalidProblem
        If a file or a value is wrong.
    """
    given = [name for name, value in options.items() if value is not None]
    if problem_path is not None:
        if given:
            name = _option(given[0])
            if name in ("--model", "--family"):
                raise click.UsageError(f"{name} and {problem_path}: give one of them")
            raise click.UsageError(f"{name} goes with --model; a file has its own: change it with --set")
        return None
    if options["model_path"] is None and options["family"] is None:
        raise click.UsageError("give PROBLEM, or --model (or --family) with --cluster, --seq and --global-batch")
    if options["cluster_source"] is None:
        raise click.UsageError("--cluster is missing: give one as in --cluster dgx-h100:512, or its file")
    if preset not in (None, *POSED):
        what = f"--preset {preset}: what is typed is posed under preset {POSED[0]!r} or {POSED[1]!r}"
        raise click.UsageError(f"{what}; leave --preset out, or give PROBLEM, a file with figures for {preset!r}")
    return _run(options)


POSED = ("default", "simulated")
"""Presets under which runs are posed: they alone price their batches and collectives."""


def typed_origin(run: Run, preset: str | None, settings: Sequence[str], options: Mapping[str, Any]) -> Origin:
    """Return where a problem comes from that was typed, for the files of its plans."""
    from nest.files.origin import Origin
    from nest.runs.run_document import cluster_table, cluster_value, model_table, run_document

    path, network = options["model_path"], network_text(options["cluster_source"], options)
    model = typed_family(options) if path is None else model_table(path, options["vocab"])
    cluster = cluster_value(options["cluster_source"]) if network is None else cluster_table(network)
    document = run_document(run, model, cluster)
    return Origin(document, preset=preset, settings=tuple(settings))


def _option(name: str) -> str:
    spelt = {"model_path": "model", "cluster_source": "cluster", "profile_path": "profile"}.get(name, name)
    return f"--{spelt.replace('_', '-')}"


def _run(options: Mapping[str, Any]) -> Run:
    from nest.costing import framework_named, recipe_named
    from nest.families.description import number
    from nest.runs import Run

    description = asked_model(options["model_path"], options)
    settings, model = description.settings, description.model
    check_sequence(options["seq"], model)
    software: dict[str, Any] = {name: settings[name] for name in SOFTWARE if name in settings}
    software |= {name: options[name] for name in (*SOFTWARE, "imbalance", "capacity") if options[name] is not None}
    if recipe := options["recipe"] or settings.get("recipe"):
        software["recipe"] = recipe_named(str(recipe))
    if options["framework"] is not None:
        software["framework"] = framework_named(options["framework"])
    target = number(settings, "target_sequence", 0)
    return Run(
        model,
        asked_cluster(options["cluster_source"], options),
        _size(options, "seq", number(settings, "sequence", model.sequence)),
        _size(options, "global_batch", number(settings, "global_batch", 0)),
        cut_experts=expert_tensor(options, settings, options["tensor"] or number(settings, "tensor")) > 1,
        lengths=(("text", target),) if target else (),
        reserve_bytes=reserve_bytes(options),
        choices=typed_choices(options),
        source=_stated(description),
        profile=typed_profile(options),
        **software,
    )


def typed_profile(options: Mapping[str, Any]) -> LayerProfile | None:
    """Return the measured times that were typed, None where there are none; raises `InvalidProblem`."""
    if options["profile_path"] is None:
        return None
    from nest.files.profile_file import read_profile

    return read_profile(options["profile_path"])


SOFTWARE = ("dtype", "flash", "padding", "context_kind")
"""What software does, and both options and files of models say under the same name."""


def _stated(description: Description) -> str:
    """Return what the model's file says about training, for people: what is taken of it, and what is left open."""
    from nest.families.description import spelt

    stated, kept = description.settings, (*SIZES, *SOFTWARE, "recipe", "expert_tensor")
    taken = {name: value for name, value in stated.items() if name in kept}
    left = {name: value for name, value in stated.items() if name not in kept}
    parts = (("taken unless typed", taken), ("left open", left))
    said = [f"{what}: {spelt(each)}" for what, each in parts if each]
    return f"{description.kind}; {'; '.join(said)}" if said else ""


SIZES = ("sequence", "target_sequence", "global_batch")
"""Sizes that a file of a model gives, and a run has."""


def _size(options: Mapping[str, Any], name: str, said: int) -> int:
    value = options[name] or said
    if not value:
        raise click.UsageError(f"{_option(name)} is missing, and the model does not say it")
    return int(value)


def typed_choices(options: Mapping[str, Any]) -> Choices:
    """Return the choices that the typed widths settle."""
    from nest.problem import Choices

    typed = {name: options[name] for name in PINS if options[name] is not None}
    experts = options["expert_tensor"]
    if experts is not None and experts > 1 and typed.setdefault("tensor", experts) != experts:
        raise click.UsageError(f"--expert-tensor {experts}: give 1 or the tensor width {typed['tensor']}")
    pins: dict[str, Any] = {}
    for name, value in typed.items():
        pins[CHOICES.get(name, name)] = frozenset({value})
    if "sequence_parallel" in pins:
        pins["sequence"] = typed["sequence_parallel"]
        del pins["sequence_parallel"]
    return Choices(**pins)
