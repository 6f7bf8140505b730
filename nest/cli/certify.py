"""``nest certify``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from nest.cli.exits import finding_code
from nest.cli.frameworks import ANY, certified_for_option, target_of
from nest.cli.options import json_option, plan_options, plan_output_option, time_limit_option
from nest.cli.output import print_json, print_tried, screen, writable
from nest.cli.reading import asked_from, every_variant, plan_from, solved
from nest.errors import InvalidPlan

if TYPE_CHECKING:
    from nest.certify import Certificate
    from nest.files.origin import Origin
    from nest.objectives import CertifiedLeast, Quantity
    from nest.problem import Problem
    from nest.runs import Run, SelfContained, Tried


@click.command("certify")
@plan_options
@click.option(
    "--with", "provers", metavar="NAMES", default="checker", show_default=True, help="Ask checker, cpsat, pyomo."
)
@certified_for_option
@click.option(
    "--time-only",
    is_flag=True,
    help="Ask about nothing but time also of a plan that was found for the fewest devices or the least memory.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Ask about all context widths and microbatches also where the usual ones alone were tried.",
)
@time_limit_option("Give each prover S seconds.")
@plan_output_option("Write the better plan.")
@json_option
def certify_command(
    *,
    first_path: Path,
    second_path: Path | None,
    problem_path: Path | None,
    preset: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    provers: str,
    time_limit: float | None,
    output: Path | None,
    target: str | None,
    time_only: bool,
    every: bool,
) -> int:
    """Have independent provers say whether a plan is the best one.

    The problem is the one that PLAN.json carries, or that --problem gives. A problem in place of PLAN.json is solved
    first. A plan that was found for a framework is put beside the others that the framework can run. Of one that was
    found by --minimize devices or memory it is asked whether less keeps the time, and whether as much is faster. Of one
    that was found among the usual context widths and microbatches it is asked among these, unless --all is given. Exits
    with 0 if the plan is proven optimal, with 1 if there is a better one, which is printed, with 3 if it breaks a rule
    or there is no plan, with 4 if that is not decided within the limit.
    """
    from nest.certify import require
    from nest.files import certificate_document, write_plan
    from nest.report.objectives import least_facts, least_lines
    from nest.runs.carried import computed_now

    better_path = None if output is None else writable(output, problem_path or first_path)
    names = [name.strip() for name in provers.split(",")]
    require(names)
    files = first_path, second_path, problem_path
    certified = _certified(
        files, preset, settings, names, time_limit, target=target, time_only=time_only, every=every, quiet=as_json
    )
    problem, certificate, least = certified.problem, certified.certificate, certified.least
    more = {**certified.asked, **certified.usual}
    if better_path is not None and certificate.better is not None:
        write_plan(certificate.better, better_path, certified.origin, computed_now() | more)
    if as_json:
        from nest.provenance import versions

        document = certificate_document(problem, certificate, versions() | more) | certified.tried.document()
        print_json(document | ({} if least is None else least_facts(least)))
    else:
        from nest.report.terminal import certificate_text

        click.echo(certificate_text(problem, certificate, screen(), certified.tried))
        if "for" in certified.asked:
            click.echo(f"{'Among':<11}plans that {certified.asked['for']} can run; --for any asks about all")
        if least is not None:
            for line in least_lines(least):
                click.echo(line)
        print_tried(certified.tried)
    return finding_code(certificate)


class _Certified(NamedTuple):
    """A problem, what provers say about its plan, where the problem comes from, and which plans that is about.

    These are those that were tried, of a framework, where one is named. What else was asked is as in plan files.
    """

    problem: Problem
    certificate: Certificate
    origin: Origin | None
    tried: Tried
    asked: Mapping[str, str] = MappingProxyType({})
    least: CertifiedLeast | None = None
    run: Run | None = None

    @property
    def usual(self) -> Mapping[str, str]:
        """That it is about the usual variants of a run, where it is."""
        return {} if self.run is None else self.tried.provenance


def _certified(
    files: tuple[Path, Path | None, Path | None],
    preset: str | None,
    settings: Sequence[str],
    provers: Sequence[str],
    time_limit_s: float | None,
    *,
    target: str | None,
    time_only: bool,
    every: bool,
    quiet: bool,
) -> _Certified:
    """Read a problem and a plan of it, and ask the provers; without a plan, solve the problem first."""
    from nest.certify import certify, certify_result, require
    from nest.files.plan_file import is_plan
    from nest.runs.carried import origin_of_file

    first, second, given = files
    if second is None and given is None and not is_plan(first):
        if target not in (None, ANY):
            raise click.UsageError(f"--for {target} is of a plan; nest solve --for {target} --certify solves first")
        problem, tried = asked_from(first, preset, settings, every_variant)
        require(provers, problem)
        result = solved(problem, time_limit_s, quiet=quiet)
        certificate = certify_result(problem, result, provers=provers, time_limit_s=time_limit_s)
        return _Certified(problem, certificate, origin_of_file(first, problem.name, preset, settings), tried)
    found, _ = plan_from((first, second), given, preset, settings, every=every or None)
    framework = target_of(target, found, provers)
    if "minimized" in found.provenance and not time_only:
        return _of_least(found, framework, provers, time_limit_s)
    if framework is not None:
        from nest.export import FRAMEWORKS, certify_for

        certificate = certify_for(found, FRAMEWORKS[framework], time_limit_s=time_limit_s)
        return _Certified(found.problem, certificate, found.origin, found.tried, {"for": framework}, run=found.run)
    require(provers, found.problem)
    certificate = certify(found.problem, found.plan, provers=provers, time_limit_s=time_limit_s)
    return _Certified(found.problem, certificate, found.origin, found.tried, run=found.run)


def _of_least(
    found: SelfContained, framework: str | None, provers: Sequence[str], time_limit_s: float | None
) -> _Certified:
    """Ask about a plan that was found for the least of something, as its file says."""
    from nest.certify import require
    from nest.objectives import certify_least

    asked = {name: found.provenance[name] for name in ("minimized", "time_at_most_s") if name in found.provenance}
    quantity, seconds = asked["minimized"], asked.get("time_at_most_s", "")
    if quantity not in ("devices", "memory") or not re.fullmatch(r"[0-9.]+(e[+-]?[0-9]+)?", seconds):
        what = f"minimized {quantity!r}, time_at_most_s {seconds!r}"
        raise InvalidPlan("provenance", what, "give devices or memory, and seconds; or --time-only")
    limits: dict[str, Any] = {"provers": provers, "time_limit_s": time_limit_s}
    if framework is not None:
        from nest.export import FRAMEWORKS, certify_least_for

        least = certify_least_for(
            found, FRAMEWORKS[framework], cast("Quantity", quantity), float(seconds), time_limit_s=time_limit_s
        )
        return _Certified(
            least.problem, least.certificate, found.origin, found.tried, asked | {"for": framework}, least, found.run
        )
    require(provers, found.problem)
    least = certify_least(found.problem, found.plan, cast("Quantity", quantity), float(seconds), **limits)
    return _Certified(least.problem, least.certificate, found.origin, found.tried, asked, least, found.run)
