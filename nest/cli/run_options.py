"""A training run as it is typed: options of ``nest solve`` that stand for a problem file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest.cli.asked import asked_model, check_sequence, reserve_bytes

if TYPE_CHECKING:
    from nest.problem import Choices
    from nest.runs import Run

FAMILIES = ("gpt", "llama", "moe", "bert", "t5")
WHOLE = click.IntRange(min=1)

_MEANING = {
    "layers": "layers",
    "hidden": "width of the model",
    "heads": "heads",
    "kv_heads": "key-value heads",
    "ffn": "width of the MLP",
    "vocab": "tokens of the vocabulary (also for files that leave them to a tokenizer)",
    "experts": "routed experts of a layer",
    "top_k": "experts that a token passes",
}

WIDTHS = ("tensor", "context", "expert", "microbatch")
"""Widths of a variant that have an option of their name."""

PINS = (*WIDTHS, "pipeline", "data", "sequence_parallel", "recompute", "zero")
"""Options that settle a choice, free where they are not typed."""


def model_options(command: Any) -> Any:
    """Add where the model comes from: a file, or a family and its numbers."""
    for name, meaning in reversed(_MEANING.items()):
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, name, metavar="N", type=WHOLE, help=f"With --family: {meaning}.")(command)
    family = click.option("--family", type=click.Choice(FAMILIES), help="Instead of a file.")
    model = click.option(
        "--model",
        "model_path",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="A model file: config.json, arguments of Megatron-LM, and others. Widths that it gives are taken from it.",
    )
    return model(family(command))


def software_options(command: Any) -> Any:
    """Add what the software does and holds, the same for every plan."""
    for option in (
        click.option("--reserve", metavar="GIB", type=click.FloatRange(min=0), help="Of framework and network."),
        click.option("--padding", metavar="N", type=click.IntRange(min=0), help="Of the vocabulary.  [default: 128]"),
        click.option("--flash/--no-flash", default=None, help="Fused attention.  [default: unless it is recomputed]"),
        click.option("--framework", metavar="NAME", help="What runs it.  [default: megatron-core]"),
        click.option("--recipe", metavar="NAME", help="Bytes per parameter.  [default: mixed]"),
        click.option("--dtype", type=click.Choice(("bf16", "fp16", "fp8", "fp32")), help="[default: bf16]"),
        click.option("--capacity", metavar="X", type=float, help="Rows that an expert takes, to their mean."),
        click.option("--imbalance", metavar="X", type=float, help="Busiest rank to mean.  [default: 1]"),
        click.option("--expert-tensor", metavar="N", type=WHOLE, help="Devices of one expert.  [default: 1]"),
        click.option("--context-kind", type=click.Choice(("ring", "gather", "exchange")), help="[default: ring]"),
    ):
        command = option(command)
    return command


def pin_options(command: Any) -> Any:
    """Add the choices that may be settled."""
    for option in (
        click.option("--zero", type=click.IntRange(0, 3), help="Only this ZeRO type."),
        click.option("--recompute", type=click.Choice(("none", "selective", "full")), help="Only this recomputation."),
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
        click.option("--cluster", "cluster_source", metavar="NAME:N", help="With a model: a cluster, or its file."),
        model_options,
    ):
        command = option(command)
    return command


def typed_run(problem_path: Path | None, options: Mapping[str, Any]) -> Run | None:
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
            raise click.UsageError(f"{_option(given[0])} goes with --model; a file has its own: change it with --set")
        return None
    if options["model_path"] is None and options["family"] is None:
        raise click.UsageError("give PROBLEM, or --model (or --family) with --cluster, --seq and --global-batch")
    if options["cluster_source"] is None:
        raise click.UsageError("--cluster is missing: give one as in --cluster dgx-h100:512, or its file")
    return _run(options)


def _option(name: str) -> str:
    spelt = {"model_path": "model", "cluster_source": "cluster"}.get(name, name)
    return f"--{spelt.replace('_', '-')}"


def _run(options: Mapping[str, Any]) -> Run:
    from nest.costing import framework_named, recipe_named
    from nest.files.cluster_file import read_cluster
    from nest.runs import Run

    description = asked_model(options["model_path"], options)
    settings, model = description.settings, description.model
    check_sequence(options["seq"], model)
    named = ("dtype", "flash", "padding", "context_kind", "imbalance", "capacity")
    more: dict[str, Any] = {name: options[name] for name in named if options[name] is not None}
    for name, find in (("recipe", recipe_named), ("framework", framework_named)):
        if options[name] is not None:
            more[name] = find(options[name])
    target = settings.get("target_sequence")
    return Run(
        model,
        read_cluster(options["cluster_source"]),
        _size(options, "seq", settings.get("sequence", model.sequence)),
        _size(options, "global_batch", settings.get("global_batch", 0)),
        cut_experts=(options["expert_tensor"] or 1) > 1,
        lengths=(("text", target),) if target else (),
        reserve_bytes=reserve_bytes(options),
        choices=_choices(options),
        **more,
    )


def _size(options: Mapping[str, Any], name: str, said: int) -> int:
    value = options[name] or said
    if not value:
        raise click.UsageError(f"{_option(name)} is missing, and the model does not say it")
    return int(value)


def _choices(options: Mapping[str, Any]) -> Choices:
    """Return the choices that the typed widths settle."""
    from nest.problem import Choices

    typed = {name: options[name] for name in PINS if options[name] is not None}
    experts = options["expert_tensor"]
    if experts is not None and experts > 1 and typed.setdefault("tensor", experts) != experts:
        raise click.UsageError(f"--expert-tensor {experts}: give 1 or the tensor width {typed['tensor']}")
    pins: dict[str, Any] = {}
    for name, value in typed.items():
        field = {"pipeline": "stages", "data": "replicas", "recompute": "stage_recompute"}.get(name, name)
        pins[field] = frozenset({value})
    if "sequence_parallel" in pins:
        pins["sequence"] = typed["sequence_parallel"]
        del pins["sequence_parallel"]
    return Choices(**pins)
