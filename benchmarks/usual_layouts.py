"""How much faster the optimum of preset ``default`` is than layouts that are recommended or published.

    python benchmarks/usual_layouts.py [--only TEXT]

A recommended layout settles tensor, context and expert width, stages and replicas; its microbatch, recomputation, ZeRO
and cuts are the best for it. Both are priced by the judge.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from nest.hardware import cluster_named
from nest.problem import Choices
from nest.result import Result
from nest.runs import contenders, read_run
from nest.solve import solve

INSTANCES = Path(__file__).resolve().parents[1] / "instances"
STARTING_POINTS = "NVIDIA Megatron Bridge, parallelism strategies, recommended starting points"


@dataclass(frozen=True)
class Usual:
    """A layout that people use: on which instance, on which cluster, and who says so."""

    instance: str
    cluster: str
    global_batch: int
    widths: tuple[int, int, int]
    stages: int
    replicas: int
    source: str = STARTING_POINTS

    @property
    def choices(self) -> Choices:
        """The choices that it settles."""
        tensor, context, expert = (frozenset({width}) for width in self.widths)
        return Choices(
            tensor=tensor,
            context=context,
            expert=expert,
            stages=frozenset({self.stages}),
            replicas=frozenset({self.replicas}),
        )


USUAL = (
    Usual("llama3-8b_h100_64", "dgx-h100:16", 128, (2, 1, 1), 1, 8),
    Usual("llama3-8b_h100_64", "dgx-h100:16", 128, (4, 1, 1), 1, 4),
    Usual("llama3-70b_h100_512", "dgx-h100:64", 128, (4, 1, 1), 4, 4),
    Usual("llama3-70b_h100_512", "dgx-h100:64", 128, (8, 1, 1), 4, 2),
    Usual("gpt3-175b_a100_1024", "dgx-h100:256", 512, (8, 1, 1), 8, 4),
    Usual("llama3-405b_h100_16384", "dgx-h100:1024", 512, (8, 2, 1), 16, 4),
    Usual("deepseek-v3_h800_2048", "h800:2048", 15360, (2, 1, 64), 16, 1),
    Usual("llama3-405b_h100_16384", "dgx-h100:16384", 2048, (8, 1, 1), 16, 128, "arXiv 2407.21783, table 4"),
)


def main() -> None:
    """Print a row for each layout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only instances with this text in their name")
    only = parser.parse_args().only
    best: dict[tuple[str, str], Result] = {}
    for usual in USUAL:
        if only in usual.instance:
            key = usual.instance, usual.cluster
            if key not in best:
                best[key] = solved(usual, Choices())
            print(row(usual, solved(usual, usual.choices), best[key]), flush=True)


def solved(usual: Usual, choices: Choices) -> Result:
    """Solve the run of a layout under some choices."""
    run = read_run(INSTANCES / f"{usual.instance}.toml")
    hardware = cluster_named(usual.cluster)
    return solve(contenders(replace(run, hardware=hardware, global_batch=usual.global_batch, choices=choices)).problem)


def row(usual: Usual, theirs: Result, best: Result) -> str:
    """Return a row of a table: model, cluster, layout, its time, ours, the ratio, and the plan that is best."""
    tensor, context, expert = usual.widths
    layout = f"t{tensor} c{context} e{expert} p{usual.stages} d{usual.replicas}"
    if theirs.objective_s is None or best.objective_s is None:
        return f"| {usual.instance} | {usual.cluster} | {layout} | none: {theirs.reason} |"
    ratio = theirs.objective_s / best.objective_s
    times = f"{theirs.objective_s:.4g} s | {best.objective_s:.4g} s | {ratio:.3f}"
    return f"| {usual.instance} | {usual.cluster} | {layout} | {times} | {plan_of(best)} |"


def plan_of(result: Result) -> str:
    """Return a plan in a few letters."""
    plan = result.plan
    assert plan is not None
    variant, zero = plan.variant, max(stage.sharding.zero for stage in plan.stages)
    again = "/".join(sorted({stage.recompute for stage in plan.stages}))
    widths = f"t{variant.tensor} c{variant.context} e{variant.expert} p{len(plan.stages)} d{plan.replicas}"
    return f"{widths} b{variant.microbatch} recompute {again}, ZeRO-{zero}"


if __name__ == "__main__":
    main()
