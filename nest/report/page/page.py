"""The page as one file: nothing is loaded from anywhere, styles, script and data are inside."""

from __future__ import annotations

from importlib.resources import files
from string import Template

from nest.report.page.cluster_map import cluster_section
from nest.report.page.facts import Reported
from nest.report.page.head import masthead, spent_section, tiles
from nest.report.page.html import Html, data, joined, tag
from nest.report.page.pipeline import pipeline_section, timeline
from nest.report.page.proof import proof_section
from nest.report.page.stages import stages_section
from nest.report.page.whatif import change_section, choice_section


def page_text(report: Reported) -> str:
    """Return the page of a plan, a whole HTML document."""
    sections = [
        spent_section(report),
        stages_section(report),
        pipeline_section(report),
        cluster_section(report),
        change_section(report),
        choice_section(report),
        proof_section(report),
    ]
    run = report.run
    drawn = {**timeline(run), "tick_s": report.priced.evaluation.scale.time.tick_s}
    return Template(_resource("page.html")).substitute(
        title=tag("title", f"{report.priced.problem.name}: plan"),
        style=_resource("page.css"),
        script=_resource("page.js"),
        masthead=masthead(report),
        tiles=tiles(report),
        navigation=_navigation(sections),
        sections=joined(each for each in sections if each is not None),
        data=data(drawn),
    )


_NAMES = {
    "time": "Time",
    "stages": "Stages",
    "pipeline": "Pipeline",
    "cluster": "Cluster",
    "changes": "Sensitivity",
    "choices": "Other choices",
    "proof": "Proof",
}


def _navigation(sections: list[Html | None]) -> Html:
    """Return links to the sections that there are."""
    there = [name for name, made in zip(_NAMES, sections, strict=True) if made is not None]
    return joined(tag("a", _NAMES[name], href=f"#{name}") for name in there)


def _resource(name: str) -> str:
    return files("nest.report.page").joinpath(name).read_text(encoding="utf-8")
