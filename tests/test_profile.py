"""The table that `nest profile` writes, and the shapes of blocks; none of this needs torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from nest.costing import Measurement
from nest.errors import InvalidProblem
from nest.families import Architecture, Hyperparameters, from_hyperparameters
from nest.files.profile_file import read_profile
from nest.profile import EmbeddingShape, HeadShape, LayerShape, profile_csv, shape_of

LLAMA = Hyperparameters("llama", layers=2, hidden=64, heads=4, kv_heads=2, ffn=96, vocab=101, seq=32)
GPT = Hyperparameters("gpt", layers=2, hidden=64, heads=4, vocab=101, seq=32)


def blocks(model: Architecture, tensor: int = 1) -> list[object]:
    """Return the shapes of a model's first blocks and of its head."""
    (stack,) = model.stacks
    return [shape_of(block, tensor) for block in (*stack.blocks[:2], stack.blocks[-1])]


def test_table_is_read_back(tmp_path: Path) -> None:
    """What is written is what `nest solve --profile` reads; empty cells are what is not known."""
    rows = (
        Measurement("block", 1, 2, 1.5e-3, 3.25e-3, 1, 1024, "bf16", 7, "a device, with commas"),
        Measurement("head", 4, 1, 0.0, 1e-6),
    )
    path = tmp_path / "table.csv"
    path.write_text(profile_csv(rows))
    first, second = read_profile(path).rows
    assert (first.kind, first.microbatch, first.tensor, first.context, first.sequence) == ("block", 1, 2, 1, 1024)
    assert (first.forward_s, first.backward_s) == pytest.approx((1.5e-3, 3.25e-3))
    assert (first.dtype, first.kept_bytes, first.source) == ("bf16", 7, "a device, with commas")
    assert (second.sequence, second.dtype, second.kept_bytes, second.source) == (None, None, None, "")
    assert second.backward_s == pytest.approx(1e-6)


def test_blocks_are_those_of_one_device() -> None:
    """Tensor parallel cuts heads, the MLP and the vocabulary; of key-value heads each device has at least one."""
    llama = LayerShape(64, 1, 1, 16, 24, gated=True, bias=False, rms=True, rotary=True, dropout=False, causal=True)
    assert blocks(from_hyperparameters(LLAMA), 4) == [
        EmbeddingShape(26, 0, 64, dropout=False),
        llama,
        HeadShape(26, 64, norm=True, rms=True),
    ]
    gpt = LayerShape(64, 2, 2, 16, 128, gated=False, bias=True, rms=False, rotary=False, dropout=True, causal=True)
    assert blocks(from_hyperparameters(GPT), 2) == [
        EmbeddingShape(51, 32, 64, dropout=True),
        gpt,
        HeadShape(51, 64, norm=True, rms=False),
    ]


def test_widths_that_do_not_divide() -> None:
    """A width that does not divide the heads is refused."""
    with pytest.raises(InvalidProblem, match="3 does not divide the 4 heads"):
        blocks(from_hyperparameters(LLAMA), 3)


def test_blocks_without_a_reference() -> None:
    """Experts have no reference block."""
    model = from_hyperparameters(Hyperparameters("moe", 2, 64, 4, ffn=96, vocab=101, seq=32, experts=4, top_k=2))
    assert blocks(model)[1] is None
