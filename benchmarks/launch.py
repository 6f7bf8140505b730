"""Run a command in a process of its own and say how long it took and how much memory it held.

    python -S -E benchmarks/launch.py SECONDS COMMAND...

What the command prints goes where it goes; a last line on standard output is a JSON object with ``seconds``,
``cpu_s``, ``peak_mb`` and ``exit`` (negative: the signal that ended it, as after ``SECONDS``). Linux counts the memory
of the process that started a command as the command's own, so this one stays small: nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

MB_PER_KIB = 1024 / 1e6


def main() -> None:
    """Run the command of the command line."""
    limit, command = float(sys.argv[1]), sys.argv[2:]
    begin = time.perf_counter()
    child = subprocess.Popen(command)
    signal.signal(signal.SIGALRM, lambda *_: child.kill())
    signal.setitimer(signal.ITIMER_REAL, limit)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    signal.setitimer(signal.ITIMER_REAL, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    figures = {
        "seconds": seconds,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss * MB_PER_KIB,
        "exit": child.returncode,
    }
    print(f"\n{json.dumps(figures)}", flush=True)


if __name__ == "__main__":
    main()
