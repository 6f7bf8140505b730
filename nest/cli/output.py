"""Where answers go: the screen, JSON on standard output, files that are known to be writable."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

import click

if TYPE_CHECKING:
    from nest.report.layout import Screen
    from nest.runs import Tried

PictureKind: TypeAlias = Literal["png", "svg"]

PICTURES: dict[str, PictureKind] = {".png": "png", ".svg": "svg"}


def screen() -> Screen:
    """Return what standard output can show."""
    from nest.report.layout import Screen

    if not is_terminal(sys.stdout):
        return Screen()
    import shutil

    return Screen(width=shutil.get_terminal_size().columns, colour=True)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person reads the stream."""
    return stream is not None and stream.isatty()


def print_json(document: object) -> None:
    """Print one JSON object on standard output."""
    click.echo(_json_text(document))


def give(document: object, text: Callable[[], str], output: Path | None, *, as_json: bool) -> None:
    """Print an answer, as text or as JSON, and write the JSON into a file where one is asked for."""
    if output is not None:
        from nest.files.disk import write_text

        write_text(output, f"{_json_text(document)}\n")
    if as_json:
        print_json(document)
    else:
        click.echo(text())


def _json_text(document: object) -> str:
    """Return one JSON object as it is printed."""
    import json

    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # the number of plans is exact, however long
    try:
        return json.dumps(document, indent=2, allow_nan=False)
    finally:
        sys.set_int_max_str_digits(limit)


def writable(output: Path, problem_path: Path, option: str = "-o") -> Path:
    """Return the path of a file to be written, once it is sure that it can be; ``option`` is what named it."""
    import tempfile

    hint = f"'{option}'"
    try:
        target = output.resolve()
        if target == problem_path.resolve():
            raise click.BadParameter(f"{output} is the problem itself", param_hint=hint)
        if target.is_dir():
            raise click.BadParameter(f"{output} is a directory", param_hint=hint)
        if output.is_file() or not output.exists():
            tempfile.TemporaryFile(dir=target.parent).close()  # where the writer will put its own
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise click.BadParameter(f"cannot write {output}: {why}", param_hint=hint) from error
    return output


def check_files(problem_path: Path, files: Mapping[str, Path | None]) -> None:
    """Refuse files that cannot be written, or that are one and the same, before anything is solved."""
    taken: dict[Path, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        other = taken.setdefault(writable(path, problem_path, option).resolve(), option)
        if other != option:
            raise click.BadParameter(f"{path} is the file of {other}, too", param_hint=f"'{option}'")


def picture_kind(picture: Path) -> PictureKind:
    """Return the kind of a picture by its name, once it is sure that it can be drawn."""
    from importlib.util import find_spec

    if picture.suffix.lower() not in PICTURES:
        raise click.BadParameter(f"{picture} is no .png and no .svg", param_hint="'--plot'")
    if find_spec("matplotlib") is None:
        raise click.UsageError("--plot needs matplotlib, which is not installed; pip install matplotlib")
    return PICTURES[picture.suffix.lower()]


def writable_directory(directory: Path, option: str = "-o") -> Path:
    """Return a directory in which files can be written, made if it is not there; ``option`` is what named it."""
    import tempfile

    try:
        directory.mkdir(exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        why = "it is no directory" if directory.exists() and not directory.is_dir() else error.strerror or error
        raise click.BadParameter(f"cannot write into {directory}: {why}", param_hint=f"'{option}'") from error
    return directory


def print_tried(tried: Tried) -> None:
    """Print what was kept in reserve and what was not tried, below an answer."""
    from nest.report.format import size

    if tried.reserve is not None and tried.reserve.size_bytes:
        click.echo(f"{'Reserve':<11}{size(tried.reserve.size_bytes)} of each device{tried.reserve.aside}")
    for at, each in enumerate(tried.left_out or ()):
        click.echo(f"{'' if at else 'Not tried':<11}{each}")
