"""The page of a plan: whole, safe, without a request to anywhere, readable by everybody, and true."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest
from page_problems import HOSTILE, large, reported, trained

from nest.breakdown import uplinks
from nest.cost.schedules import Schedule
from nest.pipeline import Pipeline, StageTimes, simulate
from nest.report.page import Reported, page_text
from nest.report.page.bars import inline
from nest.report.page.html import data, table, tag
from nest.report.page.pipeline import MOST_PASSES, timeline

VOID = {"meta", "link", "br"}
LARGEST = 2 * 10**6


class Seen(HTMLParser):
    """What a browser sees: elements with their attributes, and texts; elements have to be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], "not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that the innermost element ends."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text, and in which element it stands."""
        self.texts.append((self.open[-1] if self.open else "", data))

    def of(self, name: str) -> list[dict[str, str | None]]:
        """Return the attributes of all elements of a name."""
        return [attributes for element, attributes in self.elements if element == name]

    def all_text(self) -> str:
        """Return everything that is to be read."""
        return " ".join(text for element, text in self.texts if element not in ("script", "style"))


@pytest.fixture(scope="module")
def whole() -> Reported:
    """Return a plan with everything that a page can show, of several stages and replicas."""
    report = reported(trained())
    plan = report.priced.plan
    assert (plan.variant.tensor, len(plan.stages), plan.replicas, plan.stages[0].sharding.zero) == (2, 4, 2, 1)
    return report


@pytest.fixture(scope="module")
def seen(whole: Reported) -> Seen:
    """Return its page."""
    return Seen(page_text(whole))


def drawn(page: Seen) -> dict[str, Any]:
    """Return the data of the script."""
    text = next(text for element, text in page.texts if element == "script")
    document = json.loads(text)
    assert isinstance(document, dict)
    return document


def test_parts_are_escaped() -> None:
    """Text never becomes markup, in an element, an attribute or the data; what was built is not escaped twice."""
    made = tag("p", "a < b & c", tag("b", '"d"'), None, title='"<>&')
    assert made == '<p title="&quot;&lt;&gt;&amp;">a &lt; b &amp; c<b>&quot;d&quot;</b></p>'
    assert tag("i", class_=None, hidden=True, data_x=3) == '<i hidden data-x="3"></i>'
    text = data({"name": "</script><!--"})
    assert "<" not in text
    assert json.loads(text) == {"name": "</script><!--"}
    assert "&lt;td&gt;" in table(("<th>",), [["<td>"]], caption="x")


def test_hostile_names_stay_text() -> None:
    """Names of models, layers, clusters and levels are text wherever they stand."""
    page = Seen(page_text(reported(trained(HOSTILE))))
    scripts = [text for element, text in page.texts if element == "script"]
    assert len(scripts) == 2, "the data and ours"
    assert not any("broken" in text for text in scripts)
    assert HOSTILE in page.all_text()
    assert page.of("b") == Seen(page_text(reported(trained()))).of("b")


def test_nothing_is_loaded(seen: Seen, whole: Reported) -> None:
    """No element fetches anything, the policy forbids it, and the only address is a link for a person."""
    addresses = [
        (element, name)
        for element, attributes in seen.elements
        for name in ("src", "href")
        if name in attributes and not str(attributes[name]).startswith(("#", "data:"))
    ]
    assert addresses == [("a", "href")]
    policy = next(each["content"] for each in seen.of("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none';")
    page = page_text(whole)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", page)


def test_everything_is_named(seen: Seen) -> None:
    """Each section has its title, each picture a text, each button a name; ids are unique and links lead to one."""
    ids = [attributes["id"] for _, attributes in seen.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(str(each["href"]).removeprefix("#") in ids for each in seen.of("a") if str(each["href"]).startswith("#"))
    for attributes in seen.of("section"):
        assert attributes["aria-labelledby"] in ids
    for _, attributes in seen.elements:
        if attributes.get("role") == "img":
            assert attributes.get("aria-label")
    assert {attributes["lang"] for attributes in seen.of("html")} == {"en"}
    assert all("aria-label" in each for each in seen.of("button") if "data-zoom" in each)
    assert any(each.get("tabindex") == "0" for each in seen.of("canvas"))
    sections = [each["id"] for each in seen.of("section")]
    assert sections == ["time", "stages", "pipeline", "cluster", "changes", "choices", "proof"]


def test_every_picture_is_a_table_too(seen: Seen) -> None:
    """Who cannot see a picture has its figures."""
    captions = {text for element, text in seen.texts if element == "caption"}
    assert captions == {
        "Where the iteration's time goes",
        "Layers and devices of each stage",
        "What one microbatch keeps each stage busy with",
        "What each device of a stage holds",
        "What each stage does, in one iteration",
        "Levels of the network",
        "First devices of replicas",
        "What changes of the problem are worth",
        "The best plans of other outer choices",
        "What the search did with each outer choice",
        "What provers found",
    }


def test_figures_are_the_judges(seen: Seen, whole: Reported) -> None:
    """Widths of the parts of the iteration's bar are their shares, and add up to the whole."""
    widths = [
        float(match[1])
        for _, attributes in seen.elements
        if str(attributes.get("class", "")).startswith("c-")
        and (match := re.fullmatch(r"width:([\d.]+)%", str(attributes.get("style", ""))))
    ]
    parts = [ticks for ticks in whole.priced.spent.as_dict().values() if ticks]
    shown = widths[: len(parts)]
    assert shown == [pytest.approx(100 * ticks / whole.priced.objective_ticks, abs=1e-3) for ticks in parts]
    assert sum(shown) == pytest.approx(100, abs=0.01)


def test_pipeline_of_the_script_is_the_simulated_one(seen: Seen, whole: Reported) -> None:
    """The passes that the script unpacks start, in parts of the iteration, where the simulator has them."""
    draws(seen, whole)


@pytest.mark.parametrize("schedule", [Schedule("interleaved", 2), Schedule("zb-h1")])
def test_passes_of_chunks_and_gradients_of_weights_are_drawn(whole: Reported, schedule: Schedule) -> None:
    """Every chunk has its own times, and gradients of weights are told from the rest of the backward pass."""
    stages = StageTimes(30, 60, 20), StageTimes(36, 50, 24)
    chunks = (StageTimes(20, 30), StageTimes(10, 30)), (StageTimes(6, 0), StageTimes(30, 50))
    run = simulate(Pipeline(stages, 4, chunks=chunks if schedule.chunks > 1 else ()), schedule)
    report = replace(whole, run=run)
    seen = Seen(page_text(report))
    draws(seen, report)
    assert ("weight" in seen.all_text()) == (schedule.name == "zb-h1")
    assert (", 2 chunks a stage" in seen.all_text()) == (schedule.chunks > 1)


def draws(seen: Seen, whole: Reported) -> None:
    """Assert that what the script has is what was played."""
    found, run = drawn(seen), whole.run
    assert found["chunks"] == run.schedule.chunks
    unit = found["unit"]
    assert found["tick_s"] == whole.priced.evaluation.scale.time.tick_s
    for at, lane in enumerate(found["lanes"]):
        passes = [divmod(number, len(lane["types"])) for number in lane["passes"]]
        names = [(*lane["types"][one][:2], microbatch) for microbatch, one in passes]
        assert names == [tuple(each) for each in run.orders[at]]
        starts = [sum(lane["starts"][: place + 1]) for place in range(len(lane["starts"]))]
        assert starts == [start // unit for start in run.starts[at]]
        assert "gap" not in lane
        for kind, chunk, parts in lane["types"]:
            busy = run.durations.busy[at][kind][chunk]
            assert sum(length for _, length in parts) * unit == pytest.approx(busy)


def test_large_plans_stay_small() -> None:
    """Of very many passes the ends are drawn and the rest is one stretch; the page keeps below two megabytes."""
    report = large()
    page = page_text(report)
    assert len(page.encode()) < LARGEST
    assert sum(map(len, report.run.orders)) > MOST_PASSES
    document = timeline(report.run)
    assert sum(len(lane["passes"]) for lane in document["lanes"]) <= MOST_PASSES
    lane, run = document["lanes"][5], report.run
    kept, end, passes, busy = lane["gap"]
    assert 2 * kept + passes == len(run.orders[5])
    assert end == run.starts[5][kept + passes] // document["unit"]
    each = run.durations.busy[5]
    hidden = run.orders[5][kept : kept + passes]
    assert busy == sum(each[one.kind][0] for one in hidden) // document["unit"]
    assert "hatched" in Seen(page).all_text()


def test_every_device_is_on_the_map(seen: Seen, whole: Reported) -> None:
    """Cells are as many devices as the cluster has, those of a replica as many as it takes; nodes have their way up."""
    cells = [
        (attributes.get("data-r"), int(match[1]))
        for _, attributes in seen.elements
        if (match := re.match(r"--n:(\d+)", str(attributes.get("style", ""))))
    ]
    plan = whole.priced.plan
    assert sum(devices for _, devices in cells) == whole.priced.problem.cluster.devices
    for replica in range(plan.replicas):
        taken = sum(devices for owner, devices in cells if owner == str(replica))
        assert taken == sum(stage.devices for stage in plan.stages)
    links = uplinks(whole.priced.problem, plan, whole.priced.evaluation, whole.priced.loads)
    assert links
    ways = [attributes for attributes in seen.of("i") if attributes.get("class") == "up"]
    assert len(ways) == 4, "one for each node"
    hot = max(link.ticks for link in links) / whole.priced.objective_ticks
    assert f"{100 * hot:.2g} %" in str([way["title"] for way in ways])


def test_a_plan_that_breaks_a_rule_says_so() -> None:
    """Badge, stages and proof say what is broken, and memory beyond the limit is drawn, too."""
    problem = trained()
    plan = reported(problem, searched=False).priced.plan
    tight = reported(replace(problem, cluster=replace(problem.cluster, hbm_bytes=150)), plan)
    page = Seen(page_text(tight))
    text = page.all_text()
    assert "breaks memory" in text
    assert "keeps every rule" not in text
    assert "so that nobody was asked" in text


def test_what_nobody_asked_for_is_left_out() -> None:
    """Without searches there is no section for them, no link to one, and no claim that the plan is the best."""
    page = Seen(page_text(reported(trained(), searched=False)))
    assert [each["id"] for each in page.of("section")] == ["time", "stages", "pipeline", "cluster", "proof"]
    assert "#changes" not in [each["href"] for each in page.of("a")]
    assert "optimality not checked here" in page.all_text()


def test_sensitivity_without_searches(whole: Reported) -> None:
    """Where nobody searched for the best plan there, ten rows said so, in two columns."""
    changed = tuple(replace(each, best_s=None, best=None, status=None) for each in whole.changed)
    text = Seen(page_text(replace(whole, changed=changed))).all_text()
    assert "Against now" in text
    assert "Best plan there" not in text
    assert "not searched" not in text
    assert "Best plan there" in Seen(page_text(whole)).all_text()


def test_a_cluster_of_one_group_is_drawn() -> None:
    """Devices that no level joins further have a box, too, and no way up."""
    problem = trained()
    cluster = problem.cluster
    one = replace(cluster, levels=(replace(cluster.levels[0], fanout=cluster.devices),))
    report = reported(replace(problem, cluster=one), searched=False)
    page = Seen(page_text(report))
    assert [each["class"] for each in page.of("div") if "group" in (each.get("class") or "")] == ["group l0"]
    assert not [each for each in page.of("i") if each.get("class") == "up"]
    assert "way up 0 %" not in page.all_text()


@pytest.mark.parametrize(
    ("name", "said"), [("Tensor parallel", "tensor parallel"), ("ZeRO, each microbatch", "ZeRO, each microbatch")]
)
def test_names_inside_sentences(name: str, said: str) -> None:
    """ZeRO became zero."""
    assert inline(name) == said


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour (WCAG 2.1)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(theme: str) -> None:
    """Text on its ground has the 4.5 : 1 of WCAG AA, parts of a picture on the card 2 : 1."""
    style = files("nest.report.page").joinpath("page.css").read_text(encoding="utf-8")
    block = re.findall(r":root[^{]*\{([^}]*--page[^}]*)\}", style)[theme == "dark"]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    pairs = [("ink", "card"), ("ink", "page"), ("soft", "card"), ("soft", "page"), ("soft", "faint"), ("bad", "card")]
    for one, other in [*pairs, ("good", "good-back"), ("bad", "bad-back"), ("focus", "card"), ("limit", "card")]:
        assert contrast(one, other) >= 4.5, (one, other, contrast(one, other))
    for part in ("compute", "tensor", "context", "expert", "transfer", "sharding", "sync", "activations", "recompute"):
        assert contrast(part, "card") >= 2, (part, contrast(part, "card"))
