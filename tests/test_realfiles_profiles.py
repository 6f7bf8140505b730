"""Layer profiles as people publish them, and what each should come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from nest.layer_profiles import LayerProfile, is_layer_profile, read_layer_profiles

PLACES = [above / "shared" / "realfiles" / "files" for above in Path(__file__).resolve().parents]
FILES = next((place for place in PLACES if place.is_dir()), PLACES[0])

pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason=f"the profiles are not in {FILES}")


def one(name: str) -> LayerProfile:
    """Return the only profile of a file."""
    (profile,) = read_layer_profiles(FILES / name)
    return profile


def warned(profile: LayerProfile, what: str) -> bool:
    """Whether a warning says something."""
    return any(what in warning for warning in profile.warnings)


def test_metis() -> None:
    """Ten layers; the key of the memory is not that of its own documentation."""
    profile = one("metis-A100-tp1-bs1.json")
    assert len(profile.layers) == 10
    assert profile.seconds("step_s") == pytest.approx(236.763e-3, abs=1e-6)
    assert profile.amount("parameter_bytes") == 2_405_502_976
    assert profile.amount("memory_bytes") == 53120 * 2**20
    assert (profile.tensor, profile.microbatch, profile.model) == (1, 1, "GPT3")
    assert not warned(profile, "the file's")


def test_metis_of_sailor() -> None:
    """Whole layers under a tensor width of 2, no device in the name, and no key of the embedding's gradients."""
    profile = one("sailor-metis-gptneo2.7-A100-40-mbs1-tp2.json")
    assert len(profile.layers) == 34
    assert profile.seconds("step_s") == pytest.approx(313.345e-3, abs=1e-6)
    assert profile.amount("parameter_bytes") == 5_315_481_600
    assert (profile.tensor, profile.microbatch, profile.device) == (2, 1, None)
    assert warned(profile, "whole layers, not one of 2 tensor ranks")
    assert not warned(profile, "the file's")


def test_pipedream() -> None:
    """VGG-16, a graph that is nearly a chain: 138,357,544 parameters of four bytes."""
    profile = one("pipedream-vgg16.graph.txt")
    assert len(profile.layers) == 41
    assert profile.edges is not None
    assert len(profile.edges) == 41
    assert profile.seconds("forward_s") == pytest.approx(251.874e-3, abs=1e-6)
    assert profile.seconds("backward_s") == pytest.approx(438.633e-3, abs=1e-6)
    assert profile.amount("parameter_bytes") == 553_430_176 == 4 * 138_357_544
    assert all(source < target for source, target in profile.edges)
    assert warned(profile, "no chain: 41 nodes, 41 edges")


def test_aceso() -> None:
    """Microseconds, and one layer of many."""
    profile = one("aceso-gpt1.3B-mbs1-tp1-algo0.csv")
    assert profile.seconds("forward_s") == pytest.approx(15473.2e-6, abs=1e-7)
    assert profile.seconds("backward_s") == pytest.approx(21802.7e-6, abs=1e-7)
    assert (profile.tensor, profile.microbatch) == (1, 1)
    assert warned(profile, "ONE layer")


def test_galvatron() -> None:
    """The derived times are what one more layer takes of a run, by sample, and fall with the batch."""
    profiles = read_layer_profiles(FILES / "galvatron-comp-llama2-7b.json")
    assert [(profile.microbatch, profile.seq) for profile in profiles] == [(batch, 2048) for batch in range(1, 13)]
    layers = {profile.microbatch: profile.layers[0].forward_s for profile in profiles}
    assert layers[1] == pytest.approx((23.87112617492676 - 15.0786208152771) / 2 / 1e3)
    assert layers[8] == pytest.approx((149.65230712890624 - 86.66073913574219) / 2 / 1e3)
    assert warned(profiles[0], "3.918 to 4.396 ms per sample")


def test_deepspeed() -> None:
    """Milliseconds beside microseconds, and a stray quote that nothing trips over."""
    profile = one("deepspeed-flops-bert-large.txt")
    assert profile.amount("parameters") == 336_230_000
    assert profile.seconds("forward_s") == pytest.approx(76.67e-3)
    assert profile.seconds("backward_s") == pytest.approx(108.02e-3)
    assert profile.microbatch == 80
    assert dict(profile.beside)["step latency (weights update)"] == pytest.approx(34.09e-6)
    assert profile.layers[0].name == "BertForPreTrainingPreLN"
    assert not warned(profile, "ZeRO-3")


def test_torch_trace() -> None:
    """Fourteen kernels on one of four devices."""
    profile = one("hta-mi250-train.trace.json")
    assert sum(int(layer.kind.partition(" ")[0]) for layer in profile.layers) == 14
    assert warned(profile, "220 events, 14 of them kernels, 62 without category")
    assert warned(profile, "4 devices are listed, kernels ran on 1")


def test_no_other_file_is_a_profile() -> None:
    """No model, no cluster and no table of collectives is taken for a profile of layers."""
    taken = {path.name for path in FILES.iterdir() if is_layer_profile(path)}
    assert taken == {
        "aceso-gpt1.3B-mbs1-tp1-algo0.csv",
        "deepspeed-flops-bert-large.txt",
        "galvatron-comp-llama2-7b.json",
        "hta-mi250-train.trace.json",
        "metis-A100-tp1-bs1.json",
        "pipedream-vgg16.graph.txt",
        "sailor-metis-gptneo2.7-A100-40-mbs1-tp2.json",
    }
