"""A module captured: exported, cut into layers, measured at three batches, and put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from nest.capture.build import describe, tensors
from nest.capture.captured import Captured
from nest.capture.compose import Sized
from nest.capture.exported import exported
from nest.capture.fit import Bent, Fit, Layers
from nest.capture.hooks import hooked
from nest.capture.inputs import Input
from nest.capture.trace import ExportFailed
from nest.errors import InvalidProblem

FACTORS = ((1, 2, 3), (2, 3, 4))
"""Batches that are captured, over the one that is given: two make the line, the third is to be on it.

The later ones are for operators that take another way for the smallest batch, as views do that copy nothing for one
sequence.
"""


@dataclass(frozen=True)
class Asked:
    """What is to be captured.

    Parameters
    ----------
    name
        Module and factory.
    module
        The module on the meta device, in the mode (training or not) in which it is to be captured.
    inputs
        What it takes.
    real
        Makes it on the CPU, for where it can only be watched at work.
    dtype
        Data type that it was given, empty for its own.
    notes
        What was odd about making it.
    fused
        Whether dropout and attention are those of GPUs; see `nest.capture.trace.trace`.
    """

    name: str
    module: Any
    inputs: tuple[Input, ...]
    real: Callable[[], Any]
    dtype: str = ""
    notes: tuple[str, ...] = ()
    fused: bool = True

    @property
    def batch(self) -> int:
        """Sequences of the inputs, by the first that has a batch.

        Raises
        ------
        InvalidProblem
            If none has.
        """
        for each in self.inputs:
            if each.batched:
                return each.shape[0]
        raise InvalidProblem("--input", "none has a batch", "give the shape of at least one input, as in 1x1024:int64")


def capture(asked: Asked) -> Captured:
    """Capture a module at several batches, so that its figures are known for all.

    Raises
    ------
    InvalidProblem
        If there is no input whose batch grows, or the module does not take the inputs.
    """
    started = _start(asked)
    layers, linear = _layers(started, asked.batch)
    return _captured(asked, started, layers, linear=linear)


def capture_once(asked: Asked) -> Captured:
    """Capture a module at the batch of its inputs alone; raises `InvalidProblem` as `capture` does."""
    started = _start(asked)
    return _captured(asked, started, Fit((asked.batch,), (started.first,)).layers(), linear=False)


@dataclass(frozen=True)
class _Started:
    """A module at its smallest batch, and how to have it at others."""

    first: Sized
    sized: Callable[[int], Sized]
    how: Literal["export", "hooks"]
    notes: tuple[str, ...] = ()


def _captured(asked: Asked, started: _Started, made: Layers, *, linear: bool) -> Captured:
    alone = () if linear else (f"The figures are those of a batch of {asked.batch}, and of no other.",)
    layers, figures, edges = made
    return Captured(
        asked.name,
        tuple(map(str, asked.inputs)),
        asked.batch,
        linear,
        product_dtype(asked.module),
        tokens_of(asked.inputs),
        started.how,
        layers,
        figures,
        edges,
        torch.__version__,
        (*asked.notes, *started.notes, *alone, *_frozen(asked.module)),
    )


def _start(asked: Asked) -> _Started:
    try:
        sized = _exporting(asked)
        return _Started(sized(1), sized, "export")
    except ExportFailed as failure:
        _check_inputs(asked)
        real = asked.real()
        note = f"torch.export failed ({failure}); submodules were watched, work between them is not counted."

        def watched(factor: int) -> Sized:
            """Return the sizes of what submodules take and give, with the batch so many times as large."""
            return hooked(asked.name, real, asked.inputs, factor, asked.dtype)

        return _Started(watched(1), watched, "hooks", (note,))


def _exporting(asked: Asked) -> Callable[[int], Sized]:
    return lambda factor: exported(asked.module, asked.inputs, factor, asked.dtype, fused=asked.fused)


def _check_inputs(asked: Asked) -> None:
    """Refuse inputs that the module does not take, before it is made with all its weights.

    On the meta device a module that looks at values fails, too; that says nothing about the inputs.
    """
    try:
        with torch.no_grad():
            asked.module(*tensors(asked.inputs, 1, "meta", asked.dtype))
    except NotImplementedError:
        return
    except Exception as error:
        if "meta tensor" not in str(error):
            what = f"the module does not take {', '.join(map(str, asked.inputs))}: {describe(error)}"
            raise InvalidProblem(asked.name, what, "give --input for each of its tensors, in order") from error


def _layers(started: _Started, batch: int) -> tuple[Layers, bool]:
    """Return the layers as lines in the batch, or, where there are none, as they are at the batch that is given."""
    made = {1: started.first}
    for factors in FACTORS:
        try:
            made |= {factor: started.sized(factor) for factor in factors if factor not in made}
            fit = Fit(tuple(factor * batch for factor in factors), tuple(made[factor] for factor in factors))
            return fit.layers(), True
        except (Bent, ExportFailed, InvalidProblem):
            continue
    return Fit((batch,), (started.first,)).layers(), False


def product_dtype(module: Any) -> str:
    """Return the data type of most parameters, which is that of the products."""
    counts: dict[str, int] = {}
    for each in module.parameters():
        counts[str(each.dtype)] = counts.get(str(each.dtype), 0) + each.numel()
    most = max(counts, key=counts.__getitem__, default="torch.float32")
    return {"torch.bfloat16": "bf16", "torch.float16": "fp16"}.get(most, "fp32")


def tokens_of(inputs: Sequence[Input]) -> int:
    """Return the length of the first input of whole numbers, which are tokens."""
    return next((each.shape[1] for each in inputs if each.dtype.startswith("int") and len(each.shape) > 1), 0)


def _frozen(module: Any) -> tuple[str, ...]:
    count = sum(each.numel() for each in module.parameters() if not each.requires_grad)
    return (f"{count} parameters want no gradient; they are planned for as if they did.",) if count else ()
