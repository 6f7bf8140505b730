"""Devices, named clusters, tori in closed form, and clusters in files."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.cluster import Cluster
from nest.errors import InvalidProblem
from nest.files.cluster_file import read_cluster, read_network
from nest.hardware import (
    BANDWIDTHS,
    DEVICES,
    LATENCIES,
    PODS,
    SYSTEMS,
    Device,
    Peaks,
    Tier,
    Torus,
    catalogue,
    cluster_named,
    converted,
    device_named,
    parse_shape,
    stack,
    system_named,
)
from nest.hardware.devices import ALIASES
from nest.hardware.systems import SYSTEM_ALIASES
from nest.networks import grid, pairwise

TEN_LINES = """\
schema = "nest.cluster/1"
device = "h100-sxm"
devices = 512
levels = [
    { name = "node", fanout = 8, bandwidth_gb_per_s = 450, latency_us = 3.4 },
    { name = "leaf", fanout = 32, bandwidth_gbit_per_s = 400, latency_us = 14 },
    { name = "spine", fanout = 2, bandwidth_gbit_per_s = 400, latency_us = 15, oversubscription = 2 },
]
"""


PAGE = Path(__file__).resolve().parents[1] / "docs" / "clusters.md"


def refusal(text: str) -> str:
    """Return the message with which a name is refused."""
    with pytest.raises(InvalidProblem) as caught:
        cluster_named(text)
    return str(caught.value)


def test_catalogue_is_sound() -> None:
    """Every device has a source, and no more memory than is built in; every alias leads somewhere."""
    assert len({device.name for device in DEVICES}) == len(DEVICES)
    for device in DEVICES:
        assert device.source
        assert 0.9 * device.nominal_bytes < device.hbm_bytes <= device.nominal_bytes
    assert {device_named(name).name for name in ALIASES} <= {device.name for device in DEVICES}
    for name in SYSTEM_ALIASES:
        assert cluster_named(f"{name}:8").cluster.devices == 8


@pytest.mark.parametrize(
    ("name", "dtype", "rate"),
    [
        ("v100", "fp16", 125e12),
        ("a100", "bf16", 312e12),
        ("h100", "fp8", 1978.9e12),
        ("h100-pcie", "bf16", 756e12),
        ("b200", "bf16", 2.25e15),
        ("gb200", "tf32", 1.25e15),
        ("mi300x", "fp8", 2614.9e12),
        ("l4", "bf16", 121e12),
        ("TPU_v5p", "bf16", 459e12),
    ],
)
def test_peaks_are_dense(name: str, dtype: str, rate: float) -> None:
    """Rates are those without sparsity: half of what newer data sheets print."""
    assert device_named(name).peak(dtype) == rate


@pytest.mark.parametrize(("name", "dtype"), [("v100", "bf16"), ("a100", "fp8"), ("tpu-v4", "fp8"), ("h100", "int3")])
def test_missing_rate(name: str, dtype: str) -> None:
    """A device that has no unit for a data type says so instead of giving 0."""
    with pytest.raises(InvalidProblem, match=f"no rate for '{dtype}'"):
        device_named(name).peak(dtype)


@pytest.mark.parametrize(
    ("name", "bytes_per_s"),
    [("v100", 150e9), ("a100", 300e9), ("h100", 450e9), ("h800", 200e9), ("b200", 900e9), ("mi300x", 448e9)],
)
def test_links_count_one_direction(name: str, bytes_per_s: float) -> None:
    """NVLink totals of data sheets count both directions; half of them is what a device can send."""
    assert device_named(name).links_bytes_per_s == bytes_per_s


def test_dgx_h100() -> None:
    """512 devices: 450 GB/s in the node of 8, one 400 Gb/s card a device above, units of 256."""
    hardware = cluster_named("dgx-h100:512")
    assert hardware.device.name == "h100-sxm"
    assert [level.fanout for level in hardware.cluster.levels] == [8, 32, 2]
    assert [level.bandwidth_bytes_per_s for level in hardware.cluster.levels] == [450e9, 50e9, 50e9]
    assert hardware.cluster.hbm_bytes == hardware.device.hbm_bytes
    assert hardware.facts[0].in_network_reduction


@pytest.mark.parametrize(
    ("name", "fanouts", "partial"),
    [
        ("dgx-h100:20", [8, 3], True),
        ("dgx-h100:5", [5], False),
        ("dgx-h100:3_000", [8, 32, 8, 2], True),
        ("gb200-nvl72:288", [72, 4], False),
        ("gb200:72", [72], False),
        ("dgx-1v:16", [4, 2, 2], False),
        ("selene:4480", [8, 20, 7, 4], False),
        ("aws-p4d:1", [1], False),
    ],
)
def test_sizes(name: str, fanouts: list[int], partial: bool) -> None:
    """Levels that are not needed are left out, and the last groups may be incomplete."""
    cluster = cluster_named(name).cluster
    assert ([level.fanout for level in cluster.levels], cluster.partial) == (fanouts, partial)


@pytest.mark.parametrize(
    ("name", "bytes_per_s"),
    [("aws-p4d:64", 6.25e9), ("aws-p5:64", 50e9), ("gcp-a3-high:64", 12.5e9), ("azure-ndv4:64", 25e9)],
)
def test_cloud_network_is_per_device(name: str, bytes_per_s: float) -> None:
    """Clouds state Gb/s of a whole node of 8; a level has bytes/s of one device."""
    assert cluster_named(name).cluster.levels[-1].bandwidth_bytes_per_s == bytes_per_s


@pytest.mark.parametrize("system", [system.name for system in (*SYSTEMS, *PODS)])
@pytest.mark.parametrize("devices", [1, 2, 4, 64, 256])
def test_every_system_at_every_size(system: str, devices: int) -> None:
    """Every entry of the catalogue makes a cluster, with as many facts as levels."""
    hardware = cluster_named(f"{system}:{devices}")
    assert hardware.cluster.devices == devices
    assert len(hardware.facts) == len(hardware.cluster.levels)
    assert dict(catalogue())[system]


def test_pods() -> None:
    """A shape counts as it is, a number becomes the most cube-like one; rings only where cubes are whole."""
    assert cluster_named("tpu-v4:4x4x8").cluster == cluster_named("tpu-v4:128").cluster
    assert [level.name for level in cluster_named("tpu-v5p:6144").cluster.levels][-1] == "16x16x24"
    slice_, whole = (cluster_named(name).cluster.levels[-1] for name in ("tpu-v5e:64", "tpu-v5e:256"))
    assert slice_.latency_s == pytest.approx(14e-6)  # a mesh of 8 x 8
    assert whole.latency_s == pytest.approx(16e-6)  # a torus of 16 x 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dgx-h10:5", "did you mean 'dgx-h100'?"),
        ("whatever:5", "choose one of dgx-1v"),
        ("dgx-h100", "give 'dgx-h100:64'"),
        ("dgx-h100:many", "no number of devices"),
        ("dgx-h100:0", "no number of devices"),
        ("dgx-h100:-8", "no number of devices"),
        ("tpu-v4:9000", "a whole tpu-v4 pod has 4096"),
        ("tpu-v4:4x4", "a tpu-v4 has 3"),
        ("tpu-v4:67", "give a shape"),
        ("tpu-v4:4xx4", "is no shape"),
    ],
)
def test_refused_names(text: str, message: str) -> None:
    """What cannot be meant is refused with what would be right."""
    assert message in refusal(text)


def test_unknown_device() -> None:
    """A misspelt device is named."""
    with pytest.raises(InvalidProblem, match=r"did you mean 'a100-80gb'\?"):
        device_named("a100-80bg")
    with pytest.raises(InvalidProblem, match="torus"):
        system_named("tpu-v4")


def test_device_is_checked() -> None:
    """A device without a rate or with a negative figure cannot be built."""
    with pytest.raises(InvalidProblem, match="no peak rate"):
        Device("x", Peaks(), 1, 1.0)
    with pytest.raises(InvalidProblem, match="hbm_bytes"):
        Device("x", Peaks(bf16=1.0), 0, 1.0)


def test_stack_needs_nesting_groups() -> None:
    """Groups of 12 cannot be made of groups of 8."""
    tiers = [Tier("a", 8, 1.0, 0.0), Tier("b", 12, 1.0, 0.0)]
    with pytest.raises(InvalidProblem, match="let each size divide the next"):
        stack(tiers, 24)
    with pytest.raises(InvalidProblem, match="give at most 8"):
        stack(tiers[:1], 9)


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=3).filter(lambda shape: prod(shape) <= 64)


@settings(deadline=None)
@given(shapes, st.booleans())
def test_torus_in_closed_form(shape: list[int], wrap: bool) -> None:
    """Hops, order and pairs of a torus are those of its links: worst hop of each box, every device once."""
    torus = Torus(tuple(shape), (wrap,) * len(shape), 100.0, 1.0)
    exact = pairwise(grid(torus))
    names = [",".join(map(str, row)) for row in torus.order().tolist()]
    assert sorted(names) == sorted(exact.names)
    at = [exact.names.index(name) for name in names]
    hops = exact.latency_s[np.ix_(at, at)]
    for box in torus.boxes():
        size = prod(box)
        blocks = [hops[start : start + size, start : start + size] for start in range(0, torus.devices, size)]
        assert max(block.max() for block in blocks) == torus.hops(box) or torus.devices == 1
        counted = np.bincount(np.concatenate([block.ravel() for block in blocks]).astype(int))
        assert np.trim_zeros(torus.hop_counts(box), "b").tolist() == np.trim_zeros(counted, "b").tolist()


@settings(deadline=None)
@given(shapes, st.booleans())
def test_torus_shares_what_leaves_a_box(shape: list[int], wrap: bool) -> None:
    """No level gives more than the links from the worst box into the rest of the larger one, counted one by one."""
    torus = Torus(tuple(shape), (wrap,) * len(shape), 100.0, 1.0)
    order = [tuple(row) for row in torus.order().tolist()]
    cables = [
        tuple(tuple(map(int, end.split(","))) for end in (each.source, each.target)) for each in grid(torus).links
    ]
    inner, size = (1,) * len(shape), 1
    for box, level in zip(torus.boxes(), torus.levels(), strict=True):
        whole = prod(box)
        if whole > size:
            fewest = min(
                sum((one in part) != (other in part) and {one, other} <= outer for one, other in cables)
                for start in range(0, torus.devices, whole)
                for outer in [set(order[start : start + whole])]
                for at in range(start, start + whole, size)
                for part in [set(order[at : at + size])]
            )
            assert level.bandwidth_bytes_per_s <= 100.0 * min(1.0, fewest / size) * (1 + 1e-9)
        inner, size = box, whole
    assert inner == tuple(shape)


@pytest.mark.parametrize("text", ["", "4x", "0x4", "4x-1", "4 4", "1x1x1x1x1x1x1"])
def test_no_shape(text: str) -> None:
    """What is no shape is refused."""
    with pytest.raises(InvalidProblem, match="is no shape"):
        parse_shape(text)


def test_units() -> None:
    """A unit is converted once, to the nearest number: 400 Gb/s is 50e9 bytes/s, 3.4 us is 3.4e-6 s."""
    assert converted(400, BANDWIDTHS["bandwidth_gbit_per_s"]) == 50e9
    assert converted(1, BANDWIDTHS["bandwidth_gib_per_s"]) == 2**30
    assert converted(3.4, LATENCIES["latency_us"]) == 3.4e-6
    assert converted(0.005, LATENCIES["latency_ms"]) == 5e-6


def written(folder: Path, text: str) -> Path:
    """Write a cluster file."""
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_ten_lines(tmp_path: Path) -> None:
    """Ten lines of TOML make a cluster; oversubscription halves what a device has."""
    hardware = read_cluster(written(tmp_path, TEN_LINES))
    assert hardware.cluster.name == "mine"
    assert [(level.fanout, level.bandwidth_bytes_per_s, level.latency_s) for level in hardware.cluster.levels] == [
        (8, 450e9, 3.4e-6),
        (32, 50e9, 14e-6),
        (2, 25e9, 15e-6),
    ]
    assert (hardware.facts[2].oversubscription, hardware.facts[2].pair_bytes_per_s) == (2, 50e9)


def test_links_by_name_or_as_said(tmp_path: Path) -> None:
    """Levels have the links that their names tell, unless the file says others."""
    plain = read_cluster(written(tmp_path, TEN_LINES)).cluster
    assert [level.link for level in plain.levels] == ["nvlink", "rdma", "rdma"]
    assert plain.library == "nccl"
    said = TEN_LINES.replace("latency_us = 3.4", "latency_us = 3.4, link = 'xgmi', pair_gb_per_s = 64")
    cluster = read_cluster(written(tmp_path, said.replace("devices = 512", "devices = 512\nlibrary = 'any'"))).cluster
    assert (cluster.levels[0].link, cluster.levels[0].pair_bytes_per_s) == ("xgmi", 64e9)
    assert [level.link for level in cluster.levels[1:]] == ["rdma", "rdma"]
    assert cluster.library == "any"


def test_name_or_file() -> None:
    """A name with a number is no file."""
    assert read_cluster("dgx-h100:16").cluster.devices == 16


def test_own_device_and_torus(tmp_path: Path) -> None:
    """A device with figures of one's own, on a torus."""
    text = (
        'schema = "nest.cluster/1"\ntorus = { shape = "4x4x8", bandwidth_gb_per_s = 45, latency_us = 1 }\n'
        '[device]\nname = "chip"\nhbm_gib = 32\nhbm_gb_per_s = 1200\nbf16_tflops = 275\n'
    )
    hardware = read_cluster(written(tmp_path, text))
    assert hardware.device == Device("chip", Peaks(bf16=275e12), 32 * 2**30, 1.2e12, "given")
    assert hardware.cluster.levels == cluster_named("tpu-v4:4x4x8").cluster.levels
    assert len(hardware.order) == 128


def test_network_beside_the_file(tmp_path: Path) -> None:
    """A file of the scheduler gives the tree, and a system gives bandwidths."""
    (tmp_path / "topology.conf").write_text(
        "SwitchName=s0 Nodes=n[0-3]\nSwitchName=s1 Nodes=n[4-7]\nSwitchName=r Switches=s[0-1]\n"
    )
    text = (
        'schema = "nest.cluster/1"\ndevice = "h100"\nnetwork = "topology.conf"\ngpus_per_node = 8\nlike = "dgx-h100"\n'
    )
    hardware = read_cluster(written(tmp_path, text))
    assert [level.fanout for level in hardware.cluster.levels] == [8, 4, 2]
    assert hardware.order[:2] == ("n0/0", "n0/1")
    assert hardware.facts[0].in_network_reduction
    again = read_network(tmp_path / "topology.conf", like="dgx-h100", gpus_per_node=8)
    assert again.cluster.levels == hardware.cluster.levels
    assert isinstance(again.cluster, Cluster)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bandwidth_gb_per_s = 450", "bandwidth_gb_per_s = 450, bandwidth_gbit_per_s = 1", "levels[0]: both"),
        ("bandwidth_gb_per_s = 450, ", "", "levels[0]: no bandwidth; give one of bandwidth_bytes_per_s"),
        ("latency_us = 14 ", "latency = 14 ", 'levels[1].latency: unknown key; did you mean "latency_s"?'),
        ("latency_us = 3.4", "latency_us = 3.4, latency_ns = 3400", "levels[0]: both latency_us and latency_ns"),
        ('"h100-sxm"', '"h100sxm"', "did you mean 'h100-sxm'?"),
        ("devices = 512", "devices = 500", "give partial = true"),
        ("devices = 512", "", "devices: missing"),
        ("oversubscription = 2", "oversubscription = 0.5", "a factor from 1"),
        ("nest.cluster/1", "nest.cluster/2", '"nest.cluster/1"'),
        ("levels = [", "torus = { shape = '4x4' }\nlevels = [", "both levels and torus"),
        ("bandwidth_gb_per_s = 450", "bandwidth_gb_per_s = 0", "a number above 0"),
        ("latency_us = 14 ", "latency_us = 14, link = 'ib' ", "levels[1].link: 'ib' is no kind of link we know"),
        ("devices = 512", "devices = 512\nlibrary = 'mpi'", "library: 'mpi' is no library we know"),
    ],
)
def test_wrong_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    """What is wrong in a cluster file is named with its key, and the file."""
    assert old in TEN_LINES
    path = written(tmp_path, TEN_LINES.replace(old, new, 1))
    with pytest.raises(InvalidProblem) as caught:
        read_cluster(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (
            "hbm_gib = 32\nhbm_gb_per_s = 1200\nbf16_tflop = 275",
            'device.bf16_tflop: unknown key; did you mean "bf16_tflops"',
        ),
        ("hbm_gib = 32\nbf16_tflops = 275", "device.hbm_gb_per_s: missing"),
        ("hbm_gib = 32\nhbm_gb = 32\nhbm_gb_per_s = 1\nbf16_tflops = 275", "device: both hbm_gb and hbm_gib"),
        ("hbm_gib = 32\nhbm_gb_per_s = 1200", "no peak rate"),
    ],
)
def test_wrong_devices(tmp_path: Path, device: str, message: str) -> None:
    """A device with figures of one's own is checked key by key."""
    torus = 'torus = { shape = "4x4", bandwidth_gb_per_s = 1, latency_us = 1 }'
    text = f'schema = "nest.cluster/1"\n{torus}\n[device]\n{device}\n'
    with pytest.raises(InvalidProblem) as caught:
        read_cluster(written(tmp_path, text))
    assert message in str(caught.value)


def test_wrap_of_each_axis(tmp_path: Path) -> None:
    """One wrap an axis, or one for all."""
    text = (
        TEN_LINES.partition("devices")[0]
        + 'torus = { shape = "4x4", wrap = [true], bandwidth_gb_per_s = 1, latency_us = 1 }'
    )
    with pytest.raises(InvalidProblem, match="1 wraps for 4x4; say for each axis"):
        read_cluster(written(tmp_path, text))


def test_no_network(tmp_path: Path) -> None:
    """A file without levels says which keys are wanted."""
    with pytest.raises(InvalidProblem, match="give one of levels, torus and network"):
        read_cluster(written(tmp_path, 'schema = "nest.cluster/1"\ndevice = "h100"\n'))


def test_page_lists_everything() -> None:
    """The documentation has a row for every device and system, with its figures, and the file that it shows is read."""
    text = PAGE.read_text()
    for device in DEVICES:
        row = next(
            line for line in text.splitlines() if line.startswith(f"| `{device.name}` | ") and device.source in line
        )
        assert f"| {device.hbm_bytes / 2**30:.2f} |" in row
        assert f"| {device.hbm_bytes_per_s / 1e9:,.0f} |" in row
        for rate in (device.peaks.bf16, device.peaks.fp16, device.peaks.fp8):
            assert rate is None or f"| {rate / 1e12:,.4g} |" in row
    for system in (*SYSTEMS, *PODS):
        assert f"| `{system.name}` | `{system.device}` | " in text
    assert TEN_LINES in text


def test_a_name_without_a_number_says_what_is_missing() -> None:
    """What is neither a file nor a name with a number is told both."""
    with pytest.raises(InvalidProblem, match="a name and a number of devices"):
        read_cluster("dgx-h100")
