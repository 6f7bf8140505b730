"""What is proven about a plan, and where it comes from."""

from __future__ import annotations

from nest.certify import Finding
from nest.report.figures import PricedPlan
from nest.report.format import duration
from nest.report.page.facts import Reported
from nest.report.page.html import Child, Html, section, table, tag

_WORDS = {
    Finding.OPTIMAL: "Proven: no plan {among} is faster.",
    Finding.REFUTED: "Refuted: a prover found a plan that is faster.",
    Finding.UNDECIDED: "Undecided: neither proven nor refuted in the time for it.",
    Finding.ILLEGAL: "The plan breaks a rule, so that nobody was asked.",
    Finding.INFEASIBLE: "No plan {among} is legal.",
}


def proof_section(report: Reported) -> Html:
    """Return what provers found, the rules that the plan breaks, and what it was computed with."""
    broken = [tag("li", f"{each.rule}: {each.message}") for each in report.priced.evaluation.violations]
    rules = tag("ul", *broken, class_="broken") if broken else tag("p", "The plan keeps every rule of its space.")
    return section("proof", "Proof and provenance", _verdict(report), rules, _provers(report), _origin(report))


def _verdict(report: Reported) -> str:
    if report.certificate is None:
        return f"No prover was asked: {report.uncertified}." if report.uncertified else "No prover was asked."
    return _WORDS[report.certificate.finding].format(among=report.tried.among)


def _provers(report: Reported) -> Html | None:
    if report.certificate is None or not report.certificate.proofs:
        return None
    rows: list[list[Child]] = [
        [
            f"{each.name} {each.version}",
            str(each.outcome.value),
            duration(each.wall_s).replace(" ", "\N{NO-BREAK SPACE}"),
            each.detail,
        ]
        for each in report.certificate.proofs
    ]
    return table(("Prover", "Outcome", "Took", "How"), rows, caption="What provers found", numbers_from=9)


def _origin(report: Reported) -> Html:
    priced = report.priced
    known = {
        "Problem": priced.problem.name,
        "Figures from": priced.problem.source,
        "Preset": priced.problem.preset.name,
        "Side constraints": "; ".join(each.text for each in priced.problem.constraints),
        "Objective": f"{priced.objective_ticks} ticks of {priced.evaluation.scale.time.tick_s:g} s",
        "Not tried": "; ".join(map(str, report.tried.left_out or ())),
        **{name.capitalize(): value for name, value in report.provenance.items()},
    }
    rows = [part for name, value in known.items() if value for part in (tag("dt", name), tag("dd", value))]
    return tag("div", tag("dl", *rows), _trace_hint(priced, report.plan_file))


def _trace_hint(priced: PricedPlan, plan_file: str) -> Html:
    command = f"nest simulate {plan_file or 'PLAN.json'} --trace trace.json"
    return tag(
        "p",
        "Every pass as a trace: ",
        tag("code", command),
        " writes what ",
        tag("a", "Perfetto", href="https://ui.perfetto.dev", rel="noreferrer"),
        f" shows ({len(priced.plan.stages)} threads).",
        class_="note",
    )
