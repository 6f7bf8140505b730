"""Published ratings of devices, beside our catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nest.hardware import device_named
from nest.hardware.systems import PODS
from nest.validation.fact import Fact, left_out
from nest.validation.figures import read_figures

GB, GIB = 1e9, 2**30


def tpu_ratings() -> tuple[Fact, ...]:
    """Return what Google says of TPUs."""
    return tuple(fact for row in read_figures("tpu")[1] for fact in _facts(row))


def _facts(row: Mapping[str, str]) -> Iterator[Fact]:
    if not row["ours"]:
        yield left_out(f"{row['what']}, bf16", "not in our catalogue", float(row["tflops"]) * 1e12, "FLOP/s")
        return
    device = device_named(row["ours"])
    pod = next(each for each in PODS if each.device == row["ours"])
    link = device.link_bytes_per_s
    rates = (
        ("memory bandwidth", "B/s", float(row["hbm_gb_per_s"]) * GB, device.hbm_bytes_per_s),
        ("bf16", "FLOP/s", float(row["tflops"]) * 1e12, device.peak("bf16")),
        ("link, one direction", "B/s", float(row["link_gb_per_s"]) * GB, link),
        ("chips of a pod", "1", float(row["pod"]), float(pod.most)),
    )
    memory = device.nominal_bytes or device.hbm_bytes
    yield Fact(f"{row['what']}, memory", "", "memory", "B", float(row["hbm_gb"]) * GIB, float(memory))
    for name, unit, published, ours in rates:
        yield Fact(f"{row['what']}, {name}", "", "rate", unit, published, ours)
