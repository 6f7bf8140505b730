"""Layer profiles of other tools as text for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from nest.layer_profiles import LayerProfile, ProfiledLayer
from nest.layer_profiles.profile import AMOUNTS, TIMES
from nest.report.format import counted, duration, size
from nest.report.layout import Column, Screen, Summary, render, ruled_table

_LONGEST = 60

_COLUMNS = (
    Column("Layer", folds=True, least=12),
    Column("Kind", folds=True, least=12),
    Column("Forward", number=True),
    Column("Backward", number=True),
    Column("Together", number=True),
    Column("Weights", number=True),
    Column("Activations", number=True),
    Column("Memory", number=True),
    Column("Sent", number=True),
)


def profiles_text(profiles: Sequence[LayerProfile], screen: Screen) -> str:
    """Return each profile: its layers, their sums, the units of the file, and what to be warned of."""
    return "\n".join(_text(profile, screen) for profile in profiles)


def profiles_facts(profiles: Sequence[LayerProfile]) -> dict[str, object]:
    """Return what the text says, ready for JSON; null where the file says nothing."""
    return {"schema": "nest.layer-profiles/1", "profiles": [_facts(profile) for profile in profiles]}


def _facts(profile: LayerProfile) -> dict[str, object]:
    times: dict[str, float | None] = {time: profile.seconds(time) for time in TIMES}
    amounts: dict[str, int | None] = {amount: profile.amount(amount) for amount in AMOUNTS}
    return {
        "format": profile.form,
        "units": profile.units,
        "model": profile.model,
        "device": profile.device,
        "tensor": profile.tensor,
        "microbatch": profile.microbatch,
        "seq": profile.seq,
        "totals": {"layers": len(profile.layers), **times, **amounts},
        "beside": dict(profile.beside),
        "layers": [asdict(layer) for layer in profile.layers],
        "edges": None if profile.edges is None else [list(edge) for edge in profile.edges],
        "is_chain": profile.is_chain,
        "warnings": list(profile.warnings),
    }


def _text(profile: LayerProfile, screen: Screen) -> str:
    summary = Summary()
    summary.add("Format", profile.form)
    summary.add("Measured", _how(profile))
    summary.add("Units", f"{profile.units}; shown in seconds and bytes")
    summary.add("Layers", _layers(profile))
    summary.extend("Sums", _sums(profile))
    summary.extend("Beside", (f"{what}: {duration(seconds)}" for what, seconds in profile.beside))
    summary.extend("Warning", profile.warnings)
    return render(screen, ruled_table(_COLUMNS, [_cells(layer) for layer in profile.layers]), summary.table)


def _how(profile: LayerProfile) -> str:
    """Return how the layers were measured, and what of that the file leaves open."""
    told = (
        ("model", profile.model),
        ("device", profile.device),
        ("tensor width", profile.tensor),
        ("microbatch", profile.microbatch),
        ("sequence", profile.seq),
    )
    known = ", ".join(f"{what} {value}" for what, value in told if value is not None)
    open_ = ", ".join(what for what, value in told if value is None)
    return "; ".join(part for part in (known, f"not said: {open_}" if open_ else "") if part)


def _layers(profile: LayerProfile) -> str:
    text = counted(len(profile.layers), "layer")
    return text if profile.edges is None else f"{text}, {counted(len(profile.edges), 'edge')}"


def _sums(profile: LayerProfile) -> list[str]:
    times = [(time, profile.seconds(time)) for time in TIMES]
    amounts = [(amount, profile.amount(amount)) for amount in AMOUNTS]
    names = {"step_s": "forward and backward together"}
    sums = [
        f"{names.get(time, time.removesuffix('_s'))} {duration(value)}" for time, value in times if value is not None
    ]
    return sums + [f"{amount.replace('_', ' ')} {value:,}" for amount, value in amounts if value is not None]


def _cells(layer: ProfiledLayer) -> tuple[str, ...]:
    times = (layer.forward_s, layer.backward_s, layer.step_s)
    return (
        _cut(layer.name),
        _cut(layer.kind),
        *("" if value is None else duration(value) for value in times),
        _weights(layer),
        *("" if value is None else size(value) for value in _sizes(layer)),
    )


def _sizes(layer: ProfiledLayer) -> tuple[int | None, ...]:
    return layer.activation_bytes, layer.memory_bytes, layer.output_bytes


def _weights(layer: ProfiledLayer) -> str:
    if layer.parameter_bytes is not None:
        return size(layer.parameter_bytes)
    return "" if layer.parameters is None else f"{layer.parameters:,} parameters"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
