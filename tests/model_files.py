"""A small Llama as a config.json, with changes, and counts of it by hand."""

from __future__ import annotations

import json

import pytest

from nest.errors import InvalidProblem
from nest.families import Architecture, Hyperparameters, describe

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}


def config(**changes: object) -> str:
    """Return a config.json: a small Llama with changes; None removes a key."""
    table = {**LLAMA, **changes}
    return json.dumps({key: value for key, value in table.items() if value is not None})


def model(**changes: object) -> Architecture:
    """Return the model of such a file."""
    return describe(config(**changes)).model


def refusal(text: str, vocabulary: int | None = None) -> str:
    """Return the line with which a text is refused."""
    with pytest.raises(InvalidProblem) as caught:
        describe(text, vocabulary)
    assert "\n" not in str(caught.value)
    return str(caught.value)


BASE_LAYER = 64 * 64 * 2 + 64 * 16 * 2 + 3 * 64 * 160 + 2 * 64
"""Queries and output, keys and values of 2 heads of 8, three matrices, two norms."""

BASE = 3 * BASE_LAYER + 2 * 100 * 64 + 64
"""Three layers, embedding and head, the last norm."""


DEEPSEEK = Hyperparameters(
    "moe",
    61,
    7168,
    128,
    ffn=18432,
    vocab=129280,
    seq=4096,
    experts=256,
    top_k=8,
    expert_ffn=2048,
    shared_ffn=2048,
    dense_layers=3,
    query_rank=1536,
    latent_rank=512,
    correction=True,
    predictions=1,
)
"""DeepSeek-V3 by its hyperparameters (arXiv 2412.19437, section 4.2)."""
