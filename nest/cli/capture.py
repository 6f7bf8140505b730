"""``nest capture``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest.cli.exits import ExitCode
from nest.cli.options import json_option
from nest.cli.output import check_files, print_json, screen

if TYPE_CHECKING:
    from nest.capture import Captured, Input

DTYPES = ("float32", "bfloat16", "float16")


def factory_argument(command: Any) -> Any:
    """Add the argument MODULE:FACTORY."""
    return click.argument("factory", metavar="MODULE:FACTORY")(command)


def module_options(command: Any) -> Any:
    """Add what a module takes, and how it is made."""
    for option in (
        click.option("--dtype", type=click.Choice(DTYPES), help="Give the module this data type.  [default: its own]"),
        click.option(
            "--set",
            "settings",
            metavar="NAME=VALUE",
            multiple=True,
            help="An argument of the factory, as --set layers=4.",
        ),
        click.option(
            "--input",
            "inputs",
            metavar="SHAPE[:DTYPE]",
            multiple=True,
            help="A tensor that it takes, as in 1x1024:int64; the first length is the batch. '=' in front keeps it.",
        ),
    ):
        command = option(command)
    return command


@click.command("capture")
@factory_argument
@module_options
@click.option("-o", "--output", metavar="GRAPH.json", type=click.Path(path_type=Path), help="Write the layer graph.")
@click.option("--check", "checking", is_flag=True, help="Also run the module on the CPU and compare.")
@json_option
def capture_command(
    *,
    factory: str,
    inputs: tuple[str, ...],
    settings: tuple[str, ...],
    dtype: str | None,
    output: Path | None,
    checking: bool,
    as_json: bool,
) -> int:
    """Take the layers of a torch module: what they compute, keep and send.

    MODULE:FACTORY is a function or class, importable from here, that makes the module. No weights are made, unless
    torch.export cannot see through it. The graph that -o writes is taken by nest solve --model, with --cluster and
    --global-batch.
    """
    require_torch("capture")
    check_files(Path(), {"-o": output})
    given, arguments = typed_inputs(inputs), typed_settings(settings)
    captured, rows = _captured(factory, given, arguments, dtype or "", checking=checking)
    if output is not None:
        from nest.capture import write_captured

        write_captured(captured, output)
    _print(captured, rows, as_json=as_json)
    return ExitCode.OK


def require_torch(command: str) -> None:
    """Refuse to go on where torch is not installed."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise click.UsageError(f"nest {command} needs torch, which is not installed; pip install torch")


def typed_inputs(texts: Sequence[str]) -> tuple[Input, ...]:
    """Return the inputs that were typed; raises `InvalidProblem` where one is no shape."""
    from nest.capture import read_input

    if not texts:
        raise click.UsageError("--input is missing: give one for each tensor, as in --input 1x1024:int64")
    return tuple(read_input(each) for each in texts)


def typed_settings(texts: Sequence[str]) -> dict[str, object]:
    """Return arguments of a factory: whole numbers, numbers, true and false as such, all else as text."""
    values: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{text!r} is no NAME=VALUE", param_hint="'--set'")
        values[name] = _value(value)
    return values


def _value(text: str) -> object:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _captured(
    factory: str, inputs: tuple[Input, ...], settings: dict[str, object], dtype: str, *, checking: bool
) -> tuple[Captured, list[tuple[str, int, int, float]]]:
    """Return the captured module, and what a run on the CPU says of it with the kernels of CPUs."""
    from nest.capture.build import build, build_real
    from nest.capture.check import check
    from nest.capture.run import Asked, capture, capture_once

    module, notes = build(factory, settings, dtype)
    real = partial(build_real, factory, settings, dtype)
    captured = capture(Asked(factory, module, inputs, real, dtype, notes))
    if not checking:
        return captured, []
    there = capture_once(Asked(factory, module, inputs, real, dtype, notes, fused=False))
    rows = [(each.what, each.predicted, each.measured, each.off) for each in check(there, real(), inputs, dtype)]
    return captured, rows


def _print(captured: Captured, rows: list[tuple[str, int, int, float]], *, as_json: bool) -> None:
    from nest.report.captured import captured_facts, captured_text, checked_text

    if as_json:
        names = ("figure", "captured", "measured", "off")
        checked = {"check": [dict(zip(names, row, strict=True)) for row in rows]} if rows else {}
        print_json({**captured_facts(captured), **checked})
        return
    click.echo(captured_text(captured, screen()))
    if rows:
        click.echo(f"\nOn the CPU, with its own kernels\n{checked_text(rows, screen())}")
