"""Captured modules as files and as problems; none of this needs torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nest.capture import (
    Affine,
    Captured,
    CapturedEdge,
    CapturedLayer,
    Figures,
    Kernel,
    Wanted,
    captured_problem,
    is_captured,
    read_captured,
    usual_recipe,
    write_captured,
)
from nest.capture.repeats import tandem
from nest.cli.program import run
from nest.costing import LayerProfile, Measurement, recipe_named
from nest.costing.frameworks import TORCHTITAN
from nest.costing.kernels import Kernels
from nest.errors import InvalidProblem
from nest.files.cluster_file import read_cluster
from nest.problem import Choices, Problem, Variant
from nest.result import Status
from nest.solve import solve

MIB = 2**20
PRODUCT = Kernel(
    "aten.mm",
    "product",
    Affine(0, 2 * 1024**3),
    Affine(2 * MIB, 4 * MIB),
    tuple(Affine(*each) for each in ((1, 0), (0, 1024), (1024, 0), (1024, 0))),
)
GELU = Kernel("aten.gelu", "moved", Affine(0, 0), Affine(0, 4 * MIB), count=2)
FLASH = Kernel(
    "aten.flash", "attention", Affine(0, 4 * MIB), Affine(0, MIB), (Affine(0, 2 * MIB), Affine(64, 0), Affine(0, 8))
)
FIGURES = {
    "stem": Figures((GELU,), (GELU,), Affine(0, MIB)),
    "block": Figures((PRODUCT, GELU, FLASH), (PRODUCT, PRODUCT, FLASH), Affine(MIB, 2 * MIB)),
}
LAYERS = (
    CapturedLayer("embed", "stem", 1000, 0, Affine(8, 100), Affine(8, 100), False),
    *(CapturedLayer(f"h.{at}", "block", MIB, 0, Affine(0, 16 * MIB), Affine(0, 2 * MIB), True) for at in range(4)),
    CapturedLayer("head", "stem", 24, 1000, Affine(0, 100), Affine(0, 100), False),
)
EDGES = (
    *(CapturedEdge(at, at + 1, Affine(0, 2 * MIB)) for at in range(5)),
    CapturedEdge(0, 3, Affine(64, 0)),
)
CHAIN = tuple(CapturedEdge(at, at + 1, Affine(0, 2 * MIB)) for at in range(3))
CAPTURED = Captured("m:build", ("1x1024:int64",), 1, True, "bf16", 1024, "export", LAYERS, FIGURES, EDGES, "2.13.0")

KERNELS = Kernels.of(read_cluster("dgx-h100:8").device, TORCHTITAN)
ADDED_S = KERNELS.moved((2 + 2 * TORCHTITAN.gradient_bytes) * MIB, 0)
"""Seconds to add the gradients of a block to those of earlier microbatches."""


def wanted(**more: object) -> Wanted:
    """Return 8 devices of a DGX H100 with a batch of 16."""
    return Wanted(read_cluster("dgx-h100:8"), 16, recipe_named("mixed"), **more)  # type: ignore[arg-type]


def posed(captured: Captured = CAPTURED, **more: object) -> Problem:
    """Return the problem of a captured module on them."""
    return captured_problem(captured, wanted(**more))


@pytest.mark.parametrize("name", ["graph.json", "graph.toml"])
def test_files_say_the_same(tmp_path: Path, name: str) -> None:
    """What is written is read back, in either syntax, and no other file is taken for it."""
    path = tmp_path / name
    captured = replace(CAPTURED, notes=('one "note"', "another"))
    write_captured(captured, path)
    assert is_captured(path)
    assert read_captured(path) == captured
    (tmp_path / "other.toml").write_text("layers = 2\n")
    assert not is_captured(tmp_path / "other.toml")
    assert not is_captured(tmp_path)


def test_files_that_are_wrong(tmp_path: Path) -> None:
    """A key that is wrong is named with its file."""
    path = tmp_path / "graph.json"
    write_captured(CAPTURED, path)
    tree = json.loads(path.read_text())
    for change, where in (
        ({"layers": [{**tree["layers"][0], "kind": "none"}]}, "layers[0].kind: 'none' has no figures"),
        ({"edges": [{"source": 3, "target": 3, "bytes": [0, 1]}]}, "edges[0]: 3 -> 3"),
        ({"edges": [{"source": 3, "target": 4, "bytes": [0]}]}, "edges[0].bytes"),
        ({"dtype": "int8"}, "dtype"),
        ({"colour": 1}, "colour"),
        ({"layers": []}, "layers"),
    ):
        path.write_text(json.dumps({**tree, **change}))
        with pytest.raises(InvalidProblem) as caught:
            read_captured(path)
        assert str(caught.value).startswith(f"{path}: {where}")


def test_layers_take_what_their_kernels_take() -> None:
    """A product is priced by its shape and bytes, attention by its operations, all else by its bytes alone."""
    kernels = KERNELS
    graph = posed().graphs[Variant(1, microbatch=2)]
    product = kernels.product(2048, 1024, 1024, "bf16", moved=10 * MIB)
    forward = product + 2 * kernels.moved(8 * MIB) + kernels.fused_attention(4 * MIB, 64, 16, "bf16")
    backward = 2 * product + kernels.fused_attention(4 * MIB, 64, 16, "bf16", backward=True)
    layer = graph.layers[1]
    assert layer.forward_s == pytest.approx(forward)
    assert layer.backward_s == pytest.approx(backward + ADDED_S)
    assert (layer.id, layer.kind) == ("h.0", "block")
    assert (layer.parameter_bytes, layer.activation_bytes, layer.working_bytes) == (2 * MIB, 32 * MIB, 5 * MIB)
    assert [(edge.source, edge.target, edge.bytes) for edge in graph.edges][-1] == ("embed", "h.2", 64)


def test_blocks_compute_again() -> None:
    """What blocks compute again they keep for a moment only, and what is no block stays as it is."""
    graph = posed().graphs[Variant(1, microbatch=2)]
    block = graph.layers[1]
    again = block.again("full")
    assert again is not None
    assert (again.activation_bytes, again.repeated_s) == (4 * MIB, block.forward_s)
    assert again.working_bytes == block.working_bytes + 28 * MIB
    assert graph.recomputes == {"full"}
    assert [bool(layer.recomputed) for layer in graph.layers] == [False, True, True, True, True, False]


def test_blocks_that_fit_only_so_are_posed() -> None:
    """A microbatch that no device holds but for recomputation is left in, and the plan recomputes."""
    huge = replace(CAPTURED, layers=tuple(replace(each, kept=Affine(0, 2**35)) for each in LAYERS[1:5]), edges=CHAIN)
    problem = posed(huge, choices=Choices(replicas=frozenset({8})))
    assert {variant.microbatch for variant in problem.graphs} == {1, 2}
    plan = solve(problem).plan
    assert plan is not None
    assert [stage.recompute for stage in plan.stages] == ["full"]


def test_shared_weights_are_on_both_stages() -> None:
    """A head that shares the embedding's table holds a copy, unless there is one stage."""
    variant = Variant(1)
    assert posed().graphs[variant].layers[-1].parameter_bytes == 2 * 1024
    assert posed(choices=Choices(stages=frozenset({1}))).graphs[variant].layers[-1].parameter_bytes == 2 * 24


def test_microbatches_are_those_that_can_be() -> None:
    """Powers of two up to the batch; of a module that is not linear, only what was captured."""
    assert {variant.microbatch for variant in posed().graphs} == {1, 2, 4, 8, 16}
    assert {variant.microbatch for variant in posed(replace(CAPTURED, linear=False, batch=4)).graphs} == {4}
    assert {variant.microbatch for variant in posed(choices=Choices(microbatch=frozenset({3}))).graphs} == {3}
    huge = replace(CAPTURED, layers=tuple(replace(each, kept=Affine(0, 2**35)) for each in LAYERS))
    assert {variant.microbatch for variant in posed(huge).graphs} == {1, 2}


def test_measurements_stand_for_kernels() -> None:
    """A kind that was measured takes what it took; rows of other widths say nothing; what fits nothing is refused."""
    rows = (Measurement("block", 2, 1, 3e-3, 5e-3, kept_bytes=7), Measurement("block", 2, 2, 1.0, 1.0))
    plain, problem = posed(), posed(profile=LayerProfile(rows, "t.csv"))
    variant = Variant(1, microbatch=2)
    layer = problem.graphs[variant].layers[1]
    assert layer.forward_s == 3e-3
    assert layer.backward_s == pytest.approx(5e-3 + ADDED_S)
    assert layer.activation_bytes == 7
    assert problem.graphs[Variant(1)] == plain.graphs[Variant(1)]
    for row, what in (
        (Measurement("blok", 2, 1, 1, 1, where="line 2"), "no layer 'blok'"),
        (Measurement("block", 2, 1, 1, 1, sequence=5, where="line 2"), "sequence 5"),
        (Measurement("block", 2, 1, 1, 1, dtype="fp32", where="line 2"), "dtype fp32"),
        (rows[0], "again"),
    ):
        with pytest.raises(InvalidProblem, match=what) as caught:
            posed(profile=LayerProfile((rows[0], row), "t.csv"))
        assert caught.value.source == "t.csv"
    for row in (rows[1], Measurement("block", 3, 1, 1, 1)):
        with pytest.raises(InvalidProblem, match="microbatch") as caught:
            posed(profile=LayerProfile((row,), "t.csv"))
        assert caught.value.source == "t.csv"


def test_a_plan_is_proven() -> None:
    """The problem is one of the preset as any other: solved, and judged the same."""
    result = solve(posed())
    assert result.status is Status.OPTIMAL
    assert result.objective_ticks == result.bound_ticks


def test_submodules_that_run_twice_have_two_names() -> None:
    """Ids are unique, also where one submodule is several layers."""
    twice = replace(CAPTURED, layers=tuple(replace(each, name="h") for each in LAYERS))
    ids = [layer.id for layer in posed(twice).graphs[Variant(1)].layers]
    assert ids == ["h", "h@2", "h@3", "h@4", "h@5", "h@6"]


def test_recipes_go_with_data_types() -> None:
    """Weights of 4 bytes are trained in fp32, those of 2 in mixed precision."""
    assert usual_recipe(CAPTURED).name == "mixed"
    assert usual_recipe(replace(CAPTURED, dtype="fp32")).name == "fp32"


def test_lines_go_through_points() -> None:
    """Two points make a line of whole numbers; a third is on it or there is none."""
    assert Affine.through([(1, 5), (2, 7), (3, 9)]) == Affine(3, 2)
    assert Affine.through([(1, 5), (2, 7), (3, 10)]) is None
    assert Affine.through([(2, 5), (4, 8)]) is None
    assert Affine.above([(1, 5), (2, 5), (3, 8)]) == Affine(2, 3)


def test_runs_that_repeat() -> None:
    """The runs that cover the most are found, the shortest of those that cover as much."""
    assert tandem("xabcabcabcy") == (1, 3, 3)
    assert tandem("abab") == (0, 2, 2)
    assert tandem("abcd") is None
    assert tandem("aaaa") is None, "a run of one sign is no block"
    assert tandem("") is None


def test_solve_takes_a_captured_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a cluster and a batch it is a model; what was settled at its capture cannot be typed."""
    path = tmp_path / "graph.json"
    write_captured(CAPTURED, path)
    typed = ["solve", "--model", str(path), "--cluster", "dgx-h100:8"]
    assert run([*typed, "--global-batch", "16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "optimal"
    assert run([*typed, "--global-batch", "16", "--pipeline", "2", "-o", str(tmp_path / "plan.json")]) == 0
    assert "2 stages" in capsys.readouterr().out
    for more, what in (
        ([], "--global-batch is missing"),
        (["--global-batch", "16", "--seq", "8"], "--seq: "),
        (["--global-batch", "16", "--tensor", "2"], "no variant of the model is allowed"),
    ):
        assert run([*typed, *more]) == 2
        assert what in capsys.readouterr().err


def test_show_takes_a_captured_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text, equal layers in one line, and as JSON."""
    path = tmp_path / "graph.toml"
    write_captured(CAPTURED, path)
    assert run(["show", str(path)]) == 0
    text = capsys.readouterr().out
    assert [line.split()[:2] for line in text.splitlines()[2:5]] == [["1", "stem"], ["4", "block"], ["1", "stem"]]
    assert run(["show", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["parameters"], len(facts["layers"])) == (1024 + 4 * MIB, 6)
