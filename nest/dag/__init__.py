"""Graphs with branches: stages as differences of downsets, the best plan with its proof; see `docs/dags.md`."""

from nest.dag.plan import DagStage, Price, Verdict, judge
from nest.dag.presets import DNN_PARTITIONING, LOAD_MODELS, PIPER, LoadModel, load_model_named
from nest.dag.problem import DagEdge, DagLayer, DagProblem, DeviceClass, Option
from nest.dag.result import DagResult
from nest.dag.solve import solve_dag
from nest.downsets import TooManyDownsets, all_downsets

__all__ = [
    "DNN_PARTITIONING",
    "LOAD_MODELS",
    "PIPER",
    "DagEdge",
    "DagLayer",
    "DagProblem",
    "DagResult",
    "DagStage",
    "DeviceClass",
    "LoadModel",
    "Option",
    "Price",
    "TooManyDownsets",
    "Verdict",
    "all_downsets",
    "judge",
    "load_model_named",
    "solve_dag",
]
