"""Every word that public files have for a size is read as that size, or the file is refused; none passes in silence."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nest.errors import InvalidProblem
from nest.families import Architecture, is_model
from nest.families.huggingface.reading import read_config
from nest.families.keys import CHOSEN, EXPERT_WIDTH, EXPERTS, FEED, HEAD_WIDTH, HEADS, KV_HEADS, LAYERS, SHARED, WIDTH

LAYER_COUNT, HIDDEN, HEAD_COUNT, KV_COUNT, MLP, ROWS = 3, 256, 8, 2, 640, 1000
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": LAYER_COUNT,
    "hidden_size": HIDDEN,
    "num_attention_heads": HEAD_COUNT,
    "num_key_value_heads": KV_COUNT,
    "intermediate_size": MLP,
    "vocab_size": ROWS,
    "tie_word_embeddings": False,
}
DEEPSEEK = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 96,
    "first_k_dense_replace": 1,
}


def _count(table: Mapping[str, object]) -> int:
    return read_config(table).parameters


def _renamed(table: Mapping[str, object], name: str, alias: str) -> dict[str, object]:
    return {alias if key == name else key: value for key, value in table.items()}


def _llama(head: int = HIDDEN // HEAD_COUNT, kv: int = KV_COUNT) -> int:
    """Return what a Llama has: embedding and head, and of each layer four matrices of attention, three of the MLP."""
    attention = 2 * HIDDEN * HEAD_COUNT * head + 2 * HIDDEN * kv * head
    return 2 * ROWS * HIDDEN + HIDDEN + LAYER_COUNT * (attention + 3 * HIDDEN * MLP + 2 * HIDDEN)


@pytest.mark.parametrize("names", [LAYERS, WIDTH, HEADS, KV_HEADS, FEED], ids=lambda names: names[0])
def test_every_word_for_a_size_counts(names: tuple[str, ...]) -> None:
    """Catches a word that is not read, as kv_n_heads once was not: a model without grouped heads came out."""
    for alias in names:
        assert _count(_renamed(LLAMA, names[0], alias)) == _llama(), alias


def test_every_word_for_the_width_of_a_head_counts() -> None:
    """Catches d_kv and attn_size passed over."""
    for alias in HEAD_WIDTH:
        assert _count({**LLAMA, alias: 64}) == _llama(64), alias


@pytest.mark.parametrize("names", [EXPERTS, CHOSEN, EXPERT_WIDTH, SHARED], ids=lambda names: names[0])
def test_every_word_for_experts_counts(names: tuple[str, ...]) -> None:
    """Catches a word of another tool for experts, of which a dense or a smaller model would come out."""
    known = read_config(DEEPSEEK)
    name = next(name for name in names if name in DEEPSEEK)
    for alias in names:
        model = read_config(_renamed(DEEPSEEK, name, alias))
        assert (model.parameters, model.active_parameters) == (known.parameters, known.active_parameters), alias


def test_what_is_taken_for_granted_is_said() -> None:
    """Catches sizes that a misspelt key loses without a word: key-value heads, and shared experts."""
    heads = read_config({key: value for key, value in LLAMA.items() if key != "num_key_value_heads"})
    assert heads.parameters == _llama(kv=HEAD_COUNT)
    assert any("num_key_value_heads: not in the file" in note for note in heads.notes)
    shared = read_config({key: value for key, value in DEEPSEEK.items() if key != "n_shared_experts"})
    assert any("n_shared_experts: not in the file" in note for note in shared.notes)


def test_version_three_balances_its_experts() -> None:
    """Catches the bias of each expert forgotten where the file does not name the method: its class has no other."""
    routed = LAYER_COUNT - 1
    assert _count(DEEPSEEK) - _count({**DEEPSEEK, "topk_method": "greedy"}) == routed * 8


def _with(model_type: str, **further: object) -> Architecture:
    return read_config({**LLAMA, "model_type": model_type, **further})


def test_keys_that_add_norms() -> None:
    """Catches norms of heads that Command R+ and StableLM 12B have, and a second norm that the latter has not."""
    heads = LAYER_COUNT * (HEAD_COUNT + KV_COUNT) * (HIDDEN // HEAD_COUNT)
    for family, key in (("cohere", "use_qk_norm"), ("cohere2", "use_qk_norm"), ("stablelm", "qk_layernorm")):
        assert _with(family, **{key: True}).parameters - _with(family).parameters == heads, family
    one_norm = _with("stablelm", use_parallel_residual=True).parameters
    assert _with("stablelm").parameters - one_norm == LAYER_COUNT * 2 * HIDDEN  # a weight and a bias each


def test_sizes_without_a_type_are_refused_for_the_type() -> None:
    """Catches such a file taken for a problem, whose schema would be missing."""
    assert is_model('{"num_hidden_layers": 12, "hidden_size": 768}')
    with pytest.raises(InvalidProblem, match="model_type: missing"):
        read_config({"num_hidden_layers": 12, "hidden_size": 768})
