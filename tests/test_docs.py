"""The documentation is true: links lead somewhere, commands are commands, and shown output is what comes out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby
from pathlib import Path

import pytest
from click import Context

from nest.cli import cli, run

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
README = ROOT / "README.md"
CI = ROOT / ".ci" / "run"


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """Return the commands of the console blocks, without their prompt."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ +(.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def nest_calls(command: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of the program in a command."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    for between, group in groupby(words, lambda word: set(word) <= set("|&;<>")):
        call = list(group)
        if not between and Path(call[0]).name == "nest":
            yield call[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    """Every relative link leads to a file in the repository, and its anchor to a heading there."""
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("index", sorted((ROOT / "docs").rglob("README.md")), ids=lambda page: page.parent.name)
def test_every_page_is_listed(index: Path) -> None:
    """Whoever begins at the list of pages finds each of them, those of a folder below in the list of that folder."""
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", index.read_text(), flags=re.MULTILINE)
    below = [f"{other.parent.name}/README.md" for other in index.parent.glob("*/README.md")]
    pages = [page.name for page in index.parent.glob("*.md") if page != index]
    assert sorted(listed) == sorted([*pages, *below])


def test_every_folder_has_a_list() -> None:
    """No page lies where no list of pages looks."""
    folders = {page.parent for page in (ROOT / "docs").rglob("*.md")}
    assert [folder for folder in folders if not (folder / "README.md").exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_parse(page: Path) -> None:
    """Every command is one that the shell and, where it calls the program, its options accept."""
    for command in commands(page):
        done = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command
        for arguments in nest_calls(command):
            name, subcommand, rest = cli.resolve_command(Context(cli), arguments)
            assert subcommand is not None, command
            subcommand.make_context(name, rest)


def exists(name: str) -> bool:
    """Whether a dotted name leads to a module, or to what one holds."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:count]))
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "nest":
                continue
            return True  # of a package that is not installed nothing is known
        for part in parts[count:]:
            if not hasattr(found, part):
                return part in getattr(found, "__annotations__", {})
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_named_exists(page: Path) -> None:
    """Names of our modules, classes and functions, and paths of our scripts, lead somewhere."""
    text = page.read_text()
    assert [name for name in re.findall(r"`(nest(?:\.\w+)+)(?:\([^`]*\))?`", text) if not exists(name)] == []
    paths = re.findall(r"\b((?:tests|benchmarks|nest|instances)/[\w/-]+\.(?:py|toml|json))", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_readme_has_the_two_commands() -> None:
    """One command installs and solves, one installs and tests."""
    chained = [command for command in commands(README) if "pip install" in command]
    assert [shlex.split(command.split("&&")[-1])[0] for command in chained] == [".venv/bin/nest", ".venv/bin/python"]


def test_ci_runs_the_readme_command() -> None:
    """What the README says about running the tests is what decides about a change, word for word."""
    command = next(command for command in commands(README) if "pytest" in command)
    assert command in [line.strip() for line in CI.read_text().splitlines()]


def test_ci_is_a_script() -> None:
    """It parses, stops at the first failure, and may be run."""
    assert subprocess.run(["bash", "-n", str(CI)], check=False).returncode == 0
    assert "set -euo pipefail" in CI.read_text().splitlines()
    assert os.access(CI, os.X_OK)


def test_readme_shows_what_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    """The plan in the README is the one that its command prints, but for the time that it took."""
    command = next(command for command in commands(README) if "nest solve" in command)
    arguments = next(nest_calls(command))
    arguments = [str(ROOT / word) if word.endswith(".toml") else word for word in arguments]
    assert run(arguments) == 0
    printed, shown = capsys.readouterr().out.splitlines(), blocks(README, "text")[0].splitlines()
    assert printed[-1].startswith("Solver ")
    assert shown[-1].startswith("Solver ")
    assert printed[:-1] == shown[:-1]


def test_glossary_explains_each_word_once() -> None:
    """No word has two entries, and an entry is a word and what it means."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"^\*\*([^*]+)\*\*: \S", text, flags=re.MULTILINE)
    assert len(words) == len(set(words)) > 40


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name)
def test_pages_are_filled_in(page: Path) -> None:
    """No page holds a mark for a figure or a table that was to come, as in ``@NAME@``, or one of a merge."""
    assert not re.findall(r"@[A-Z_]{2,}@|^(?:<{7}|={7}|>{7})(?: |$)", page.read_text(), flags=re.MULTILINE)
