"""Plans of measured layers: what a table is posed as, against figures by hand and against trying every plan."""

from __future__ import annotations

import json
import random
import re
import shlex
from dataclasses import replace
from pathlib import Path

import oracle_default as oracle
import pytest
from seeds import seeds

from nest.cli.program import run
from nest.cluster import Cluster, Level
from nest.costing import FRAMEWORKS, Layout, recipe_named
from nest.errors import InvalidProblem
from nest.files import read_plan
from nest.files.cluster_file import read_cluster
from nest.graph import Collective, LayerGraph
from nest.hardware import LevelFacts
from nest.layer_tables import (
    GivenTable,
    LayerFigures,
    LayerTable,
    Point,
    TableRow,
    TableRun,
    require_apart,
    table_estimate,
    table_problem,
)
from nest.layer_tables.layers_file import LayerRow
from nest.problem import Choices, Variant
from nest.result import Status
from nest.runs import read_self_contained
from nest.solve import solve

MIB = 2**20
UNIT = 332_640
ONE, TWO = Point(1, 1), Point(2, 1)


def figures(forward_s: float, backward_s: float, parameters: int, kept: int, output: int | None) -> LayerFigures:
    """Return figures of a layer."""
    return LayerFigures(forward_s, backward_s, parameters=parameters, kept_bytes=kept, output_bytes=output)


EMBED = TableRow("embed", ONE, replace(figures(0.25, 0.5, MIB, MIB, 2 * MIB), input_bytes=64), "embed")
BLOCK = TableRow("block", ONE, figures(1.0, 2.0, MIB, 8 * MIB, 2 * MIB), "block", count=6)
HEAD = TableRow("head", ONE, figures(0.5, 1.0, MIB, 4 * MIB, None), "head", repeats=False)
ROWS = (EMBED, BLOCK, HEAD)
TABLE = LayerTable("tiny", ROWS, "tiny.csv")
PLAIN = next(each for each in FRAMEWORKS if each.name == "megatron-2021")


def asked(table: LayerTable = TABLE, **more: object) -> TableRun:
    """Return a run on 8 devices of a DGX H100 with a batch of 16."""
    settled = {"framework": PLAIN, **more}
    return TableRun(table, read_cluster("dgx-h100:8"), 16, **settled)  # type: ignore[arg-type]


def graph(table: LayerTable = TABLE, point: Point = ONE, **more: object) -> LayerGraph:
    """Return the layers of a point as they are posed."""
    return table_problem(asked(table, **more)).problem.graphs[Variant(point.tensor, microbatch=point.microbatch)]


def at_two(row: TableRow, **more: object) -> TableRow:
    """Return a row of tensor width 2, its figures halved."""
    own = row.figures
    assert own.forward_s is not None
    assert own.backward_s is not None
    halves = figures(own.forward_s / 2, own.backward_s / 2, MIB // 2, own.kept_bytes or 0, own.output_bytes)
    return replace(row, point=TWO, figures=replace(halves, input_bytes=own.input_bytes, **more))  # type: ignore[arg-type]


def test_layers_are_those_of_the_table() -> None:
    """Six equal blocks between their neighbours, weights by recipe, whole tensors on the edges."""
    made = graph()
    assert [layer.id for layer in made.layers] == ["embed", *(f"block.{at}" for at in range(1, 7)), "head"]
    block = made.layers[1]
    assert (block.forward_s, block.backward_s, block.parameter_bytes) == (1.0, 2.0, 2 * MIB)
    assert (block.activation_bytes, block.working_bytes) == (8 * MIB, 0)
    assert {edge.bytes for edge in made.edges} == {2 * MIB}
    assert len(made.edges) == 7
    assert graph(recipe=recipe_named("fp32")).layers[1].parameter_bytes == 4 * MIB


def test_what_is_computed_again() -> None:
    """A block keeps its input alone, the first layer the input that the table gives it, and the head all."""
    made = graph()
    again = [layer.again("full") for layer in made.layers]
    assert [None if each is None else each.activation_bytes for each in again] == [64, *[2 * MIB] * 6, None]
    assert again[1] is not None
    assert (again[1].repeated_s, again[1].working_bytes) == (1.0, 6 * MIB)


def test_a_plan_by_hand() -> None:
    """Two stages of one replica: loads, memory and an iteration worked out from the table alone."""
    run_ = asked(choices=Choices(replicas=frozenset({1}), stages=frozenset({2}), zero=frozenset({0})))
    posed = table_problem(run_)
    given = GivenTable(run_, ONE, Layout(16, data=1, stages=2))
    assert [len(stage.layers) for stage in given.plan.stages] == [4, 4]
    estimate = table_estimate(given)
    level = read_cluster("dgx-h100:8").cluster.levels[0]
    sent = (estimate.stages[0].load - 9.75) / 2
    moved = 2 * MIB / level.bandwidth_bytes_per_s
    assert moved < sent <= level.latency_s + moved  # a protocol of the link may wait less
    loads = [0.75 + 9 + 2 * sent, 9 + 1.5 + 2 * sent]
    assert [each.load for each in estimate.stages] == pytest.approx(loads, rel=1e-9)
    assert estimate.pipeline_s == pytest.approx(sum(loads) + 15 * max(loads), rel=1e-9)
    weights = 4 * 2 * MIB
    assert [each.weights for each in estimate.memory] == [weights, weights]
    assert [each.activations for each in estimate.memory] == [2 * (1 + 3 * 8) * MIB, (3 * 8 + 4) * MIB]
    found = solve(posed.problem)
    assert found.status is Status.OPTIMAL
    assert found.objective_s == pytest.approx(estimate.iteration_s, rel=1e-9)


def test_memory_in_all_leaves_what_is_kept() -> None:
    """Of the memory of a layer its state is subtracted, 18 bytes of each 2 of weights; too little of it is refused."""
    whole = LayerFigures(1.0, 2.0, weight_bytes=2 * MIB, memory_bytes=30 * MIB, output_bytes=MIB)
    made = LayerTable("m", (TableRow("a", ONE, whole), TableRow("b", ONE, whole)), "m.csv")
    assert graph(made).layers[0].activation_bytes == 12 * MIB
    small = replace(whole, memory_bytes=17 * MIB)
    with pytest.raises(
        InvalidProblem, match=r"layer 'a' at tensor 1, microbatch 1 has .* its state under recipe mixed"
    ):
        graph(LayerTable("m", (TableRow("a", ONE, small), TableRow("b", ONE, small)), "m.csv"))


def test_times_of_both_passes_together() -> None:
    """No pass of its own: nothing is computed again, gradients hide behind nothing, and nothing plays the passes."""
    both = LayerFigures(together_s=3.0, parameters=MIB, kept_bytes=MIB, output_bytes=MIB)
    made = LayerTable("m", (TableRow("a", ONE, both), TableRow("b", ONE, both)))
    run_ = asked(made, framework=FRAMEWORKS[0])
    posed = table_problem(run_)
    assert FRAMEWORKS[0].hides_gradients
    assert not posed.problem.training.hides_gradients
    assert posed.problem.graphs[Variant(1)].recomputes == frozenset()
    assert any("recompute full" in each.what for each in posed.tried.left_out or ())
    with pytest.raises(InvalidProblem, match="passes are timed together"):
        table_problem(asked(made, choices=Choices(schedules=frozenset({"zb-h1"}))))
    with pytest.raises(InvalidProblem, match="passes are timed together"):
        require_apart(made, "simulated")
    require_apart(TABLE, "simulated")


def test_what_tensor_ranks_exchange() -> None:
    """Times contain it, unless the table says how much it is; then it is priced by where the ranks stand."""
    rows = (*ROWS, at_two(EMBED), at_two(BLOCK, exchanged_bytes=2 * MIB), at_two(HEAD))
    block = graph(LayerTable("m", rows), TWO).layers[1]
    assert [(each.kind, each.bytes, each.axis, each.when) for each in block.collectives] == [
        ("all-reduce", 2 * MIB, "tensor", "forward"),
        ("all-reduce", 2 * MIB, "tensor", "backward"),
    ]
    again = block.again("full")
    assert again is not None
    assert again.collectives == (Collective("all-reduce", 2 * MIB, "tensor", "recompute"),)
    notes = asked(LayerTable("m", rows)).notes
    assert any("taken to contain what the ranks exchange" in note for note in notes)
    assert not any("exchange" in note for note in asked().notes)


def test_what_is_not_measured_is_not_tried() -> None:
    """Points in part, points that nobody measured, widths beyond the cluster and batches that do not divide."""
    wide = tuple(replace(row, point=Point(16, 1)) for row in ROWS)
    odd = tuple(replace(row, point=Point(1, 3)) for row in ROWS)
    nested = tuple(replace(row, point=Point(3, 1)) for row in ROWS)
    table = LayerTable("m", (*ROWS, at_two(EMBED), *wide, *odd, *nested))
    posed = table_problem(replace(asked(table), hardware=read_cluster("dgx-h100:8")))
    assert set(posed.problem.graphs) == {Variant(1)} | {each for each in posed.problem.graphs if each.tensor == 3}
    left = {each.what: each.why for each in posed.tried.left_out or ()}
    assert left["tensor 2, microbatch 1"] == "no row for layer 'block', 'head'"
    assert left["tensor 2, microbatch 3"] == "not measured"
    assert left["tensor 16, microbatch 1"] == "the cluster has 8 devices"
    assert left["tensor 1, microbatch 3"] == "it does not divide the batch of 16"
    assert not posed.tried.all_tried
    two_nodes = table_problem(replace(asked(LayerTable("m", (*ROWS, *nested))), hardware=read_cluster("dgx-h100:16")))
    assert [str(each) for each in two_nodes.tried.left_out or ()] == [
        "tensor 3, microbatch 1: groups of 3 devices do not nest with the network's of 8"
    ]
    with pytest.raises(InvalidProblem, match="no row can be planned with"):
        table_problem(asked(LayerTable("m", odd)))


def test_graphs_with_edges() -> None:
    """Edges of a graph that is no chain carry what their source sends; layers keep the inputs of all that feed them."""
    row = {
        name: TableRow(name, ONE, figures(1.0, 1.0, 1, 64, size))
        for name, size in zip("abcd", (1, 2, 4, 8), strict=True)
    }
    made = graph(LayerTable("m", tuple(row.values()), edges=((0, 1), (0, 2), (1, 3), (2, 3))))
    assert {(edge.source, edge.target): edge.bytes for edge in made.edges} == {
        ("a", "b"): 1, ("a", "c"): 1, ("b", "d"): 2, ("c", "d"): 4,
    }  # fmt: skip
    again = made.layers[3].again("full")
    assert again is not None
    assert again.activation_bytes == 6


def random_table(seed: int) -> LayerTable:
    """Return up to four layers at a few points, some of them in part."""
    rng = random.Random(f"table {seed}")
    names = "abcd"[: rng.randint(1, 4)]
    together = rng.random() < 0.2
    repeats = {name: rng.random() < 0.8 for name in names}
    rows = []
    others = rng.sample([Point(t, b) for t in (1, 2, 4) for b in (1, 2) if (t, b) != ONE], rng.randint(0, 2))
    for point in (*others, ONE):  # which every cluster has room for
        for name in names:
            forward_s, backward_s = rng.randint(1, 9) / 64, rng.randint(1, 9) / 64
            own = LayerFigures(
                forward_s=None if together else forward_s,
                backward_s=None if together else backward_s,
                together_s=backward_s if together else None,
                parameters=UNIT * rng.randint(0, 20),
                kept_bytes=UNIT * rng.randint(1, 60),
                output_bytes=UNIT * rng.randint(0, 9),
                input_bytes=rng.choice([None, 0]),
                working_bytes=rng.choice([None, UNIT]),
                exchanged_bytes=rng.choice([None, UNIT * rng.randint(1, 4)]),
            )
            rows.append(TableRow(name, point, own, repeats=repeats[name]))
    return LayerTable(f"seed {seed}", tuple(rows))


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_solver_agrees_with_trying_every_plan(seed: int) -> None:
    """The problem that a table poses has the optimum that trying every plan of it finds."""
    rng = random.Random(f"run {seed}")
    table = random_table(seed)
    outer = rng.choice([2, 3])
    levels = (Level(2, 4e7, 0.001), Level(outer, rng.choice([1e7, 2e6]), 0.01))
    cluster = Cluster(2 * outer, UNIT * rng.choice([100, 400, 4000]), levels)
    hardware = replace(read_cluster("dgx-h100:8"), cluster=cluster, facts=(LevelFacts(),) * 2)
    zero = rng.choice([frozenset({0, 1}), frozenset({0, 3}), frozenset({0, 2})])
    made = TableRun(table, hardware, rng.choice([4, 6]), framework=rng.choice(FRAMEWORKS), choices=Choices(zero=zero))
    problem = table_problem(made).problem
    exact = replace(problem.training, step_s_per_byte=2.0**-30)  # a short decimal, as all else: the oracle is exact
    problem = replace(problem, training=exact)
    result = solve(problem)
    best = oracle.best(problem, oracle.Rounding(result.time.exponent))
    assert result.objective_ticks == best.objective
    assert result.status is (Status.INFEASIBLE if best.objective is None else Status.OPTIMAL)


def test_an_estimate_needs_what_was_measured() -> None:
    """Widths that nobody measured, and what no layer can compute again, are refused."""
    for point, layout, what in (
        (TWO, Layout(16, data=4), "tensor 2, microbatch 1: not measured; measured are tensor 1, microbatch 1"),
        (ONE, Layout(16, recompute="selective"), "they compute all again or none"),
        (ONE, Layout(16, data=16), "the cluster has 8"),
    ):
        with pytest.raises(InvalidProblem) as caught:
            table_estimate(GivenTable(asked(), point, layout))
        assert what in str(caught.value)


def test_stages_of_an_estimate() -> None:
    """First and last layers of their own kind ride along, unless numbers of all layers are given."""

    def counts(layout: Layout) -> list[int]:
        return [len(stage.layers) for stage in GivenTable(asked(), ONE, layout).plan.stages]

    assert counts(Layout(16, stages=3)) == [3, 2, 3]
    assert counts(Layout(16, stages=2, layers=(2, 4))) == [3, 5]
    assert counts(Layout(16, stages=2, layers=(2, 6))) == [2, 6]
    notes = GivenTable(asked(), ONE, Layout(16, data=3)).notes
    assert notes[0].endswith("do not divide a batch of 16: its time is that of 18 sequences")


CSV = """layer,kind,count,tensor,microbatch,forward_ms,backward_ms,parameters,kept_mib,output_mib,input_mib
embed,embed,1,1,1,0.3,0.5,131072000,1,16,0.03
block,block,6,1,1,9.5,19,201326592,300,16,
head,head,1,1,1,6,12,131072000,500,,
embed,embed,1,2,1,0.3,0.5,65536000,1,16,0.03
"""


def test_solve_takes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a cluster and a batch it is a model; the plan carries the problem, and is certified by itself."""
    path, plan = tmp_path / "layers.csv", tmp_path / "plan.json"
    path.write_text(CSV)
    typed = ["solve", "--model", str(path), "--cluster", "dgx-h100:8"]
    assert run([*typed, "--global-batch", "16", "--certify", "--json", "-o", str(plan)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "optimal"
    assert answer["left_out"] == ["tensor 2, microbatch 1: no row for layer 'block', 'head'"]
    assert answer["all_tried"] is False
    assert run(["certify", str(plan), "--json"]) == 0
    certificate = json.loads(capsys.readouterr().out)
    assert certificate["verdict"] == "optimal"
    assert (certificate["left_out"], certificate["all_tried"]) == (answer["left_out"], False)
    assert read_self_contained(plan).plan == read_plan(plan)
    assert run([*typed, "--global-batch", "16", "--pipeline", "2"]) == 0
    assert "2 stages" in capsys.readouterr().out
    assert run([*typed, "--global-batch", "16", "--objective", "simulated"]) == 0
    assert "preset simulated" in capsys.readouterr().out
    for more, what in (
        ([], "--global-batch is missing"),
        (["--global-batch", "16", "--seq", "8"], "--seq: "),
        (
            ["--global-batch", "16", "--tensor", "2"],
            "is allowed (tensor 2, microbatch 1: no row for layer 'block', 'head')",
        ),
        (["--global-batch", "16", "--recompute", "selective"], "no layer of the table can"),
        (["--global-batch", "16", "--for", "megatron"], "does not say what the model is"),
    ):
        assert run([*typed, *more]) == 2
        assert what in capsys.readouterr().err


def test_estimate_takes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON; what only models have is null or refused."""
    path = tmp_path / "layers.csv"
    path.write_text(CSV)
    typed = ["estimate", "--model", str(path), "--cluster", "dgx-h100:8", "--global-batch", "16"]
    assert run([*typed, "--pipeline", "2", "--recompute", "full", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["fits"], found["tflops_per_device"]) == ("nest.estimate/1", True, None)
    assert len(found["stages"]) == 2
    assert run([*typed, "--reserve", "70"]) == 3
    assert "does not fit" in capsys.readouterr().out
    for more, what in (
        (["--seq", "8"], "--seq is not for a table of layers"),
        (["--tensor", "2"], "tensor 2, microbatch 1: no row for layer 'block', 'head'"),
        (["--pipeline", "3"], "change a width"),
    ):
        assert run([*typed, *more]) == 2
        assert what in capsys.readouterr().err


def test_the_page_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table and the commands of the page work as printed."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
    section = page.partition("## Layers that you measured")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```csv\n(.*?)```", section, re.DOTALL)
    (commands,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    (tmp_path / "layers.csv").write_text(text)
    monkeypatch.chdir(tmp_path)
    for command in commands.splitlines():
        assert run(shlex.split(command.removeprefix("$ nest "))) == 0, command
    cells = "".join(re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE))
    unit = re.compile(r"_(s|ms|us|bytes|kib|mib|gib|\.\.\.)$")
    assert {unit.sub("", name) for name in re.findall(r"`([^`]+)`", cells)} - {""} == {
        unit.sub("", name) for name in LayerRow.__struct_fields__
    }
