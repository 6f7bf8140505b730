"""``nest profile``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest.cli.capture import module_options, require_torch, typed_inputs, typed_settings
from nest.cli.exits import ExitCode
from nest.cli.options import json_option, model_option
from nest.cli.output import check_files, print_json

if TYPE_CHECKING:
    from nest.costing import Measurement
    from nest.profile.timing import Timer

KINDS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""Data types of products, by torch's names."""


def numbers(_context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    """Return whole numbers from 1 that were typed with commas between them."""
    try:
        found = tuple(int(each) for each in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise click.BadParameter(f"{text!r} is no list of whole numbers from 1, as in 1,2,4", param=option)
    return tuple(dict.fromkeys(found))


@click.command("profile")
@click.argument("factory", metavar="[MODULE:FACTORY]", required=False)
@module_options
@model_option("Time a model's blocks.")
@click.option("--vocab", metavar="N", type=click.IntRange(min=1), help="Where the model's file leaves them open.")
@click.option("--seq", metavar="N", type=click.IntRange(min=1), help="Tokens of a sequence, with --model.")
@click.option("--microbatch", "microbatches", metavar="N,N", default="1", show_default=True, callback=numbers)
@click.option("--tensor", "tensors", metavar="N,N", default="1", show_default=True, callback=numbers)
@click.option("--device", metavar="NAME", default="", help="As torch names it.  [default: cuda where there is one]")
@click.option("--repeats", metavar="N", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("-o", "--output", metavar="TABLE.csv", type=click.Path(path_type=Path), help="Write the table.")
@json_option
def profile_command(
    *, factory: str | None, model_path: Path | None, output: Path | None, as_json: bool, **options: Any
) -> int:
    """Measure how long layers take on the device at hand, forward and backward.

    Of a torch module the layers are those of nest capture, each kind once. With --model they are blocks of a model's
    file, cut for each width of --tensor, by reference blocks. The table goes to nest solve --profile and nest estimate
    --profile.
    """
    require_torch("profile")
    check_files(model_path or Path(), {"-o": output})
    if (factory is None) == (model_path is None):
        raise click.UsageError("give MODULE:FACTORY, or --model FILE")
    if factory is not None:
        rows = _of_module(factory, options)
    else:
        assert model_path is not None
        rows = _of_model(model_path, options)
    _print(rows, output, as_json=as_json)
    return ExitCode.OK


def _of_module(factory: str, options: Mapping[str, Any]) -> list[Measurement]:
    if options["tensors"] != (1,) or options["seq"] or options["vocab"]:
        raise click.UsageError("--tensor, --seq and --vocab go with --model; a module is measured as it is")
    from nest.capture.build import build, build_real
    from nest.capture.run import Asked
    from nest.profile.module import ModuleProfile

    inputs, settings = typed_inputs(options["inputs"]), typed_settings(options["settings"])
    dtype = options["dtype"] or ""
    module, notes = build(factory, settings, dtype)
    asked = Asked(factory, module, inputs, partial(build_real, factory, settings, dtype), dtype, notes)
    return ModuleProfile(asked, options["microbatches"], _timer(options)).measured()


def _of_model(path: Path, options: Mapping[str, Any]) -> list[Measurement]:
    if options["inputs"] or options["settings"]:
        raise click.UsageError("--input and --set go with MODULE:FACTORY")
    from nest.cli.reading import model_from
    from nest.errors import InvalidProblem
    from nest.profile.model import ModelProfile

    description = model_from(path, options["vocab"])
    if description is None:
        raise InvalidProblem("--model", "no file of a model that is known", "see `nest show` for those", str(path))
    model, dtype = description.model, KINDS[options["dtype"] or "bfloat16"]
    sequence = options["seq"] or model.sequence
    if not sequence:
        raise click.UsageError("--seq is missing, and the model does not say it")
    asked = ModelProfile(model, sequence, options["microbatches"], options["tensors"], dtype, _timer(options))
    rows, missing = asked.measured()
    for kind in missing:
        click.echo(f"nest: {kind}: no reference block, not measured", err=True)
    return rows


def _timer(options: Mapping[str, Any]) -> Timer:
    from nest.profile.timing import Timer, device_at_hand

    return Timer(device_at_hand(options["device"]), repeats=options["repeats"])


def _print(rows: Sequence[Measurement], output: Path | None, *, as_json: bool) -> None:
    from nest.costing import LayerProfile
    from nest.files.disk import write_text
    from nest.files.profile_file import profile_document
    from nest.profile import profile_csv

    if output is not None:
        write_text(output, profile_csv(rows))
    if as_json:
        print_json(profile_document(LayerProfile(tuple(rows))))
    elif output is None:
        click.echo(profile_csv(rows), nl=False)
    else:
        for row in rows:
            times = f"{1e3 * row.forward_s:.4g} ms forward, {1e3 * row.backward_s:.4g} ms backward"
            click.echo(f"{row.kind}: microbatch {row.microbatch}, tensor {row.tensor}: {times}")
