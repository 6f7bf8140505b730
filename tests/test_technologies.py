"""Menus of network technologies: the rule, the order of the search, files, and what the provers cover."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from random_problems import random_problem as random_levelled
from random_technologies import random_menus, with_menus

from nest.certify import PROVERS, Finding, certify, certify_result
from nest.cli import run
from nest.cluster import Cluster, Level, Technology
from nest.cost.scale import scale_of
from nest.errors import InvalidPlan, InvalidProblem, OutOfScope
from nest.evaluate import evaluate
from nest.explain import explain
from nest.files import apply_settings, read_plan, read_problem, write_plan, write_problem
from nest.files.cluster_file import read_cluster
from nest.graph import Edge, Layer, LayerGraph
from nest.objectives import price_frontier
from nest.plan import Plan, Stage
from nest.presets import DEFAULT, PAPER, Preset
from nest.problem import Choices, Problem, Training, Variant
from nest.report.figures import PricedPlan
from nest.result import Result, Status
from nest.solve import solve
from nest.tables import Tables
from nest.technologies import Combination, affordable, best_of, worth_trying

FAST = Technology("fast", 100.0, 0.001, 3)
SLOW = Technology("slow", 10.0, 0.002, 1)
NEAR = Technology("near", 10.0, 0.0005, 2.5)
GRAPH = LayerGraph(tuple(Layer(at, 1.0, 2.0, 10, 1) for at in range(4)), tuple(Edge(at, at + 1, 5) for at in range(3)))


def problem_of(*menu: Technology, preset: Preset = DEFAULT, most: float | None = None) -> Problem:
    """Return four layers on four devices, of which two and two are far apart."""
    cluster = Cluster(4, 1000, (Level(2, 1000.0, 0.0), Level.menu(2, menu or (FAST, SLOW, NEAR), "far")))
    return Problem("far", {Variant(1): GRAPH}, cluster, Training(4), Choices(price_at_most=most), preset)


def whole_plan(*technologies: str) -> Plan:
    """Return one stage on one device."""
    return Plan(Variant(1), 1, 1, (Stage((0, 1, 2, 3), 0, 1),), "stage-major", technologies=technologies)


@pytest.mark.parametrize(
    ("names", "most", "message"),
    [
        ((), None, "names none, one of each menu is due: fast or slow or near"),
        (("copper",), None, "names copper, one of each menu"),
        (("fast", "fast"), None, "names fast, fast, one of each menu"),
        (("fast",), 11.5, "fast cost 12, allowed are 11.5"),
        (("fast",), 12, ""),
        (("near",), 10, ""),
    ],
)
def test_rule(names: tuple[str, ...], most: float | None, message: str) -> None:
    """C14: one of each menu, four devices of it within the budget, and nothing else is broken."""
    verdict = evaluate(problem_of(most=most), whole_plan(*names))
    found = [(violation.rule, violation.message) for violation in verdict.violations]
    assert [rule for rule, _ in found] == (["technology"] if message else [])
    assert all(message in text for _, text in found)
    assert (verdict.objective_ticks is None) == ("menu" in message), "no links, no price"


def test_rule_where_the_cluster_is_built() -> None:
    """What is settled stays settled, and costs the same as when it was chosen."""
    problem = problem_of()
    built = problem.built([SLOW])
    assert evaluate(built, whole_plan("slow")) == evaluate(problem, whole_plan("slow"))
    (violation,) = evaluate(built, whole_plan("fast")).violations
    assert (violation.rule, violation.message) == ("technology", "the plan names fast, the cluster has slow")
    assert solve(built).plan == solve(problem_of(SLOW)).plan


@pytest.mark.parametrize("preset", [DEFAULT, PAPER], ids=lambda preset: preset.name)
@pytest.mark.parametrize("seed", range(12))
def test_tick_is_that_of_every_choice(seed: int, preset: Preset) -> None:
    """Whatever is chosen, the tick is the same, and no coarser than that of the problem with this choice alone."""
    problem = random_menus(seed).with_preset(preset) if preset is DEFAULT else levelled_menus(seed)
    try:
        exponent = scale_of(problem).time.exponent
    except InvalidProblem:
        return
    for each in problem.cluster.combinations():
        built = problem.built(each)
        assert scale_of(built) == scale_of(problem)
        alone = tuple(replace(level, alternatives=()) for level in built.cluster.levels)
        single = replace(problem, cluster=replace(built.cluster, levels=alone, technologies=()))
        assert scale_of(single).time.exponent >= min(exponent, 15), (
            "the longest time of all is no shorter than this one's"
        )


def levelled_menus(seed: int) -> Problem:
    """Return a problem with menus under a preset whose network times follow from levels."""
    import random  # noqa: PLC0415 - the seed is this function's own

    return with_menus(random.Random(seed), random_levelled(seed))


@pytest.mark.parametrize("seed", range(40))
def test_other_presets(seed: int) -> None:
    """Under them, too, the answer is the best of those with each choice made, of equals the cheapest."""
    problem = levelled_menus(seed)
    result = solve(problem)
    each = [(solve(problem.built(one.technologies)), one.price) for one in affordable(problem)]
    found = [(one.objective_ticks, price) for one, price in each if one.objective_ticks is not None]
    if not found:
        assert result.status is Status.INFEASIBLE
        return
    assert result.plan is not None
    assert result.status is Status.OPTIMAL
    assert evaluate(problem, result.plan).legal
    price = problem.cluster.price(problem.cluster.named(result.plan.technologies) or ())
    assert (result.objective_ticks, price) == min(found)
    certificate = certify(problem, result.plan)
    assert certificate.finding is Finding.OPTIMAL


def test_equally_fast_the_cheaper() -> None:
    """Where nothing crosses, every technology is as fast, and the cheapest is taken although it is the slowest."""
    result = solve(problem_of().with_choices(stages=frozenset({1}), replicas=frozenset({1})))
    assert result.plan is not None
    assert result.plan.technologies == ("slow",)


def test_dominated_choices_are_not_asked() -> None:
    """No better in anything and no cheaper: never tried. Another kind of link is another matter."""
    worse = Technology("worse", 10.0, 0.002, 1)
    other = replace(worse, name="other", link="tcp")
    names = [one.technologies[0].name for one in worth_trying(affordable(problem_of(SLOW, worse, FAST, NEAR, other)))]
    assert names == ["slow", "fast", "near", "other"]
    assert [
        one.technologies[0].name
        for one in worth_trying(affordable(problem_of(FAST, replace(SLOW, price_per_device=3))))
    ] == ["fast"]


class Recorder:
    """Answers from a list of times, and notes what was asked."""

    def __init__(self, ticks: dict[str, int], stop_at: str = "") -> None:
        self.ticks, self.asked, self.stop_at = ticks, list[tuple[str, int | None]](), stop_at

    def __call__(self, problem: Problem, most: int | None) -> Result:
        """Return the plan of a choice if it takes less."""
        (name,) = problem.cluster.technologies
        self.asked.append((name, most))
        ticks, time = self.ticks[name], scale_of(problem).time
        if name == self.stop_at:
            return Result(Status.UNKNOWN, None, 3, time, 1.0, "test", 0.0, "time is up")
        if most is not None and ticks >= most:
            return Result(Status.NONE_BETTER, None, most, time, 1.0, "test", 0.0)
        return Result(Status.OPTIMAL, ticks, ticks, time, 1.0, "test", 0.0, plan=whole_plan(name))


def test_order_and_caps() -> None:
    """The fastest first; then only what is better counts, or as good and cheaper; a bound of the faster suffices."""
    recorder = Recorder({"fast": 10, "slow": 12, "near": 10})
    result = best_of(problem_of(), recorder)
    assert recorder.asked == [("near", None), ("fast", 10), ("slow", 11)]
    assert result.status is Status.OPTIMAL
    assert result.plan is not None
    assert (result.plan.technologies, result.objective_ticks, result.bound_ticks) == (("near",), 10, 10)


def test_bound_is_that_of_the_choice_least_known() -> None:
    """A choice whose time was up leaves its own bound, and the answer is not optimal."""
    result = best_of(problem_of(), Recorder({"fast": 10, "slow": 12, "near": 10}, stop_at="near"))
    assert (result.status, result.objective_ticks, result.bound_ticks) == (Status.FEASIBLE, 10, 3)
    assert result.reason == "time is up"


def test_better_than() -> None:
    """One above the optimum is beaten by it alone, the optimum itself by nothing."""
    problem = problem_of()
    best = solve(problem).objective_ticks
    assert best is not None
    assert solve(problem, better_than=best + 1).objective_ticks == best
    none = solve(problem, better_than=best)
    assert (none.status, none.bound_ticks) == (Status.NONE_BETTER, best)


@pytest.mark.parametrize("seed", range(30))
def test_front_of_price_and_time(seed: int) -> None:
    """Every choice is beaten by a point in both or is one, and each point is the best of a budget."""
    problem = random_menus(seed)
    try:
        front = price_frontier(problem)
    except InvalidProblem:
        return
    found = [(one.price, solve(problem.built(one.technologies)).objective_ticks) for one in affordable(problem)]
    known = [(price, ticks) for price, ticks in found if ticks is not None]
    beaten = {pair for pair in known for one in known if one != pair and one[0] <= pair[0] and one[1] <= pair[1]}
    assert [(point.price, point.ticks) for point in front.points] == sorted(set(known) - beaten)
    assert front.complete
    assert all(evaluate(problem, point.plan).legal for point in front.points)
    assert bool(front.reason) == (not front.points)


def test_front_needs_a_menu() -> None:
    """Where nothing has a price there is no front."""
    with pytest.raises(InvalidProblem, match="no level has a menu"):
        price_frontier(replace(problem_of(), cluster=Cluster(4, 1000, (Level(4, 1.0, 0.0),))))


def test_front_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each point, as text and as JSON; what goes with devices only is refused."""
    path = str(tmp_path / "problem.toml")
    write_problem(problem_of(), path)
    assert run(["frontier", path, "--against", "price"]) == 0
    assert "fast" in capsys.readouterr().out
    assert run(["frontier", path, "--against", "price", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [point["plan"]["technologies"] for point in points][-1] == ["fast"]
    assert [point["price"] for point in points] == sorted(point["price"] for point in points)
    assert run(["frontier", path, "--against", "price", "--certify"]) == 2
    assert "--certify goes with --against devices" in capsys.readouterr().err
    assert run(["frontier", path, "--against", "price", "--set", "price_at_most=3"]) == 3


def test_solution_names_technologies_and_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report says what the links are and what they cost, of a solution and of a plan that is judged."""
    path = str(tmp_path / "problem.toml")
    write_problem(problem_of(most=10.5).with_choices(stages=frozenset({4})), path)
    assert run(["solve", path, "-o", str(tmp_path / "plan.json")]) == 0
    assert "far near; price 10" in capsys.readouterr().out
    assert run(["evaluate", path, str(tmp_path / "plan.json")]) == 0
    assert "far near; price 10" in capsys.readouterr().out
    assert run(["simulate", str(tmp_path / "plan.json"), "--problem", path]) == 0


def test_show_lists_the_menu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each technology is a row of the levels, and has its figures in JSON."""
    path = str(tmp_path / "problem.toml")
    write_problem(problem_of(), path)
    assert run(["show", path]) == 0
    assert "far: slow" in capsys.readouterr().out
    assert run(["show", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cluster"]["levels"][1]["alternatives"][0]["name"] == "fast"


def test_figures_are_those_of_the_technologies_chosen() -> None:
    """What a report says the time goes to adds up on the links that the plan names, not on the first of the menu."""
    problem = problem_of(most=10.5).with_choices(stages=frozenset({4}))
    priced = PricedPlan.judged(problem, solve(problem).plan)
    assert priced is not None
    assert priced.plan.technologies == ("near",)
    assert priced.problem.cluster.levels[1].latency_s == NEAR.latency_s
    assert [parts.total for parts in priced.loads] == [stage.load for stage in priced.evaluation.stages]


def test_ablations_refuse_menus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A blinding flattens levels and knows nothing of what may be chosen for them: one clear line."""
    path = str(tmp_path / "problem.toml")
    write_problem(problem_of(preset=PAPER), path)
    assert run(["ablate", path]) == 2
    assert "a level has a menu, of which no blinding knows" in capsys.readouterr().err


def test_widened_menu() -> None:
    """What changes the bandwidth of a level changes its menu alike."""
    level = problem_of().cluster.levels[1].widened(2)
    assert level.bandwidth_bytes_per_s == 200.0
    assert [each.bandwidth_bytes_per_s for each in level.alternatives] == [200.0, 20.0, 20.0]


def test_budget_below_all() -> None:
    """No choice within the budget is a reason of its own, and dropping the budget is what helps."""
    problem = problem_of(most=3)
    result = solve(problem)
    assert (result.status, result.plan) == (Status.INFEASIBLE, None)
    assert result.reason == "the links of 4 devices cost 4 at least, 3 may be spent"
    explanation = explain(problem, result.reason, time_limit_s=None)
    assert explanation is not None
    assert explanation.conflict == ("price_at_most=3",)
    assert [each.text for each in explanation.relaxations] == ["drop price_at_most=3"]
    assert certify_result(problem.with_preset(PAPER), result).finding is Finding.INFEASIBLE


def test_budget_keeps_the_fast_out() -> None:
    """Under a budget the best of what is left is taken, and the price is for every device of the cluster."""
    names = {most: solve(problem_of(most=most)).plan for most in (4, 10, 12)}
    chosen = {most: plan.technologies for most, plan in names.items() if plan is not None}
    assert chosen[4] == ("slow",)
    assert chosen[12] == ("fast",)
    assert problem_of().cluster.price([FAST]) == Fraction(12)


@pytest.mark.parametrize("preset", [PAPER, DEFAULT], ids=lambda preset: preset.name)
def test_checker_covers_every_choice(preset: Preset) -> None:
    """A plan that is best with its own technology is refuted by one that is faster with another."""
    problem = problem_of(preset=preset).with_choices(zero=frozenset({0}), stages=frozenset({4}))
    slow = solve(problem.built([SLOW])).plan
    assert slow is not None
    certificate = certify(problem, slow)
    assert certificate.finding is Finding.REFUTED
    assert certificate.better is not None
    assert certificate.better.technologies == ("fast",)
    best = solve(problem)
    assert best.plan is not None
    assert best.objective_ticks is not None
    assert "3 choices of technologies" in certify(problem, best.plan).proofs[0].detail
    assert PROVERS["checker"](problem, best.objective_ticks + 1, None).better is not None


def test_tables_are_of_one_choice() -> None:
    """No solver searches as if the first technology were chosen."""
    problem = problem_of()
    with pytest.raises(OutOfScope, match="what the links of a level are"):
        Tables(problem, scale_of(problem))


def test_problem_file_there_and_back(tmp_path: Path) -> None:
    """Menus, budget and what is settled survive a file."""
    menu = (replace(FAST, link="rdma", pair_bytes_per_s=50.0, in_network_reduction=True), SLOW, NEAR)
    for problem in (problem_of(*menu, most=11.5), problem_of(*menu).built([NEAR])):
        write_problem(problem, tmp_path / "problem.toml")
        read = read_problem(tmp_path / "problem.toml")
        assert (read.cluster, read.choices) == (problem.cluster, problem.choices)


def test_plan_file_there_and_back(tmp_path: Path) -> None:
    """A plan says what the links are, and one without menus says nothing."""
    for names in (("fast", "other"), ()):
        write_plan(whole_plan(*names), tmp_path / "plan.json")
        assert read_plan(tmp_path / "plan.json").technologies == names
        assert ("technologies" in json.loads((tmp_path / "plan.json").read_text())) == bool(names)
    (tmp_path / "plan.json").write_text(
        (tmp_path / "plan.json").read_text().replace("{\n", '{\n"technologies": 3,\n', 1)
    )
    with pytest.raises(InvalidPlan, match="technologies"):
        read_plan(tmp_path / "plan.json")


def test_setting() -> None:
    """The budget is a choice like others."""
    problem = problem_of()
    assert apply_settings(problem, ["price_at_most=11.5"]).choices.price_at_most == 11.5
    assert apply_settings(problem, ["price_at_most=3", "price_at_most=any"]).choices.price_at_most is None
    with pytest.raises(InvalidProblem, match='price_at_most=cheap: "cheap" is no price'):
        apply_settings(problem, ["price_at_most=cheap"])


LEVELS = """schema = "nest.cluster/1"
device = "h100-sxm"
devices = 16
[[levels]]
name = "node"
fanout = 8
bandwidth_gb_per_s = 450
latency_us = 3.4
[[levels]]
name = "region"
fanout = 2
"""
ALTERNATIVE = """[[levels.alternatives]]
name = "{0}"
bandwidth_gbit_per_s = 100
round_trip_ms = 2
price_per_device = 1.5
oversubscription = 2
"""


def cluster_of(tmp_path: Path, *rest: str) -> Cluster:
    """Return what a cluster file holds."""
    path = tmp_path / "cluster.toml"
    path.write_text("".join([LEVELS, *rest]))
    return read_cluster(path).cluster


def test_cluster_file(tmp_path: Path) -> None:
    """Round trips go there and back, oversubscribed links give less, and a region's are Ethernet."""
    link = 'link = "rdma"\n'
    cluster = cluster_of(tmp_path, ALTERNATIVE.format("leased"), ALTERNATIVE.format("own"), link)
    leased, own = cluster.levels[1].alternatives
    assert leased == Technology("leased", 6.25e9, 1e-3, 1.5, "tcp")
    assert own == replace(leased, name="own", link="rdma")
    assert cluster.levels[0].link == "nvlink"
    assert cluster.levels[1].name == "region"


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (["bandwidth_gb_per_s = 1\n", ALTERNATIVE.format("a")], "bandwidth_gb_per_s: given beside alternatives"),
        ([ALTERNATIVE.format("a"), ALTERNATIVE.format("a")], "'a' is there twice"),
        ([ALTERNATIVE.format("")], "no name"),
        ([ALTERNATIVE.format("a"), "price_per_device = -1\n"], "price_per_device"),
        ([ALTERNATIVE.format("a").replace("round_trip_ms = 2\n", "")], "no latency"),
        ([ALTERNATIVE.format("a"), 'link = "string"\n'], "'string' is no kind of link"),
        ([], "no bandwidth"),
    ],
)
def test_bad_cluster_files(tmp_path: Path, rest: Sequence[str], message: str) -> None:
    """Each fault is one line that names the file."""
    text = "".join(rest).replace("price_per_device = 1.5\n", "") if "price_per_device = -1\n" in rest else "".join(rest)
    with pytest.raises(InvalidProblem, match=message) as fault:
        cluster_of(tmp_path, text)
    assert "cluster.toml" in str(fault.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'name = "far", ',
            'name = "far", latency_s = 1, ',
            "latency_s: given; give it in each of the alternatives only",
        ),
        ('name = "slow"', 'name = "fast"', "'fast' is there twice"),
        ("devices = 4", 'devices = 4\ntechnologies = ["copper"]', "technologies: \"?'?copper"),
        ("latency_s = 0.0005", 'latency_s = 0.0005, link = "rope"', "'rope' is no kind of link"),
        ("bandwidth_bytes_per_s = 1_000,", "", "bandwidth_bytes_per_s: missing; give it, or alternatives"),
        ("price_at_most = 11.5", "price_at_most = -1", "price_at_most"),
    ],
)
def test_bad_problem_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Each fault names file, key and remedy."""
    path = tmp_path / "problem.toml"
    write_problem(problem_of(most=11.5), path)
    text = path.read_text().replace("bandwidth_bytes_per_s = 1000,", "bandwidth_bytes_per_s = 1_000,")
    assert old in text, text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidProblem, match=message) as fault:
        read_problem(path)
    assert "problem.toml" in str(fault.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Technology("", 1.0, 0.0), "no name"),
        (lambda: Technology("a", 0.0, 0.0), "bandwidth_bytes_per_s"),
        (lambda: Technology("a", 1.0, -1.0), "latency_s"),
        (lambda: Technology("a", 1.0, 0.0, -1), "price_per_device"),
        (lambda: Technology("a", 1.0, 0.0, pair_bytes_per_s=0.0), "pair_bytes_per_s"),
        (lambda: Cluster(2, 1, (Level(2, 1.0, 0.0, alternatives=(FAST,)),)), "figures of none of them"),
        (lambda: replace(problem_of().cluster, technologies=("slow",)), "is not what the levels have"),
        (lambda: problem_of(most=-1), "choices.price_at_most"),
    ],
)
def test_bad_menus(make: object, message: str) -> None:
    """What cannot be is refused when it is built."""
    with pytest.raises(InvalidProblem, match=message):
        make()  # type: ignore[operator]


def test_no_slower_is_by_every_level() -> None:
    """One level faster and the other slower: neither is a bound on the other."""
    one, other = Combination((FAST, SLOW), Fraction(4)), Combination((SLOW, FAST), Fraction(4))
    assert not one.no_slower(other)
    assert not other.no_slower(one)
    assert Combination((FAST, FAST), Fraction(6)).no_slower(one)
