"""Memory and utilisation as arXiv 2205.05198 has them, beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nest.costing import Layout, Recompute, Setting, recipe_named
from nest.costing.frameworks import MEGATRON_2022
from nest.hardware import cluster_named
from nest.runs import Given, StageMemory, estimate
from nest.validation.compare import compare
from nest.validation.fact import Fact
from nest.validation.figures import read_figures
from nest.validation.models import bare_gpt
from nest.validation.tables import TABLES

GIB = 2.0**30

SEQUENCE, TENSOR = 2048, 8


def activations() -> tuple[Fact, ...]:
    """Return the bars of figures 1 and 7, and the utilisations."""
    rows = read_figures("activations")[1]
    return (*(fact for row in rows for fact in _FirstStage(row).facts()), *_utilisations(rows))


@dataclass(frozen=True)
class _FirstStage:
    """The first stage of a model, of which the figures are."""

    row: Mapping[str, str]

    def facts(self) -> Iterator[Fact]:
        """Yield what was published of the first stage, in GiB, beside what is predicted."""
        plain, both = self._memory("none", shared=False), self._memory("selective", shared=True)
        for name, column, size in (
            ("weights, gradients, optimizer", "state_gib", plain.state),
            ("activations, tensor parallel alone", "tensor_gib", plain.activations),
            ("activations, shared and selective", "selective_gib", both.activations),
        ):
            yield self._fact(name, "B", float(self.row[column]) * GIB, float(size))
        bars: tuple[tuple[str, Recompute, bool], ...] = (
            ("shared", "none", True),
            ("selective", "selective", False),
            ("both", "selective", True),
            ("full", "full", False),
        )
        for column, recompute, shared in bars:
            share = self._memory(recompute, shared=shared).activations / plain.activations
            yield self._fact(f"activations, {column}, over tensor parallel", "1", float(self.row[column]) / 100, share)

    def _fact(self, name: str, unit: str, published: float, predicted: float) -> Fact:
        return Fact(f"{self.row['model']}: {name}", "", "memory", unit, published, predicted)

    def _memory(self, recompute: Recompute, *, shared: bool) -> StageMemory:
        names = ("layers", "hidden", "heads", "stages", "virtual", "microbatch")
        layers, hidden, heads, stages, virtual, microbatch = (int(self.row[name]) for name in names)
        setting = Setting(
            SEQUENCE,
            microbatch,
            TENSOR,
            sequence_parallel=shared,
            flash=False,
            dtype="fp16",
            framework=MEGATRON_2022,
        )
        model = bare_gpt(layers, hidden, heads)
        layout = Layout(10 * stages * microbatch, 1, stages, virtual, recompute=recompute)
        hardware = cluster_named(f"selene:{TENSOR * stages}")
        return estimate(Given(model, hardware, setting, layout, recipe_named("mixed"))).memory[0]


def _utilisations(rows: list[dict[str, str]]) -> Iterator[Fact]:
    cases = next(table for table in TABLES if table.name == "recomputation").cases()
    for row in rows:
        case = next(each for each in cases if each.name.endswith(f"{row['model']} selective"))
        peak = case.hardware.device.peak("fp16")
        predicted = compare(case).estimate.flops_per_device / peak
        name = f"{row['model']}: model FLOP/s over the peak"
        yield Fact(name, "", "rate", "1", float(row["mfu"]) / 100, predicted, case.fitted)
