"""What an iteration takes besides the layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from nest.cluster import Cluster
from nest.costing import RECIPES, Framework, Recipe
from nest.costing.efficiency import OVERLAP_TAX
from nest.costing.recipe import step_s
from nest.errors import InvalidProblem
from nest.hardware import Hardware
from nest.problem import Copies, Training


class Trained(Protocol):
    """What decides about an iteration besides the layers, of a `Run` or of whatever else is trained."""

    @property
    def hardware(self) -> Hardware:
        """On what."""

    @property
    def recipe(self) -> Recipe:
        """Bytes per parameter."""

    @property
    def framework(self) -> Framework:
        """What the software does."""

    @property
    def global_batch(self) -> int:
        """Sequences of an iteration."""

    @property
    def cut_experts(self) -> bool:
        """Whether tensor parallel cuts routed experts, too."""

    @property
    def reserved_bytes(self) -> int:
        """What framework and communication take of every device."""


def training_of(run: Trained) -> Training:
    """Return what an iteration takes besides the layers.

    Raises
    ------
    InvalidProblem
        If optimizer or gradients are no whole number of times the weights.
    """
    recipe = run.recipe
    return Training(
        optimizer="adam",
        global_batch=run.global_batch,
        copies=_copies(recipe),
        hides_gradients=run.framework.hides_gradients,
        holds_gathered=True,
        sums_whole=run.framework.sums_whole,
        splits_transfers=run.framework.scatter_gather,
        blocking_sends=run.framework.blocking_sends,
        overlap_tax=OVERLAP_TAX,
        step_s_per_byte=step_s(recipe, run.hardware.device) / recipe.weights,
        overhead_bytes=run.reserved_bytes,
        recomputes_last=run.framework.recomputes_last,
        buffers_boundaries=run.framework.buffers_boundaries,
        whole_experts=not run.cut_experts,
    )


def stepping(run: Trained) -> Cluster:
    """Return the cluster of a run, with what the optimizer's step takes on each further class of its devices."""
    cluster, recipe = run.hardware.cluster, run.recipe
    pairs = zip(cluster.classes, run.hardware.others, strict=True)
    classes = (replace(each, step_s_per_byte=step_s(recipe, device) / recipe.weights) for each, device in pairs)
    return replace(cluster, classes=tuple(classes)) if cluster.classes else cluster


def _copies(recipe: Recipe) -> Copies:
    """Return a recipe in multiples of a weight, in which a problem counts bytes."""
    if any(getattr(recipe, name) % recipe.weights for name in ("optimizer", "gradients", "stepped")):
        what = f"{recipe.name!r} holds no whole multiple of the weights as gradients or optimizer state"
        raise InvalidProblem("recipe", what, f"plans are found for {', '.join(each.name for each in RECIPES)}")
    held = {name: int(getattr(recipe, name) / recipe.weights) for name in ("optimizer", "gradients", "stepped")}
    return Copies(**held, gathered=recipe.gathered / recipe.weights, reduced=recipe.reduced / recipe.weights)
