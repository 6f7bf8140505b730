"""The Python examples of the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "file_format.md"]
EXAMPLES = [
    pytest.param(text, id=f"{page.stem}-{at}")
    for page in PAGES
    for at, text in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_example_runs(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example works as printed, from the root of the repository (`test_files_docs.py` has the file format)."""
    monkeypatch.chdir(ROOT)
    exec(compile(text, "example", "exec"), {})
