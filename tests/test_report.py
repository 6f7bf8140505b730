"""Reports: numbers as text, the size of the space, the figures of a plan, and what a terminal shows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from random_problems import Size, random_plan, random_problem, show_problem
from rich.console import Console

from nest.cli.program import run
from nest.cluster import Cluster, Level
from nest.constraints import MaxDevices, MaxStages
from nest.evaluate import evaluate
from nest.graph import Edge, Layer, LayerGraph, LayerId
from nest.plan import Plan, Stage
from nest.presets import ARTIFACT, DEFAULT, PAPER
from nest.problem import Choices, Problem, Training, Variant
from nest.report.facts import problem_facts
from nest.report.figures import PricedPlan
from nest.report.format import bandwidth, count, counted, duration, layer_range, percent, size
from nest.report.layout import Screen
from nest.report.problem import problem_text
from nest.report.progress import ProgressBar
from nest.report.space import plans_of
from nest.report.stage_table import groups
from nest.report.terminal import solution_text, verdict_text
from nest.report.verdict import differences, verdict_document
from nest.result import Progress, Result, Status
from nest.units import TimeScale

ROOT = Path(__file__).resolve().parents[1]
MANY = Size(layers=40, devices=64, levels=4)

DURATIONS = {
    0: "0 s",
    1: "1 s",
    43.51812: "43.52 s",
    0.99996: "1 s",
    0.99994: "999.9 ms",
    12345.6: "12346 s",
    0.0123456: "12.35 ms",
    1e-6: "1 µs",
    2.5e-9: "2.5 ns",
    1e-12: "0.001 ns",
}

SIZES = {0: "0 B", 1: "1 B", 0.5: "0.5 B", 1023.9: "1 KiB", 2**36: "64 GiB", 1e12: "931 GiB"}

LAYERS: dict[str, list[LayerId]] = {
    "-1, 0-3": [-1, 0, 1, 2, 3],
    "5": [5],
    "3, 5-6": [3, 5, 6],
    "in, b0-2, out": ["in", "b0", "b1", "b2", "out"],
    "7, 8": [7, "8"],
    "a9-10": ["a9", "a10"],
    "a1, b2": ["a1", "b2"],
    "layer_0 … layer_56": [f"layer_{7 * at}" for at in range(9)],
}

ROWS = """
0   0 (1)  2  5.000 s  35.0 B  ━───────  3 %  level 1
1*  1 (1)  1  5.100 s  30.0 B  ━───────  3 %  pair
2   2 (1)  0  5.000 s  25.0 B  ━───────  2 %  -
"""


def chain(layers: int = 4, devices: int = 8, *, inner: int = 2, name: str = "chain") -> Problem:
    """Return a chain of equal layers, 1 s forward and 2 s backward, on groups of ``inner`` devices."""
    nodes = tuple(Layer(at, 1.0, 2.0, 10, 5) for at in range(layers))
    edges = tuple(Edge(at, at + 1, 100) for at in range(layers - 1))
    levels = (Level(inner, 1e3, 0.0, "pair"), Level(devices // inner, 1e2, 0.0))
    cluster = Cluster(devices, 1000, levels)
    return Problem(name, {Variant(1): LayerGraph(nodes, edges)}, cluster, Training(16))


def one_layer_each(problem: Problem, replicas: int = 1) -> Plan:
    """Return the plan with a stage for each layer, one device each."""
    layers = problem.graphs[Variant(1)].layers
    stages = tuple(Stage((layer.id,), len(layers) - 1 - at, 1) for at, layer in enumerate(layers))
    return Plan(Variant(1), replicas, len(layers), stages)


def priced(problem: Problem, plan: Plan) -> PricedPlan:
    """Return a plan that is known to have a price with it."""
    found = PricedPlan.of(problem, plan, evaluate(problem, plan))
    assert found is not None
    return found


def solution(problem: Problem, plan: Plan | None, *, status: Status = Status.OPTIMAL, reason: str = "") -> Result:
    """Return a solver's answer that holds a plan."""
    evaluation = None if plan is None else evaluate(problem, plan)
    objective = None if evaluation is None else evaluation.objective_ticks
    time = TimeScale(9) if evaluation is None else evaluation.scale.time
    bound = objective if status is Status.OPTIMAL else None
    return Result(status, objective, bound, time, problem.time_unit_s, "dp", 0.5, reason or None, plan)


@pytest.mark.parametrize(("seconds", "text"), DURATIONS.items())
def test_duration(seconds: float, text: str) -> None:
    """Four digits in the unit that suits, also where rounding reaches the next unit."""
    assert duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), SIZES.items())
def test_size(number: float, text: str) -> None:
    """Memory is in binary multiples."""
    assert size(number) == text


def test_aligned_numbers_keep_their_digits() -> None:
    """Numbers in one column of a table have their points below each other."""
    assert [duration(0.277, aligned=True), duration(0.2692, aligned=True)] == ["277.0 ms", "269.2 ms"]
    assert size(30 * 2**30, aligned=True) == "30.0 GiB"


def test_bandwidth() -> None:
    """Networks are in decimal multiples."""
    assert [bandwidth(966367641600), bandwidth(1e9), bandwidth(5)] == ["966 GB/s", "1 GB/s", "5 B/s"]


def test_percent_never_hides_an_excess() -> None:
    """Almost full is not full, and a byte too many is more than full."""
    assert [percent(999, 1000), percent(1000, 1000), percent(1001, 1000)] == ["99 %", "100 %", "101 %"]


def test_count() -> None:
    """Counts are exact as long as a person reads them, then a power of ten, however large."""
    assert count(999_999_999_999) == "999,999,999,999"
    assert count(10**12) == "1.00 x 10^12"
    assert count(10**41 - 1) == "1.00 x 10^41"
    assert count(7 * 10**9000) == "7.00 x 10^9000"


def test_counted() -> None:
    """Nouns follow their number."""
    assert [counted(1, "microbatch"), counted(2, "microbatch"), counted(0, "stage")] == [
        "1 microbatch",
        "2 microbatches",
        "0 stages",
    ]


@pytest.mark.parametrize(("text", "ids"), LAYERS.items())
def test_layer_range(text: str, ids: list[LayerId]) -> None:
    """Neighbours are joined, by number or by name, and long lists give their ends."""
    assert layer_range(ids) == text


def every_plan(problem: Problem, variant: Variant) -> Iterator[tuple[object, ...]]:
    """Yield every plan that fits on the devices, one by one."""
    choices, layers = problem.choices, len(problem.graphs[variant])
    shardings = [(0, 1)] if 0 in choices.zero else []
    shardings += list(product(choices.zero - {0}, problem.zero_degrees(variant.width)))
    for cuts in product([False, True], repeat=layers - 1):
        stages = sum(cuts) + 1
        if choices.stages is not None and stages not in choices.stages:
            continue
        for picked in product(shardings, repeat=stages):
            pipeline = variant.width * sum(degree for _, degree in picked)
            for replicas in range(1, problem.training.microbatches + 1):
                if choices.replicas is not None and replicas not in choices.replicas:
                    continue
                if replicas * pipeline <= problem.cluster.devices:
                    yield cuts, picked, replicas


@pytest.mark.parametrize("seed", range(120))
def test_space_is_counted_exactly(seed: int) -> None:
    """The polynomials count what an enumeration finds, under every kind of choice."""
    problem = random_problem(seed, Size(layers=4, devices=10))
    want = {variant: sum(1 for _ in every_plan(problem, variant)) for variant in problem.variants}
    assert plans_of(problem) == want, show_problem(problem)


def test_space_of_a_large_cluster() -> None:
    """Without sharding the count is a sum of binomials, which holds for sizes that no enumeration reaches."""
    problem = chain(layers=2000, devices=4096).with_choices(zero=frozenset({0}), replicas=frozenset({2}))
    assert plans_of(problem) == {Variant(1): 2**1999}


@pytest.mark.parametrize("preset", [PAPER, ARTIFACT], ids=lambda preset: preset.name)
@pytest.mark.parametrize("seed", range(60))
def test_terms_make_the_objective(seed: int, preset: object) -> None:
    """What a report says about an iteration adds up to the judge's price."""
    problem = random_problem(seed, MANY).with_preset(PAPER if preset is PAPER else ARTIFACT)
    plan = random_plan(seed, problem)
    evaluation = evaluate(problem, plan)
    found = PricedPlan.of(problem, plan, evaluation)
    if found is None:
        assert "devices" in {violation.rule for violation in evaluation.violations}
        return
    assert found.iteration_s == pytest.approx(found.load_s * found.rounds + found.sync_s, rel=1e-12)
    assert found.devices_used == plan.replicas * plan.replica_stride <= problem.cluster.devices
    assert found.microbatches * plan.replicas >= problem.training.microbatches
    assert {found.evaluation.loads_s[at] for at in found.slowest} == {found.load_s}
    assert found.evaluation.memory_bytes[found.fullest[0]] == found.fullest[1]


def test_boundaries_by_hand() -> None:
    """Three one-device stages on pairs: the last two share a pair, the first is beyond it.

    Replica 1 begins at device 3, so that there it is the first two that share a pair. It counts where it is slower:
    with a large tensor from the second stage to the third.
    """
    problem = chain(layers=3)
    graph = problem.graphs[Variant(1)]
    large = replace(problem, graphs={Variant(1): replace(graph, edges=(Edge(0, 1, 100), Edge(1, 2, 1000)))})
    assert priced(problem, one_layer_each(problem)).boundaries == (1, 0)
    assert priced(large, one_layer_each(large)).boundaries == (1, 0)
    assert priced(large, one_layer_each(large, replicas=2)).boundaries == (1, 1)
    judged = evaluate(large, one_layer_each(large)).stages
    assert [stage.levels for stage in judged] == [(0, 1, 0), (1, 0, 0), (0, 0, 0)], "entry, exit, block"
    artifact = large.with_preset(ARTIFACT)
    assert priced(artifact, one_layer_each(artifact, replicas=2)).boundaries == (1, 0)


@pytest.mark.parametrize("seed", range(80))
def test_plan_fits_80_columns(seed: int) -> None:
    """No line of a plan is wider than the screen, and nothing in it is cut off."""
    problem = random_problem(seed, MANY)
    plan = random_plan(seed, problem)
    text = solution_text(problem, solution(problem, plan), Screen())
    assert max(map(len, text.splitlines())) <= 80, text
    assert "\x1b" not in text
    assert text.count("…") == text.count(" … "), text
    figures = PricedPlan.of(problem, plan, evaluate(problem, plan))
    if figures is not None:
        assert text.count("*") == 1 + sum(group.start in figures.slowest for group in groups(figures)), text


def test_long_names_are_not_cut() -> None:
    """A screen that is too narrow makes long lines, it never hides a figure."""
    problem = chain(layers=3)
    names = ["a_layer_of_some_name", "b_layer_of_some_name", "c"]
    layers = tuple(
        replace(layer, id=name) for layer, name in zip(problem.graphs[Variant(1)].layers, names, strict=True)
    )
    graph = LayerGraph(layers, (Edge(names[0], names[1], 1), Edge(names[1], names[2], 1)))
    problem = replace(problem, graphs={Variant(1): graph})
    for width in (20, 80, 100):
        text = solution_text(problem, solution(problem, one_layer_each(problem)), Screen(width))
        assert all(name in text.split() for name in names), text


def test_plan_table_by_hand() -> None:
    """The rows and the summary of a small plan, as a person would write them down."""
    problem = chain(layers=3).with_choices(zero=frozenset({0}))
    text = solution_text(problem, solution(problem, one_layer_each(problem, replicas=2)), Screen())
    assert [line.split() for line in text.splitlines()[2:5]] == [row.split() for row in ROWS.splitlines()[1:]]
    for line in (
        "Status     optimal: proven, no plan of the space is faster",
        "           = 5.1 s x (8 microbatches + 2 to fill) + 210 ms sync",
        "Spent      compute 46.9 %, p2p 32.8 %, bubble 19.9 %, sync 0.4 %",
        "Limit      18 s if 8 devices only computed layers: the iteration takes 2.85",
        "Plan       tensor 1 x expert 1 x context 1, 3 stages, 2 replicas",
        "           no recomputation; no ZeRO",
        "Devices    6 of 8 (75 %), replicas 3 apart",
        "Binds      stage 1 (*): compute 3 s, p2p 2.1 s",
    ):
        assert line in text.splitlines(), text


def test_alike_stages_share_a_row() -> None:
    """Of many stages, neighbours that differ in place and memory only are one row, and every stage is in one."""
    problem = chain(layers=40, devices=64, inner=8)
    figures = priced(problem, one_layer_each(problem))
    rows = groups(figures)
    assert [at for row in rows for at in row] == list(range(40))
    assert rows[1] == range(1, 7), "stages 1 to 6 have both neighbours in their group of 8, stage 7 has not"
    for row in rows:
        assert len({figures.evaluation.stages[at].load for at in row}) == 1
        assert len({figures.boundaries[at : at + 1] for at in row}) == 1


def test_colours_only_on_request() -> None:
    """A terminal gets colours, a file none, and the text is the same."""
    problem = chain()
    result = solution(problem, one_layer_each(problem))
    plain, coloured = (solution_text(problem, result, Screen(80, colour)) for colour in (False, True))
    assert "\x1b[" in coloured
    assert Console(file=io.StringIO(), width=200).render_str(plain).plain
    assert "\x1b" not in plain


def test_names_are_no_markup() -> None:
    """Names from files are shown as they are, whatever brackets and colons they hold, in tables too."""
    level = "[bold]x :cat:"
    problem = chain(name="[bold]x[/nonsense] :cat:")
    levels = (replace(problem.cluster.levels[0], name=level), *problem.cluster.levels[1:])
    problem = replace(problem, cluster=replace(problem.cluster, levels=levels))
    text = problem_text(problem, Screen())
    assert problem.name in text
    assert f"\n{level} " in text


def test_infeasible_gives_the_reason() -> None:
    """Where there is no plan, the reason is what a person reads."""
    result = solution(chain(), None, status=Status.INFEASIBLE, reason="layer 0 needs 3 GiB, a device has 2")
    text = solution_text(chain(), result, Screen())
    assert "infeasible: layer 0 needs 3 GiB, a device has 2" in text
    assert "Iteration" not in text


@pytest.mark.parametrize(("bound", "words"), [(None, ""), (8, "(gap 25 %)"), (0, "no plan takes less")])
def test_gap_of_an_unproven_plan(bound: int | None, words: str) -> None:
    """A plan that is not proven says how far it may be from the best; an unknown bound is no bound of zero."""
    problem = chain()
    result = replace(
        solution(problem, one_layer_each(problem)), status=Status.FEASIBLE, objective_ticks=10, bound_ticks=bound
    )
    text = solution_text(problem, result, Screen())
    assert "feasible, not proven optimal" in text
    assert words in text
    assert ("Bound" in text) == (bound is not None)


def test_broken_rules_are_named() -> None:
    """Each broken rule is listed; of one that is broken often, the first few."""
    problem = chain(layers=8).with_choices(stages=frozenset({1}))
    problem = replace(problem, cluster=replace(problem.cluster, hbm_bytes=1))
    plan = one_layer_each(problem)
    evaluation = evaluate(problem, plan)
    lines = verdict_text(problem, plan, evaluation, Screen()).splitlines()
    assert "Verdict    breaks the rules stages, memory" in lines
    assert sum("memory: " in line for line in lines) == 4
    assert "           and 4 more" in lines


def test_plan_without_a_price_has_no_table() -> None:
    """A plan that leaves layers out has broken rules only."""
    problem = chain()
    plan = replace(one_layer_each(problem), stages=one_layer_each(problem).stages[1:])
    evaluation = evaluate(problem, plan)
    text = verdict_text(problem, plan, evaluation, Screen())
    assert "cover: " in text
    assert "Stage" not in text
    document = verdict_document(problem, plan, evaluation, 3.0)
    assert (document["objective"], document["stages"], document["differences"]) == (None, [], [])


def test_claims_that_do_not_hold() -> None:
    """A figure of the file that is not the judge's is reported with both values, one that is not claimed never."""
    problem = chain()
    plan = one_layer_each(problem)
    evaluation = evaluate(problem, plan)
    true = plan.with_figures(evaluation.loads_s, evaluation.memory_bytes)
    objective = priced(problem, plan).objective
    assert differences(priced(problem, plan), objective) == []
    assert differences(priced(problem, true), objective) == []
    false = replace(true, stages=(replace(true.stages[0], load_s=1.0), *true.stages[1:-1], true.stages[-1]))
    false = replace(false, stages=(*false.stages[:-1], replace(false.stages[-1], memory_bytes=7)))
    found = differences(priced(problem, false), 2 * objective)
    assert [(claim.where, claim.claimed) for claim in found] == [
        ("objective", 2 * objective),
        ("stages[0].load_s", 1.0),
        ("stages[3].memory_bytes", 7),
    ]
    assert "Differs    objective: claimed" in verdict_text(problem, false, evaluation, Screen(), 2 * objective)


def test_problem_text_says_what_was_read() -> None:
    """Every figure by which a wrong file shows is there."""
    problem = replace(chain(), source="measured by hand", choices=Choices(tensor=frozenset({1}), recompute="full"))
    text = problem_text(problem, Screen())
    for words in ("measured by hand", "8 devices of 1000 B", "16 microbatches, sgd", "pair", "1 kB/s", "level 1"):
        assert words in text, words
    assert "tensor 1; recompute full; everything else free" in text
    assert f"{plans_of(problem)[Variant(1)]:,} plans" in text
    assert max(map(len, text.splitlines())) <= 80


def test_equal_layers_and_many_variants_are_put_together() -> None:
    """A run of many layers and widths fits on a screen: its problem was hundreds of rows long."""
    typed = ["show", str(ROOT / "instances" / "llama3-8b_h100_64.toml")]
    with redirect_stdout(io.StringIO()) as shown:
        assert run(typed) == 0
    lines = shown.getvalue().splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 80
    assert [line.split()[:3] for line in lines if " attention+mlp " in line] == [["1-32", "32", "attention+mlp"]]
    wide = next(line.split() for line in lines if line.startswith("8 ") and " yes " in line)
    assert wide[2] == "1", "the model has no experts"


def test_kinds_of_layers_are_cut_off() -> None:
    """Of a model whose layers all differ, the first are shown and the rest is counted."""
    problem = chain(30)
    graph = problem.graphs[Variant(1)]
    layers = tuple(replace(layer, forward_s=1.0 + at) for at, layer in enumerate(graph.layers))
    text = problem_text(replace(problem, graphs={Variant(1): replace(graph, layers=layers)}), Screen(120))
    assert "Layers of 18 more kinds are not shown." in text


def test_problem_shows_side_constraints() -> None:
    """What a plan has to keep is there for a person and a program, and that the number of plans leaves it aside."""
    problem = chain().with_constraints(MaxStages(1), MaxDevices(3))
    text = problem_text(problem, Screen())
    for words in ("max_stages: at most 1 stage", "max_devices: at most 3 devices", "side constraints aside"):
        assert words in text, words
    assert "aside" not in problem_text(chain(), Screen())
    told = [{"kind": "max_stages", "text": "at most 1 stage"}, {"kind": "max_devices", "text": "at most 3 devices"}]
    assert problem_facts(problem)["constraints"] == told


def test_space_says_which_plans_it_leaves_out() -> None:
    """Plans whose stages differ in width, or take from one branch first, are many more, and nobody counts them."""
    wide = chain().with_preset(DEFAULT)
    assert " plans fit on the devices\n" in problem_text(wide, Screen(120))
    for own in ({"stage_tensor": frozenset({1})}, {"shard_inside": frozenset({1, 2})}):
        said = " plans whose stages are all of one width fit on the devices\n"
        assert said in problem_text(wide.with_choices(**own), Screen(120))
    graph = wide.graphs[Variant(1)]
    loose = replace(graph, edges=tuple(Edge(0, at, 100) for at in range(1, len(graph))))
    said = " plans along one order of the layers fit on the devices\n"
    assert said in problem_text(replace(wide, graphs={Variant(1): loose}), Screen(120))


def test_problem_facts_by_hand() -> None:
    """The same as numbers: sums over the layers, choices as lists, None where free."""
    facts = problem_facts(chain().with_choices(stages=frozenset({3, 1})))
    assert facts["variants"] == [
        {
            "tensor": 1,
            "expert": 1,
            "context": 1,
            "sequence": False,
            "microbatch": 1,
            "layers": 4,
            "parameter_bytes": 40,
            "activation_bytes": 20,
            "forward_s": 4.0,
            "backward_s": 8.0,
            "plans": facts["plans"],
        }
    ]
    choices = facts["choices"]
    assert isinstance(choices, dict)
    assert (choices["stages"], choices["tensor"]) == ([1, 3], None)


def progress_shown(patience_s: float) -> str:
    """Return what a progress bar draws while a search settles 3 of 7 choices."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with ProgressBar(TimeScale(3), console, patience_s) as bar:
        bar(Progress(1, 7, None))
        bar(Progress(3, 7, 2500))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_progress_bar() -> None:
    """A long search shows how far it is and its best plan; a short one draws nothing."""
    shown = progress_shown(0)
    assert "3/7" in shown
    assert "best 2.5 s" in shown
    assert progress_shown(60) == ""
