"""``nest solve``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from nest.cli.captured import typed_captured
from nest.cli.cuts import cuts_option, require_all_cuts
from nest.cli.dag import dag_answer
from nest.cli.exits import ExitCode, result_code
from nest.cli.frameworks import for_option, require_alone, search_for, solved_for
from nest.cli.minimize import minimize_options, minimized, print_least, time_allowed_s
from nest.cli.options import json_option, optional_problem_options, plan_output_option, time_limit_option
from nest.cli.output import check_files, print_json, print_tried, screen
from nest.cli.reading import Race, every_variant, solved
from nest.cli.run_options import run_options, typed_origin, typed_run
from nest.cli.shown import others, shown, shown_options
from nest.cli.tabled import typed_table

if TYPE_CHECKING:
    from nest.certify import Certificate
    from nest.explain import Explanation
    from nest.files.origin import Origin
    from nest.hardware import Hardware
    from nest.problem import Problem
    from nest.report.shown import Shown
    from nest.result import Result
    from nest.runs import Posed, Run, Tried
    from nest.solve import Backend, Cuts

BACKENDS = ("auto", "dp", "cpsat", "pyomo")
AMONG = 1.25
"""Runners-up are sought among variants whose plans may take up to this many times what a good plan takes."""

OBJECTIVES = {"sum": "default", "simulated": "simulated"}
"""Presets that differ in nothing but the objective, by objective."""


@click.command("solve")
@optional_problem_options
@run_options
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True, help="Which solver to ask.")
@click.option(
    "--objective", type=click.Choice(OBJECTIVES), help="What an iteration takes: 'simulated' is preset 'simulated'."
)
@minimize_options
@time_limit_option("Stop proving after S seconds.")
@cuts_option
@for_option
@click.option("--certify", is_flag=True, help="Have the optimality checker confirm the answer.")
@plan_output_option("Write the plan to a file.")
@click.option("--write-problem", metavar="FILE.toml", type=click.Path(path_type=Path), help="Write the problem, too.")
@shown_options
@json_option
def solve_command(
    *,
    problem_path: Path | None,
    preset: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    backend: Backend,
    objective: str | None,
    minimize: Literal["time", "devices", "memory"],
    time_at_most: float | None,
    throughput: float | None,
    time_limit: float | None,
    cuts: Cuts,
    target: str | None,
    certify: bool,
    output: Path | None,
    write_problem: Path | None,
    details: bool,
    runners: int | None,
    **options: Any,
) -> int:
    """Find the best plan and prove it.

    PROBLEM is a file in TOML or JSON, of a problem or of a training run. Without it, --model, --cluster, --seq and
    --global-batch say what is trained; widths that are not typed are chosen, also those that a model file gives. The
    plan is printed as a table with a summary, and written to a file with -o. With --minimize devices or memory it is
    the plan that keeps a time with the least of them. With --for it is the best plan that a training framework can
    run.
    """
    dag = dag_answer(problem_path, settings, time_limit, output, as_json=as_json)
    if dag is not None:
        return dag
    preset = _preset(preset, objective)
    allowed_s = time_allowed_s(minimize, time_at_most, throughput, backend)
    require_alone(target, minimize=minimize, backend=backend, certify=certify)
    others_given = {"minimize": minimize != "time", "backend": backend not in ("auto", "dp"), "for": target is not None}
    require_all_cuts(cuts, **others_given, certify=certify, runners_up=runners is not None)
    source = problem_path or options["model_path"] or Path()
    check_files(source, {"-o": output, "--write-problem": write_problem})
    begin, race = time.perf_counter(), None
    if backend in ("auto", "dp"):
        margin = AMONG if runners else 1.0
        race = Race(preset, settings, time_limit, cuts, margin, target, fastest=minimize == "time")
    asked = _asked(problem_path, preset, settings, options, None if race is None else race.pose)
    time_left = time_limit
    if time_limit is not None and asked.run is not None:  # of which posing it took a part
        time_left = max(time_limit - (time.perf_counter() - begin), 0.0)
    problem, origin = asked.problem, _written(asked, problem_path, (preset, settings), options, (output, write_problem))
    provenance = _provenance(asked, target)
    if minimize != "time" and allowed_s is not None:
        if runners is not None:
            raise click.UsageError("--runners-up goes with --minimize time")
        search = search_for(asked.run, asked.tried, target)
        answer = minimized(problem, minimize, allowed_s, time_limit, search, quiet=as_json)
        asked_for = {"minimized": minimize, "time_at_most_s": repr(float(allowed_s))}
        _write_plan(answer.result, output, origin, provenance | asked_for)
        print_least(answer, asked.tried, time_limit, certify=certify, as_json=as_json)
        return result_code(answer.result)
    ways = _Ways(backend, cuts, target, quiet=as_json)
    found = _found(asked, ways, time_left)
    if found.result.status.value == "infeasible" and asked.run is not None and not asked.tried.all_tried:
        asked = _asked(problem_path, preset, settings, options, every_variant)
        origin = _written(asked, problem_path, (preset, settings), options, (output, write_problem))
        provenance = _provenance(asked, target)
        found = _found(asked, ways, time_left)
    certificate, result = None, found.result
    if certify and race is not None and asked.run is not None and asked.tried.all_tried:
        every = _asked(problem_path, preset, settings, options, every_variant)
        certificate = _confirmed(every, found, target, time_limit)
    elif certify:
        certificate = _confirm(found.problem, result, found.parts, time_limit)
    _write_plan(result, output, origin, provenance)
    wanted = shown(asked.run, others(found.problem, result.plan, runners, time_limit), details=details)
    return _print(asked._replace(problem=found.problem), result, certificate, wanted, as_json=as_json)


class _Asked(NamedTuple):
    """A problem, what it was posed from, and how much of the space it has.

    The run is None where a file of costs, a captured module or a table of layers says what layers take; the hardware,
    where nobody knows more of the network than its levels.
    """

    problem: Problem
    tried: Tried
    run: Run | None = None
    hardware: Hardware | None = None
    source: str = ""
    notes: tuple[str, ...] = ()


class _Ways(NamedTuple):
    """Whom to ask for the best plan, of which plans, and whether nobody wants to see how far it is."""

    backend: Backend
    cuts: Cuts
    target: str | None
    quiet: bool


class _Found(NamedTuple):
    """The best plan of a problem; of a framework's plans, with the parts that hold them."""

    problem: Problem
    result: Result
    parts: tuple[Problem, ...] = ()


def _found(asked: _Asked, ways: _Ways, time_limit_s: float | None) -> _Found:
    """Return the best plan of all, or of those that a framework can run."""
    if ways.target is None:
        result = solved(asked.problem, time_limit_s, quiet=ways.quiet, backend=ways.backend, cuts=ways.cuts)
        return _Found(asked.problem, result)
    problem, best = solved_for(asked.problem, asked.run, ways.target, time_limit_s, quiet=ways.quiet)
    return _Found(problem, best.result, best.parts)


def _provenance(asked: _Asked, target: str | None) -> dict[str, str]:
    """Return what the file of a plan says of the plans of which it is the best."""
    usual = {} if asked.run is None else asked.tried.provenance
    return usual if target is None else usual | {"for": target}


def _preset(preset: str | None, objective: str | None) -> str | None:
    """Return the preset that is asked for, by its name or by its objective."""
    if objective is None:
        return preset
    if preset not in (None, *OBJECTIVES.values()):
        raise click.UsageError(f"--objective goes with preset 'default', not with --preset {preset}")
    return OBJECTIVES[objective]


def _asked(
    problem_path: Path | None,
    preset: str | None,
    settings: tuple[str, ...],
    options: dict[str, Any],
    pose: Callable[[Run], Posed] | None = None,
) -> _Asked:
    """Return the problem, and what it was posed from.

    Parameters
    ----------
    pose
        Which variants of the run it has: the usual ones where this is left out.
    """
    from nest.files.settings import with_own
    from nest.runs import problem_of
    from nest.runs.carried import changed, posed_from, read_tried

    captured = typed_captured(options) if problem_path is None else None
    if captured is not None:
        found, tried = captured
        return _Asked(changed(found, preset, settings, found.name), tried)
    table = typed_table(options, preset, settings) if problem_path is None else None
    if table is not None:
        problem = changed(table.problem, preset, settings, table.problem.name)
        return _Asked(problem, table.tried, hardware=table.run.hardware, notes=table.run.notes)
    run = typed_run(problem_path, options, preset)
    if run is not None:
        posed: Posed | None = (pose or problem_of)(replace(run, choices=with_own(run.choices, settings)))
    else:
        assert problem_path is not None
        posed = posed_from(problem_path, settings, pose or problem_of)
    if posed is not None:
        source = str(problem_path) if problem_path else posed.problem.name
        problem = changed(posed.problem, preset, settings, source)
        return _Asked(problem, posed.tried, posed.run, posed.run.hardware, posed.run.source)
    assert problem_path is not None
    problem, tried = read_tried(problem_path)
    return _Asked(changed(problem, preset, settings, str(problem_path)), tried)


def _print(asked: _Asked, result: Result, certificate: Certificate | None, wanted: Shown, *, as_json: bool) -> ExitCode:
    from nest.files import proof_document, result_document
    from nest.report.runners import runners_document
    from nest.runs import pair_gap

    problem, tried = asked.problem, asked.tried
    explanation, hardware = _explanation(problem, result), asked.hardware
    result = result if explanation is None else replace(result, reason=explanation.reason)
    gap = None if hardware is None or result.plan is None else pair_gap(problem, result.plan, hardware)
    if as_json:
        proof = None if certificate is None else proof_document(certificate)
        document = {**result_document(result, proof, explanation), **runners_document(problem, wanted.runners)}
        aside: dict[str, object] = ({} if asked.run is None else {"source": asked.source}) | tried.document()
        aside |= {"notes": list(asked.notes)} if asked.notes else {}
        print_json({**document, **aside, **({} if gap is None else {"pairs_s": gap.pairs_s, "level_gap": gap.share})})
    else:
        from nest.report.terminal import solution_text

        click.echo(solution_text(problem, result, screen(), certificate, explanation, shown=wanted, tried=tried))
        if gap is not None:
            click.echo(f"{'Pairs':<11}{gap.text}")
        if asked.source:
            click.echo(f"{'Source':<11}{asked.source}")
        for at, note in enumerate(asked.notes):
            click.echo(f"{'' if at else 'Noted':<11}{note}")
        print_tried(tried)
    return result_code(result)


def _write_plan(result: Result, output: Path | None, origin: Origin | None, more: dict[str, str]) -> None:
    """Write the plan with its problem and its provenance, to which ``more`` is added."""
    from nest.files import write_plan
    from nest.runs.carried import computed_now

    if output is not None and result.plan is not None:
        write_plan(result.plan, output, origin, computed_now() | more)


def _written(
    asked: _Asked,
    problem_path: Path | None,
    changes: tuple[str | None, tuple[str, ...]],
    options: dict[str, Any],
    files: tuple[Path | None, Path | None],
) -> Origin | None:
    """Return where the problem comes from, for the file of its plan, and write it.

    Of the files the first is that of the plan, the second that of the problem; None where one was not asked for.
    """
    from nest.files import write_problem

    plan, file = files
    origin = None if plan is None else _origin(asked, problem_path, changes, options)
    if file is not None:
        write_problem(asked.problem, file, asked.tried.left_out)
    return origin


def _origin(
    asked: _Asked,
    problem_path: Path | None,
    changes: tuple[str | None, tuple[str, ...]],
    options: dict[str, Any],
) -> Origin | None:
    """Return where the problem comes from, and what was typed to change it, for the plan file."""
    from nest.runs.carried import origin_of, origin_of_file

    if problem_path is not None:
        return origin_of_file(problem_path, asked.problem.name, *changes)
    if asked.run is None:  # of a captured module, or a table of layers
        return origin_of(asked.problem, asked.tried)
    return typed_origin(asked.run, *changes, options)


def _explanation(problem: Problem, result: Result) -> Explanation | None:
    """Explain an infeasible problem."""
    from nest.explain import explain
    from nest.result import Status

    return explain(problem, result.reason) if result.status is Status.INFEASIBLE else None


def _confirmed(every: _Asked, found: _Found, target: str | None, time_limit_s: float | None) -> Certificate:
    """Have an answer confirmed among all variants of its run: the checker takes no floor for granted."""
    if target is None:
        return _confirm(every.problem, found.result, (), time_limit_s)
    if found.result.plan is None:
        return _confirm(found.problem, found.result, found.parts, time_limit_s)
    from nest.export import FRAMEWORKS, certify_for
    from nest.runs import SelfContained
    from nest.solve import Disagreement

    plan = SelfContained(every.problem, found.result.plan, every.run, None, {}, None)
    certificate = certify_for(plan, FRAMEWORKS[target], time_limit_s=time_limit_s)
    if certificate.better is not None and found.result.status.value == "optimal":
        raise Disagreement(f"a plan of {certificate.better_ticks} ticks is better than the best that was found")
    return certificate


def _confirm(problem: Problem, result: Result, parts: tuple[Problem, ...], time_limit_s: float | None) -> Certificate:
    """Have an answer confirmed, in parts where it is about plans that are a part of the problem's."""
    from nest.certify import confirm, confirm_parts

    if parts:
        return confirm_parts(problem, result, parts, time_limit_s=time_limit_s)
    return confirm(problem, result, time_limit_s=time_limit_s)
