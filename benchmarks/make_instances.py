"""Write the problem files of `instances/` from the inputs of the artifact of arXiv 2603.06798.

The artifact (github.com/scai-tech/Nest at commit 3e163ad) makes its inputs from the layer graphs and estimates that it
ships. Run this over a folder of them, named ``{network}__{model}_{devices}.json``::

    python benchmarks/make_instances.py INPUTS [--optima FILE] [--out instances]

``--optima`` is a JSON object from the name of an input to its optimum under preset ``artifact`` without sharding, in
the milliseconds of the input; without it, what the index already says is kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nest.cluster import Cluster
from nest.files import problem_text, read_problem
from nest.graph import LayerGraph
from nest.problem import Problem

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "arXiv 2603.06798, github.com/scai-tech/Nest at commit 3e163ad"
EMBEDDING = -1
MS_PER_S = 1e3


@dataclass(frozen=True)
class Network:
    """A network of the paper: its name in files and for people, and its levels, innermost first."""

    short: str
    name: str
    devices: str
    levels: tuple[str, ...]


NETWORKS = {
    "tpuv4_fatTree": Network("tpuv4", "fat-tree", "TPUv4-like devices", ("node", "switch", "core")),
    "h100_spineLeaf": Network("h100", "spine-leaf", "H100", ("node", "leaf", "spine")),
}

MODELS = {
    "bertlarge": ("bertlarge", "BERT-large"),
    "megatronbert": ("bertlarge", "BERT-large"),
    "gpt3": ("gpt3-175b", "GPT-3 175B"),
    "llama2": ("llama2-7b", "Llama 2 7B"),
    "llama3": ("llama3-70b", "Llama 3 70B"),
    "mixtral": ("mixtral-8x7b", "Mixtral 8x7B"),
}
"""Name in files and for people, by the artifact's name."""


@dataclass(frozen=True)
class Instance:
    """One problem file, and what the index says about it."""

    input: str
    file: str
    model: str
    network: Network
    problem: Problem

    @property
    def text(self) -> str:
        """The problem file, with a comment on top that says what it is."""
        return "".join(f"# {line}\n" for line in self._comment()) + problem_text(self.problem)

    def entry(self, optimum: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry of the index."""
        return {
            "file": self.file,
            "model": self.model,
            "devices": self.problem.cluster.devices,
            "source": f"{SOURCE}, input {self.input}",
            "optimum": optimum,
        }

    def _comment(self) -> Iterator[str]:
        yield f"{self.model} on {self.problem.cluster.devices} {self.network.devices} in a {self.network.name} network."
        yield f"Figures: {SOURCE}, input {self.input}."
        yield "Layer times are its milliseconds in seconds; a block is a transformer layer. Network: bytes and seconds."


def main() -> None:
    """Write the instances and their index."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", type=Path, help="folder of the artifact's inputs")
    parser.add_argument("--optima", type=Path, help="optima of the inputs under preset artifact, without sharding")
    parser.add_argument("--out", type=Path, default=ROOT / "instances", help="folder to write to")
    arguments = parser.parse_args()
    write_instances(arguments.inputs, arguments.out, arguments.optima)


def write_instances(inputs: Path, out: Path, optima: Path | None = None) -> None:
    """Write one problem file for each input of a folder, and the index.

    Parameters
    ----------
    optima
        See the module; None keeps the optima that the index in ``out`` has.
    """
    instances = sorted(map(instance_of, inputs.glob("*__*.json")), key=lambda instance: instance.file)
    index = out / "index.json"
    before = json.loads(index.read_text()) if index.exists() else []
    known = {entry["file"]: entry["optimum"] for entry in before}
    values = json.loads(optima.read_text()) if optima else {}
    made = {instance.file for instance in instances}
    entries = [entry for entry in before if entry["file"] not in made]  # runs, which are written by hand
    for instance in instances:
        (out / instance.file).write_text(instance.text, encoding="utf-8")
        optimum = {"artifact": None, "paper": None, "paper_zero": None} | known.get(instance.file, {})
        if Path(instance.input).stem in values:
            optimum["artifact"] = artifact_optimum(values[Path(instance.input).stem])
        entries.append(instance.entry(optimum))
    entries.sort(key=lambda entry: str(entry["file"]))
    index.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def artifact_optimum(optimum: Mapping[str, Any]) -> dict[str, Any]:
    """Return an optimum under preset ``artifact``, from milliseconds to seconds, with the settings it holds for."""
    return {"settings": ["zero=none"], "objective_s": optimum["value"] / MS_PER_S}


def instance_of(path: Path) -> Instance:
    """Return the instance that an input of the artifact makes."""
    network, _, rest = path.stem.partition("__")
    model, _, devices = rest.rpartition("_")
    (short, title), place = MODELS[model], NETWORKS[network]
    name = f"{short}_{place.short}_{devices}"
    problem = read_problem(path)
    named = replace(
        problem,
        name=name,
        source=SOURCE,
        time_unit_s=1.0,
        cluster=_named_cluster(problem.cluster, place),
        graphs={variant: _named_layers(graph) for variant, graph in problem.graphs.items()},
    )
    return Instance(path.name, f"{name}.toml", title, place, named)


def _named_cluster(cluster: Cluster, network: Network) -> Cluster:
    levels = (replace(level, name=name) for level, name in zip(cluster.levels, network.levels, strict=True))
    return replace(cluster, name=f"{network.name} of {network.devices}", levels=tuple(levels))


def _named_layers(graph: LayerGraph) -> LayerGraph:
    layers = (replace(layer, kind="embedding" if layer.id == EMBEDDING else "block") for layer in graph.layers)
    return LayerGraph(tuple(layers), graph.edges)


if __name__ == "__main__":
    main()
