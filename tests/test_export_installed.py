"""What is written is what frameworks themselves accept, where their packages are installed (none has to be)."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from export_cases import CASES, case, judged, plan, posed
from test_export_megatron import BESIDE_CONTEXT, beside_context, groups_of_experts

from nest.export import FRAMEWORKS, Assignment, exported
from nest.families.formats.megatron_flags import flags_of_text, whole_list
from nest.plan import over_replicas
from nest.problem import Variant

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other packages are not ours

ONE = Variant(1)


def installed(name: str, package: str) -> Any:
    """Return a module of a framework, or skip the test where its package is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"needs {package}: {error}")


@pytest.fixture
def one_process() -> Iterator[None]:
    """Start a job of one process, which core 0.13 asks for its rank."""
    distributed = installed("torch.distributed", "torch")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def megatron_config(text: str, **more: object) -> Any:
    """Return Megatron-Core's configuration of the arguments and more fields, which checks them as it is made."""
    configs = installed("megatron.core.transformer.transformer_config", "megatron-core 0.13 or later")
    flags = flags_of_text(text)
    kind = configs.MLATransformerConfig if "--multi-latent-attention" in flags else configs.TransformerConfig
    known, values = {field.name for field in dataclasses.fields(kind)}, {}
    for flag, value in flags.items():
        name = {"--num-experts": "num_moe_experts"}.get(flag, flag[2:].replace("-", "_"))
        if name in known and name not in ("attention_backend", "moe_layer_freq"):
            values[name] = value if value is True else number(str(value))
    if "--moe-layer-freq" in flags:
        values["moe_layer_freq"] = list(whole_list("--moe-layer-freq", str(flags["--moe-layer-freq"])))
    torch = installed("torch", "torch")
    values |= {"add_bias_linear": "--disable-bias-linear" not in flags, "gated_linear_unit": "--swiglu" in flags}
    return kind(**values, **more, pipeline_dtype=torch.bfloat16, params_dtype=torch.bfloat16)


def number(text: str) -> object:
    """Return a value as what it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("name", CASES)
def test_megatron_core(name: str) -> None:
    """Its configuration takes the arguments, and its layout puts as many layers into each stage as the plan."""
    given = case(name)
    text = exported(given, FRAMEWORKS["megatron"]).text
    config = megatron_config(text)
    if "--pipeline-model-parallel-layout" in text:
        stages = [[layer.name for layer in chunks[0]] for chunks in config.pipeline_model_parallel_layout.layout]
        assert [stage.count("decoder") for stage in stages] == [len(layers) for layers in given.layers]
    with pytest.raises((AssertionError, ValueError)):
        megatron_config(re.sub(r"--tensor-model-parallel-size \d+", "--tensor-model-parallel-size 3", text))


@pytest.mark.parametrize(("variant", "replicas", "cut"), BESIDE_CONTEXT)
def test_megatron_core_groups(variant: Variant, replicas: int, cut: bool) -> None:
    """The groups of experts that our tests compare with a plan's are those that it makes."""
    parallel = installed("megatron.core.parallel_state", "megatron-core 0.13 or later")
    given = beside_context(variant, replicas, cut, (17, 34))
    stages, expert = len(given.plan.stages), variant.expert
    width = variant.tensor if cut else 1
    rest = given.world // (stages * expert * width)
    made = parallel.RankGenerator(width, expert, rest, stages, 1, "tp-cp-ep-dp-pp")
    for kind, groups in groups_of_experts(given).items():
        assert sorted(made.get_ranks(kind)) == sorted(groups)


@pytest.mark.parametrize(("replicas", "ends", "zero"), [(16, (9, 17, 25, 34), 3), (64, (34,), 2)])
def test_torchtitan(replicas: int, ends: tuple[int, ...], zero: int, tmp_path: Path) -> None:
    """Its manager reads the settings, and its mesh is that of the plan."""
    manager = installed("torchtitan.config.manager", "torchtitan 0.2")
    dims = installed("torchtitan.distributed.parallel_dims", "torchtitan 0.2")
    given = eight(ONE, replicas, ends, zero)
    (tmp_path / "job.toml").write_text(exported(given, FRAMEWORKS["torchtitan"]).text)
    config = manager.ConfigManager().parse_args(["--job.config_file", str(tmp_path / "job.toml")])
    parallel = config.parallelism
    names = ["data_parallel_replicate", "data_parallel_shard", "context_parallel", "tensor_parallel"]
    names += ["pipeline_parallel", "expert_parallel", "expert_tensor_parallel"]
    mesh = dims.ParallelDims(*(getattr(parallel, f"{name}_degree") for name in names), given.world)
    assert (mesh.dp_shard, mesh.pp) == (replicas, len(ends))
    assert config.training.global_batch_size == given.run.global_batch
    parts = parallel.module_fqns_per_model_part or []
    assert len(parts) == (len(ends) if len(ends) > 1 else 0)


@pytest.mark.parametrize("degree", [64, 8])
def test_accelerate(degree: int, tmp_path: Path) -> None:
    """Its reader takes the configuration, and its mesh has as many processes as the plan has ranks."""
    configs = installed("accelerate.commands.config.config_args", "accelerate 1.10 or later")
    meshes = installed("accelerate.parallelism_config", "accelerate 1.10 or later")
    given = eight(ONE, 64, (34,), 3)
    narrow = replace(given.plan.stages[0], sharding=over_replicas(3, degree))
    given = replace(given, plan=replace(given.plan, stages=(narrow,)))
    (tmp_path / "config.yaml").write_text(exported(given, FRAMEWORKS["accelerate"]).text)
    config = configs.load_config_from_file(str(tmp_path / "config.yaml"))
    assert (config.num_processes, config.num_machines, config.fsdp_config["fsdp_version"]) == (64, 8, 2)
    sizes = {name.removeprefix("parallelism_config_"): size for name, size in (config.parallelism_config or {}).items()}
    assert not sizes or meshes.ParallelismConfig(**sizes).total_size == 64


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_deepspeed(zero: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configuration takes the batch of the plan on so many devices, and no other."""
    configs = installed("deepspeed.runtime.config", "deepspeed 0.16.4 or later")
    monkeypatch.setattr(configs.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(configs.dist, "get_world_size", lambda: 64)
    text = exported(eight(ONE, 64, (34,), zero), FRAMEWORKS["deepspeed"]).text
    (tmp_path / "settings.json").write_text(text)
    config = configs.DeepSpeedConfig(str(tmp_path / "settings.json"))
    assert (config.train_batch_size, config.zero_config.stage) == (512, zero)
    (tmp_path / "settings.json").write_text(text.replace("512", "500"))
    with pytest.raises(AssertionError, match="batch"):
        configs.DeepSpeedConfig(str(tmp_path / "settings.json"))


def eight(variant: Variant, replicas: int, ends: tuple[int, ...], zero: int) -> Assignment:
    """Return a plan of Llama-3 8B on 64 H100."""
    run, problem = posed("llama3-8b_h100_64", variant)
    return judged(run, problem, plan(problem, variant, replicas, ends, zero=zero, again="full"))
