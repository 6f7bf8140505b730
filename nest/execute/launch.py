"""Starts processes, waits for them, and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from nest.errors import LimitReached, NestError
from nest.execute.progress import Progress

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
"""Environment of the processes: a thread each, and nothing that leaves the machine."""


GRACE_S = 2.0
"""For the host to end its children, which only it can take leave of, once its standard input is closed."""


class RankFailed(NestError):
    """A process ended early; says which and why."""


def run_ranks(entry: str, count: int, directory: Path, timeout_s: float) -> None:
    """Run a function in so many processes.

    Parameters
    ----------
    entry
        As ``module:function``; takes the rank and the directory.
    count
        Processes, of which each has a rank from 0.
    directory
        For everything that they read and write.
    timeout_s
        After which they are stopped, in seconds.

    Raises
    ------
    RankFailed
        If one ends early.
    LimitReached
        If some are still running after the time.
    """
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    log = directory / "host.log"
    with log.open("wb") as output:
        host = subprocess.Popen(
            [sys.executable, "-m", "nest.execute.host", entry, str(count), str(directory)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": paths},
            start_new_session=True,
        )
        with host:
            try:
                code = host.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise LimitReached(_late(count, directory, timeout_s)) from None
            finally:
                _end(host)
    if code:
        raise RankFailed(_first_failure(count, directory) or _last_line(log) or f"host ended with {code}")


def _end(host: subprocess.Popen[bytes]) -> None:
    """Have the host end its children and itself; if it does not, end all processes of its session."""
    assert host.stdin is not None, "it was asked for"
    host.stdin.close()
    try:
        host.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(host.pid, signal.SIGKILL)


def _first_failure(count: int, directory: Path) -> str:
    ranks = [Progress(directory, rank) for rank in range(count)]
    failed = sorted((rank for rank in ranks if rank.failure), key=lambda rank: rank.failed_at)
    return f"rank {failed[0].rank} of {count}, {failed[0].doing}: {failed[0].failure}" if failed else ""


def _late(count: int, directory: Path, timeout_s: float) -> str:
    late = [rank for rank in (Progress(directory, at) for at in range(count)) if not rank.done]
    where = "; ".join(f"rank {rank.rank} {rank.doing}" for rank in late)
    return f"stopped after {timeout_s:g} s: {where or 'all ranks had ended'}"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
