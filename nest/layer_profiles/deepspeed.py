"""What DeepSpeed's flops profiler prints: the model as a whole, in units that change from line to line."""

from __future__ import annotations

import re

from nest.errors import InvalidProblem
from nest.layer_profiles.profile import LayerProfile, ProfiledLayer
from nest.layer_profiles.values import number

UNITS = "K, M and G for parameters, us, ms and s for times, as each line says; of one batch"

_MARK = re.compile(r"^-+ DeepSpeed Flops Profiler -+$", re.MULTILINE)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MANY = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_MODEL = re.compile(r"^(?P<name>\w+)\($", re.MULTILINE)
_PARTED = re.compile(r"Linear\(\s*0(?:\.0+)? ?[kKMG]? ?[,=] ?0(?:\.0+)?% Params, (?!0 )[\d.]+ [KMGT]?MACs")

BY_ROUNDING = "parameters are printed rounded, with no bytes: the data type is not in the file"
INNER = "modules inside are printed with forward times alone, and cut short: only the model as a whole is read"


def is_deepspeed(text: str) -> bool:
    """Whether a text is what the flops profiler prints."""
    return _MARK.search(text) is not None


def read_deepspeed(text: str) -> LayerProfile:
    """Return the profile, the whole model as its one layer."""
    named = _MODEL.search(text)
    forward, backward, step = (_seconds(text, f"{what} latency") for what in ("fwd", "bwd", "step"))
    if forward is None:
        raise InvalidProblem("fwd latency", "missing", "give the whole summary that the profiler prints")
    batch, width = (_whole(text, what) for what in ("batch size per GPU", "model parallel size"))
    parameters = _scaled(text, "params per gpu", _MANY)
    return LayerProfile(
        "DeepSpeed flops profiler",
        UNITS,
        (
            ProfiledLayer(
                named["name"] if named else "model",
                forward_s=forward,
                backward_s=backward,
                parameters=None if parameters is None else round(parameters),
            ),
        ),
        tensor=width,
        microbatch=batch,
        beside=() if step is None else (("step latency (weights update)", step),),
        warnings=(BY_ROUNDING, INNER, *_sharded(text)),
    )


def _sharded(text: str) -> list[str]:
    """Return what to think of parameters that may be a rank's part."""
    if _PARTED.search(text):
        return ["linear layers report no parameters: a ZeRO-3 run, which counts only what the rank holds whole"]
    ranks = _whole(text, "data parallel size")
    if ranks is not None and ranks > 1:
        return [f"{ranks} data-parallel ranks: under ZeRO-3 the parameters are only those that the rank holds whole"]
    return []


def _whole(text: str, what: str) -> int | None:
    value = _scaled(text, what, {"": 1.0})
    return None if value is None else int(value)


def _seconds(text: str, what: str) -> float | None:
    return _scaled(text, what, _SECONDS)


def _scaled(text: str, what: str, units: dict[str, float]) -> float | None:
    """Return the number behind a label, None where the label is missing."""
    found = re.search(rf"^{re.escape(what)}:[ \t]+(?P<number>[\d.]+) *(?P<unit>\w*)", text, re.MULTILINE)
    if found is None:
        return None
    if found["unit"] not in units:
        raise InvalidProblem(what, f"unit {found['unit']!r}", f"known are {', '.join(filter(None, units))}")
    return number(found["number"], what) * units[found["unit"]]
