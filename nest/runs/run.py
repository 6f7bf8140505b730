"""A training run: what a person has before there is a plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nest.costing import FRAMEWORKS, RECIPES, Framework, LayerProfile, Recipe, Setting
from nest.errors import InvalidProblem
from nest.families import Architecture
from nest.hardware import Hardware
from nest.problem import Choices, Variant
from nest.runs.reserve import Reserving


@dataclass(frozen=True)
class Run(Reserving):
    """A model to be trained on a cluster.

    Parameters
    ----------
    model, hardware
        What is trained, and on what.
    sequence
        Tokens of a sequence, in every stream that does not have its own number.
    global_batch
        Sequences of an iteration.
    recipe, framework, dtype
        Bytes of a parameter, what the software does, the data type of products; see `nest.costing`.
    flash
        Whether attention is fused; None: if the framework has that.
    padding, context_kind, imbalance, capacity, lengths
        As in `nest.costing.Setting`.
    cut_experts
        Whether tensor parallel cuts the matrices of routed experts, too.
    reserve_bytes
        What framework and communication take of every device; None: `default_reserve_bytes`.
    choices
        What a plan may choose; widths that are named are tried even where they are unusual.
    name, source
        For people to read.
    profile
        Measured times of layers, which override those that are modelled.

    Raises
    ------
    InvalidProblem
        If sequence, batch or reserve is out of range.
    """

    model: Architecture
    hardware: Hardware
    sequence: int
    global_batch: int
    recipe: Recipe = RECIPES[0]
    framework: Framework = FRAMEWORKS[0]
    dtype: str = "bf16"
    flash: bool | None = None
    padding: int = 128
    context_kind: Literal["ring", "gather", "exchange"] = "ring"
    cut_experts: bool = False
    imbalance: float = 1.0
    capacity: float = 0.0
    lengths: tuple[tuple[str, int], ...] = ()
    reserve_bytes: int | None = None
    choices: Choices = field(default_factory=Choices)
    name: str = ""
    source: str = ""
    profile: LayerProfile | None = None

    def __post_init__(self) -> None:
        for name in ("sequence", "global_batch"):
            if getattr(self, name) < 1:
                raise InvalidProblem(name, f"{getattr(self, name)}", "give a whole number from 1")
        if self.profile is not None:
            self.hardware.require_one_class("a profile")
        self.require_reserve()

    @property
    def fused(self) -> bool:
        """Whether attention is fused."""
        return self.framework.fused_attention if self.flash is None else self.flash

    def setting(self, variant: Variant) -> Setting:
        """Return under which setting the layers of a variant are priced."""
        return Setting(
            self.sequence,
            variant.microbatch,
            variant.tensor,
            variant.sequence,
            variant.context,
            self.context_kind,
            variant.expert,
            variant.tensor if self.cut_experts else 1,
            self.imbalance,
            self.capacity,
            self.fused,
            self.dtype,
            self.padding,
            self.lengths,
            self.framework,
        )
