"""Real model files: each gives the published number of parameters, or a refusal that says what it is.

The files lie beside the repository and are no part of it; where they are absent, the tests are skipped. What is right
is in the index there; what this project answers otherwise, and why, stands in the tables below.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nest.errors import InvalidProblem
from nest.families import Architecture, Description, describe, is_model
from nest.families.oddities import oddities

PLACE = Path(__file__).resolve().parents[2] / "shared" / "realfiles"
INDEX = PLACE / "index.json"

pytestmark = pytest.mark.skipif(not INDEX.is_file(), reason=f"no real files at {PLACE}")

ENTRIES: list[dict[str, Any]] = json.loads(INDEX.read_text()) if INDEX.is_file() else []
EXPECTED = {Path(entry["file"]).name: entry["expected"] for entry in ENTRIES if entry["category"] == "A"}
OTHERS = [entry["file"] for entry in ENTRIES if entry["category"] != "A"]

VOCABULARIES = {
    "megatron-gpt3-175b.args.txt": 50257,
    "megatron-llama3-8b-fp8.args.txt": 128256,
    "modelopt-qwen3-30b-a3b.args.txt": 151669,
    "neox-pythia-6.9B.yml": 50277,
}
"""Tokens of files that leave them to a tokenizer that they do not name."""

REFUSED = {
    "axolotl-llama3-405b-fsdp.yaml": "axolotl configuration: it holds the name of a model",
    "deepspeed-zero3.json": "DeepSpeed configuration: it holds parallel settings",
    "mbridge-qwen3-235b.card.yaml": "Megatron Bridge model card: it holds the name of a model",
    "mbridge-llama3-8b-override.yaml": "Megatron Bridge override",
    "nemo-t5-11b.yaml": "model.vocab_size: missing, and the tokenizer 'BertWordPieceCase' is not known",
}
"""Files without shapes, or without a vocabulary, and what the refusal says."""

OTHERWISE = {
    "clip-vision-model.config.json": 632_076_800,  # the index rounds; open_clip publishes 632.08 M
    "gemma-4-26b-a4b.config.json": 25_805_936_176,  # rounded: 26B
    "nemotron-h-56b.config.json": 56_324_350_464,  # by name: 56B
    "qwen3-next-80b-a3b.config.json": 79_674_391_296,  # without multi-token prediction, as for DeepSeek-V3
    "llmanalysis-opt-350m.json": 355_889_152,  # the format lost the narrow embedding; the model has 331,196,416
    "llmfoundry-mpt-30b.yaml": 29_975_214_080,  # with biases and positions, which this run has and mpt-30b has not
    "maxtext-gemma3-27b.yml": 27_009_002_240,  # vocabulary 262144 here, 262208 in the published model
    "nemo-llama3.1-405b.yaml": 410_106_413_056,  # 16 query groups here, 8 in the published model
    "simumax-deepseekv3.json": 671_026_404_352,  # without the 58 * 256 biases of the router, which no key tells of
}
"""Totals that are right for the file although the index has another number."""

ACTIVE_OTHERWISE = {
    "olmoe-1b-7b.yml": 1_282_017_280,  # rounded: 1.3B
    "simumax-deepseekv3.json": 37_552_282_624,  # as above
}


def read(name: str, vocabulary: int | None = None) -> Description:
    """Read one of the files."""
    return describe((PLACE / "files" / name).read_text(), vocabulary or VOCABULARIES.get(name))


def model(name: str) -> Architecture:
    """Return the model of one of the files."""
    return read(name).model


COUNTED = sorted(name for name, expected in EXPECTED.items() if "parameter_count" in expected and name not in REFUSED)


@pytest.mark.parametrize("name", COUNTED)
def test_parameters(name: str) -> None:
    """The total equals the published one to the last parameter, but for the files above."""
    assert model(name).parameters == OTHERWISE.get(name, EXPECTED[name]["parameter_count"])


@pytest.mark.parametrize("name", sorted(set(OTHERWISE) - {"llmanalysis-opt-350m.json", "nemo-llama3.1-405b.yaml"}))
def test_other_totals_are_near(name: str) -> None:
    """Where the index rounds or counts something more, the difference stays within what it says."""
    published = EXPECTED[name]["parameter_count"]
    outside = sum(extra.stack.parameters for extra in model(name).extras)
    rounded = 0.01 if published % 10**7 == 0 else 0.001
    assert model(name).parameters + outside == pytest.approx(published, rel=rounded)


@pytest.mark.parametrize("name", sorted(name for name in COUNTED if "active_parameters" in EXPECTED[name]))
def test_active_parameters(name: str) -> None:
    """Of a mixture of experts, what one token passes is the published number."""
    assert model(name).active_parameters == ACTIVE_OTHERWISE.get(name, EXPECTED[name]["active_parameters"])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refusals(name: str) -> None:
    """A file without shapes is refused in one line that says what it is, and what to give."""
    with pytest.raises(InvalidProblem) as caught:
        read(name)
    assert str(caught.value).startswith(REFUSED[name])
    assert "; give" in str(caught.value)


@pytest.mark.parametrize("name", sorted(VOCABULARIES))
def test_missing_vocabulary_is_no_guess(name: str) -> None:
    """A file that leaves the vocabulary to an unnamed tokenizer asks for it."""
    with pytest.raises(InvalidProblem, match=r"missing, and .*give the vocabulary with --vocab N"):
        describe((PLACE / "files" / name).read_text())


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_no_models(name: str) -> None:
    """Clusters and profiles are not taken for models."""
    path = PLACE / name
    assert not is_model(path.read_text(errors="replace"))


def test_calculon_counts_blocks() -> None:
    """The format has no vocabulary: 96 (12 h^2 + 13 h) with h = 12288, and a note."""
    found = model("calculon-gpt3-175b.json")
    assert found.parameters == EXPECTED["calculon-gpt3-175b.json"]["parameter_count_blocks"]
    assert found.parameters == 96 * (12 * 12288**2 + 13 * 12288)
    assert "no vocabulary" in " ".join(found.notes)
    assert model("calculon-megatron-1t.json").parameters == 128 * (12 * 25600**2 + 13 * 25600)


def test_mtp_is_outside() -> None:
    """Multi-token prediction of DeepSeek-V3 is reported beside the 61 layers, with its exact size."""
    found = model("deepseek-v3.config.json")
    expected = EXPECTED["deepseek-v3.config.json"]
    assert [extra.stack.parameters for extra in found.extras] == [expected["mtp_module_extra"]]
    assert found.layer_kinds() == {"text": {"latent_attention+mlp": 3, "latent_attention+moe": 58}}
    assert model("kimi-k2.config.json").extras == ()


def test_layers_of_hybrids() -> None:
    """Layers that are not alike come out by kind."""
    jamba = model("jamba-52b.config.json").layer_kinds()["text"]
    assert jamba == {"mamba+mlp": 12, "mamba+moe": 16, "attention+mlp": 4}
    assert model("nemotron-h-56b.config.json").layer_kinds()["text"] == {"mamba": 54, "mlp": 54, "attention": 10}
    assert model("qwen3-next-80b-a3b.config.json").layer_kinds()["text"]["attention+moe"] == 12
    assert model("olmo-3.1-32b.config.json").layer_kinds()["text"]["sliding_attention+mlp"] == 48
    assert model("llama-3.2-11b-vision.config.json").layer_kinds()["text"]["cross_attention+mlp"] == 8
    assert model("gemma-3-27b-multimodal.config.json").layer_kinds()["text"]["attention+mlp"] == 10
    assert model("llama-4-scout.config.json").layer_kinds()["text"]["chunked_attention+moe"] == 36


def test_two_stacks() -> None:
    """Encoder and decoder are two stacks, and every layer of the second looks at the end of the first."""
    found = model("flan-t5-large.config.json")
    assert found.layer_kinds() == {"encoder": {"attention+mlp": 24}, "decoder": {"attention+cross_attention+mlp": 24}}
    assert len(found.links) == 24
    assert {link.source for link in found.links} == {("encoder", 25)}
    nemo = read("nemo-t5-11b.yaml", 29056)
    assert [stack.layers for stack in nemo.model.stacks] == [24, 24]
    assert nemo.settings["data"] == 40
    assert (nemo.settings["sequence"], nemo.settings["target_sequence"]) == (512, 128)


def test_vision_joins_the_text() -> None:
    """A tower feeds the first layer of the decoder, or those with cross-attention."""
    assert [link.target for link in model("llava-1.5-7b-hf.config.json").links] == [("text", 1)]
    crossing = [link.target[1] - 1 for link in model("llama-3.2-11b-vision.config.json").links]
    assert crossing == [3, 8, 13, 18, 23, 28, 33, 38]


def test_defaults_are_noted() -> None:
    """Whatever a class default decided stands in the notes, naming key and class."""
    noted = "\n".join(model("llava-1.5-7b-hf.config.json").notes)
    assert "text_config.hidden_size: not in the file, 4096 by default of LlamaConfig" in noted
    assert "true by default of Gemma3TextConfig" in "\n".join(model("gemma-3-27b-multimodal.config.json").notes)
    assert "true by default of CohereConfig" in "\n".join(model("command-r-35b.config.json").notes)
    assert "11008 wide" in "\n".join(model("qwen-7b.config.json").notes)


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("llama-3.1-405b.config.json", "126 layers do not divide over 4, 8, 16 stages"),
        ("qwen2.5-7b.config.json", "28 heads do not divide over tensor width 8, 16"),
        ("qwen2.5-0.5b.config.json", "14 heads do not divide over tensor width 4, 8, 16"),
        ("qwen2.5-0.5b.config.json", "2 key-value heads do not divide over tensor width 4, 8, 16"),
        ("yi-34b.config.json", "56 heads do not divide over tensor width 16"),
    ],
)
def test_oddities(name: str, odd: str) -> None:
    """What people try first and does not divide is said."""
    assert odd in "\n".join(oddities(model(name)))


def test_settings_of_trainers() -> None:
    """What a file says about widths and batches is read, and what does not come out even is said."""
    bloom = read("bloom-176b-megatron-deepspeed.args.txt")
    assert bloom.settings == {
        "tensor": 4,
        "pipeline": 12,
        "microbatch": 2,
        "global_batch": 2048,
        "sequence": 2048,
        "stage_layers": (5, *(6,) * 10, 5),  # type:transformer|embedding counts two embeddings
        "padding": 0,
        "recompute": "full",
        "zero": 0,
        "dtype": "bf16",
        "recipe": "mixed",
    }
    llama = read("megatron-llama3-8b-fp8.args.txt").settings
    assert (llama["zero"], llama["recipe"], llama["flash"]) == (1, "mixed-half", True)
    assert (llama.get("tensor", 1), llama["sequence_parallel"]) == (1, True)  # counts where a width is typed
    assert "8 devices are started, but one replica takes 128" in model("megatron-gpt3-175b.args.txt").notes
    nemo = read("nemo-llama3.1-405b.yaml").settings
    assert (nemo["devices"], nemo["data"], nemo["virtual"], nemo["context"]) == (4608, 32, 7, 2)
    assert (nemo["sequence_parallel"], nemo["flash"], nemo["zero"], nemo["dtype"]) == (True, True, 1, "bf16")
    neox = read("neox-20B.yml", 50277).settings
    assert (neox["recompute"], neox["zero"], neox["dtype"]) == ("full", 1, "fp16")
    assert "${TP} has no value" in "\n".join(model("moe-modelzoo-deepseek-v3.yaml").notes)
    nanotron = read("nanotron-tiny-llama.yaml")
    assert nanotron.settings["sequence"] == 4096
    assert nanotron.model.parameters == 28 * (2048 * (2048 + 256) * 2 + 3 * 2048 * 11008 + 2 * 2048) + 2048 * 128257


def test_shrunk_copies() -> None:
    """A shrunk copy keeps the big model's name; the numbers are those of the file."""
    assert model("opt-1.3b.shrunk-ipex-test.config.json").layers == 1
    assert model("bloom.shrunk-ipex-test.config.json").parameters == 12 * 2048**2 + 17 * 2048 + 250880 * 2048
    mpt = model("mpt.shrunk-ipex-test.config.json")
    assert mpt.parameters == 12 * 2048**2 + 3 * 2048 + 50432 * 2048
    assert "alibi stands in for learned positions" in "\n".join(mpt.notes)
