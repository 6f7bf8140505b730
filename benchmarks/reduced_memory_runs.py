"""The paper's two cases of little memory under preset ``default``: Llama 3 70B with 24 GB, BERT-large with 120 MB.

    python benchmarks/reduced_memory_runs.py [--only TEXT] [--json FILE]

Models and batch of arXiv 2603.06798 on 1,024 devices of its fat-tree, priced by `nest.costing` instead of by its
inputs; sizes in powers of 1,024 as in `reduced_memory.py`. Once with the tensor width that the paper has for the model,
1, and once with every one; context width 1. Without ZeRO and with it: the fastest plan, the fastest on as many devices
as the paper's plan uses, and the fewest devices; each is proven.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from freed_choices import ANY_ZERO, WHOLE, paper_runs
from measure import ROOT, Target, console, machine, number, options, table, write_json
from reduced_memory import GIB, MIB, spell_bytes
from run_figures import plan_of

from nest.constraints import MaxDevices
from nest.files import read_problem
from nest.hardware import Hardware
from nest.problem import Problem
from nest.result import Result, Status
from nest.runs import Run, problem_of
from nest.solve import solve

LARGE = ROOT / "instances" / "gpt3-175b_tpuv4_1024.toml"
SMALLEST = frozenset({1})
"""Microbatches with which the fewest devices do: no stage holds more of them than of larger ones, in sequences."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model of the paper, the memory that it gives it, and the devices of its plan."""

    model: str
    hbm_bytes: int
    devices: int


CASES = (Case("Llama 3 70B", 24 * GIB, 641), Case("BERT-large", 120 * MIB, 980))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a case comes to with some widths and some types of ZeRO.

    Attributes
    ----------
    fastest_s, plan
        Of the fastest plan on all devices; the reason where there is none.
    limited_s
        Of the fastest on as many devices as the paper's.
    fewest
        Devices with which there is a plan at all, however slow.
    """

    model: str
    hbm_bytes: int
    tensor: str
    zero: str
    status: str
    fastest_s: float | None
    plan: str
    limited_s: float | None
    fewest: int | None
    cpu_s: float


def main() -> None:
    """Solve and print."""
    arguments = options(__doc__, "models with this text in their name").parse_args()
    screen = console()
    screen.print(machine(), soft_wrap=True)
    outcomes = []
    for outcome in (each for case in CASES if arguments.only in case.model for each in outcomes_of(case)):
        outcomes.append(outcome)
        found = f"{outcome.plan}, fewest devices {outcome.fewest}, {outcome.cpu_s:.1f} s of CPU"
        screen.print(f"{outcome.model}, tensor {outcome.tensor}, ZeRO {outcome.zero}: {found}", markup=False)
    show(outcomes)
    unproven = sum(outcome.status not in (Status.OPTIMAL, Status.INFEASIBLE) for outcome in outcomes)
    screen.print(Target("cases without a proof", unproven, 0).line(), markup=False)
    write_json(arguments.json, {"machine": machine(), "outcomes": [asdict(outcome) for outcome in outcomes]})


def outcomes_of(case: Case) -> Iterator[Outcome]:
    """Solve a case with the paper's tensor width and all, without ZeRO and with it."""
    run = next(each for each in paper_runs(read_problem(LARGE).cluster) if each.name.startswith(case.model))
    problem = problem_of(with_memory(run, case.hbm_bytes)).problem
    for tensor in (frozenset({1}), None):
        for zero in (WHOLE, ANY_ZERO):
            yield outcome_of(case, problem.with_choices(tensor=tensor, zero=zero, context=frozenset({1})))


def with_memory(run: Run, hbm_bytes: int) -> Run:
    """Return a run on devices with other memory, all of it for plans: the paper keeps nothing in reserve."""
    hardware = run.hardware
    cluster = replace(hardware.cluster, hbm_bytes=hbm_bytes)
    return replace(run, hardware=Hardware(hardware.device, cluster, hardware.facts), reserve_bytes=0)


def outcome_of(case: Case, problem: Problem) -> Outcome:
    """Solve a case with given widths and types of ZeRO."""
    begin = time.process_time()
    fastest = solve(problem)
    fits = fastest.plan is not None
    few = fewest(problem.with_choices(microbatch=SMALLEST)) if fits else None
    return Outcome(
        case.model,
        case.hbm_bytes,
        "1" if problem.choices.tensor else "any",
        "none" if problem.choices.zero == WHOLE else "free",
        fastest.status.value,
        fastest.objective_s,
        plan_of(fastest.plan) if fastest.plan else fastest.reason or "",
        limited(problem, case.devices).objective_s if fits else None,
        few,
        time.process_time() - begin,
    )


def fewest(problem: Problem) -> int:
    """Return with how few devices of the cluster there is a plan, however slow; there is one with all of them."""
    too_few, enough = 0, problem.cluster.devices
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        plan = limited(problem, middle).plan
        too_few, enough = (middle, enough) if plan is None else (too_few, min(middle, plan.used_devices))
    return enough


def limited(problem: Problem, devices: int) -> Result:
    """Return the fastest plan on so many devices of the cluster."""
    return solve(problem.with_constraints(MaxDevices(devices)))


COLUMNS = ("Model", "Memory", "Tensor", "ZeRO", "Fastest plan", "Iteration s", "On the paper's devices s")
MORE_COLUMNS = ("Fewest devices", "CPU s")


def show(outcomes: Sequence[Outcome]) -> None:
    """Show a row for each outcome."""
    made = table("Less memory, preset default, 1,024 devices", (*COLUMNS, *MORE_COLUMNS), left=5)
    for each in outcomes:
        made.add_row(
            each.model,
            spell_bytes(each.hbm_bytes),
            each.tensor,
            each.zero,
            each.plan if each.status == Status.OPTIMAL else each.status,
            number(each.fastest_s, ".4g"),
            number(each.limited_s, ".4g"),
            "-" if each.fewest is None else str(each.fewest),
            number(each.cpu_s, ".1f"),
        )
    console().print(made)


if __name__ == "__main__":
    main()
