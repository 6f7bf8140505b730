"""What processes run in tests of how they are started and ended; no test itself."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from nest.execute.progress import Progress


def greet(rank: int, directory: Path) -> None:
    """Leave a file, and write to both streams, which must not reach those of whoever started this."""
    print("said by", rank)
    print("complained by", rank, file=sys.stderr)
    (directory / f"hello{rank}").touch()


def hang(rank: int, directory: Path) -> None:
    """End, but for rank 1, which never does."""
    (directory / f"pid{rank}").write_text(str(os.getpid()))
    if rank == 1:
        Progress(directory, rank).say("waiting for Godot")
        time.sleep(600)


def fail(rank: int, directory: Path) -> None:
    """Have rank 1 fail, whereupon rank 0 fails, too, and rank 2 would go on forever."""
    (directory / f"pid{rank}").write_text(str(os.getpid()))
    if rank == 1:
        raise ValueError("the first\nto fail")
    if rank == 2:
        time.sleep(600)
    while not (directory / "1.failure").exists():
        time.sleep(0.01)
    time.sleep(0.05)
    raise ConnectionError("lost rank 1")


def die(rank: int, directory: Path) -> None:
    """End by a signal, as a process does that takes too much memory."""
    Progress(directory, rank).say("growing")
    os.kill(os.getpid(), signal.SIGKILL)
