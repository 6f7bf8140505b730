"""The page in a browser: its script runs, draws, follows keys and buttons, and nothing is wider than the screen."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from page_problems import HOSTILE, large, reported, trained

from nest.report.page import Reported, page_text

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, which is not installed")

PROBE = """
<script>
  window.faults = window.faults || [];
  addEventListener("load", () => setTimeout(() => {
    const canvas = document.querySelector(".lanes");
    const read = () => document.querySelector(".readout").textContent;
    const ink = (surface) => {
      const pixels = surface.getContext("2d").getImageData(0, 0, surface.width, surface.height).data;
      const colours = new Set();
      for (let at = 0; at < pixels.length; at += 4 * 97) colours.add(pixels.slice(at, at + 3).join());
      return colours.size;
    };
    const found = { first: read(), colours: ink(canvas), theme: document.documentElement.dataset.theme };
    const key = (name) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
    key("0");
    found.all = read();
    key("+");
    found.nearer = read();
    key("End");
    found.end = read();
    document.querySelector("[data-zoom=start]").click();
    found.start = read();
    document.getElementById("theme").click();
    found.switched = document.documentElement.dataset.theme;
    found.pressed = document.getElementById("theme").getAttribute("aria-pressed");
    const menu = document.getElementById("replica");
    if (menu) {
      menu.value = "1";
      menu.dispatchEvent(new Event("change"));
      found.picked = document.querySelectorAll(".map .picked").length;
      found.cells = document.querySelectorAll(".map [data-r='1']").length;
    }
    document.querySelectorAll("details").forEach((each) => { each.open = true; });
    found.wide = document.documentElement.scrollWidth;
    found.screen = innerWidth;
    found.tallest = Math.max(...[...document.querySelectorAll("th, button")].map((each) => each.offsetHeight));
    found.requests = performance.getEntriesByType("resource").map((each) => each.name);
    found.broken = window.broken || 0;
    found.faults = window.faults;
    const stops = [...document.querySelectorAll("a[href], button, select, summary, [tabindex]")];
    const reached = stops.filter((each) => { each.focus(); return document.activeElement === each; });
    found.focusable = reached.length === stops.length;
    document.title = "probed " + JSON.stringify(found);
  }, 50));
</script>
"""

TALL = 130
"""Pixels of a few lines."""

EARLY = '<script>window.faults = []; addEventListener("error", (event) => window.faults.push(event.message));</script>'


def probed(report: Reported, tmp_path: Path, *, width: int = 1200, theme: str = "light") -> dict[str, Any]:
    """Return what a probe finds in the page, run in a browser of a width."""
    page = page_text(report).replace("<head>", f"<head>{EARLY}").replace("</body>", f"{PROBE}</body>")
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    command = [
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'browser'}",
    ]
    command += [
        f"--window-size={width},900",
        "--virtual-time-budget=4000",
        "--dump-dom",
        f"file://{file}?theme={theme}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    title = done.stdout.partition("<title>probed ")[2].partition("</title>")[0]
    assert title, done.stdout[:2000]
    document = json.loads(title.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
    assert isinstance(document, dict)
    return document


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the probe finds in a page with everything."""
    return probed(reported(trained(HOSTILE)), tmp_path_factory.mktemp("page"))


def test_the_script_runs_and_draws(found: dict[str, Any]) -> None:
    """There is no error, the canvas has the colours of passes, nothing was fetched, and hostile names did nothing."""
    assert found["faults"] == []
    assert found["requests"] == []
    assert found["broken"] == 0
    assert found["colours"] >= 4
    assert found["theme"] == "light"


def test_keys_and_buttons_move_the_pipeline(found: dict[str, Any]) -> None:
    """0 shows all, plus half of it, End its end, and the button Start its beginning."""
    whole = found["all"].removeprefix("Shown: 0 s to ").split(" of ")
    assert whole[0] == whole[1]
    assert found["nearer"] != found["all"]
    assert found["end"].split(" of ")[0].endswith(f"to {whole[1]}")
    assert found["start"].startswith("Shown: 0 s to ")
    assert found["start"] != found["all"]


def test_menus_and_focus(found: dict[str, Any]) -> None:
    """The theme switches, a replica is picked out, and everything that can be used can be reached by keys."""
    assert (found["switched"], found["pressed"]) == ("dark", "true")
    assert found["picked"] == found["cells"] > 0
    assert found["focusable"]


@pytest.mark.parametrize(("width", "theme"), [(500, "dark"), (1000, "light")])
def test_nothing_is_wider_than_the_screen(width: int, theme: str, tmp_path: Path) -> None:
    """On a narrow screen and on a small laptop the page scrolls down only, with all tables open."""
    report = large() if width == 1000 else reported(trained("a_name_of_a_model_that_is_long_and_has_no_spaces" * 2))
    found = probed(report, tmp_path, width=width, theme=theme)
    assert found["theme"] == theme
    assert found["faults"] == []
    assert found["wide"] <= found["screen"] <= width
    assert found["tallest"] <= TALL, "a word for each line is not readable either"
