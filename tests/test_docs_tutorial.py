"""The tutorial and the how-to pages: every command works as printed, in order, and prints what is shown."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(ROOT / "docs"))  # the scripts that write pages stand beside them

import build_outputs  # noqa: E402

PAGES = [ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs").glob("howto_*.md"))]
TORCH = find_spec("torch") is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_is_what_comes_out(page: Path) -> None:
    """A reader who types the commands of a page sees what the page shows."""
    compared = 0
    for step, printed in build_outputs.played(page.read_text(encoding="utf-8"), TORCH):
        if step.shown is not None:
            again = f"{step.commands[-1]}: write it again: python docs/build_outputs.py {page.relative_to(ROOT)}"
            assert build_outputs.masked(printed) == build_outputs.masked(step.shown), again
            compared += 1
    assert compared or not TORCH


FIGURE = re.compile(r"(?<![\w.,])\d[\d.,]*(?= (?:µs|ms|s|MiB|GiB|%|TFLOP/s)\b| %)")


def unfounded(page: str) -> list[str]:
    """Return the figures with a unit in the prose of a page that stand in none of its blocks."""
    blocks = "".join(fence["text"] for fence in build_outputs.FENCE.finditer(page))
    return [figure for figure in FIGURE.findall(build_outputs.FENCE.sub("", page)) if figure not in blocks]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_prose_says_what_is_shown(page: Path) -> None:
    """Where an output changes, what the text says about it has to change as well."""
    assert unfounded(page.read_text(encoding="utf-8")) == []


def test_unfounded_figures_are_seen() -> None:
    """A figure of an older output is one that the page does not show any more."""
    assert unfounded("It takes 9.1 s, or 12 %.\n\n```text\n9.1 s\n```\n") == ["12"]


PAGE = """\
Save this as `words.txt`:

```yaml
one
two
```

```console
$ cat words.txt | head -n 1
$ nest solve words.txt; echo $?
```

```text
old
```

Something else.

```text
stays
```
"""


def test_commands_are_run() -> None:
    """Files of a page are there, and an old output is replaced by what the last command prints."""
    told: list[str] = []
    assert build_outputs.execute("printf 'a b' | wc -w").strip() == "2"
    new = build_outputs.renewed(PAGE, can_torch=True, tell=told.append)
    assert told == ["changed: nest solve words.txt; echo $?"]
    assert "```text\nnest: words.txt: " in new
    assert "\n2\n```\n\nSomething else.\n\n```text\nstays\n" in new


def test_failures_are_seen() -> None:
    """A command that fails without the page saying so is an error, and so are other figures than times."""
    for command in ("nest solve missing.toml", "nest solve missing.toml | cat", "cat missing.toml"):
        with pytest.raises(build_outputs.Failed, match=r"exit code [12] of .*missing"):
            build_outputs.execute(command)
    assert build_outputs.masked("Solver  dp, 8.1 ms: it") == build_outputs.masked("Solver  dp, 1 s: it")
    assert build_outputs.masked("Iteration  8.1 s, p2p 3.1 ms") != build_outputs.masked("Iteration  8.2 s, p2p 3.1 ms")


def test_torch_is_asked_for() -> None:
    """Only blocks that run modules or plans, or read what these write, are left out where torch is not installed."""
    blocks = ("nest run plan.json -o out.json", "cat out.json > more.json", "cat more.json", "echo run")
    page = "".join(f"```console\n$ {command}\n```\n\n" for command in blocks)
    assert [printed for _, printed in build_outputs.played(page, can_torch=False)] == ["run\n"]
