"""Layouts that NVIDIA recommends to start from: whether they fit."""

from __future__ import annotations

from collections.abc import Mapping

from nest.costing import Layout, Setting, recipe_named
from nest.families import Hyperparameters, from_hyperparameters
from nest.hardware import cluster_named
from nest.validation.case import Case
from nest.validation.compare import compare
from nest.validation.fact import Fact
from nest.validation.figures import read_figures

SEQUENCE = 4096
BATCH = 2048


def starts() -> tuple[Fact, ...]:
    """Return for each recommendation whether the model fits."""
    return tuple(_fact(row) for row in read_figures("starts")[1])


def _fact(row: Mapping[str, str]) -> Fact:
    compared = compare(start(row))
    named = [f"{name} {row[name]}" for name in ("tensor", "stages", "context", "expert") if row[name] != "1"]
    widths, peak = ", ".join(named) or "replicas alone", compared.estimate.peak_bytes / 2**30
    note = f"{widths} on {row['devices']} devices: {peak:.1f} GiB"
    return Fact(f"{row['size']}: {row['model']}", "", "fits", "1", 1.0, float(compared.fits), note=note)


def start(row: Mapping[str, str]) -> Case:
    """Return a recommendation as something to compute."""
    number = {name: int(value) for name, value in row.items() if value.isdecimal()}
    model = Hyperparameters(
        row["family"],
        number["layers"],
        number["hidden"],
        number["heads"],
        number["kv"],
        number["head"],
        number["ffn"],
        number["vocab"],
        SEQUENCE,
        experts=number["experts"],
        top_k=number["top_k"] or 2,
        expert_ffn=number["expert_ffn"],
        shared_ffn=number["shared_ffn"],
        dense_layers=number["dense"],
        query_rank=number["query"],
        latent_rank=number["latent"],
    )
    setting = Setting(
        SEQUENCE,
        1,
        number["tensor"],
        sequence_parallel=number["tensor"] > 1,
        context=number["context"],
        expert=number["expert"],
    )
    width = number["tensor"] * number["context"] * number["expert"] * number["stages"]
    return Case(
        row["model"],
        row["size"],
        fitted=False,
        model=from_hyperparameters(model),
        hardware=cluster_named(f"dgx-h100:{number['devices']}"),
        setting=setting,
        layout=Layout(BATCH, number["devices"] // width, number["stages"], zero=1, recompute="full"),
        recipe=recipe_named("mixed"),
        fits=True,
    )
