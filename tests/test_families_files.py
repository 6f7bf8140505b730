"""Model files: what is refused, formats of trainers, our own files, and the command that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from model_files import BASE, BASE_LAYER, config, model, refusal

from nest.cli import run
from nest.errors import InvalidProblem
from nest.families import (
    Hyperparameters,
    describe,
    from_hyperparameters,
    is_model,
)
from nest.families.formats.megatron_flags import flags_of_text, whole_list
from nest.families.huggingface.reading import KNOWN


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            config(hidden_size=None),
            "hidden_size: missing, and LlamaConfig needs it; give hidden_size (or n_embd, n_embed",
        ),
        (config(vocab_size=None), "LlamaConfig would take 32000: write it if that is meant"),
        (config(num_hidden_layers=0), "num_hidden_layers: 0 is no whole number from 1 to 20000"),
        (config(num_attention_heads="auto"), "num_attention_heads: 'auto' is no whole number"),
        (config(num_key_value_heads=3), "num_key_value_heads: 3 does not divide 8 heads"),
        (config(num_attention_heads=7, num_key_value_heads=7), "7 heads do not divide the width 64; give head_dim"),
        (config(tie_word_embeddings="yes"), "tie_word_embeddings: 'yes' is no truth value"),
        (config(model_type="llama9"), "model_type: 'llama9' is not known: its class defaults would be a guess"),
        (config(model_type=None, architectures=[]), "model_type: missing, and no architectures either"),
        (config(model_type="mixtral", num_local_experts=4, num_experts_per_tok=5), "5 of 4 experts"),
        (config(model_type="olmo3", sliding_window=64, layer_types=["full_attention"]), "1 kinds for 3 layers"),
        (config(model_type="nemotron_h", hybrid_override_pattern="M-"), "mamba_num_heads: missing"),
        ('{"zero_optimization": {"stage": 3}}', "DeepSpeed configuration: it holds parallel settings"),
        ("base_model: some/model\n", "axolotl configuration"),
        ("a: 1\n", "no model file that is known"),
    ],
    ids=lambda value: value[:40],
)
def test_refusals(text: str, line: str) -> None:
    """What is missing or wrong is named, with what would be right, and never guessed."""
    assert line in refusal(text)


def test_class_by_architectures() -> None:
    """A file without model_type is read by the class that it names, and the note says so."""
    found = model(model_type=None, architectures=["LlamaForCausalLM"])
    assert found.parameters == BASE
    assert "model_type: not in the file, taken from the class LlamaForCausalLM" in found.notes
    roberta = {
        "architectures": ["RobertaForMaskedLM"],
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "vocab_size": 100,
        "max_position_embeddings": 34,
        "type_vocab_size": 1,
    }
    assert describe(json.dumps(roberta)).model.family == "roberta"


def test_given_vocabulary_is_not_ignored() -> None:
    """A vocabulary beside a file that has one is refused."""
    assert "--vocab" in refusal(config(), 5)


# Megatron-LM

FLAGS = """#!/bin/bash
TP=2
HIDDEN=64
MODEL_ARGS=(
    --num-layers 4  # layers
    --hidden-size ${HIDDEN} --num-attention-heads ${HEADS:-8} \\
    --max-position-embeddings 128
    --vocab-size=100
)
torchrun pretrain_gpt.py ${MODEL_ARGS[@]} --tensor-model-parallel-size $TP
"""


def test_megatron_script_by_hand() -> None:
    """Variables, their defaults, comments, continued lines; the vocabulary padded to 128 x 2; tied, with positions."""
    found = describe(FLAGS)
    assert found.model.parameters == 4 * (12 * 64**2 + 13 * 64) + 256 * 64 + 128 * 64 + 2 * 64
    assert found.settings == {"tensor": 2}
    assert "vocabulary 100 padded to 256, a multiple of 256" in found.model.notes


def test_megatron_options_by_hand() -> None:
    """Grouped queries, SwiGLU, RMSNorm, no biases, untied, experts in every second layer."""
    more = (
        "--group-query-attention --num-query-groups 2 --swiglu --ffn-hidden-size 160 --normalization RMSNorm "
        "--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope "
        "--num-experts 4 --moe-router-topk 1 --moe-layer-freq ([0,1]*2) --moe-ffn-hidden-size 32 "
        "--padded-vocab-size 100"
    )
    found = describe(f"--num-layers 4 --hidden-size 64 --num-attention-heads 8\n{more}").model
    routed = BASE_LAYER - 3 * 64 * 160 + 4 * 64 + 4 * 3 * 64 * 32
    assert found.parameters == 2 * BASE_LAYER + 2 * routed + 2 * 100 * 64 + 64
    assert found.active_parameters == found.parameters - 2 * 3 * 3 * 64 * 32
    assert found.layer_kinds()["text"] == {"attention+mlp": 2, "attention+moe": 2}


def test_megatron_refusals() -> None:
    """A missing flag is named as it is typed."""
    assert refusal("--num-layers 4\n--hidden-size 64\n").startswith("--num-attention-heads: missing, and Megatron-LM")
    line = refusal("--num-layers 4 --hidden-size 64 --num-attention-heads 8 --max-position-embeddings 9")
    assert line.startswith("--vocab-size: missing, and the file names no tokenizer; give the vocabulary with --vocab N")
    both = "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --max-position-embeddings 9 --vocab-size 7"
    assert refusal(both, 8).startswith("--vocab: 8, but --vocab-size is 7")


def test_flags_of_text() -> None:
    """Flags alone, with a value, with several; odd ones do no harm."""
    found = flags_of_text("--bf16\n--wait =60\n--rampup-batch-size 192 16 9_765\n--pp 'type:transformer|embedding'\n")
    assert found == {
        "--bf16": True,
        "--wait": "=60",
        "--rampup-batch-size": ["192", "16", "9_765"],
        "--pp": "type:transformer|embedding",
    }


@pytest.mark.parametrize("text", ["[0]*9**9", "[1", "__import__('os')", "[x]", "[0]*100000000", "3"])
def test_lists_are_not_evaluated(text: str) -> None:
    """A value is a list of whole numbers or is refused; nothing runs, nothing grows without end."""
    with pytest.raises(InvalidProblem, match="is no list"):
        whole_list("--moe-layer-freq", text)


def test_neox_by_hand() -> None:
    """GPT-NeoX: JSON with comments, trailing commas and Python's True; two norms in parallel, untied, padded."""
    text = """{
      # sizes
      "num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "pos-emb": "rotary", "max-position-embeddings": 32,
      "no-weight-tying": True, "gpt-j-residual": true, "model-parallel-size": 2,
      "zero_optimization": {"stage": 1,}, "bf16": {"enabled": true}, "fp16": {"enabled": False},
      "checkpoint-activations": true,
    }"""
    found = describe(text, 100)
    assert found.model.parameters == 2 * (12 * 64**2 + 13 * 64) + 2 * 256 * 64 + 2 * 64
    assert found.kind == "GPT-NeoX settings"
    assert found.settings == {"tensor": 2, "recompute": "full", "zero": 1, "dtype": "bf16"}


def test_llama_params_by_hand() -> None:
    """Llama's own file: the width of the MLP follows from a factor and a multiple; -1 is no vocabulary."""
    table = {"dim": 64, "n_layers": 2, "n_heads": 8, "multiple_of": 32, "norm_eps": 1e-5, "vocab_size": -1}
    feed = 192  # 8 * 64 / 3 = 170, up to 192
    expected = 2 * (4 * 64**2 + 3 * 64 * feed + 128) + 2 * 100 * 64 + 64
    assert describe(json.dumps(table), 100).model.parameters == expected
    assert "vocab_size: missing" in refusal(json.dumps(table))


def test_open_clip_by_hand() -> None:
    """CLIP ViT-B/32, published as 151,277,313: two towers that meet in one number."""
    table = {
        "embed_dim": 512,
        "vision_cfg": {"image_size": 224, "layers": 12, "width": 768, "patch_size": 32},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12},
    }
    found = describe(json.dumps(table)).model
    assert found.parameters == 151_277_313
    assert {link.target for link in found.links} == {("contrast", 0)}


# Spellings that real files have


def test_numbers_that_json_does_not_have() -> None:
    """A config.json may hold Infinity where nothing depends on it (time_step_limit of hybrid models)."""
    text = config().replace("{", '{"time_step_limit": [0.0, Infinity], ', 1)
    assert describe(text).model.parameters == BASE


def test_quantized_checkpoints_are_noted() -> None:
    """Four bits a weight in the file say nothing about training."""
    found = model(quantization_config={"quant_method": "mxfp4"}, torch_dtype="bfloat16")
    assert found.parameters == BASE
    assert "the checkpoint is quantized (mxfp4)" in "\n".join(found.notes)


FOUNDRY = """
variables:
  max_seq_len: 256
  width: 64
max_seq_len: ${variables.max_seq_len}
run_name: ${oc.env:RUN}
tokens: 5e12
model:
  d_model: ${variables.width}
  n_heads: 4
  n_layers: 2
  max_seq_len: ${max_seq_len}
  vocab_size: 1_000
  no_bias: true
  learned_pos_emb: false
"""


def test_references_in_yaml() -> None:
    """References lead to other keys, also through one another; those of another program stay; 1_000 is a number."""
    found = describe(FOUNDRY)
    assert found.settings == {"sequence": 256}
    assert found.model.parameters == 2 * (12 * 64**2 + 2 * 64) + 1000 * 64 + 64
    assert "${variables.width} leads in a circle" in refusal(FOUNDRY.replace("width: 64", "width: ${variables.width}"))


def test_what_files_of_fsdp_say() -> None:
    """Sizes, data type, ZeRO type by the sharding strategy, recomputation; a microbatch may be found at the start."""
    training = "global_train_batch_size: 64\ndevice_train_microbatch_size: {}\nprecision: amp_fp16\n"
    sharded = "fsdp_config: {{sharding_strategy: {}, activation_checkpointing: true}}\n"
    found = describe(f"{FOUNDRY}{training.format(8)}{sharded.format('SHARD_GRAD_OP')}")
    sizes = {"sequence": 256, "global_batch": 64}
    assert found.settings == {**sizes, "microbatch": 8, "dtype": "fp16", "zero": 2, "recompute": "full"}
    found = describe(f"{FOUNDRY}{training.format('auto')}{sharded.format('HYBRID_SHARD')}")
    assert found.settings == {**sizes, "dtype": "fp16", "recompute": "full"}
    assert any("sharding_strategy HYBRID_SHARD: not read; --zero" in note for note in found.model.notes)
    assert "fsdp_config: 3 is no table" in refusal(f"{FOUNDRY}fsdp_config: 3\n")


def test_sizes_of_llm_foundry_are_needed() -> None:
    """A reference that leads nowhere is no size."""
    assert "model.d_model: ${variables.width} has no value in the file" in refusal(FOUNDRY.replace("  width: 64\n", ""))


# Hyperparameters and the command line


def test_own_file() -> None:
    """A file of ours holds a family and a few numbers, and where they come from."""
    text = (
        'family = "llama"\nname = "small"\nlayers = 3\nhidden = 64\nheads = 8\nkv_heads = 2\nffn = 160\nvocab = 100\n'
    )
    found = describe(f'{text}source = "by hand"\n')
    assert (found.model.parameters, found.model.name, found.kind) == (BASE, "small", "model file of nest")
    assert "is no key of a model file" in refusal(f"{text}depth = 3\n")
    assert "'3' is no whole number" in refusal(text.replace("layers = 3", 'layers = "3"'))


def test_page_example() -> None:
    """The model file on the page is read, and is Mixtral 8x7B as published."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "models.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    found = describe(text).model
    assert (found.parameters, found.active_parameters) == (46_702_792_704, 12_879_925_248)


def test_page_lists_every_type() -> None:
    """The page names every type that is known, and no other."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "models.md").read_text()
    (listed,) = re.findall(r"these types are known: (.*?) Another type", page, re.DOTALL)
    nested = {"gemma4_vision", "llama4_vision_model", "mllama_vision_model"}
    aliases = {"RefinedWeb", "RefinedWebModel", "yi", "Yi"}
    assert set(re.findall(r"`([^`]+)`", listed)) == set(KNOWN) - nested - aliases


@pytest.mark.parametrize(
    ("numbers", "line"),
    [
        ({"family": "lama"}, "family: 'lama' is none; one of gpt, llama, bert, t5, moe"),
        ({"family": "llama", "experts": 8}, "experts: family llama has none"),
        ({"family": "moe"}, "top_k: 2 of 0 experts"),
        ({"family": "llama", "heads": 7}, "heads: 7 do not divide hidden 64"),
        ({"family": "llama", "layers": 0}, "layers: 0"),
        ({"family": "llama", "kv_heads": 3}, "kv_heads: 3 does not divide 8 heads"),
        ({"family": "llama", "layers": -1}, "layers: -1 is negative"),
    ],
    ids=str,
)
def test_hyperparameters_are_checked(numbers: dict[str, Any], line: str) -> None:
    """Numbers that do not fit are named."""
    with pytest.raises(InvalidProblem) as caught:
        Hyperparameters(**{"layers": 2, "hidden": 64, "heads": 8, **numbers})
    assert line in str(caught.value)


def test_family_defaults_are_noted() -> None:
    """What the family decides stands in the notes."""
    found = from_hyperparameters(Hyperparameters("llama", 32, 4096, 32))
    assert found.parameters == 6_738_415_616
    assert "vocab: not given, 32000 by default of family llama" in found.notes
    assert "ffn: not given, 11008 by default of family llama" in found.notes


def test_show_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command tells a model from a problem by content, and prints the same figures twice."""
    path = tmp_path / "config.json"
    path.write_text(config(model_type="mixtral", num_local_experts=8, num_experts_per_tok=2))
    assert run(["show", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["schema"], facts["kind"], facts["layers"]) == ("nest.model/1", "Hugging Face config.json", 3)
    assert sum(facts["parameters"]["per_component"].values()) == facts["parameters"]["total"]
    assert sum(stack["parameters"] for stack in facts["stacks"]) == facts["parameters"]["total"]
    assert run(["show", str(path)]) == 0
    text = capsys.readouterr().out
    assert f"{facts['parameters']['total']:,}" in text
    assert f"{facts['active_parameters']:,}" in text


@pytest.mark.parametrize(
    ("text", "options", "line"),
    [
        (config(), ["--preset", "paper"], "'--preset' is for problems"),
        (config(), ["--set", "zero=none"], "'--set' is for problems"),
        (config(), ["--vocab", "7"], "--vocab"),
        (config(hidden_size=None), [], "hidden_size: missing"),
        ("base_model: x\n", [], "axolotl"),
    ],
)
def test_show_refuses(
    text: str, options: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that cannot be read, or an option that is not for models, is one line and code 2."""
    path = tmp_path / "config.json"
    path.write_text(text)
    assert run(["show", str(path), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert line in captured.err
    assert len(captured.err.splitlines()) == 1


def test_problems_are_no_models() -> None:
    """The instances of the repository stay problems."""
    paths = sorted((Path(__file__).resolve().parents[1] / "instances").glob("*.toml"))
    assert paths
    assert not any(is_model(path.read_text()) for path in paths[:6])
