"""The format page: every example on it is read, and is what the text around it says."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nest.evaluate import evaluate
from nest.files import problem_schema, read_plan, read_problem
from nest.problem import Problem
from nest.solve import solve

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (DOCS / "file_format.md").read_text(), re.DOTALL | re.MULTILINE)
COMPLETE, *FRAGMENTS = [text for language, text in BLOCKS if language == "toml"]


@pytest.fixture
def example(tmp_path: Path) -> Problem:
    """Return the complete example of the page."""
    (tmp_path / "ten.toml").write_text(COMPLETE)
    return read_problem(tmp_path / "ten.toml")


def with_fragment(fragment: str) -> dict[str, Any]:
    """Return the complete example with the keys of a fragment in the place of its own."""
    tree, change = tomllib.loads(COMPLETE), tomllib.loads(fragment)
    merged = {name: tree[name] | each if isinstance(each, dict) else each for name, each in change.items()}
    return tree | merged


def test_page_has_examples() -> None:
    """The blocks are found: a problem, its Python, fragments (classes, menus, links, layers, costs, ...), a plan."""
    assert [language for language, _ in BLOCKS].count("toml") == 9
    assert {language for language, _ in BLOCKS} == {"toml", "python", "json"}


def test_example_is_short() -> None:
    """Ten layers by hand take fewer than 40 lines."""
    assert len(COMPLETE.splitlines()) < 40


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_fragments_are_read(fragment: str, tmp_path: Path) -> None:
    """Each fragment makes a problem of the complete example."""
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(with_fragment(fragment)))
    assert read_problem(path).name == "ten layers"


def test_python_equals_toml(example: Problem) -> None:
    """The Python example builds the problem that the TOML example holds."""
    (script,) = [text for language, text in BLOCKS if language == "python"]
    names: dict[str, Any] = {}
    exec(script, names)
    assert names["problem"] == example


def test_plan_is_the_optimum(example: Problem, tmp_path: Path) -> None:
    """The plan on the page is legal, with the judge's figures, and nothing is better."""
    (text,) = [text for language, text in BLOCKS if language == "json"]
    (tmp_path / "plan.json").write_text(text)
    plan = read_plan(tmp_path / "plan.json")
    verdict = evaluate(example, plan)
    assert verdict.legal
    assert plan == plan.with_figures(verdict.loads_s, verdict.memory_bytes)
    assert verdict.objective_ticks == solve(example).objective_ticks


def test_schema_is_current() -> None:
    """The published JSON Schema is the one that the readers' declarations make."""
    command = "import json, nest.files; print(json.dumps(nest.files.problem_schema(), indent=2))"
    published = json.loads((DOCS / "problem.schema.json").read_text())
    assert published == problem_schema(), f"write it again: python -c '{command}' > docs/problem.schema.json"
