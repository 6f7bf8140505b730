"""What Megatron-LM's own parser and configuration refuse: divisibility, and flags that do not go together.

Read from `megatron/training/arguments.py` (`validate_args`), `megatron/core/transformer/transformer_config.py`,
`megatron/core/model_parallel_config.py`, `megatron/core/parallel_state.py` and
`megatron/core/transformer/pipeline_parallel_layer_layout.py` of core 0.13 to 0.16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nest.errors import InvalidProblem
from nest.families.formats.megatron_flags import is_given, whole_list
from nest.families.formats.megatron_layout import IN_TURN, LAYOUT, parts_of_layout
from nest.families.keys import Keys

EACH_CHUNK = "--num-layers-per-virtual-pipeline-stage"


def broken_rules(flags: Mapping[str, object], world: int) -> list[str]:
    """Return the rules that arguments break when they are started on so many devices.

    Parameters
    ----------
    flags
        As `nest.families.formats.megatron_flags` reads them.
    """
    try:
        rules = _Rules(Keys(flags, reader="Megatron-LM"), world)
        return [f"{flag}: {what}" for flag, what in rules.broken()]
    except InvalidProblem as error:
        return [str(error)]


@dataclass(frozen=True)
class _Rules:
    keys: Keys
    world: int

    def broken(self) -> Iterator[tuple[str, str]]:
        """Yield the flag of each rule that is broken, and how."""
        yield from self._required()
        yield from self._ranks()
        yield from self._batch()
        yield from self._attention()
        yield from self._pipeline()
        yield from self._experts()
        yield from self._recompute()
        yield from self._sharding()
        yield from self._data_types()

    def size(self, flag: str, usual: int = 1) -> int:
        """Return the whole number of a flag, from 1."""
        return self.keys.option(flag, usual, least=1)

    def on(self, flag: str) -> bool:
        """Whether a flag is given."""
        return is_given(self.keys, flag)

    @property
    def tensor(self) -> int:
        """Ranks of tensor parallel."""
        return self.size("--tensor-model-parallel-size")

    @property
    def stages(self) -> int:
        """Ranks of pipeline parallel."""
        return self.size("--pipeline-model-parallel-size")

    @property
    def context(self) -> int:
        """Ranks of context parallel."""
        return self.size("--context-parallel-size")

    @property
    def data(self) -> int:
        """Data-parallel ranks: what tensor, pipeline and context parallel leave of the job."""
        return max(1, self.world // (self.tensor * self.stages * self.context))

    @property
    def chunks(self) -> int:
        """Chunks of each stage, however they are said."""
        layout = self.keys.text(LAYOUT)
        if layout:
            return max(1, len(parts_of_layout(layout)) // self.stages)
        if EACH_CHUNK in self.keys:
            return max(1, self.size("--num-layers") // self.stages // self.size(EACH_CHUNK))
        return self.size("--num-virtual-stages-per-pipeline-rank")

    def _required(self) -> Iterator[tuple[str, str]]:
        for flag in ("--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings"):
            if flag not in self.keys:
                yield flag, "missing"
        if "--micro-batch-size" not in self.keys:
            yield "--micro-batch-size", "missing"

    def _ranks(self) -> Iterator[tuple[str, str]]:
        model = self.tensor * self.stages * self.context
        if self.world % model:
            yield "world size", f"{self.world} is no multiple of tensor x pipeline x context {model}"
        sequence = self.size("--seq-length")
        if self.context > 1 and sequence % (2 * self.context):
            yield "--seq-length", f"{sequence} is no multiple of twice --context-parallel-size {self.context}"
        if self.size("--max-position-embeddings", sequence) < sequence:
            yield "--max-position-embeddings", f"below --seq-length {sequence}"
        if self.on("--sequence-parallel") and sequence % (self.tensor * self.context):
            yield "--seq-length", f"{sequence} is no multiple of tensor x context under --sequence-parallel"

    def _batch(self) -> Iterator[tuple[str, str]]:
        micro, batch = self.size("--micro-batch-size"), self.size("--global-batch-size")
        if batch % (micro * self.data):
            yield (
                "--global-batch-size",
                f"{batch} is no multiple of --micro-batch-size {micro} x data parallel {self.data}",
            )
        elif self.chunks > 1:
            yield from self._turns(batch // (micro * self.data))

    def _turns(self, microbatches: int) -> Iterator[tuple[str, str]]:
        size = self.size(IN_TURN, self.stages)
        if not self.stages <= size <= microbatches:
            yield IN_TURN, f"{size} is not from the {self.stages} stages up to the {microbatches} microbatches"
        elif 0 < microbatches % size < self.stages:
            yield IN_TURN, f"{size} leaves {microbatches % size} of {microbatches} microbatches, fewer than stages"

    def _attention(self) -> Iterator[tuple[str, str]]:
        heads, width = self.size("--num-attention-heads"), self.size("--hidden-size")
        if heads % self.tensor:
            yield "--num-attention-heads", f"{heads} is no multiple of --tensor-model-parallel-size {self.tensor}"
        if "--kv-channels" not in self.keys and not self.on("--multi-latent-attention") and width % heads:
            yield "--hidden-size", f"{width} is no multiple of the {heads} heads"
        groups = self.size("--num-query-groups", heads) if self.on("--group-query-attention") else heads
        if groups % self.tensor:
            yield "--num-query-groups", f"{groups} is no multiple of --tensor-model-parallel-size {self.tensor}"
        if heads % groups:
            yield "--num-query-groups", f"{groups} does not divide the {heads} heads"
        ffn = self.size("--ffn-hidden-size", 4 * width)
        if ffn % self.tensor:
            yield "--ffn-hidden-size", f"{ffn} is no multiple of --tensor-model-parallel-size {self.tensor}"

    def _pipeline(self) -> Iterator[tuple[str, str]]:
        layers, layout = self.size("--num-layers"), self.keys.text(LAYOUT)
        ways = [LAYOUT, EACH_CHUNK, "--num-virtual-stages-per-pipeline-rank"]
        if len(given := [flag for flag in ways if flag in self.keys]) > 1:
            yield given[0], f"does not go with {given[1]}"
        if EACH_CHUNK in self.keys and self.stages == 1:
            yield EACH_CHUNK, "takes several stages"
        if layers // self.stages % (each := self.size(EACH_CHUNK)):
            yield EACH_CHUNK, f"{each} does not divide the {layers // self.stages} layers of a stage"
        ends = any(f"--decoder-{end}-pipeline-num-layers" in self.keys for end in ("first", "last"))
        if not layout:
            beside = sum(self.on(f"--account-for-{end}-in-pipeline-split") for end in ("embedding", "loss"))
            if not ends and (layers + beside) % self.stages:
                yield "--num-layers", f"{layers} is no multiple of the {self.stages} stages, and there is no layout"
            return
        parts = parts_of_layout(layout)
        if len(parts) % self.stages:
            yield LAYOUT, f"{len(parts)} parts are no multiple of the {self.stages} stages"
        if (held := sum(part.count("t") for part in parts)) != layers:
            yield LAYOUT, f"it has {held} layers, --num-layers is {layers}"
        yield from self._prediction(parts)

    def _prediction(self, parts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        modules, inside = self.keys.whole("--mtp-num-layers", least=0) or 0, "".join(parts)
        if inside.count("m") != modules:
            yield LAYOUT, f"it has {inside.count('m')} prediction modules, --mtp-num-layers is {modules}"
        if "t" in inside.partition("m")[2]:
            yield LAYOUT, "layers behind prediction modules"
        if sum("m" in part for part in parts) > 1:
            yield LAYOUT, "prediction modules in more than one part"

    def _experts(self) -> Iterator[tuple[str, str]]:
        width = self.size("--expert-model-parallel-size")
        if "--num-experts" not in self.keys:
            if width > 1:
                yield "--expert-model-parallel-size", "there are no experts"
            return
        count, cut = self.size("--num-experts"), self.size("--expert-tensor-parallel-size", self.tensor)
        if count % width:
            yield "--num-experts", f"{count} is no multiple of --expert-model-parallel-size {width}"
        if self.world % (width * cut * self.stages):
            yield (
                "--expert-model-parallel-size",
                f"world size {self.world} is no multiple of expert x tensor x pipeline",
            )
        if self.tensor > 1 and not self.on("--sequence-parallel"):
            yield "--sequence-parallel", "missing: experts beside tensor parallel need it"
        if width > 1 and self.on("--fp16"):
            yield "--expert-model-parallel-size", f"{width} in fp16"
        if self.on("--moe-grouped-gemm") and not self.on("--bf16"):
            yield "--moe-grouped-gemm", "takes bf16 only"
        if self.on("--moe-router-enable-expert-bias") and self.keys.text("--moe-router-score-function") != "sigmoid":
            yield "--moe-router-enable-expert-bias", "takes --moe-router-score-function sigmoid"
        if self.keys.option("--moe-router-topk", 2, least=1) > count:
            yield "--moe-router-topk", f"more than the {count} experts"
        listed = self.keys.text("--moe-layer-freq", "1")
        if not listed.isdecimal() and len(whole_list("--moe-layer-freq", listed)) != self.size("--num-layers"):
            yield "--moe-layer-freq", "not one entry for each layer"

    def _recompute(self) -> Iterator[tuple[str, str]]:
        kind, method = self.keys.text("--recompute-granularity"), self.keys.text("--recompute-method")
        if kind not in ("", "full", "selective"):
            yield "--recompute-granularity", f"{kind!r} is neither full nor selective"
        if kind == "full" and method not in ("block", "uniform"):
            yield "--recompute-method", "missing: full granularity takes block or uniform"
        if kind == "full" and "--recompute-num-layers" not in self.keys:
            yield "--recompute-num-layers", "missing: full granularity takes a number"
        if kind == "selective" and (method or "--recompute-num-layers" in self.keys):
            yield "--recompute-granularity", "selective takes neither method nor number of layers"

    def _sharding(self) -> Iterator[tuple[str, str]]:
        optimizer, fsdp = self.on("--use-distributed-optimizer"), self.on("--use-megatron-fsdp")
        if self.on("--overlap-param-gather") and not (optimizer or fsdp):
            yield "--overlap-param-gather", "takes the distributed optimizer"
        if self.on("--overlap-param-gather") and not self.on("--overlap-grad-reduce"):
            yield "--overlap-param-gather", "takes --overlap-grad-reduce"
        instances = self.size("--num-distributed-optimizer-instances")
        if instances > 1 and not optimizer:
            yield "--num-distributed-optimizer-instances", "takes the distributed optimizer"
        if (self.data * self.context) % instances:
            yield "--num-distributed-optimizer-instances", f"{instances} do not divide data x context parallel"
        if fsdp and self.keys.text("--ckpt-format") != "fsdp_dtensor":
            yield "--use-megatron-fsdp", "takes --ckpt-format fsdp_dtensor"

    def _data_types(self) -> Iterator[tuple[str, str]]:
        if self.on("--bf16") and self.on("--fp16"):
            yield "--bf16", "does not go with --fp16"
        if "--mtp-num-layers" in self.keys and self.keys.text("--position-embedding-type", "learned_absolute") not in (
            "rope",
            "none",
        ):
            yield "--mtp-num-layers", "takes rotary positions, or none"
