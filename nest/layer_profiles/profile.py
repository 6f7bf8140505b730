"""A layer profile: times and bytes of layers, and how they were measured where that is known."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, isfinite
from typing import Literal, TypeAlias

from nest.errors import InvalidProblem

Time: TypeAlias = Literal["forward_s", "backward_s", "step_s"]
Amount: TypeAlias = Literal["parameters", "parameter_bytes", "activation_bytes", "memory_bytes"]

TIMES: tuple[Time, ...] = ("forward_s", "backward_s", "step_s")
AMOUNTS: tuple[Amount, ...] = ("parameters", "parameter_bytes", "activation_bytes", "memory_bytes")


@dataclass(frozen=True, slots=True)
class ProfiledLayer:
    """What a profile says of a layer, an operator or a kernel; None where it says nothing.

    Attributes
    ----------
    name
        As in the file; the name of a node where it has one.
    kind
        What the file says it is, empty where it does not.
    forward_s, backward_s
        Seconds, where the file keeps them apart.
    step_s
        Seconds of forward and backward together, where it does not.
    parameters
        Their number, where the file has that and no bytes.
    parameter_bytes, activation_bytes
        As the file counts them.
    memory_bytes
        Peak memory of the device that the file gives to the layer.
    output_bytes
        What goes to the next layer, where the file says that.
    """

    name: str
    kind: str = ""
    forward_s: float | None = None
    backward_s: float | None = None
    step_s: float | None = None
    parameters: int | None = None
    parameter_bytes: int | None = None
    activation_bytes: int | None = None
    memory_bytes: int | None = None
    output_bytes: int | None = None

    def __post_init__(self) -> None:
        for figure in (*TIMES, *AMOUNTS, "output_bytes"):
            value: float | None = getattr(self, figure)
            if value is not None and not (isfinite(value) and value >= 0):
                raise InvalidProblem(f"{self.name}.{figure}", f"{value}", "give a finite number that is not negative")


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """Layers that were measured together; None where the file does not say how.

    Attributes
    ----------
    form
        Format of the file.
    units
        What the numbers of the file are, since hardly any file says so itself.
    layers
        In the order of the file, or that of the graph where the file has one.
    model, device
        Names.
    tensor
        Tensor width.
    microbatch, seq
        Sequences or samples that the times are for, and tokens of each.
    beside
        Seconds of what is no layer, such as the optimizer, by the file's own name.
    edges
        Indices of layers, for files that have a graph.
    warnings
        What a user has to know before he trusts the numbers.
    """

    form: str
    units: str
    layers: tuple[ProfiledLayer, ...]
    model: str | None = None
    device: str | None = None
    tensor: int | None = None
    microbatch: int | None = None
    seq: int | None = None
    beside: tuple[tuple[str, float], ...] = ()
    edges: tuple[tuple[int, int], ...] | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise InvalidProblem("", f"a profile ({self.form}) without layers", "give the whole file")
        for what, value in (("tensor", self.tensor), ("microbatch", self.microbatch), ("seq", self.seq)):
            if value is not None and value < 1:
                raise InvalidProblem(what, f"{value}", "give at least 1")
        for source, target in self.edges or ():
            if not (0 <= source < len(self.layers) and 0 <= target < len(self.layers)):
                raise InvalidProblem("edges", f"{source} to {target}", f"there are {len(self.layers)} layers")

    def seconds(self, time: Time) -> float | None:
        """Return a time of all layers, None where the file leaves it out for one."""
        values: list[float | None] = [getattr(layer, time) for layer in self.layers]
        known = [value for value in values if value is not None]
        return fsum(known) if len(known) == len(values) else None

    def amount(self, amount: Amount) -> int | None:
        """Return bytes or parameters of all layers, None where the file leaves them out for one."""
        values: list[int | None] = [getattr(layer, amount) for layer in self.layers]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    @property
    def is_chain(self) -> bool | None:
        """Whether each layer feeds the next alone; None where the file has no graph."""
        if self.edges is None:
            return None
        return sorted(self.edges) == [(at, at + 1) for at in range(len(self.layers) - 1)]
