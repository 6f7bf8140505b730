"""Everything that a page shows, for programs."""

from __future__ import annotations

from dataclasses import asdict

from nest.alternatives import Changed
from nest.files import proof_document
from nest.report.page.facts import Reported
from nest.report.runners import runners_document
from nest.report.shown import Shown
from nest.report.verdict import verdict_document

SCHEMA = "nest.report/1"


def report_document(report: Reported) -> dict[str, object]:
    """Return everything that a page shows, ready for JSON; times in seconds, and what nobody asked for is null."""
    priced, run = report.priced, report.run
    judged = verdict_document(priced.problem, priced.plan, priced.evaluation, shown=Shown(priced.work))
    columns = zip(run.busy, run.idle, run.in_flight, strict=True)
    return {
        "schema": SCHEMA,
        **judged,
        "pipeline": {
            "schedule": run.schedule.name,
            "makespan_s": priced.seconds(run.makespan),
            "stages": [
                {"busy_s": priced.seconds(busy), "idle_s": priced.seconds(idle), "in_flight": held}
                for busy, idle, held in columns
            ],
        },
        "changes": [_changed(each) for each in report.changed],
        "runners_up": None,
        **runners_document(priced.problem, report.runners),
        "looked_at": report.looked_at,
        "searched": [asdict(each) for each in report.searched],
        "certificate": None if report.certificate is None else proof_document(report.certificate),
        **report.tried.document(),
        "provenance": dict(report.provenance),
    }


def _changed(each: Changed) -> dict[str, object]:
    return {
        "figure": each.change.figure,
        "value": each.change.value,
        "plan_s": each.plan_s,
        "broken": list(each.broken),
        "best_s": each.best_s,
        "status": None if each.status is None else each.status.value,
        "work": each.work,
    }
