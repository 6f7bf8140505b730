"""Files that are no text, no TOML or JSON, or not there: each error is one line that says where, and what to do."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_files import GOOD, INPUT, SCHEMA, message

from nest.errors import InvalidProblem
from nest.files import read_plan, read_problem

TEXTS = {
    "empty": (b"", "the file is empty; give a problem or plan in TOML or JSON"),
    "blank": (b" \n\t\n", "the file is empty; give a problem or plan in TOML or JSON"),
    "only a mark": (b"\xef\xbb\xbf", "the file is empty; give a problem or plan in TOML or JSON"),
    "UTF-16": (GOOD.encode("utf-16"), "the text is UTF-16; save it as UTF-8"),
    "UTF-32": (GOOD.encode("utf-32"), "the text is UTF-32; save it as UTF-8"),
    "UTF-16 without mark": (GOOD.encode("utf-16-le"), "byte 1 is NUL: binary data or UTF-16; give text in UTF-8"),
    "latin-1": (b'a = 1\nb = "\xe9"', "byte 11 (0xe9, in line 2) is no UTF-8; save the file as UTF-8"),
    "binary": (b"\x7fELF\x02\x01\x01\x00", "byte 7 is NUL: binary data or UTF-16; give text in UTF-8"),
    "JSON list": (b"[1, 2]", "JSON holding a list; give an object: {...}"),
    "JSON string": (b'"nest"', 'JSON holding "nest"; give an object: {...}'),
    "deep TOML": (b"a = " + b"[" * 100_000, "nested too deeply; a problem or plan is nested a few levels deep"),
    "deep JSON": (
        b'{"maxDevices": ' + b"[" * 100_000,
        "nested too deeply; a problem or plan is nested a few levels deep",
    ),
    "endless number": (
        b"a = " + b"9" * 5000,
        "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; give sane numbers",
    ),
    "half a character": (
        b'{"schema": "nest.problem/1", "name": "\\ud800"}',
        "a string holds \\ud800, which is half a character; write the character itself",
    ),
    "another JSON": (b'{"hidden_size": 4096}', f'schema: missing; give schema = "nest.problem/1", {SCHEMA}'),
    "a plan": (
        b'{"schema": "nest.plan/1"}',
        'schema: "nest.plan/1": a plan, not a problem; give a problem ("nest.problem/1"); '
        "nest evaluate, report, compare, certify, simulate and export take this one",
    ),
}


@pytest.mark.parametrize(("data", "want"), TEXTS.values(), ids=TEXTS.keys())
def test_text(data: bytes, want: str, tmp_path: Path) -> None:
    """The file as a whole is wrong."""
    path = tmp_path / "file"
    path.write_bytes(data)
    assert message(read_problem, path) == want


CUT_SHORT = "; the file seems to be cut short"
MEND = "; mend it there"

SYNTAX = {
    "JSON cut in a string": (json.dumps(INPUT)[:200], "no valid JSON: line 1, column 200: ", CUT_SHORT),
    "JSON cut before a brace": (
        '{"schema": "nest.problem/1",\n "cluster": {"devices": 1}',
        "no valid JSON: line 2, column 27: ",
        CUT_SHORT,
    ),
    "JSON without a comma": ('{"schema": "x"\n "name": 1}', "no valid JSON: line 2, column 2: ", MEND),
    "TOML cut in a list": (GOOD[:200], "no valid TOML: ", CUT_SHORT),
    "TOML without a value": (GOOD.replace("devices = 8", "devices ="), "(at line 6, column ", MEND),
    "TOML with equal keys": (GOOD.replace("hbm_bytes", "devices"), "(at line 7, column ", MEND),
    "YAML": ("cluster:\n  devices: 8\n", "(at line 1, column ", "or give JSON: {...}"),
}
"""Text, what the message begins with or says of the place, and how it ends; the words between are Python's own."""


@pytest.mark.parametrize(("text", "place", "remedy"), SYNTAX.values(), ids=SYNTAX.keys())
def test_syntax(text: str, place: str, remedy: str, tmp_path: Path) -> None:
    """The message says in which line and column the text goes wrong, and whether it ends too early."""
    path = tmp_path / "file"
    path.write_text(text)
    got = message(read_problem, path)
    assert place in got
    assert remedy in got


@pytest.mark.parametrize("read", [read_problem, read_plan])
class TestPaths:
    """Paths that lead to no readable file, for both readers."""

    def test_missing_file(self, read: Callable[[Path], object], tmp_path: Path) -> None:
        """A near name in the same directory is suggested, else the path is to be checked."""
        (tmp_path / "llama2_64.toml").write_text(GOOD)
        near = tmp_path / "llama2_64.toml"
        assert message(read, tmp_path / "lama2_64.toml") == f"there is no such file; did you mean {str(near)!r}?"
        assert message(read, tmp_path / "x") == "there is no such file; check the path"
        want = f"there is no such file; there is no directory {str(tmp_path / 'no')!r} either"
        assert message(read, tmp_path / "no" / "x") == want

    def test_directory(self, read: Callable[[Path], object], tmp_path: Path) -> None:
        """A directory is no file."""
        assert message(read, tmp_path) == "this is a directory; name one file in it"

    def test_no_permission(
        self, read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that may not be read; the refusal is made up, since root may read all."""

        def refuse(*_: object) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(Path, "open", refuse)
        assert message(read, tmp_path / "x") == "no permission to read it; change its permissions or run as its owner"

    def test_endless_file(self, read: Callable[[Path], object]) -> None:
        """A device that never ends is not read for ever."""
        if not Path("/dev/zero").exists():
            pytest.skip("this system has no /dev/zero")
        assert message(read, Path("/dev/zero")) == "more than 67108864 bytes; name a problem or plan file"

    def test_file_as_directory(self, read: Callable[[Path], object], tmp_path: Path) -> None:
        """A path that goes through a file."""
        (tmp_path / "x").write_text(GOOD)
        assert message(read, tmp_path / "x" / "y") == "Not a directory; name a readable file"


def test_spoilt_bytes(tmp_path: Path) -> None:
    """Whatever happens to a file, it is read or refused in one line that names it; nothing else is raised."""
    rng = random.Random(0)
    pieces = [b"", b"nan", b"1e999", b"-", b'"', b"true", b"null", b"[[", b"{", b"9" * 30, b"\\ud800", b"\xff", b"\x00"]
    path = tmp_path / "file"
    refusals: list[str] = []
    for _ in range(500):
        data = bytearray(rng.choice([GOOD, json.dumps(INPUT)]).encode())
        at = rng.randrange(len(data))
        data[at : at + rng.choice([0, 1, 1, 30])] = rng.choice(pieces)
        path.write_bytes(data)
        try:
            read_problem(path)
        except InvalidProblem as error:
            refusals.append(str(error))
    assert len(refusals) > 200
    assert [line for line in refusals if "\n" in line or not line.startswith(f"{path}: ")] == []
