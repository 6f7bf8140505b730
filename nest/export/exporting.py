"""From a plan with its problem to the file of a framework, near to the plan where the framework cannot run it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nest.errors import InvalidPlan
from nest.evaluate import evaluate
from nest.export.base import Assignment, Export, Framework, Inexpressible
from nest.export.nearest import nearest
from nest.plan import Plan
from nest.runs import Run, SelfContained


@dataclass(frozen=True)
class Exported:
    """What was written.

    Parameters
    ----------
    export, plan
        The file, and the plan that it says.
    iteration_s, asked_s
        Judged seconds of an iteration of that plan, and of the one that was asked for.
    approximated
        Whether the two are different plans.
    """

    export: Export
    plan: Plan
    iteration_s: float
    asked_s: float
    approximated: bool


def export_plan(
    found: SelfContained, framework: Framework, *, approximate: bool = False, time_limit_s: float | None = None
) -> Exported:
    """Write a plan as the settings of a framework.

    Parameters
    ----------
    approximate
        Where the framework cannot run the plan, write the nearest that it can.
    time_limit_s
        Of the search for that plan.

    Raises
    ------
    Inexpressible
        Naming the first stage or width that the framework cannot run as it is, unless ``approximate``.
    InvalidProblem
        If the plan's problem is a file of costs, the plan breaks a rule, or the model is none that the framework's
        settings say.
    """
    asked = _judged(found, found.plan)
    try:
        return Exported(
            exported(asked, framework), asked.plan, asked.iteration_s, asked.iteration_s, approximated=False
        )
    except Inexpressible:
        if not approximate:
            raise
    result = nearest(asked.problem, asked.run, asked.plan, framework, time_limit_s)
    assert result.plan is not None, "raises where there is none"
    given = _judged(found, result.plan)
    return Exported(exported(given, framework), given.plan, given.iteration_s, asked.iteration_s, approximated=True)


def exported(given: Assignment, framework: Framework) -> Export:
    """Return a plan in the words of a framework, read again and checked against the framework's rules.

    Raises
    ------
    Inexpressible
        Naming the first stage or width that the framework cannot run as it is.
    InvalidProblem
        If the model is none that the framework's settings say.
    """
    framework.require(given)
    export = framework.write(given)
    if given.plan.technologies:
        what = f"the links of the network are to be {', '.join(given.plan.technologies)}"
        export = replace(export, notes=(what, *export.notes))
    for rule in framework.broken(export.text, given.world):
        raise InvalidPlan(framework.name, f"{framework.title} would refuse what was written: {rule}", "please report")
    return replace(export, notes=(*given.standing, *export.notes))


def run_with(found: SelfContained) -> Run:
    """Return the run that a plan is a plan of; raises `InvalidPlan` where its problem is a file of costs."""
    if found.run is None:
        what = "the plan's problem is a file of costs, which does not say what the model is"
        remedy = "plan a model and a cluster (nest solve --model, or a run file), or ask for ranks"
        raise InvalidPlan("problem", what, remedy)
    return found.run


def _judged(found: SelfContained, plan: Plan) -> Assignment:
    """Return a plan with its judged time."""
    run = run_with(found)
    verdict = evaluate(found.problem, plan)
    if verdict.objective_ticks is None or not verdict.legal:
        broken = verdict.violations[0]
        raise InvalidPlan("plan", f"it breaks rule {broken.rule}: {broken.message}", "nest evaluate says more")
    return Assignment(run, found.problem, plan, verdict.scale.time.seconds(verdict.objective_ticks))
