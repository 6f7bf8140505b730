"""Clusters and devices by name: ``dgx-h100:512``, ``tpu-v4:4x4x8``, ``a100-80gb``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nest.cluster import Cluster
from nest.errors import InvalidProblem
from nest.hardware.device import Device
from nest.hardware.devices import ALIASES, DEVICES
from nest.hardware.links import linked
from nest.hardware.mixed import Part, mixed
from nest.hardware.setup import Hardware, LevelFacts, stack
from nest.hardware.systems import PODS, SYSTEM_ALIASES, SYSTEMS, Pod, System
from nest.hardware.torus import parse_shape

MOST_DEVICES = 2**20


def device_named(name: str) -> Device:
    """Return a device of the catalogue.

    Raises
    ------
    InvalidProblem
        If there is none, with the one that was probably meant.
    """
    known = {device.name: device for device in DEVICES}
    wanted = _plain(name)
    found = known.get(ALIASES.get(wanted, wanted))
    if found is None:
        raise InvalidProblem("device", f"{name!r} is no known device", _hint(wanted, [*known, *ALIASES], known))
    return found


def devices_of_kind(kind: str) -> tuple[Device, ...]:
    """Return the devices of the catalogue whose name is this, or begins with it and says more, as in a100-80gb."""
    wanted = _plain(kind)
    return tuple(device for device in DEVICES if device.name == wanted or device.name.startswith(f"{wanted}-"))


def cluster_named(text: str) -> Hardware:
    """Return a cluster of the catalogue, as large as asked for.

    Parameters
    ----------
    text
        Name of a system and a number of devices, ``dgx-h100:512``; of a pod also a shape, ``tpu-v4:4x4x8``. Several
        switched systems with a + between them share one network, ``dgx-a100:512+dgx-h100:256``: see
        `nest.hardware.mixed`.

    Raises
    ------
    InvalidProblem
        If there is no such system, or not that many devices.
    """
    if "+" in text:
        return mixed([_part(each) for each in text.split("+")])
    name, separator, size = text.partition(":")
    system = _system(name)
    if not separator or not size.strip():
        example = f"{system.name}:64"
        raise InvalidProblem("cluster", f"{text!r} does not say how many devices", f"give {example!r}, for 64 of them")
    return _pod(system, size) if isinstance(system, Pod) else _switched(system, _count(size))


def _part(text: str) -> Part:
    name, separator, size = text.partition(":")
    system = _system(name)
    if isinstance(system, Pod):
        raise InvalidProblem("cluster", f"{system.name} beside other systems", "join systems with switches only")
    if not separator:
        raise InvalidProblem("cluster", f"{text!r} does not say how many devices", f"give '{system.name}:64'")
    return Part(system, device_named(system.device), _count(size))


def system_named(name: str) -> System:
    """Return a switched system of the catalogue, of which other descriptions can take bandwidths and latencies.

    Raises
    ------
    InvalidProblem
        If there is none, or it is a pod.
    """
    system = _system(name)
    if isinstance(system, Pod):
        raise InvalidProblem("like", f"{system.name} is a torus", "name a system with switches, or give the shape")
    return system


def catalogue() -> Iterator[tuple[str, str]]:
    """Yield name and description of every system."""
    for system in (*SYSTEMS, *PODS):
        yield system.name, system.what


def _system(name: str) -> System | Pod:
    known: dict[str, System | Pod] = {system.name: system for system in (*SYSTEMS, *PODS)}
    wanted = _plain(name)
    found = known.get(SYSTEM_ALIASES.get(wanted, wanted))
    if found is None:
        hint = _hint(wanted, [*known, *SYSTEM_ALIASES], known)
        raise InvalidProblem("cluster", f"{name!r} is no known cluster", f"{hint} (or describe it in a file)")
    return found


def _switched(system: System, devices: int) -> Hardware:
    device = device_named(system.device)
    levels, facts, partial = stack(system.tiers, devices)
    cluster = Cluster(devices, device.hbm_bytes, levels, f"{system.name}:{devices}", partial)
    return Hardware(device, linked(cluster, device, facts), facts, notes=(system.what,), software=system.software)


def _pod(pod: Pod, size: str) -> Hardware:
    shape = parse_shape(size, "cluster") if "x" in size.lower() else _slice(pod, _count(size))
    device = device_named(pod.device)
    torus = pod.torus(shape, device.link_bytes_per_s)
    levels = torus.levels()
    facts = tuple(
        LevelFacts(device.link_bytes_per_s / level.bandwidth_bytes_per_s, device.link_bytes_per_s) for level in levels
    )
    name = f"{pod.name}:{'x'.join(map(str, shape))}"
    order = tuple(",".join(map(str, row)) for row in torus.order().tolist())
    cluster = Cluster(torus.devices, device.hbm_bytes, levels, name)
    return Hardware(device, linked(cluster, device, facts), facts, order, (pod.what,))


def _slice(pod: Pod, devices: int) -> tuple[int, ...]:
    """Return the shape nearest to a cube (a square) with so many devices; large ones are made of whole units."""
    if devices > pod.most:
        raise InvalidProblem("cluster", f"{devices} devices", f"a whole {pod.name} pod has {pod.most}")
    unit = pod.unit if devices >= pod.rings_from else 1
    shapes = [shape for shape in _shapes(devices, pod.axes, 1) if all(extent % unit == 0 for extent in shape)]
    if not shapes:
        example = "x".join(["8"] * pod.axes)
        raise InvalidProblem(
            "cluster", f"no {pod.name} slice has {devices} devices", f"give a shape such as {pod.name}:{example}"
        )
    return min(shapes, key=lambda shape: (shape[-1] - shape[0], shape))


def _shapes(devices: int, axes: int, least: int) -> Iterator[tuple[int, ...]]:
    """Yield the ascending extents whose product is the number of devices."""
    if axes == 1:
        yield (devices,)
        return
    extent = least
    while extent**axes <= devices:
        if devices % extent == 0:
            for rest in _shapes(devices // extent, axes - 1, extent):
                yield (extent, *rest)
        extent += 1


def _count(text: str) -> int:
    digits = text.strip().replace("_", "").replace(",", "")
    if not (digits.isascii() and digits.isdigit() and 1 <= int(digits[:12]) <= MOST_DEVICES):
        raise InvalidProblem(
            "cluster", f"{text!r} is no number of devices", f"give a whole number up to {MOST_DEVICES}"
        )
    return int(digits)


def _plain(name: str) -> str:
    """Return a name as the catalogue spells names."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def _hint(wanted: str, names: Iterable[str], listed: Iterable[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  (only errors need it)

    close = get_close_matches(wanted, list(names), 1)
    return f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(listed)}"
