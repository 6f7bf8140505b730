"""Load models of graphs with branches: what a stage costs, as data; `docs/dags.md` has the formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from nest.errors import InvalidProblem

Transfers: TypeAlias = Literal["once per layer", "each edge"]


@dataclass(frozen=True, slots=True)
class LoadModel:
    """How a stage is priced, and what a stage may be.

    Parameters
    ----------
    name
        As it is given in files and reports.
    transfers
        What a stage pays for: the output of a layer once if it, or part of who reads it, is elsewhere; or each edge
        that has one end in the stage.
    passes
        How often a transfer happens: 2 where the gradient takes the same way back.
    replicas
        Whether a stage has replicas, which share the microbatches, and a width; else it is one device.
    resync_factor
        Copies of its weights that a replica sends for one synchronisation, times replicas / (replicas - 1).
    source
        Where the model is defined.

    Raises
    ------
    InvalidProblem
        If no solver covers the combination.
    """

    name: str
    transfers: Transfers
    passes: int
    replicas: bool
    resync_factor: int
    source: str

    def __post_init__(self) -> None:
        if self.replicas != (self.transfers == "each edge"):
            what = f"replicas {self.replicas} and transfers {self.transfers!r}"
            raise InvalidProblem("preset", what, "stages with replicas pay for each edge, others once per layer")


DNN_PARTITIONING = LoadModel(
    name="dnn-partitioning",
    transfers="once per layer",
    passes=1,
    replicas=False,
    resync_factor=0,
    source="Tarnawski et al., Efficient Algorithms for Device Placement of DNN Graph Operators, NeurIPS 2020",
)
"""The loads of dnn-partitioning: one pass, each layer sends its output once, no replicas."""

PIPER = LoadModel(
    name="piper",
    transfers="each edge",
    passes=2,
    replicas=True,
    resync_factor=4,
    source="Tarnawski et al., Piper: Multidimensional Planner for DNN Parallelization, NeurIPS 2021",
)
"""The loads of Piper: both passes, each edge is sent, replicas synchronise."""

LOAD_MODELS = {model.name: model for model in (DNN_PARTITIONING, PIPER)}
"""Load models by name."""


def load_model_named(name: str) -> LoadModel:
    """Return the load model of a name.

    Raises
    ------
    InvalidProblem
        If there is none.
    """
    if name not in LOAD_MODELS:
        raise InvalidProblem("preset", f"{name!r} is no load model", f"choose one of {', '.join(LOAD_MODELS)}")
    return LOAD_MODELS[name]
