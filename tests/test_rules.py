"""Each rule of `docs/formulation.md` by itself: a plan that breaks only it, and the judge reports exactly it."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from nest.cluster import Cluster, Level
from nest.evaluate import evaluate
from nest.graph import Edge, Layer, LayerGraph
from nest.plan import Plan, Sharding, Stage, inside_stage
from nest.presets import ARTIFACT, PAPER, Preset
from nest.problem import Choices, Problem, Training, Variant

ROOT = Path(__file__).resolve().parent.parent

NARROW, WIDE = Variant(1), Variant(2)
GRAPH = LayerGraph(
    tuple(Layer(name, 1.0, 2.0, 10, 1) for name in "abcd"), (Edge("a", "b", 5), Edge("b", "c", 5), Edge("c", "d", 5))
)
PROBLEM = Problem(
    "four layers on sixteen devices",
    {NARROW: GRAPH, WIDE: GRAPH},
    Cluster(16, 50, (Level(4, 100.0, 0.0), Level(4, 10.0, 0.0))),
    Training(4),
    Choices(
        tensor=frozenset({1}),
        replicas=frozenset({1, 2, 5}),
        stages=frozenset({2, 3}),
        zero=frozenset({0, 2}),
        zero_degree=frozenset({2, 12}),
        recompute="full",
    ),
)
"""A device holds 50 bytes. Two layers need 2 * 20 + 2 of them, three 63, all four over 12 devices 40 + 4 + 4."""

FIRST = Stage(("a", "b"), 1, 2, "full", inside_stage(2, 2))
LAST = Stage(("c", "d"), 0, 1)
WHOLE = Stage(("a", "b", "c", "d"), 0, 12, "none", inside_stage(2, 12))


def plan_of(first: Stage, last: Stage, *, replicas: int = 2, stride: int | None = None) -> Plan:
    """Return a plan of two stages whose replicas follow each other without a gap, unless said otherwise."""
    return Plan(NARROW, replicas, first.devices + last.devices if stride is None else stride, (first, last))


LEGAL = plan_of(FIRST, LAST)
BROKEN: dict[str, tuple[str, Plan]] = {
    "width not allowed": (
        "variant",
        Plan(WIDE, 2, 6, (replace(FIRST, first_device=2, devices=4), replace(LAST, devices=2))),
    ),
    "technology without a menu": ("technology", replace(LEGAL, technologies=("fibre",))),
    "layer left out": ("cover", plan_of(FIRST, replace(LAST, layers=("c",)))),
    "layer twice": ("cover", plan_of(FIRST, replace(LAST, layers=("b", "c", "d")))),
    "empty stage": ("cover", plan_of(replace(FIRST, layers=("a", "b", "c", "d")), replace(LAST, layers=()))),
    "stages swapped": ("order", plan_of(replace(FIRST, layers=("c", "d")), replace(LAST, layers=("a", "b")))),
    "layers swapped": ("order", plan_of(replace(FIRST, layers=("b", "a")), LAST)),
    "replicas not allowed": ("replicas", plan_of(FIRST, LAST, replicas=3)),
    "no replica": ("replicas", plan_of(FIRST, LAST, replicas=0)),
    "more replicas than microbatches": ("replicas", plan_of(FIRST, LAST, replicas=5)),
    "stages not allowed": ("stages", Plan(NARROW, 1, 12, (WHOLE,))),
    "schedule not allowed": ("schedule", replace(plan_of(FIRST, LAST), schedule="gpipe")),
    "chunks without interleaving": ("chunks", replace(plan_of(FIRST, LAST), chunks=2)),
    "recomputation left out": ("recompute", plan_of(replace(FIRST, recompute="none"), LAST)),
    "last stage recomputes": ("recompute", plan_of(FIRST, replace(LAST, recompute="full"))),
    "type not allowed": ("sharding", plan_of(replace(FIRST, sharding=inside_stage(3, 2)), LAST)),
    "degree not allowed": ("sharding", plan_of(replace(FIRST, devices=4, sharding=inside_stage(2, 4)), LAST)),
    "over replicas": ("sharding", plan_of(replace(FIRST, devices=1, sharding=Sharding("replicas", 2, 2)), LAST)),
    "block too wide": ("block", plan_of(replace(FIRST, devices=3), LAST)),
    "block too narrow": ("block", plan_of(replace(FIRST, devices=1), LAST)),
    "gap between stages": ("placement", plan_of(replace(FIRST, first_device=2), LAST)),
    "stages on the same device": ("placement", plan_of(replace(FIRST, first_device=0), LAST)),
    "first stage first": ("placement", plan_of(replace(FIRST, first_device=0), replace(LAST, first_device=2))),
    "gap between replicas": ("placement", plan_of(FIRST, LAST, stride=4)),
    "replicas on the same device": ("placement", plan_of(FIRST, LAST, stride=2)),
    "arrangement": ("placement", replace(LEGAL, arrangement="stage-major")),
    "too many devices": ("devices", plan_of(replace(FIRST, devices=12, sharding=inside_stage(2, 12)), LAST)),
    "too much memory": ("memory", plan_of(replace(FIRST, layers=("a",)), replace(LAST, layers=("b", "c", "d")))),
}
"""Case, the one rule it breaks, plan."""

both_presets = pytest.mark.parametrize("preset", [PAPER, ARTIFACT], ids=lambda preset: preset.name)


@both_presets
def test_legal_plan(preset: Preset) -> None:
    """The plan that the cases start from breaks no rule."""
    assert evaluate(PROBLEM.with_preset(preset), LEGAL).violations == ()


@both_presets
@pytest.mark.parametrize("case", BROKEN)
def test_one_broken_rule(case: str, preset: Preset) -> None:
    """The judge names the broken rule, and no other."""
    rule, plan = BROKEN[case]
    verdict = evaluate(PROBLEM.with_preset(preset), plan)
    assert {violation.rule for violation in verdict.violations} == {rule}, (case, verdict.violations)
    assert all(violation.message for violation in verdict.violations)


def test_load_out_of_range() -> None:
    """A ring whose latencies leave the range of ticks breaks the rule `range`, and no other.

    The layer takes 3e-6 s. To be off by at most 4 half ticks in 1e9 it asks for ticks of 1e-16 s, of which 2^60 are
    115 s. A ring over 65,536 devices waits 65,535 times for 1e-3 s, twice under ZeRO-3: 131 s.
    """
    graph = LayerGraph((Layer("a", 1e-6, 2e-6, 10, 1),), ())
    cluster = Cluster(65536, 50, (Level(65536, 1e9, 1e-3),))
    problem = Problem("one layer", {NARROW: graph}, cluster, Training(1))
    plan = Plan(NARROW, 1, 65536, (Stage(("a",), 0, 65536, "none", inside_stage(3, 65536)),))
    assert {violation.rule for violation in evaluate(problem, plan).violations} == {"range"}
    assert evaluate(problem, replace(plan, stages=(Stage(("a",), 0, 65536, "none", inside_stage(2, 65536)),))).legal


@pytest.mark.parametrize(
    ("plan", "rules"),
    [
        (plan_of(FIRST, LAST, stride=-1), {"placement", "devices"}),
        (plan_of(replace(FIRST, first_device=-1), LAST), {"placement", "devices"}),
        (plan_of(replace(FIRST, devices=0), LAST), {"block", "devices"}),
        (plan_of(replace(FIRST, devices=-100), LAST, stride=100), {"block", "placement", "devices"}),
    ],
    ids=["stride backwards", "before the first device", "no device", "absurd"],
)
def test_places_that_do_not_exist(plan: Plan, rules: set[str]) -> None:
    """A plan on devices that do not exist has no price, and the judge says so instead of failing."""
    verdict = evaluate(PROBLEM, plan)
    assert {violation.rule for violation in verdict.violations} == rules, verdict.violations
    assert verdict.objective_ticks is None


def test_memory_to_the_last_byte() -> None:
    """The last stage needs 2 * 20 + 2 bytes: a device of 42 holds them, one of 41.9 does not."""
    for hbm, broken in ((42, set()), (41.9, {"memory"})):
        problem = replace(PROBLEM, cluster=replace(PROBLEM.cluster, hbm_bytes=hbm))
        assert {violation.rule for violation in evaluate(problem, LEGAL).violations} == broken


def test_each_width_has_its_choice() -> None:
    """Every width of a variant can be ruled out by itself."""
    variant = Variant(1, 2, 3, True, 4)
    allowed = {"tensor": 1, "expert": 2, "context": 3, "microbatch": 4}
    for name, value in allowed.items():
        assert Choices(**{name: frozenset({value})}).admits(variant)  # type: ignore[arg-type]
        assert not Choices(**{name: frozenset({value + 1})}).admits(variant)  # type: ignore[arg-type]
    assert Choices(sequence=True).admits(variant)
    assert not Choices(sequence=False).admits(variant)


def test_zero_degrees() -> None:
    """Powers of two that the devices allow, or those of the list that they allow, or none."""
    free = PROBLEM.with_choices(zero_degree=None)
    assert free.zero_degrees(1) == (2, 4, 8, 16)
    assert free.zero_degrees(3) == (2, 4)
    assert free.zero_degrees(9) == ()
    assert PROBLEM.with_choices(zero_degree=frozenset({1, 3, 8, 9})).zero_degrees(2) == (3, 8)
    assert free.with_choices(zero=frozenset({0})).zero_degrees(1) == ()


def test_presets_are_described() -> None:
    """The formulation says of every field of a preset what it is, and nothing of others."""
    formulation = (ROOT / "docs" / "formulation.md").read_text(encoding="utf-8")
    table = formulation.split("\n## Presets\n")[1].split("\n## ")[0]
    described = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert described == [field.name for field in fields(Preset) if field.name != "name"]


def test_rules_have_one_name_everywhere() -> None:
    """The formulation, the judge and the cases above know the same rules."""
    formulation = (ROOT / "docs" / "formulation.md").read_text(encoding="utf-8")
    judge = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "nest" / "evaluate").glob("*.py"))
    described = re.findall(r"^### C(\d+) (\w+)$", formulation, re.MULTILINE)
    assert [int(number) for number, _ in described] == list(range(1, len(described) + 1))
    judged = set(re.findall(r'Violation\(\s*"(\w+)"', judge))
    assert {name for _, name in described} == judged
    assert judged == {rule for rule, _ in BROKEN.values()} | {"range", "nesting"}
