"""What the benchmarks share: timing, whole processes, targets, and the machine that figures come from."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from nest import __version__

ROOT = Path(__file__).resolve().parents[1]
LAUNCH = Path(__file__).with_name("launch.py")
PROGRAM = (sys.executable, "-c", "from nest.cli import main; main()")
"""The program `nest` as it starts when it is installed, from this working tree."""

WIDTH = 160

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Process:
    """A command that ran in a process of its own.

    Attributes
    ----------
    seconds, cpu_s
        From its start to its end, interpreter included, and how long it computed; the latter hardly depends on how
        busy the machine is.
    peak_mb
        Largest resident memory, in 1e6 bytes.
    exit
        Its exit code, or the negative number of the signal that ended it.
    output
        What it printed on standard output.
    """

    seconds: float
    cpu_s: float
    peak_mb: float
    exit: int
    output: str

    @property
    def killed(self) -> bool:
        """Whether a signal ended it, as the time limit does."""
        return self.exit < 0


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, and how good it has to be."""

    name: str
    figure: float | None
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the figure is good enough; None where there is no figure."""
        if self.figure is None:
            return None
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    def line(self) -> str:
        """Return the verdict in a line."""
        verdict = {True: "PASS", False: "FAIL", None: "----"}[self.met]
        figure = "not measured" if self.figure is None else f"{self.figure:.4g} {self.unit}".rstrip()
        relation = ">=" if self.at_least else "<="
        return f"{verdict}  {self.name}: {figure} (target {relation} {self.limit:g} {self.unit}".rstrip() + ")"


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean of positive values; None of none."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def growth_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Return ``e`` of the least-squares fit ``seconds ~ sizes ** e``; None with less than two sizes."""
    if len(set(sizes)) < 2:
        return None
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return float(slope)


def best_of(repeats: int, run: Callable[[], Answer], *, budget_s: float = math.inf) -> tuple[float, Answer]:
    """Return the fewest seconds of several runs, and what the last of them answered.

    Parameters
    ----------
    budget_s
        No further run begins after so many seconds.
    """
    fewest, start = math.inf, time.perf_counter()
    for _ in range(max(repeats, 1)):
        begin = time.perf_counter()
        answer = run()
        end = time.perf_counter()
        fewest = min(fewest, end - begin)
        if end - start > budget_s:
            break
    return fewest, answer


def in_process(command: Sequence[str], limit_s: float) -> Process:
    """Run a command in a process of its own, with this working tree first on its path, and end it after a limit."""
    launcher = [sys.executable, "-S", "-E", str(LAUNCH), repr(limit_s), *command]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        launcher, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    output, _, figures = done.stdout.rstrip("\n").rpartition("\n")
    return Process(output=output, **json.loads(figures))


def machine() -> str:
    """Return what the figures depend on, in a line: version, date, machine and how busy it is."""
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    python = f"Python {platform.python_version()}, numpy {np.__version__}"
    return f"nest {__version__} ({_commit()}), {now}, {python}, {_processor()}, load average {load}"


def _processor() -> str:
    cores = f"{os.cpu_count()} cores"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return cores
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{cores} of {names[0]}" if names else cores


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "no repository"
    return done.stdout.strip() or "no repository"


def options(description: str | None, what: str = "") -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks.

    Parameters
    ----------
    description
        Of the script.
    what
        What ``--only`` picks by a text, as in ``runs with this text in their name``; without it there is no ``--only``.
    """
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if what:
        made.add_argument("--only", default="", metavar="TEXT", help=f"only {what}")
    made.add_argument("--json", type=Path, help="write all figures to this file too")
    return made


def console() -> Console:
    """Return a console wide enough for the tables, where nothing says how wide it is."""
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=WIDTH)


def table(title: str, columns: Sequence[str], *, left: int = 1) -> Table:
    """Return an empty table: the first ``left`` columns of words, which may wrap, then columns of figures."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for at, column in enumerate(columns):
        made.add_column(column, justify="left" if at < left else "right", no_wrap=at >= left)
    return made


def number(value: float | None, form: str = ".3f") -> str:
    """Return a figure of a table; a dash where there is none."""
    return "-" if value is None else format(value, form)


def write_json(path: Path | None, document: object) -> None:
    """Write a JSON file, if one is asked for."""
    if path is not None:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
