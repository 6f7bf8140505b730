"""Runs the commands of pages, in the order of the page, and compares or replaces what is printed below them.

``python docs/build_outputs.py docs/tutorial.md`` writes a page again with what its commands print now. On such a page

- a fenced block below a line that ends in a file name, as in ``Save this as `run.toml`:``, is that file;
- a ``console`` block is commands; those of `nest` are run in this process, what follows behind a pipe, semicolon or
  redirection by the shell, in a directory that has `instances` beside the files of the page;
- a ``text`` block right below a ``console`` block is what its last command prints, standard error at the end.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from nest.cli import run

ROOT = Path(__file__).resolve().parents[1]

FENCE = re.compile(r"^(?P<open>```(?P<language>\w+)\n)(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)

TORCH_COMMANDS = frozenset({"capture", "profile", "run"})
"""Commands that need torch."""

VARYING = (
    (re.compile(r"\b\d\.\d{6}\b|\b\d\.\de[+-]\d\d"), "#"),  # losses, and how far sums in another order are apart
    (re.compile(r"(?<=, )[\d.]+ (?:µs|ms|s|min)(?=:|$)", re.MULTILINE), "#"),  # how long a solver or a training took
    (re.compile(r"\b(checker|CP-SAT|HiGHS) [\d.]+"), r"\1 #"),  # versions
)
"""What differs from machine to machine."""


class Failed(Exception):
    """A command of a page does not work."""


@dataclass(frozen=True)
class Step:
    """A console block of a page.

    Parameters
    ----------
    files
        Files that the page gives before it, with their text.
    commands
        As typed, without the prompt.
    shown
        What the page says that the last one prints; None where it does not.
    start, end
        Where that stands in the page.
    """

    files: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]
    shown: str | None
    start: int
    end: int

    @property
    def words(self) -> list[list[str]]:
        """The words of each command, operators of the shell among them."""
        return [shlex.split(command) for command in self.commands]

    @property
    def written(self) -> set[str]:
        """Files that the commands write."""
        return {word for words in self.words for option, word in pairwise(words) if option in ("-o", ">", ">>")}

    def needs_torch(self, missing: set[str]) -> bool:
        """Whether a command runs a module or a plan, or reads a file that was not written for want of torch."""
        return any((words[:1] == ["nest"] and words[1] in TORCH_COMMANDS) or missing & {*words} for words in self.words)


def steps(page: str) -> Iterator[Step]:
    """Yield the console blocks of a page."""
    files: list[tuple[str, str]] = []
    fences = list(FENCE.finditer(page))
    for fence, behind in zip(fences, [*fences[1:], None], strict=True):
        named = re.search(r"`([\w.-]+)`:\n\n\Z", page[: fence.start()])
        if fence["language"] == "console":
            commands = tuple(line[2:] for line in fence["text"].splitlines() if line.startswith("$ "))
            below = (
                behind
                if behind and behind["language"] == "text" and not page[fence.end() : behind.start()].strip()
                else None
            )
            place = below.span("text") if below else (0, 0)
            yield Step(tuple(files), commands, below["text"] if below else None, *place)
            files = []
        elif named:
            files.append((named[1], fence["text"]))


def execute(command: str) -> str:
    """Run one command in the working directory, and return what it prints.

    Raises
    ------
    Failed
        If it fails, and does not print its exit code.
    """
    own, rest = _divided(command) if command.startswith("nest ") else ("", command)
    if not own:
        return _shell(rest)
    out, err, path = io.StringIO(), io.StringIO(), list(sys.path)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(shlex.split(own)[1:])
    sys.path[:] = path
    printed = out.getvalue() + err.getvalue()
    if code and not re.search(r"\$\?|PIPESTATUS", rest):
        raise Failed(f"exit code {code} of {command}\n{printed}")
    return _shell(f"(cat; exit {code}) {rest}", printed) if rest else printed


def _divided(command: str) -> tuple[str, str]:
    at = re.search(r"[|;>]", command)
    return (command[: at.start()], command[at.start() :]) if at else (command, "")


def _shell(command: str, given: str = "") -> str:
    done = subprocess.run(["bash", "-c", command], input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"exit code {done.returncode} of {command}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def masked(text: str) -> list[str]:
    """Return the lines of a text without what differs from machine to machine."""
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    return [line.rstrip() for line in text.splitlines()]


def played(page: str, can_torch: bool) -> Iterator[tuple[Step, str]]:
    """Run the commands of a page in a new directory; yield each block with what its last command printed."""
    before, missing = Path.cwd(), set[str]()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "instances").symlink_to(ROOT / "instances")
        os.chdir(folder)
        try:
            for step in steps(page):
                for name, text in step.files:
                    Path(name).write_text(text, encoding="utf-8")
                if not can_torch and step.needs_torch(missing):
                    missing |= step.written
                else:
                    yield step, [execute(command) for command in step.commands][-1]
        finally:
            os.chdir(before)


def renewed(page: str, can_torch: bool, tell: Callable[[str], object] = print) -> str:
    """Return a page with what its commands print now; figures that differ from machine to machine stay."""
    changes = []
    for step, printed in played(page, can_torch):
        if step.shown is not None and masked(step.shown) != masked(printed):
            tell(f"changed: {step.commands[-1]}")
            changes.append((step.start, step.end, "".join(f"{line.rstrip()}\n" for line in printed.splitlines())))
    for start, end, text in reversed(changes):
        page = page[:start] + text + page[end:]
    return page


def main() -> None:
    """Write the pages that are named again."""
    for name in sys.argv[1:]:
        path = Path(name).resolve()
        path.write_text(renewed(path.read_text(encoding="utf-8"), find_spec("torch") is not None), encoding="utf-8")


if __name__ == "__main__":
    main()
