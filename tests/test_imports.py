"""The direction of imports, and what must not be imported at all."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "nest"

ORDER = (
    ("errors",),
    ("downsets", "forms", "uneven", "units"),
    ("graph", "cluster", "families", "line"),
    ("classes",),
    ("hardware",),
    ("networks",),
    ("presets", "training"),
    ("places", "problem"),
    ("constraints",),
    ("plan",),
    ("cost",),
    ("costing", "pipeline"),
    ("evaluate", "tables"),
    ("result",),
    ("technologies",),
    ("certificate",),
    ("dag", "dp", "milp", "simulate"),
    ("breakdown", "explain", "solve"),
    ("certify",),
    ("alternatives",),
    ("objectives",),
    ("files", "provenance"),
    ("runs",),
    ("validation",),
    ("capture", "execute"),
    ("layer_profiles", "profile"),
    ("collective_tables", "layer_tables"),
    ("ablate", "export"),
    ("report",),
    ("cli",),
    ("__main__",),
)
"""Modules and packages, lowest first: each imports from lines above its own only, packages also from themselves."""

FORBIDDEN = {name: {"cost", "evaluate", "certificate"} for name in ("dp", "milp", "dag")}
"""Imports that the order alone would allow."""

HEAVY = ("torch", "ortools", "pyomo", "matplotlib", "networkx", "rich", "numpy")

TORCH_PACKAGES = {"capture", "execute", "profile"}
"""The packages that may import torch, in files that are imported only by who has it."""

RANKS = {name: rank for rank, names in enumerate(ORDER) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))


def test_files_are_short() -> None:
    """A file that is too long to be read at once is several."""
    scripts = [file for folder in ("nest", "tests", "benchmarks", "docs") for file in (ROOT / folder).rglob("*.py")]
    assert [file.name for file in scripts if len(file.read_text(encoding="utf-8").splitlines()) > 500] == []


def test_contributing_lists_every_module() -> None:
    """The table of levels names each module once, none before one that it may import."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", text, flags=re.MULTILINE)
    levels = [[RANKS[name] for name in re.findall(r"`(\w+)`", row)] for row in rows]
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted({*RANKS} - {"__main__"})
    assert all(max(lower) < min(higher) for lower, higher in pairwise(levels))


def owner(file: Path) -> str:
    """Return the top-level module or package that a file belongs to; empty for ``nest/__init__.py``."""
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py").removesuffix("__init__")


def imported(file: Path) -> Iterator[str]:
    """Yield the top-level modules of `nest` that a file imports anywhere, functions and type checking included."""
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: line {node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            top, _, rest = name.partition(".")
            if top == "nest" and rest != "__version__":
                yield rest.partition(".")[0]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_down(file: Path) -> None:
    """A module imports lower levels only: no sibling, and nothing that the order does not list."""
    name = owner(file)
    targets = set(imported(file)) - ({name} if file.parent != PACKAGE else set())
    if not name:
        assert not targets, "importing nest must cost nothing"
        return
    assert name in RANKS, f"{name} has no place in the order of imports"
    assert targets <= RANKS.keys()
    assert {target for target in targets if RANKS[target] >= RANKS[name]} == set()
    assert targets & FORBIDDEN.get(name, set()) == set()


def test_order_names_what_exists() -> None:
    """A module that was renamed or removed leaves the order of imports too."""
    assert {owner(file) for file in FILES} - {""} == set(RANKS)


@pytest.mark.parametrize("statement", ["import nest", "import nest.cli"])
def test_import_is_light(statement: str) -> None:
    """Asking for help or the version never waits for a library that only a command needs."""
    script = f"{statement}; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def outside(file: Path) -> Iterator[str]:
    """Yield the top-level packages other than `nest` that a file imports anywhere."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_torch_has_few_importers() -> None:
    """Torch is an extra: what reads, solves and reports never needs it, and the packages that may use it say so."""
    importers = {owner(file) for file in FILES if "torch" in outside(file)}
    assert importers == TORCH_PACKAGES & {owner(file) for file in FILES}


@pytest.mark.parametrize("name", sorted(TORCH_PACKAGES))
def test_packages_themselves_load_without_torch(name: str) -> None:
    """Files and problems of these packages are read and made where torch is not installed."""
    script = f"import nest.{name}, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_solving_loads_no_optional_solver() -> None:
    """Whoever has not installed CP-SAT or Pyomo solves with the dynamic program."""
    script = "import nest.solve, nest.milp, sys; print(*({'ortools', 'pyomo', 'highspy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_imports_are_seen(tmp_path: Path) -> None:
    """The walk above sees every way to import, or the rule would guard nothing."""
    file = tmp_path / "module.py"
    file.write_text("import nest.dp.search\nfrom nest import tables\ndef f():\n    from nest.cost import scale\n")
    assert sorted(imported(file)) == ["cost", "dp", "tables"]
