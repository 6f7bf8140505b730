"""The process that loads PyTorch once and forks the others.

``python -m nest.execute.host MODULE:FUNCTION N DIRECTORY`` has each of its children call the function with its rank and
the directory. The first that fails ends all; so does whoever started the host, by closing its standard input, be it
because it was killed.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from nest.execute.progress import Progress

POLL_S = 0.02
"""Between two looks at the children."""


def main(arguments: list[str]) -> int:
    """Run children until all have ended; return 0 if each ended as it should."""
    entry, count, directory = arguments[0], int(arguments[1]), Path(arguments[2])
    module, _, name = entry.partition(":")
    function = getattr(importlib.import_module(module), name)
    running: dict[int, int] = {}
    try:
        for rank in range(count):
            child = os.fork()
            if child == 0:
                _run(function, Progress(directory, rank))
            running[child] = rank
        while running:
            if _left_alone() or not _all_well(running, directory):
                return 1
        return 0
    finally:
        for child in running:
            os.kill(child, signal.SIGKILL)
        for child in running:
            os.waitpid(child, 0)


def _run(function: Callable[[int, Path], None], progress: Progress) -> None:
    """Run the function in a child, which never returns."""
    log = os.open(progress.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    code = 1
    try:
        function(progress.rank, progress.directory)
        progress.finish()
        code = 0
    except BaseException as error:
        traceback.print_exc()
        progress.fail(f"{type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _left_alone() -> bool:
    """Wait a moment; whether standard input was closed meanwhile."""
    readable, _, _ = select.select([sys.stdin], [], [], POLL_S)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)


def _all_well(running: dict[int, int], directory: Path) -> bool:
    """Take children that ended out of those running; whether none of them failed."""
    for child in list(running):
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            continue
        rank, code = running.pop(child), os.waitstatus_to_exitcode(status)
        if code < 0:
            Progress(directory, rank).fail(f"ended by {signal.Signals(-code).name}")
        if code:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
