"""The command line: reads files, calls the library, prints. Everything heavy is imported by the command that needs it.

Standard output carries the answer, standard error everything else, and every failure is one line there. `program` is
the entry point, each command has a module of its own, and what several of them need is in `options`, `reading` and
`output`.
"""

from __future__ import annotations

from nest.cli.exits import ExitCode
from nest.cli.program import cli, main, run

__all__ = ["ExitCode", "cli", "main", "run"]
