"""One process: its stage of the pipeline, trained, measured, and compared with the single process."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from nest.execute.activations import Meter
from nest.execute.job import Job, RankReport, read_job, write_report, write_single
from nest.execute.model import layers_of, tokens_of
from nest.execute.progress import Progress
from nest.execute.ranks import Groups
from nest.execute.single import WEIGHTS, run_single
from nest.execute.steps import local, moment_bytes, step_of

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
LONGEST = timedelta(days=1)
"""Whoever started the processes stops them in time, and says where they were."""


def main(rank: int, directory: Path) -> None:
    """Run a process of the job in a directory; the first also runs the single process."""
    torch.set_num_threads(1)
    job, progress = read_job(directory), Progress(directory, rank)
    if rank == 0:
        progress.say("training in a single process")
        write_single(run_single(job, directory), directory)
    progress.say("waiting for the other processes")
    store = f"file://{directory / 'store'}"
    processes = job.shape.processes
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=processes, timeout=LONGEST)
    worker = Worker(job, Groups.of(job.shape, rank))
    losses = []
    for at in range(job.steps):
        progress.say(f"stage {worker.groups.seat.stage}, in step {at + 1} of {job.steps}")
        losses += worker.step(at)
    progress.say("comparing weights")
    weights, difference = worker.compared(directory / WEIGHTS)
    held = worker.module.weight_bytes, sum(moment_bytes(each) for each in worker.optimizers)
    found = worker.meter.peak_bytes, worker.meter.in_flight
    write_report(RankReport(tuple(losses), weights, difference, *held, *found), rank, directory)
    dist.barrier()
    dist.destroy_process_group()


class StageModule(nn.Module):
    """The layers of a stage, which tell a meter where a microbatch begins, and see how many weights are there."""

    def __init__(self, layers: list[nn.Module], meter: Meter) -> None:
        super().__init__()
        self.layers, self.meter, self.weight_bytes = nn.ModuleList(layers), meter, 0

    def forward(self, rows: Tensor) -> Tensor:
        """Return what leaves the stage."""
        self.meter.microbatch += 1
        for layer in self.layers:
            rows = layer(rows)
        self.weight_bytes = max(self.weight_bytes, sum(local(weight).nbytes for weight in self.parameters()))
        return rows


class Worker:
    """A stage on one rank.

    Parameters
    ----------
    job, groups
        What is executed, and with whom.
    """

    def __init__(self, job: Job, groups: Groups) -> None:
        self.job, self.groups, self.meter = job, groups, Meter()
        shape, seat = job.shape, groups.seat
        self.stage = shape.stages[seat.stage]
        self.first, self.last = seat.stage == 0, seat.stage == len(shape.stages) - 1
        again = tuple(kind for stage in shape.stages for kind in stage.again)
        layers = layers_of(job.model, job.seed, again, groups.part(job.model.sequence))
        layers = layers[self.stage.first : self.stage.end]
        groups.cut(layers)
        self.module = StageModule(layers, self.meter)
        groups.spread(self.module, layers, self.stage.zero)
        routed = groups.routed_weights(layers)
        apart = set(map(id, routed))
        dense = [weight for weight in self.module.parameters() if id(weight) not in apart]
        self.optimizers = [step_of(dense, self.stage.zero, groups.dense, shape.copies)]
        if routed:
            self.optimizers.append(step_of(routed, self.stage.zero, groups.routed, shape.copies))
        self.schedule = self._schedule() if len(shape.stages) > 1 else None

    def step(self, at: int) -> list[float]:
        """Train on the tokens of a step; return the mean loss, on the last stage only."""
        tokens = self._tokens(at)
        losses: list[Tensor] = []
        with self.meter.watch(), self._parted_loss():
            if self.schedule is None:
                self._accumulate(tokens, losses)
            elif self.first:
                self.schedule.step(tokens[:, :-1])
            elif self.last:
                self.schedule.step(target=tokens[:, 1:], losses=losses)
            else:
                self.schedule.step()
        for optimizer in self.optimizers:
            optimizer.take()
        return [torch.stack(losses).mean().item()] if losses else []

    def compared(self, path: Path) -> tuple[int, float]:
        """Return how many weights the stage has, and by how much they differ from those in a file at most."""
        expected = torch.load(path)[self.stage.first : self.stage.end]
        count, difference = 0, 0.0
        for layer, weights in zip(self.module.layers, expected, strict=True):
            for name, weight in layer.named_parameters():
                whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
                count += whole.numel()
                difference = max(difference, (whole - weights[name]).abs().max().item())
        return count, difference

    def _tokens(self, at: int) -> Tensor:
        """Return the rank's tokens of a step: its sequences, its part of each, and one more as the last target."""
        job, seat = self.job, self.groups.seat
        every = tokens_of(job.model, job.seed + 1 + at, job.sequences)
        mine = every.chunk(job.shape.replicas * job.shape.expert)[seat.copy // job.shape.context]
        first, count = job.shape.span(seat, job.model.sequence)
        return mine[:, first : first + count + 1]

    def _schedule(self) -> Schedule1F1B | ScheduleGPipe:
        job, model, seat = self.job, self.job.model, self.groups.seat
        batch, tokens = job.shape.microbatch, model.sequence // job.shape.context
        between = tokens // job.shape.tensor if job.shape.sequence else tokens
        indices = torch.empty(batch, tokens, dtype=torch.int64)
        rows = torch.empty(batch, between, model.hidden, requires_grad=True)
        logits = torch.empty(batch, tokens, model.vocab // job.shape.tensor, requires_grad=True)
        stage = PipelineStage(
            self.module,
            seat.stage,
            len(job.shape.stages),
            torch.device("cpu"),
            input_args=indices if self.first else rows,
            output_args=logits if self.last else rows,
            group=self.groups.pipeline,
        )
        return SCHEDULES[job.shape.schedule](stage, job.microbatches, loss_fn=self.groups.loss)

    def _accumulate(self, tokens: Tensor, losses: list[Tensor]) -> None:
        """Run all microbatches of a pipeline of one stage, whatever its schedule."""
        for part in tokens.split(self.job.shape.microbatch):
            loss = self.groups.loss(self.module(part[:, :-1]), part[:, 1:])
            (loss / self.job.microbatches).backward()
            losses.append(loss.detach())

    def _parted_loss(self) -> AbstractContextManager[None]:
        parted: AbstractContextManager[None] = loss_parallel() if self.job.shape.tensor > 1 else nullcontext()
        return parted
