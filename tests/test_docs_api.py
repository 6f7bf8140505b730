"""The Python reference: its pages are what the source says today, and everything that they list is described."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(ROOT / "docs"))  # the scripts that write pages stand beside them

import api_source  # noqa: E402
import build_api  # noqa: E402

WRITE = "write them again: python docs/build_api.py"
PAGES = [page for pages in build_api.grouped().values() for page in pages]


def test_pages_are_current() -> None:
    """No docstring, signature or public name has changed since the pages were written."""
    texts = build_api.all_texts()
    found = {path.name: path.read_text(encoding="utf-8") for path in build_api.PAGES.glob("*.md")}
    assert sorted(found) == sorted(texts), WRITE
    assert [name for name in texts if found[name] != texts[name]] == [], WRITE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.module.name)
def test_public_names_are_described(page: build_api.Page) -> None:
    """Every public name has a docstring, and so have the public members of every class."""
    bare = [each.name for each in page.symbols if not each.doc]
    for symbol in page.symbols:
        members = api_source.members_of(symbol.node) if isinstance(symbol.node, ast.ClassDef) else []
        bare += [f"{symbol.name}.{each.name}" for each in members if not ast.get_docstring(each)]
    assert bare == []


def test_every_module_has_a_place() -> None:
    """A module is in a group by what it is for, or internal: none was forgotten when it was added."""
    listed = {name for names in build_api.GROUPS.values() for name in names}
    assert listed | build_api.INTERNAL == set(api_source.top_modules())


def example(tmp_path: Path, text: str) -> api_source.Module:
    """Return a module of this text."""
    path = tmp_path / "module.py"
    path.write_text(text)
    return api_source.Module("module", path, text, ast.parse(text))


def test_what_a_function_says(tmp_path: Path) -> None:
    """Signature, parameters with their types and errors reach the page, names that are ours as links."""
    module = example(
        tmp_path,
        '''from nest.problem import Problem

def price(problem: Problem, *given: int, at: float = 0.5, **more: str) -> dict[str, Problem]:
    """Price a `Problem` at once.

    Parameters
    ----------
    at, given
        Both of
        them.

    Raises
    ------
    InvalidProblem
        If wrong.
    """
''',
    )
    (symbol,) = api_source.public_symbols(module)
    assert "\n\n".join(build_api.symbol_parts(symbol, "##")) == (
        "## price\n\n"
        "```py\nprice(problem: Problem, *given: int, at: float = 0.5, **more: str) -> dict[str, Problem]\n```\n\n"
        "Price a [`Problem`](problem.md#problem) at once.\n\n"
        "- **`problem`**, [`Problem`](problem.md#problem)\n"
        "- **`at`, `given`**: Both of\n  them.\n\n"
        "**Raises**\n\n- **[`InvalidProblem`](errors.md#invalidproblem)**: If wrong."
    )


def test_what_a_class_says(tmp_path: Path) -> None:
    """Fields that a private base brings are there, private ones and class variables are no arguments."""
    module = example(
        tmp_path,
        '''class _Base:
    first: int

@dataclass(frozen=True)
class Own(_Base):
    """What it is."""

    second: list[int] = field(default_factory=list)
    kind: ClassVar[str] = "own"
    _hidden: int = 0

    @property
    def text(self) -> str:
        """Both."""
''',
    )
    (symbol,) = api_source.public_symbols(module)
    parts = [part for part in build_api.symbol_parts(symbol, "##") if part]
    call = "```py\nOwn(first: int, second: list[int] = ...)\n```"
    assert parts == ["## Own", call, "What it is.", "**Members**\n\n- **`text`**, `str`: Both."]


@pytest.mark.parametrize("text", ["def bare(): pass\n", "__all__ = ['gone']\n"])
def test_faults_are_seen(tmp_path: Path, text: str) -> None:
    """A function without a docstring is one of the names, and a name that is nowhere is an error."""
    module = example(tmp_path, text)
    if "bare" in text:
        assert [(each.name, each.doc) for each in api_source.public_symbols(module)] == [("bare", "")]
    else:
        with pytest.raises(LookupError, match="has no gone"):
            api_source.public_symbols(module)
