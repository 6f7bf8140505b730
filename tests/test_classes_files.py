"""Classes of devices in files, by name, on the command line, and in what does not take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from random_classes import mixed
from test_classes import ONE, chain, posed, two_classes

from nest.cli import cli
from nest.costing import LayerProfile, Layout, Measurement, Setting, recipe_named
from nest.errors import InvalidPlan, InvalidProblem
from nest.evaluate import evaluate
from nest.export.base import Assignment, Inexpressible, require_order
from nest.export.ranks import ranks_of
from nest.families import Hyperparameters, from_hyperparameters
from nest.files import read_plan, read_problem, write_plan, write_problem
from nest.files.cluster_file import read_cluster
from nest.hardware import Hardware, cluster_named, device_named
from nest.line import Line
from nest.plan import Plan, Stage
from nest.problem import Choices
from nest.report.figures import PricedPlan
from nest.report.throughput import Workload
from nest.runs import Run, problem_of
from nest.runs.given import Given
from nest.solve import solve

SMALL = Hyperparameters("llama", 4, 1024, 8, 8, ffn=4096, vocab=32000, seq=2048)


@pytest.mark.parametrize("seed", range(40))
def test_problems_come_back(seed: int, tmp_path: Path) -> None:
    """What is written is read as it was."""
    problem = mixed(seed)
    write_problem(problem, tmp_path / "problem.toml")
    assert read_problem(tmp_path / "problem.toml") == problem


def test_plans_come_back(tmp_path: Path) -> None:
    """Plans on a line in another order are written with it, and a range that runs backwards is refused."""
    problem = posed(chain(0.002, 0.001), two_classes(), stages=frozenset({1}), replicas=frozenset({2}))
    plan = solve(problem).plan
    assert plan is not None
    assert plan.line == Line((), ((2, 4), (0, 2)))
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(text.replace("2,\n      3", "3,\n      2").replace("[2, 3]", "[3, 2]"))
    with pytest.raises(InvalidPlan, match="order: 3 to 2; give the first device"):
        read_plan(tmp_path / "plan.json")


BAD = [
    ('class = "old"\n', "", "cluster.class: missing"),
    ('name = "new"', 'name = "newer"', "no times of the layers on class 'newer'"),
    ("devices = [[2, 3]]", "devices = [[3, 2]]", "give ranges of devices"),
    ("devices = [[2, 3]]", "devices = [[2, 3, 4]]", "a first and a last device"),
    ('class = "new", forward_s', 'class = "new", recompute = "full", forward_s', '"full" beside a class'),
    (
        '{ kind = "b", forward_s = 2.0',
        '{ kind = "b", class = "old", forward_s = 2.0',
        "only rows that recompute, or of a",
    ),
    (
        "forward_s = 1.0, backward_s = 2.0, parameter_bytes = 8",
        "forward_s = 1.0, backward_s = 2.0, parameter_bytes = 9",
        "more than times",
    ),
]

TEXT = """\
schema = "nest.problem/1"
preset = "default"

[cluster]
devices = 4
hbm_bytes = 1000
class = "old"
levels = [{ fanout = 4, bandwidth_bytes_per_s = 1e9, latency_s = 0.0 }]
classes = [{ name = "new", devices = [[2, 3]], hbm_bytes = 2000 }]

[training]
microbatches = 8
optimizer = "sgd"

[model]
layers = [{ kind = "b", count = 4 }]
costs = [
    { kind = "b", forward_s = 2.0, backward_s = 4.0, parameter_bytes = 8, activation_bytes = 1, output_bytes = 0 },
    { kind = "b", class = "new", forward_s = 1.0, backward_s = 2.0, parameter_bytes = 8, activation_bytes = 1 },
]
"""


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_bad_files(old: str, new: str, message: str, tmp_path: Path) -> None:
    """One line names what is wrong."""
    assert old in TEXT
    (tmp_path / "problem.toml").write_text(TEXT)
    assert solve(read_problem(tmp_path / "problem.toml")).plan is not None
    (tmp_path / "problem.toml").write_text(TEXT.replace(old, new))
    with pytest.raises(InvalidProblem) as fault:
        read_problem(tmp_path / "problem.toml")
    assert message in str(fault.value)
    assert "\n" not in str(fault.value)


def test_command_line(tmp_path: Path) -> None:
    """The table of stages names classes, the summary the order of the devices, and the JSON both."""
    path = tmp_path / "problem.toml"
    path.write_text(TEXT)
    plain = CliRunner().invoke(cli, ["solve", str(path), "--set", "stages=2", "--set", "replicas=1"])
    assert plain.exit_code == 0, plain.output
    assert "Class" in plain.output
    assert "new" in plain.output
    shown = CliRunner().invoke(cli, ["show", str(path)])
    assert "2 old of 1000 B, 2 new of 1.95 KiB" in " ".join(shown.output.split())
    assert "on one device of class old" in shown.output
    turned = CliRunner().invoke(cli, ["solve", str(path), "--set", "stages=1", "--set", "replicas=2"])
    assert "in the order 2-3, 0-1" in turned.output
    certified = CliRunner().invoke(cli, ["solve", str(path), "--certify"])
    assert certified.exit_code == 0, certified.output


def test_systems_by_name() -> None:
    """Systems share one network, as slow as the slowest; neighbours of one kind are one class."""
    found = cluster_named("dgx-a100:16+dgx-h100:32")
    cluster = found.cluster
    assert cluster.class_names == ("a100-80gb", "h100-sxm")
    assert cluster.classes[0].ranges == ((16, 48),)
    assert found.others == (device_named("h100-sxm"),)
    assert [level.bandwidth_bytes_per_s for level in cluster.levels] == [300e9, 25e9]
    assert [level.name for level in cluster.levels] == ["nvswitch", "fabric"]
    assert cluster.levels[1].latency_s == 14e-6
    assert cluster_named("dgx-a100:256+dgx-h100:256").cluster.levels[1].latency_s == 15e-6
    assert found.peaks("bf16") == (312e12, 989.4e12)
    assert cluster_named("dgx-a100:8+dgx-a100:8").cluster.classes == ()
    twice = cluster_named("dgx-h100:8+dgx-a100:8+dgx-h100:16").cluster
    assert twice.classes[0].ranges == ((8, 16),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dgx-a100:12+dgx-h100:16", "give a multiple of 8"),
        ("dgx-a100:8+gb200-nvl72:72", "hosts of 8 (dgx-a100) and 72 (gb200-nvl72) devices"),
        ("dgx-a100:8+tpu-v4:64", "tpu-v4 beside other systems"),
        ("dgx-a100:8+dgx-h100", "does not say how many devices"),
    ],
)
def test_systems_that_do_not_go_together(text: str, message: str) -> None:
    """One line says why."""
    with pytest.raises(InvalidProblem) as fault:
        cluster_named(text)
    assert message in str(fault.value)


def test_cluster_files(tmp_path: Path) -> None:
    """Classes are given beside levels, by name or with figures."""
    text = """\
schema = "nest.cluster/1"
device = "a100-80gb"
devices = 16
levels = [
    { name = "node", fanout = 8, bandwidth_gb_per_s = 300, latency_us = 3.4 },
    { name = "fabric", fanout = 2, bandwidth_gb_per_s = 25, latency_us = 14 },
]
classes = [{ device = "h100-sxm", devices = [[8, 15]] }]
"""
    path = tmp_path / "mixed.toml"
    path.write_text(text)
    named = cluster_named("dgx-a100:8+dgx-h100:8")
    found = read_cluster(path)
    assert found.cluster.classes == named.cluster.classes
    assert found.others == named.others
    path.write_text(text.replace("[[8, 15]]", "[[8, 16]]"))
    with pytest.raises(InvalidProblem, match="a class has device 16"):
        read_cluster(path)
    torus = 'torus = { shape = "4x4", bandwidth_gb_per_s = 45, latency_us = 1 }'
    path.write_text("\n".join([*text.splitlines()[:2], torus, text.splitlines()[-1]]))
    with pytest.raises(InvalidProblem, match="classes: given without levels"):
        read_cluster(path)


def mixed_run(**changes: object) -> Run:
    """Return a small model on two hosts."""
    run = Run(from_hyperparameters(SMALL), cluster_named("dgx-a100:8+dgx-h100:8"), 2048, 32)
    return replace(run, **changes)  # type: ignore[arg-type]


def test_posed() -> None:
    """Layers have on each class what they have on a cluster of it alone, and the step does."""
    problem = problem_of(mixed_run()).problem
    for name, at in (("dgx-a100:16", None), ("dgx-h100:16", "h100-sxm")):
        alone = problem_of(mixed_run(hardware=cluster_named(name))).problem
        for variant, graph in problem.graphs.items():
            layers = graph.layers if at is None else dict(graph.others)[at]
            assert layers == alone.graphs[variant].layers
        step = problem.cluster.step_s_per_byte_of({at or "a100-80gb"}, problem.training.step_s_per_byte)
        assert step == alone.training.step_s_per_byte
    result = solve(problem)
    assert result.plan is not None
    assert evaluate(problem, result.plan).objective_ticks == result.bound_ticks


def test_utilisation_is_that_of_what_is_used() -> None:
    """A plan on the faster class alone was measured by the mean peak of the whole cluster."""
    one, none = frozenset({1}), frozenset({0})
    run = mixed_run(choices=Choices(replicas=frozenset({8}), zero=none, tensor=one, context=one, stages=one))
    problem = problem_of(run).problem
    result = solve(problem)
    assert result.plan is not None
    assert result.plan.line.order
    priced = PricedPlan.judged(problem, result.plan, Workload.of(run))
    assert priced is not None
    assert priced.work is not None
    assert priced.mfu == pytest.approx(priced.work.flops / priced.iteration_s / (8 * 989.4e12))


def test_what_takes_one_class() -> None:
    """Estimates with profiles are of one kind of device, and say so."""
    layout, setting = Layout(32, 16), Setting(2048, 1)
    run = mixed_run()
    rows = (Measurement("embedding", 1, 1, 0.0, 0.0),)
    given = Given(run.model, run.hardware, setting, layout, recipe_named("mixed"), LayerProfile(rows, "profile"))
    with pytest.raises(InvalidProblem, match="a profile takes devices of one class"):
        _ = given.problem
    with pytest.raises(InvalidProblem, match="0 further devices"):
        Hardware(run.hardware.device, run.hardware.cluster, run.hardware.facts)


def test_ranks() -> None:
    """Ranks count up along the line of the plan, so that frameworks run it on nodes in that order."""
    problem = posed(chain(0.002, 0.001), two_classes(), stages=frozenset({2}), replicas=frozenset({2}))
    stages = Stage((0, 1, 2, 3), 2, 1), Stage((4, 5), 0, 1)
    plan = Plan(ONE, 2, 1, stages, "stage-major", line=Line((), ((2, 4), (0, 2))))
    assert evaluate(problem, plan).legal
    require_order(plan, "a framework")
    assert [(each.place, each.stage) for each in ranks_of(plan, problem.cluster)] == [(2, 0), (3, 0), (0, 1), (1, 1)]
    with pytest.raises(Inexpressible, match="in a framework at 2"):
        require_order(replace(plan, stages=(replace(stages[0], first_device=3), stages[1])), "a framework")


def test_export_names_the_nodes() -> None:
    """An export says on which nodes to start the ranks, in the order of the plan's line."""
    run = mixed_run(choices=Choices(tensor=frozenset({8}), stages=frozenset({2}), replicas=frozenset({1})))
    posed_run = problem_of(run)
    layers = tuple(layer.id for layer in posed_run.problem.graphs[posed_run.problem.variants[0]].layers)
    half = len(layers) // 2
    stages = Stage(layers[:half], 8, 8), Stage(layers[half:], 0, 8)
    plan = Plan(posed_run.problem.variants[0], 1, 8, stages, "replica-major", line=Line((), ((8, 16), (0, 8))))
    given = Assignment(run, posed_run.problem, plan, 1.0)
    assert list(given.standing) == ["start it on nodes 1, 0, in this order, counted from 0"]
