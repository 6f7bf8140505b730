"""What `nest capture` says of a module, against autograd at work, hand formulas and `torch.utils.flop_counter`."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from nest.capture import Affine, Captured, Input, Wanted, captured_problem, read_input
from nest.costing import Setting, layer_costs, recipe_named
from nest.costing.frameworks import TORCHTITAN
from nest.errors import InvalidProblem
from nest.families import Hyperparameters, from_hyperparameters
from nest.files.cluster_file import read_cluster
from nest.problem import Variant

torch = pytest.importorskip("torch", reason="capturing needs torch: pip install torch")

from capture_modules import HEADS, VOCABULARY, WIDTH, bert  # noqa: E402

from nest.capture.build import build, build_real  # noqa: E402
from nest.capture.check import Checked, check  # noqa: E402
from nest.capture.run import Asked, capture, capture_once  # noqa: E402
from nest.capture.units import units_of  # noqa: E402

TOKENS = "2x32:int64"
LAYER_OF_4 = Variant(1, microbatch=4)

CASES = {
    "gpt": (TOKENS,),
    "llama": (TOKENS,),
    "mixtral": (TOKENS,),
    "looped": (TOKENS,),
    "bert": (f"2x32x{WIDTH}",),
    "t5": (TOKENS, "2x16:int64"),
    "resnet": ("2x3x64x64",),
    "unet": ("2x3x16x16",),
    "lstm": ("2x8x16",),
}
"""Modules of `capture_modules` with their inputs; all but one of them `torch.export` can see through."""


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """Leave the other cores to others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def asked(name: str, texts: tuple[str, ...], *, fused: bool = True, dtype: str = "", **settings: object) -> Asked:
    """Return a module of the tests to be captured."""
    factory = f"capture_modules:{name}"
    module, notes = build(factory, settings, dtype)
    inputs = tuple(map(read_input, texts))
    return Asked(factory, module, inputs, partial(build_real, factory, settings, dtype), dtype, notes, fused)


@cache
def once(name: str, **settings: object) -> Captured:
    """Return a module at the batch of its usual inputs, with the kernels of GPUs."""
    return capture_once(asked(name, CASES[name], **settings))  # type: ignore[arg-type]


@cache
def checked(name: str) -> tuple[Captured, tuple[Checked, ...]]:
    """Return a module captured with the kernels of CPUs, and compared with a run on the CPU."""
    what = asked(name, CASES[name], fused=False)
    captured = capture_once(what) if name == "bert" else once(name)  # without dropout both kernels are the same
    return captured, check(captured, what.real(), what.inputs)


def kinds(captured: Captured) -> list[str]:
    """Return the kinds of the layers in order."""
    return [layer.kind for layer in captured.layers]


@pytest.mark.parametrize("name", CASES)
def test_figures_are_those_of_autograd(name: str) -> None:
    """Parameters and FLOPs are exact, and what is kept is within 0.2 % of what autograd keeps on the CPU."""
    rows = {row.what: row for row in checked(name)[1]}
    assert {name: row.off for name, row in rows.items() if name.endswith("FLOPs") or name == "parameters"} == {
        "parameters": 0,
        "forward FLOPs": 0,
        "backward FLOPs": 0,
    }
    assert abs(rows["bytes kept for the backward pass"].off) <= 0.002
    assert all(row.measured for row in rows.values())


def test_check_sees_what_is_off() -> None:
    """A figure that is off is off by its share of what was measured."""
    assert Checked("bytes", 102, 100).off == pytest.approx(0.02)
    assert Checked("bytes", 1, 0).off == 1.0
    assert Checked("bytes", 0, 0).off == 0.0


def test_gpt_is_what_formulas_say() -> None:
    """A GPT layer has 12 h^2 + 13 h parameters, and 24 b s h^2 + 4 b s^2 h FLOPs forward (arXiv 2104.04473, 5.1)."""
    captured = capture(asked("gpt", ("1x32:int64",)))
    width, length = WIDTH, 32
    assert captured.how == "export"
    assert captured.linear
    assert kinds(captured) == ["embedding", *["gptblock"] * 2, "head"]
    layer = captured.layers[1]
    assert layer.parameters == 12 * width**2 + 13 * width
    forward = 24 * length * width**2 + 4 * length**2 * width
    assert captured.figures["gptblock"].forward_flops == Affine(0, forward)
    attention = 4 * length**2 * width
    assert captured.figures["gptblock"].backward_flops == Affine(0, 2 * forward + attention // 2)  # scores once more
    # input, mean and deviation of both norms; their results; queries, keys, values, result and its sums; up and gelu
    kept = 4 * (length * width * (2 + 2 + 3 + 1 + 8) + length * (2 * 2 + HEADS))
    assert layer.kept == Affine(0, kept)
    assert layer.entering == Affine(0, 4 * length * width)
    head = captured.layers[-1]
    assert (head.parameters, head.tied) == (2 * width, VOCABULARY * width), "the tied table counts once"
    assert [(edge.source, edge.target, edge.bytes) for edge in captured.edges] == [
        (at, at + 1, Affine(0, 4 * length * width)) for at in range(3)
    ]


def test_llama_shares_keys_and_values() -> None:
    """Two of four heads have keys and values of their own: their matrices are half as wide."""
    captured = once("llama")
    inner = 176
    assert captured.layers[1].parameters == 3 * WIDTH**2 + 3 * WIDTH * inner + 2 * WIDTH
    products = 2 * 2 * 32 * (3 * WIDTH**2 + 3 * WIDTH * inner)
    assert captured.figures["llamablock"].forward_flops.at(2) == products + 4 * 2 * 32**2 * WIDTH


def test_encoder_feeds_all_decoder_layers() -> None:
    """What leaves the encoder goes to each layer of the decoder and is kept once; the neighbours are in order."""
    captured = once("t5")
    assert kinds(captured) == ["embedding", *["t5layer"] * 2, "embedding-2", *["t5layer-2"] * 2, "head"]
    sent = {(edge.source, edge.target): edge.bytes.at(2) for edge in captured.edges}
    encoded, decoded = 4 * 2 * 32 * WIDTH, 4 * 2 * 16 * WIDTH
    assert sent[2, 3] == encoded
    assert sent[3, 4] == encoded + decoded
    assert sent[3, 5] == encoded
    assert sent[4, 5] == decoded
    first, second = captured.layers[4].kept.at(2), captured.layers[5].kept.at(2)
    assert first - second == encoded, "the second layer looks at what the first one keeps"


def test_convolutions_are_products() -> None:
    """The FLOPs of a ResNet's stem: rows are places of the result, and the image wants no gradient."""
    captured = once("resnet")
    stem = captured.figures["sequential"]
    flops = 2 * (2 * 32 * 32) * (3 * 7 * 7) * 16
    assert stem.forward_flops.at(2) == stem.backward_flops.at(2) == flops
    (product,) = [kernel for kernel in stem.forward if kernel.work == "product"]
    assert [length.at(2) for length in product.shape] == [1, 2 * 32 * 32, 3 * 7 * 7, 16]
    assert kinds(captured)[1:-1] == ["bottleneck", "bottleneck-2", "bottleneck-3", "bottleneck-4"]


def test_connections_that_skip_are_edges() -> None:
    """What a U-Net carries past its lower level goes from the first level to where both are joined, behind ``up``."""
    captured = once("unet")
    image = 4 * 2 * 8 * 16 * 16
    assert [layer.name for layer in captured.layers] == ["first", "second", "up", "third", "head"]
    assert {(edge.source, edge.target): edge.bytes.at(2) for edge in captured.edges} == {
        (0, 1): image // 4,
        (0, 2): image,
        (1, 2): image // 2,
        (2, 3): 2 * image,
        (3, 4): image,
    }


def test_mixed_precision_inside_is_refused() -> None:
    """On the meta device autocast changes nothing, so that every size would be wrong."""
    with pytest.raises(InvalidProblem, match=r"torch\.autocast.*--dtype bfloat16"):
        capture_once(asked("mixed", ("2x8",)))


def test_what_export_cannot_see_is_watched() -> None:
    """Experts that take what comes have shapes that depend on values: hooks on submodules see them, and it says so."""
    captured = once("looped")
    assert captured.how == "hooks"
    assert kinds(captured) == ["embedding", "llamablock", "llamablock", "rmsnorm", "linear"]
    assert any(note.startswith("torch.export failed") for note in captured.notes)


def test_dropout_keeps_bytes_on_gpus() -> None:
    """A mask of GPUs has a byte for each number, one of CPUs as many as the number; without dropout there is none."""
    without, cpu, gpu = (
        once("gpt", layers=1, fused=fused, dropout=share).layers[1].kept.at(2)
        for fused, share in ((True, 0.0), (False, 0.1), (True, 0.1))
    )
    numbers = 2 * (2 * 32 * WIDTH)
    assert cpu - without == 4 * numbers
    assert gpu - without == numbers


def test_layer_keeps_what_the_formula_says() -> None:
    """In 16 bits with dropout a GPT layer keeps 34 s b h bytes (arXiv 2205.05198, table 2), and the sums of its norms.

    Attention is fused: of its scores only the sum of each row stays.
    """
    captured = once("gpt", layers=1, dtype="bfloat16", dropout=0.1)
    rows = 2 * 32
    assert captured.dtype == "bf16"
    sums = rows * (2 * 2 * 2 + 4 * HEADS)  # mean and deviation of two norms in 16 bits, one sum in 32 a head
    assert captured.layers[1].kept.at(2) == 34 * rows * WIDTH + sums


def test_both_ways_to_a_layer_agree() -> None:
    """A GPT layer captured is the one that hyperparameters give: its weights, what it keeps, and about its time.

    Hyperparameters have more kernels: every step of a norm and of an activation is one of its own.
    """
    captured = capture_once(asked("gpt", ("4x1024:int64",), dtype="bfloat16", layers=1, width=1024, dropout=0.1))
    hardware = read_cluster("dgx-h100:8")
    (layer,) = captured_problem(captured, Wanted(hardware, 4, recipe_named("mixed"))).graphs[LAYER_OF_4].layers[1:-1]
    model = from_hyperparameters(Hyperparameters("gpt", 1, 1024, HEADS, vocab=VOCABULARY, seq=1024))
    setting = Setting(1024, microbatch=4, padding=0, framework=TORCHTITAN)
    cost = layer_costs(model, hardware.device, setting)["text"][1]
    assert layer.parameter_bytes == 2 * cost.parameters.total
    assert layer.activation_bytes == pytest.approx(cost.kept.none, rel=0.001)
    assert 0.7 < layer.forward_s / cost.forward_s < 1
    assert 0.8 < layer.backward_s / cost.backward_s < 1


def test_figures_hold_at_other_batches() -> None:
    """What the line says of five sequences is what five sequences keep."""
    line = capture(asked("llama", ("1x32:int64",), layers=1))
    there = capture_once(asked("llama", ("5x32:int64",), layers=1))
    assert line.linear
    assert [layer.kept.at(5) for layer in line.layers] == [layer.kept.at(5) for layer in there.layers]
    assert (line.forward_flops.at(5), line.backward_flops.at(5)) == (
        there.forward_flops.at(5),
        there.backward_flops.at(5),
    )


def test_what_is_not_linear_says_so() -> None:
    """A loss over all pairs of a batch grows with its square; its figures hold for one batch only."""
    captured = capture(asked("contrast", ("4x16",)))
    assert not captured.linear
    assert captured.figures[captured.layers[-1].kind].forward_flops.at(4) == 2 * 4 * 4 * 16
    assert any("no other" in note for note in captured.notes)


def test_equal_operators_in_a_row_are_blocks() -> None:
    """A module without submodules to go by is cut where runs of operators repeat."""
    captured = capture_once(asked("flat", ("2x16",)))
    assert len(captured.layers) == 4
    assert len(set(kinds(captured)[1:])) == 1
    assert captured.parameters == 4 * 16 * 16


def test_a_module_called_twice_is_two_layers() -> None:
    """Layers that share their weights are layers all the same, and the weights count once."""
    captured = capture_once(asked("recurrent", ("2x16",)))
    assert [layer.name for layer in captured.layers] == ["block.0", "block.0", "block.0"]
    assert [layer.tied for layer in captured.layers] == [0, 272, 272]
    assert captured.parameters == 272


@pytest.mark.parametrize("text", ["", "x", "1x", "1x0:int64", "1x2:int63", "0", "1,2", "-1x2"])
def test_shapes_that_are_none(text: str) -> None:
    """A shape that is none is refused with what is wrong."""
    with pytest.raises(InvalidProblem, match="--input"):
        read_input(text)


def test_shapes_are_read() -> None:
    """Lengths, a data type, and a first length that stays as it is."""
    assert read_input("1x1024:int64") == Input((1, 1024), "int64")
    assert read_input("=8x8:bool") == Input((8, 8), "bool", batched=False)
    assert read_input("=8x8:bool").times(3) == (8, 8)
    assert str(read_input("2x3")) == "2x3:float32"


def test_documentation_has_the_same_figures() -> None:
    """The table of `docs/capture.md` is what comes out."""
    page = (Path(__file__).parents[1] / "docs" / "capture.md").read_text()
    for name, texts in CASES.items():
        captured, rows = checked(name)
        kept = {row.what: row for row in rows}["bytes kept for the backward pass"]
        figures = (captured.parameters, captured.forward_flops.at(2), captured.backward_flops.at(2))
        numbers = (*figures, kept.predicted, kept.measured)
        cells = (f"`{name}`", ", ".join(texts), captured.how, *(f"{number:,}" for number in numbers))
        assert f"| {' | '.join(cells)} |" in page


class Wrapper(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A row of blocks and a norm behind it."""

    def __init__(self, *blocks: Any) -> None:
        super().__init__()
        self.rows = torch.nn.ModuleList(blocks)
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, x: Any) -> Any:
        """Run the blocks one after the other."""
        for each in self.rows:
            x = each(x)
        return self.norm(x)


def paths(module: Any) -> list[str]:
    """Return the paths of the blocks of a module."""
    return [unit.path for unit in units_of(module).values() if unit.block]


def test_rows_inside_members_of_a_sequential() -> None:
    """A whole network between its embedding and its head was one layer; two wrappers of rows were one layer each."""
    inner, table, head = bert(3), torch.nn.Embedding(9, WIDTH), torch.nn.Linear(WIDTH, 9)
    blocks = ["1.rows.0", "1.rows.1", "1.rows.2"]
    assert paths(torch.nn.Sequential(table, Wrapper(*inner), head)) == blocks
    assert paths(torch.nn.Sequential(table, inner, head)) == ["1.0", "1.1", "1.2"]
    stages = torch.nn.Sequential(Wrapper(*bert(2)), Wrapper(*bert(2)))
    assert paths(stages) == ["0.rows.0", "0.rows.1", "1.rows.0", "1.rows.1"]
    assert paths(torch.nn.ModuleList(stages)) == ["0.rows.0", "0.rows.1", "1.rows.0", "1.rows.1"]


def test_what_a_block_consists_of_is_not_opened() -> None:
    """Experts, and a convolution with its norm, stay part of their block, however few blocks there are."""
    expert = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(2)]
    assert paths(torch.nn.ModuleList([Wrapper(*expert), Wrapper(*expert)])) == ["0", "1"]
    assert paths(torch.nn.ModuleList([Wrapper(*expert)])) == ["0"]
