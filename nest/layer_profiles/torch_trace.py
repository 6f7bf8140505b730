"""Traces of torch's profiler: a Chrome trace, its times in microseconds; kernels of devices by name."""

from __future__ import annotations

from collections.abc import Mapping

from nest.errors import InvalidProblem
from nest.files.words import show
from nest.layer_profiles.profile import LayerProfile, ProfiledLayer
from nest.layer_profiles.values import US, number

UNITS = "microseconds (ts, dur), of all that was traced"
NO_LAYERS = "a trace has kernels, no layers: which pass and which layer a kernel belongs to is not read"


def is_torch_trace(table: Mapping[str, object]) -> bool:
    """Whether a JSON file is a trace."""
    return "traceEvents" in table


def read_torch_trace(table: Mapping[str, object]) -> LayerProfile:
    """Return the profile, kernels of one name as one layer."""
    events = table["traceEvents"]
    if not isinstance(events, list):
        raise InvalidProblem("traceEvents", show(events), "give a list")
    kernels = [(at, e) for at, e in enumerate(events) if isinstance(e, dict) and e.get("cat") == "kernel"]
    if not kernels:
        what = f"none of {len(events)} events is a kernel"
        raise InvalidProblem("traceEvents", what, "trace the activities of the device too")
    spent: dict[str, list[float]] = {}
    for at, event in kernels:
        where = f"traceEvents[{at}]"
        spent.setdefault(str(event.get("name")), []).append(number(event.get("dur"), f"{where}.dur"))
    return LayerProfile(
        "torch profiler trace",
        UNITS,
        tuple(ProfiledLayer(name, f"{len(times)} x kernel", step_s=US * sum(times)) for name, times in spent.items()),
        device=_device(table),
        warnings=(NO_LAYERS, *_counted(table, events, [event for _, event in kernels])),
    )


def _properties(table: Mapping[str, object]) -> list[Mapping[str, object]]:
    listed = table.get("deviceProperties")
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _device(table: Mapping[str, object]) -> str | None:
    names = {str(each["name"]) for each in _properties(table) if "name" in each}
    return names.pop() if len(names) == 1 else None


def _counted(table: Mapping[str, object], events: list[object], kernels: list[dict[str, object]]) -> list[str]:
    bare = sum(isinstance(event, dict) and "cat" not in event for event in events)
    used = {str(args.get("device")) for event in kernels if isinstance(args := event.get("args"), dict)}
    devices = len(_properties(table))
    warnings = [f"{len(events)} events, {len(kernels)} of them kernels, {bare} without category"]
    if devices > len(used):
        warnings.append(f"{devices} devices are listed, kernels ran on {len(used)}")
    return warnings
