"""Profiles of Metis: JSON, a file for each device type, tensor width and batch; only its name says which."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isclose

from nest.errors import InvalidProblem
from nest.layer_profiles.profile import LayerProfile, ProfiledLayer
from nest.layer_profiles.values import MIB, MS, number, numbers_at, table_at

UNITS = (
    "ms, forward and backward together, of one microbatch; bytes of parameters, and behind each layer; MiB of memory"
)

_DEVICE = re.compile(r"DeviceType\.(?P<name>[^_]+)_")
_TENSOR = re.compile(r"(?<![a-z])(?:tp|tmp)(?P<number>\d+)", re.IGNORECASE)
_BATCH = re.compile(r"(?<![a-z])m?bs(?P<number>\d+)", re.IGNORECASE)

_TOTALS = ("total_time_ms", "forward_backward_time_ms", "layer_compute_total_ms")
"""Times that the layers are part of."""


def is_metis(table: Mapping[str, object]) -> bool:
    """Whether a JSON file is a profile of Metis."""
    return "execution_time" in table and "execution_memory" in table


def read_metis(table: Mapping[str, object], file_name: str) -> LayerProfile:
    """Return the profile; its tensor width, batch and device are those of the file's name, if it has them."""
    model, times, memory = (table_at(table, key, "") for key in ("model", "execution_time", "execution_memory"))
    weights = table_at(model, "parameters", "model.")
    seconds = numbers_at(times, "layer_compute_total_ms", "execution_time.")
    columns = [
        numbers_at(weights, "parameters_per_layer_bytes", "model.parameters."),
        numbers_at(memory, "layer_memory_total_mb", "execution_memory."),
    ]
    if "activation_parameters_bytes" in weights:
        columns.append(numbers_at(weights, "activation_parameters_bytes", "model.parameters."))
    for column in columns:
        if len(column) != len(seconds):
            what = f"{len(seconds)} times, but other lists have {len(column)} numbers"
            raise InvalidProblem("execution_time.layer_compute_total_ms", what, "give one for each layer")
    layers = tuple(_layer(at, each, *(column[at] for column in columns)) for at, each in enumerate(seconds))
    device, tensor, batch = _DEVICE.search(file_name), number_in(file_name, _TENSOR), number_in(file_name, _BATCH)
    name = model.get("model_name")
    beside = ((key, value) for key, value in times.items() if key.endswith("_ms") and key not in _TOTALS)
    return LayerProfile(
        "Metis JSON",
        UNITS,
        layers,
        model=name if isinstance(name, str) else None,
        device=device["name"] if device else None,
        tensor=tensor,
        microbatch=batch,
        beside=tuple((key, MS * number(value, f"execution_time.{key}")) for key, value in beside),
        warnings=(*_of_the_name(tensor, batch), *_of_totals(model, weights, memory, layers)),
    )


def number_in(file_name: str, pattern: re.Pattern[str]) -> int | None:
    """Return the number that a file's name carries, None where it has none or several."""
    found = {int(match["number"]) for match in pattern.finditer(file_name)}
    return found.pop() if len(found) == 1 else None


def _layer(at: int, ms: float, weights: float, mib: float, sent: float | None = None) -> ProfiledLayer:
    return ProfiledLayer(
        f"layer {at}",
        step_s=MS * ms,
        parameter_bytes=round(weights),
        memory_bytes=round(MIB * mib),
        output_bytes=None if sent is None else round(sent),
    )


def _of_the_name(tensor: int | None, batch: int | None) -> list[str]:
    lacking = [what for what, value in (("tensor width", tensor), ("batch", batch)) if value is None]
    warnings = [f"the file's name, which alone could say it, has no {what}" for what in lacking]
    if tensor is not None and tensor > 1:
        warnings.append(
            "bytes of parameters and behind layers are taken as they stand: files of this format often give those of "
            f"whole layers, not one of {tensor} tensor ranks"
        )
    return [*warnings, "other tensor widths and batches are other files: nothing follows for them from this one"]


def _of_totals(
    model: Mapping[str, object],
    weights: Mapping[str, object],
    memory: Mapping[str, object],
    layers: tuple[ProfiledLayer, ...],
) -> list[str]:
    """Return where the file's own totals differ from the sums of its layers."""
    mib = memory.get("total_memory", memory.get("total_memory_mb"))
    told = (
        ("num_layers", model.get("num_layers"), len(layers)),
        ("total_parameters_bytes", weights.get("total_parameters_bytes"), sum(e.parameter_bytes or 0 for e in layers)),
        ("total_memory", mib, sum(each.memory_bytes or 0 for each in layers) / MIB),
    )
    return [
        f"the file's {what} is {value}, its layers have {found:.10g}"
        for what, value, found in told
        if value is not None and not isclose(number(value, what), found, rel_tol=1e-6)
    ]
