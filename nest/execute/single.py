"""The same training in one process, without anything distributed: what the executed plan has to equal."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from nest.execute.activations import Meter
from nest.execute.job import Job, Single
from nest.execute.model import Part, layers_of, loss_of, tokens_of
from nest.execute.steps import step_of

WEIGHTS = "single.pt"
"""Weights after the last step, by layer."""


def run_single(job: Job, directory: Path) -> Single:
    """Train in one process, and leave the weights in a file."""
    again = tuple(kind for stage in job.shape.stages for kind in stage.again)
    layers = layers_of(job.model, job.seed, again, Part())
    kept = _kept(job, layers) if job.shape.tensor == job.shape.context == job.shape.expert == 1 else ()
    model = nn.Sequential(*layers)
    step = step_of(list(model.parameters()), 0, None, 1)
    losses = []
    for at in range(job.steps):
        tokens = tokens_of(job.model, job.seed + 1 + at, job.sequences)
        parts = tokens.split(job.shape.microbatch)
        total = torch.zeros(())
        for part in parts:
            loss = loss_of(model(part[:, :-1]), part[:, 1:]) / len(parts)
            loss.backward()
            total += loss.detach()
        losses.append(total.item())
        step.take()
    torch.save([layer.state_dict() for layer in layers], directory / WEIGHTS)
    return Single(tuple(losses), kept)


def _kept(job: Job, layers: list[nn.Module]) -> tuple[int, ...]:
    """Return what each layer keeps of a microbatch, the loss being part of the head."""
    tokens = tokens_of(job.model, job.seed, job.shape.microbatch)
    rows, kept = tokens[:, :-1], []
    for layer in layers:
        meter = Meter()
        with meter.watch():
            rows = layer(rows)
            if layer is layers[-1]:
                rows = loss_of(rows, tokens[:, 1:])
        kept.append(meter.bytes)
    return tuple(kept)
