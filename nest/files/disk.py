"""Files on disk: text in, with an error that helps, and text out, whole or not at all."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nest.errors import InvalidProblem
from nest.files.words import near

LARGEST_FILE = 2**26
"""Bytes that a file may have; a problem of 10,000 layers that all differ has a small part of it."""

PIECE = 2**16

FOREIGN_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def model_file(path: Path) -> Path:
    """Return the file of a model: of a folder its ``config.json`` where it has one, as checkouts do; else the path."""
    inside = path / "config.json"
    return inside if inside.is_file() else path


def read_text(path: str | Path, error: type[InvalidProblem]) -> str:
    """Return the text of a file.

    Parameters
    ----------
    error
        What to raise, naming the file, when it cannot be read or is no UTF-8 text.
    """
    try:
        data = _bytes(Path(path))
    except FileNotFoundError:
        raise error("", "there is no such file", _near_file(Path(path)), str(path)) from None
    except IsADirectoryError:
        raise error("", "this is a directory", "name one file in it", str(path)) from None
    except PermissionError:
        raise error("", "no permission to read it", "change its permissions or run as its owner", str(path)) from None
    except (OSError, ValueError) as fault:  # ValueError: the path itself holds a NUL
        raise error("", str(getattr(fault, "strerror", None) or fault), "name a readable file", str(path)) from None
    if len(data) > LARGEST_FILE:
        raise error("", f"more than {LARGEST_FILE} bytes", "name a problem or plan file", str(path))
    return _decoded(data.removeprefix(codecs.BOM_UTF8), str(path), error)


def write_text(path: str | Path, text: str) -> None:
    """Write a text in UTF-8 as `write_bytes` writes bytes."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file through a temporary one beside it, so that it is there whole or not at all.

    Links are followed, and what is no regular file (a device, a pipe) is written to, never replaced.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    if Path(path).exists() and not Path(path).is_file():  # looked at as it is: what /dev/stdout leads to has no path
        with _naming(path):
            Path(path).write_bytes(data)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with _naming(path):
            temporary.write_bytes(data)
            temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Let every `OSError` name the path that was asked for."""
    try:
        yield
    except OSError as fault:
        raise type(fault)(fault.errno, fault.strerror, str(path)) from None


def _bytes(path: Path) -> bytes:
    """Return what a file holds, and of an endless one (a device) more than `LARGEST_FILE` bytes."""
    data = bytearray()
    with path.open("rb") as file:
        while (piece := file.read(PIECE)) and len(data) <= LARGEST_FILE:
            data += piece
    return bytes(data)


def _near_file(path: Path) -> str:
    """Return what to do about a missing file."""
    if not path.parent.is_dir():
        return f"there is no directory {str(path.parent)!r} either"
    name = near(path.name, (entry.name for entry in path.parent.iterdir()))
    return f"did you mean {str(path.with_name(name))!r}?" if name else "check the path"


def _decoded(data: bytes, source: str, error: type[InvalidProblem]) -> str:
    if not data.strip():
        raise error("", "the file is empty", "give a problem or plan in TOML or JSON", source)
    for mark, encoding in FOREIGN_MARKS.items():
        if data.startswith(mark):
            raise error("", f"the text is {encoding}", "save it as UTF-8", source)
    if 0 in data:
        raise error("", f"byte {data.index(0)} is NUL: binary data or UTF-16", "give text in UTF-8", source)
    try:
        return data.decode()
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        what = f"byte {fault.start} (0x{data[fault.start]:02x}, in line {line}) is no UTF-8"
        raise error("", what, "save the file as UTF-8", source) from None
