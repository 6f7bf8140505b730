"""What each process says of itself while it runs: files in one directory, read by whoever started them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STARTING = "starting"
"""What a process does that has said nothing yet."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What one process says.

    Parameters
    ----------
    directory, rank
        Where, and which process.
    """

    directory: Path
    rank: int

    def say(self, what: str) -> None:
        """Say what it does from now on."""
        self._doing.write_text(what, encoding="utf-8")

    @property
    def doing(self) -> str:
        """What it said last."""
        return _read(self._doing) or STARTING

    def fail(self, why: str) -> None:
        """Say why it ends early."""
        self._failure.write_text(" ".join(why.split()), encoding="utf-8")

    @property
    def failure(self) -> str:
        """Why it ended early; empty if it did not."""
        return _read(self._failure)

    @property
    def failed_at(self) -> int:
        """When it did, to order failures: the first one brings the others about."""
        return self._failure.stat().st_mtime_ns

    @property
    def done(self) -> bool:
        """Whether it ended as it should."""
        return (self.directory / f"{self.rank}.done").exists()

    def finish(self) -> None:
        """Say that it ended as it should."""
        (self.directory / f"{self.rank}.done").touch()

    @property
    def output(self) -> Path:
        """Where its standard output and standard error go."""
        return self.directory / f"{self.rank}.log"

    @property
    def _doing(self) -> Path:
        return self.directory / f"{self.rank}.doing"

    @property
    def _failure(self) -> Path:
        return self.directory / f"{self.rank}.failure"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
