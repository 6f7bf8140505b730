"""What layers compute and keep, against published formulas."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from model_files import DEEPSEEK, model

from nest.families import (
    Architecture,
    Exchange,
    Hyperparameters,
    Matmul,
    Scores,
    Split,
    from_hyperparameters,
)
from nest.families.operators import Tensor


def layer_of(found: Architecture, stack: str = "text", place: int = 1) -> Any:
    """Return a block of a stack."""
    return found.stack(stack).blocks[place]


GPT3 = Hyperparameters("gpt", 96, 12288, 96, vocab=51200, seq=2048)


def test_flops_of_gpt() -> None:
    """Narayanan et al. (arXiv 2104.04473, section 5.1): forward and backward are 72 B s l h^2 (1 + s/6h + V/12lh)."""
    found = from_hyperparameters(GPT3)
    h, s, layers, vocabulary = 12288, 2048, 96, 51200
    matmuls = sum(block.matmul_flops for block in found.stacks[0].blocks) * s
    scores = [
        operator for block in found.stacks[0].blocks for operator in block.operators if isinstance(operator, Scores)
    ]
    full = sum(2 * score.heads * (score.key_width + score.value_width) * s * s for score in scores)
    published = 72 * s * layers * h * h * (1 + Fraction(s, 6 * h) + Fraction(vocabulary, 12 * layers * h))
    assert 3 * (matmuls + full) == published


def kept_bytes(tensors: tuple[Tensor, ...], tensor: int, *, sequence: bool) -> Fraction:
    """Return the bytes per token that one device keeps, numbers in two bytes, masks in one."""
    total = Fraction(0)
    for kept in tensors:
        size = Fraction(kept.width * kept.rows) * (1 if kept.element == "mask" else 2)
        total += size / tensor if kept.sharded or sequence else size
    return total


@pytest.mark.parametrize(("tensor", "sequence", "factor"), [(1, False, 34), (8, False, 13), (8, True, Fraction(34, 8))])
def test_activations_of_gpt(tensor: int, sequence: bool, factor: Fraction) -> None:
    """Korthikanti et al. (arXiv 2205.05198, table 2) without the scores: 34, 10 + 24/t, 34/t times s b h."""
    block = layer_of(from_hyperparameters(GPT3))
    assert kept_bytes(block.kept, tensor, sequence=sequence) == factor * 12288


def test_scores_of_gpt() -> None:
    """The scores of that table, 5 a s / h: softmax and its dropped result in two bytes, the mask in one."""
    (scores,) = [
        operator for operator in layer_of(from_hyperparameters(GPT3)).operators if isinstance(operator, Scores)
    ]
    assert (scores.heads, scores.dropout, scores.causal) == (96, True, True)


@pytest.mark.parametrize(
    ("scores", "pairs"),
    [
        (Scores("scores", 1, 1, 8, 8, causal=False), 100),
        (Scores("scores", 1, 1, 8, 8), 55),
        (Scores("scores", 1, 1, 8, 8, span=3), 3 + 8 * 3),
        (Scores("scores", 1, 1, 8, 8, span=4, chunked=True), 10 + 10 + 3),
        (Scores("scores", 1, 1, 8, 8, span=99), 55),
    ],
    ids=["full", "causal", "window", "chunks", "wide window"],
)
def test_pairs(scores: Scores, pairs: int) -> None:
    """Of 10 tokens, so many pairs: all, half, those within a window, those within a chunk."""
    assert scores.pairs(10, 10) == pairs
    assert scores.flops(10, 10) == 2 * 16 * pairs


def test_pairs_across() -> None:
    """Between streams every pair counts."""
    assert Scores("scores", 2, 2, 8, 8, causal=False).pairs(10, 7) == 70


def test_experts_see_their_share() -> None:
    """An expert's products have as many rows as a token passes experts, spread over all of them."""
    found = from_hyperparameters(DEEPSEEK)
    block = layer_of(found, place=10)
    grouped = [operator for operator in block.operators if isinstance(operator, Matmul) and operator.groups > 1]
    assert {(matmul.rows, matmul.groups) for matmul in grouped} == {(8, 256)}
    assert sum(matmul.flops for matmul in grouped) == 8 * 2 * 3 * 7168 * 2048
    exchanges = [operator for operator in block.operators if isinstance(operator, Exchange)]
    assert [(exchange.collective, exchange.rows) for exchange in exchanges] == [
        ("all-reduce", 1),
        ("all-to-all", 8),
        ("all-to-all", 8),
        ("all-reduce", 1),
    ]


def test_splits() -> None:
    """Keys and values have no more parts than key-value heads; what leaves attention is cut by rows."""
    weights = {
        weight.name: weight
        for part in layer_of(model()).components
        for weight in part.weights
        if part.kind == "attention"
    }
    assert (weights["query"].split, weights["query"].parts) == (Split.COLUMN, 8)
    assert (weights["key"].split, weights["key"].parts) == (Split.COLUMN, 2)
    assert weights["out"].split is Split.ROW
    head = layer_of(model(tie_word_embeddings=True), place=4).components[-1].weights[0]
    assert (head.split, head.tied, head.parameters, head.elements) == (Split.VOCABULARY, True, 0, 6400)


def test_parallel_layers_sum_once() -> None:
    """Attention and MLP in parallel need one collective, and read the same input."""
    block = layer_of(model(model_type="cohere"))
    assert sum(isinstance(operator, Exchange) for operator in block.operators) == 1
    assert [tensor.name for tensor in block.kept][:2] == ["input", "norm.out"]


def test_equal_layers_are_one_block() -> None:
    """Whatever is computed per block need not be computed per layer."""
    blocks = from_hyperparameters(GPT3).stacks[0].blocks
    assert len({id(block) for block in blocks}) == 3
    assert from_hyperparameters(GPT3) == from_hyperparameters(GPT3)


def test_edges_join_everything() -> None:
    """Every block but the first of each stack without links has an edge into it."""
    found = from_hyperparameters(Hyperparameters("t5", 2, 64, 4, vocab=100))
    targets = {edge.target for edge in found.edges}
    blocks = {(stack.name, place) for stack in found.stacks for place in range(len(stack.blocks))}
    assert blocks - targets == {("encoder", 0), ("decoder", 0)}
