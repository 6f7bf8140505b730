"""What a result was computed with: versions of this program, its libraries and the platform."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from nest import __version__

REQUIRED = ("numpy", "click", "rich", "msgspec")
OPTIONAL = ("torch",)


def versions() -> dict[str, str]:
    """Return versions by name; optional packages only where they are installed, and nothing is imported for it."""
    known = {"nest": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for name in (*REQUIRED, *OPTIONAL):
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            if name in REQUIRED:
                known[name] = "missing"
    return known
