"""Models of every family against counts by hand."""

from __future__ import annotations

import json

import pytest
from model_files import BASE, BASE_LAYER, DEEPSEEK, model

from nest.errors import InvalidProblem
from nest.families import (
    Block,
    Hyperparameters,
    Scores,
    describe,
    from_hyperparameters,
)
from nest.hardware import cluster_named
from nest.runs import Run, problem_of


def test_llama_by_hand() -> None:
    """Grouped-query attention, a gate, norms without bias, no tie."""
    assert model().parameters == BASE
    assert model().active_parameters == BASE
    assert model().layer_kinds() == {"text": {"attention+mlp": 3}}


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"tie_word_embeddings": True}, -100 * 64),
        ({"head_dim": 16}, 3 * (2 * 64 * 64 + 2 * 64 * 16)),
        ({"num_key_value_heads": None}, 3 * 2 * 64 * 48),
        ({"attention_bias": True}, 3 * (64 + 16 + 16 + 64)),
        ({"mlp_bias": True}, 3 * (160 + 160 + 64)),
        ({"model_type": "qwen2"}, 3 * (64 + 16 + 16)),
        ({"model_type": "qwen3", "head_dim": 8}, 3 * (8 + 8)),
        ({"model_type": "olmo2"}, 3 * (64 + 16)),
        ({"model_type": "gemma2", "head_dim": 8}, 3 * 2 * 64 - 100 * 64),
        ({"model_type": "gemma3_text", "head_dim": 8}, 3 * (2 * 64 + 16) - 100 * 64),
        ({"model_type": "cohere"}, -3 * 64 - 100 * 64),
        ({"model_type": "qwen", "intermediate_size": 320}, 3 * (64 + 16 + 16)),
        ({"model_type": "stablelm"}, 7 * 64),
    ],
    ids=str,
)
def test_traits_by_hand(changes: dict[str, object], difference: int) -> None:
    """Each trait of a class, and each key, changes the count by what it adds."""
    assert model(**changes).parameters == BASE + difference


def test_gpt2_by_hand() -> None:
    """GPT-2 small, published as 124,439,808: biases everywhere, positions, a tied head."""
    text = json.dumps(
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "vocab_size": 50257,
            "n_positions": 1024,
            "n_inner": None,
        }
    )
    layer = 12 * 768**2 + 13 * 768
    assert describe(text).model.parameters == 12 * layer + 50257 * 768 + 1024 * 768 + 2 * 768 == 124_439_808


def test_opt_350m_is_narrow() -> None:
    """OPT-350m, published as 331,196,416: a table 512 wide, two matrices, norms behind, none at the end."""
    text = json.dumps(
        {
            "model_type": "opt",
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "ffn_dim": 4096,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
            "word_embed_proj_dim": 512,
            "do_layer_norm_before": False,
        }
    )
    layer = 12 * 1024**2 + 13 * 1024
    assert describe(text).model.parameters == 24 * layer + 50272 * 512 + 2050 * 1024 + 2 * 512 * 1024 == 331_196_416


def test_falcon_7b_has_one_kv_head() -> None:
    """Falcon-7B, published as 6,921,720,704: one norm, one key-value head, 71 heads."""
    text = json.dumps(
        {
            "model_type": "RefinedWebModel",
            "hidden_size": 4544,
            "n_layer": 32,
            "n_head": 71,
            "multi_query": True,
            "parallel_attn": True,
            "vocab_size": 65024,
        }
    )
    layer = 2 * 4544**2 + 2 * 4544 * 64 + 8 * 4544**2 + 2 * 4544
    assert describe(text).model.parameters == 32 * layer + 65024 * 4544 + 2 * 4544 == 6_921_720_704


def test_bert_by_hand() -> None:
    """BERT-large with pooler, published as 335,141,888; with the head for masked tokens and no pair, 336,224,058."""
    bert = from_hyperparameters(Hyperparameters("bert", 24, 1024, 16, vocab=30522, seq=512))
    layer = 12 * 1024**2 + 13 * 1024
    embedding = (30522 + 512 + 2) * 1024 + 2 * 1024
    assert bert.parameters == 24 * layer + embedding + 1024**2 + 1024 == 335_141_888
    (heads,) = bert.extras
    assert heads.trained
    assert heads.stack.parameters == 1024**2 + 1024 + 2 * 1024 + 30522


def test_t5_11b_by_hand() -> None:
    """T5-11B: heads 128 wide, 128 of them, relative positions in the first layer of each stack, a shared table."""
    t5 = from_hyperparameters(Hyperparameters("t5", 24, 1024, 128, head_width=128, ffn=65536, vocab=32128, seq=512))
    attention, mlp = 4 * 1024 * 16384, 2 * 1024 * 65536
    encoder = 24 * (attention + mlp + 2 * 1024) + 32 * 128 + 1024
    decoder = 24 * (2 * attention + mlp + 3 * 1024) + 32 * 128 + 1024
    assert t5.parameters == encoder + decoder + 32128 * 1024 == 11_307_321_344
    assert [stack.layers for stack in t5.stacks] == [24, 24]


def test_bart_large_by_hand() -> None:
    """BART-large, published as 406,290,432 without the head's own bias: positions with two rows more, norms behind."""
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (("layers", 12), ("attention_heads", 16), ("ffn_dim", 4096))
    }
    table = {"model_type": "bart", "d_model": 1024, "vocab_size": 50265, "max_position_embeddings": 1024, **sides}
    attention, mlp, norm = 4 * 1024**2 + 4 * 1024, 8 * 1024**2 + 5 * 1024, 2 * 1024
    layers = 12 * (attention + mlp + 2 * norm) + 12 * (2 * attention + mlp + 3 * norm)
    assert describe(json.dumps(table)).model.parameters == layers + 50265 * 1024 + 2 * (1026 * 1024 + norm)


def test_mixtral_by_hand() -> None:
    """Every layer has experts; a token passes two of eight, and the whole of everything else."""
    mixtral = model(model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
    rest = 3 * (BASE_LAYER - 3 * 64 * 160 + 8 * 64) + 2 * 100 * 64 + 64
    assert mixtral.parameters == rest + 3 * 8 * 3 * 64 * 160
    assert mixtral.active_parameters == rest + 3 * 2 * 3 * 64 * 160
    assert mixtral.routed


def test_shared_expert_by_hand() -> None:
    """Qwen2-MoE: a shared expert with a gate of one output, and layers without experts."""
    qwen = model(
        model_type="qwen2_moe",
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=48,
        mlp_only_layers=[1],
    )
    routed = 4 * 64 + 4 * 3 * 64 * 32 + 3 * 64 * 48 + 64
    assert qwen.parameters == BASE + 3 * 96 + 2 * (routed - 3 * 64 * 160)
    assert qwen.layer_kinds()["text"] == {"attention+moe": 2, "attention+mlp": 1}


def test_gpt_oss_by_hand() -> None:
    """Every expert, the router and all four attention matrices have biases; each head has a sink."""
    oss = model(model_type="gpt_oss", num_local_experts=4, num_experts_per_tok=2, head_dim=8, sliding_window=128)
    attention = 64 * 64 * 2 + 64 * 16 * 2 + (64 + 16 + 16 + 64) + 8
    experts = 4 * (3 * 64 * 160 + 2 * 160 + 64) + 4 * 64 + 4
    assert oss.parameters == 3 * (attention + experts + 2 * 64) + 2 * 100 * 64 + 64
    assert oss.layer_kinds()["text"] == {"sliding_attention+moe": 2, "attention+moe": 1}


def test_deepseek_v3_by_hand() -> None:
    """DeepSeek-V3, published as 671B with 37B active; multi-token prediction outside."""
    found = from_hyperparameters(DEEPSEEK)
    h, heads = 7168, 128
    attention = h * 1536 + 1536 + 1536 * heads * 192 + h * 576 + 512 + 512 * heads * 256 + heads * 128 * h
    expert = 3 * h * 2048
    routed = 256 * h + 256 + 257 * expert
    layers = 61 * (attention + 2 * h) + 3 * 3 * h * 18432 + 58 * routed
    assert found.parameters == layers + 2 * 129280 * h + h == 671_026_419_200
    assert found.active_parameters == found.parameters - 58 * 248 * expert == 37_552_297_472
    (prediction,) = found.extras
    assert prediction.stack.parameters == attention + 2 * h + routed + 2 * h * h + 3 * h == 11_610_068_224
    assert not prediction.trained


def test_deepseek_without_query_latent() -> None:
    """A null rank is a plain matrix, not a rank of nothing."""
    table = {
        "model_type": "deepseek_v2",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 160,
        "moe_intermediate_size": 32,
        "n_routed_experts": 4,
        "n_shared_experts": 2,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "q_lora_rank": None,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "vocab_size": 100,
    }
    attention = 64 * 4 * 12 + 64 * 20 + 16 + 16 * 4 * 16 + 4 * 8 * 64
    routed = 4 * 64 + 4 * 3 * 64 * 32 + 3 * 64 * 64
    expected = 2 * (attention + 128) + 3 * 64 * 160 + routed + 2 * 100 * 64 + 64
    assert describe(json.dumps(table)).model.parameters == expected


def test_mamba_by_hand() -> None:
    """Mamba-130m, published as 129,135,360: 24 layers of 1536 channels, tied."""
    table = {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50280}
    inner, rank, state = 1536, 48, 16
    layer = 768 * 2 * inner + inner * 4 + inner + inner * (rank + 2 * state) + rank * inner + inner
    layer += inner * state + inner + inner * 768 + 768
    assert describe(json.dumps(table)).model.parameters == 24 * layer + 50280 * 768 + 768 == 129_135_360


def test_blocks_without_attention() -> None:
    """Nemotron-NAS: blocks lack attention or have one matrix for it, widths follow from a factor per block."""
    keep = {"n_heads_in_group": 4, "no_op": False, "replace_with_linear": False}
    nothing = {"n_heads_in_group": None, "no_op": True, "replace_with_linear": False}
    linear = {"n_heads_in_group": None, "no_op": False, "replace_with_linear": True}
    feeds = ({"ffn_mult": 2.625}, {"ffn_mult": 1.0}, {"ffn_mult": None, "no_op": True})
    blocks = [
        {"attention": attention, "ffn": feed} for attention, feed in zip((keep, nothing, linear), feeds, strict=True)
    ]
    found = model(
        model_type="nemotron-nas",
        hidden_size=512,
        num_key_value_heads=None,
        intermediate_size=None,
        block_configs=blocks,
    )
    first = 512 * 512 * 2 + 512 * 128 * 2 + 3 * 512 * 1024 + 1024  # 2 * 2.625 * 512 / 3 = 896, up to 1024
    second = 3 * 512 * 512 + 512  # 341, up to 512
    third = 512 * 512 + 512
    assert found.parameters == first + second + third + 2 * 100 * 512 + 512
    assert found.layer_kinds()["text"] == {"attention+mlp": 1, "mlp": 1, "linear": 1}


def test_llava_by_hand() -> None:
    """Text sizes that the nested table lacks are the class's, 6,738,939,904 for a vocabulary of 32064."""
    vision = {
        "model_type": "clip_vision_model",
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    text = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}, "vision_config": vision}
    tower = 2 * (12 * 64**2 + 13 * 64) + 3 * 14 * 14 * 64 + 64 + 5 * 64 + 4 * 64
    projector = 64 * 4096 + 4096 + 4096**2 + 4096
    found = describe(json.dumps(text)).model
    assert found.parameters == 6_738_939_904 + tower + projector
    assert found.stack("vision").parameters == tower + projector
    assert found.active_parameters == 6_738_939_904


CLIP = {
    "model_type": "clip",
    "projection_dim": 768,
    "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
    "vision_config": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
    },
}


def test_clip_is_two_towers() -> None:
    """Published counts of ViT-B/32 (all sizes by class default) and ViT-L/14; nothing orders the towers."""
    base = describe(json.dumps({"model_type": "clip"})).model
    assert base.parameters == 151_277_313
    large = describe(json.dumps(CLIP)).model
    assert large.parameters == 427_616_513
    assert [stack.layers for stack in large.stacks] == [24, 12, 0]
    assert {link.target for link in large.links} == {("contrast", 0)}
    assert "text_config.vocab_size: not in the file, 49408 by default of CLIPTextConfig" in large.notes
    older = {**CLIP, "text_config_dict": {"num_hidden_layers": 13}}
    assert describe(json.dumps(older)).model.stacks[1].layers == 13
    assert [score.causal for score in _scores(large.stack("text").blocks[1])] == [True]


def test_siglip_is_two_towers() -> None:
    """The published count of base-patch16-224; without its pooling head as many fewer as that has."""
    found = describe(json.dumps({"model_type": "siglip"})).model
    assert found.parameters == 203_155_970
    bare = describe(json.dumps({"model_type": "siglip", "vision_config": {"vision_use_head": False}})).model
    pooler = 768 + 4 * 768**2 + 4 * 768 + 2 * 768 + 2 * 768 * 3072 + 3072 + 768
    assert found.parameters - bare.parameters == pooler


ALBERT = {
    "model_type": "albert",
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "max_position_embeddings": 512,
}


def test_albert_counts_shared_layers_once() -> None:
    """The published count of base-v2; every further group adds a layer of its own; the narrow table is projected."""
    layer = 12 * 768**2 + 13 * 768
    found = describe(json.dumps(ALBERT)).model
    assert found.parameters == 11_683_584
    assert found.layers == 12
    assert found.shares_layers
    assert "12 layers share the weights of 1" in found.notes
    assert describe(json.dumps({**ALBERT, "num_hidden_groups": 3})).model.parameters == 11_683_584 + 2 * layer
    assert describe(json.dumps({**ALBERT, "inner_group_num": 2})).model.parameters == 11_683_584 + layer
    own = describe(json.dumps({**ALBERT, "num_hidden_groups": 12})).model
    assert not own.shares_layers
    assert found.stack("heads").parameters == 768 * 128 + 128 + 2 * 128 + 30000


def test_electra_has_a_narrow_table() -> None:
    """The published count of small-discriminator, 13,483,008, and of the head that pre-trains it."""
    table = {
        "model_type": "electra",
        "vocab_size": 30522,
        "embedding_size": 128,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_attention_heads": 4,
        "num_hidden_layers": 12,
        "max_position_embeddings": 512,
    }
    found = describe(json.dumps(table)).model
    assert found.parameters == 13_483_008
    assert found.stack("heads").parameters == 256 * 256 + 256 + 256 + 1
    base = {**table, "embedding_size": 768, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
    assert describe(json.dumps(base)).model.parameters == 108_891_648


def test_what_cannot_be_planned_is_refused() -> None:
    """What the space has no plans for is shown, and refused by the commands that plan, in one line."""
    model = describe(json.dumps(ALBERT)).model
    with pytest.raises(InvalidProblem, match="its layers share their weights, of which every stage would hold a copy"):
        problem_of(Run(model, cluster_named("dgx-h100:8"), 64, 8))


def _scores(block: Block) -> list[Scores]:
    return [operator for operator in block.operators if isinstance(operator, Scores)]
