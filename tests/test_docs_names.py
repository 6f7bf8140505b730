"""Names of our own code that the documentation mentions exist."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = sorted({name for page in PAGES for name in re.findall(r"`(nest(?:\.\w+)+)`", page.read_text(encoding="utf-8"))})


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute path below one."""
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_name_exists(name: str) -> None:
    """A page that names a module, class or function names one that is there."""
    assert resolves(name), f"the documentation mentions {name}"


def test_unknown_names_do_not_resolve() -> None:
    """The check itself tells a wrong name from a right one."""
    assert resolves("nest.dp.outer.outer_choices")
    assert not resolves("nest.dp.outer.no_such_name")
    assert not resolves("nest.no_such_module")
