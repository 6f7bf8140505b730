"""``KEY=VALUE`` settings: what each does to the choices, and what is said about wrong ones."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nest.cluster import Cluster, Level
from nest.constraints import MaxStages, ReservedDevices
from nest.errors import InvalidProblem
from nest.files import apply_settings
from nest.graph import Edge, Layer, LayerGraph
from nest.problem import Choices, Problem, Training, Variant

ALLOWED = 'give whole numbers from 1, as in 4, 1,2 or 8..16 (both ends included), or "any"'
ZERO = 'give "none", "any", or ZeRO types among 0, 1, 2, 3, as in 3 or 0,3'


def problem() -> Problem:
    """Return a chain of three layers, with costs for several variants."""
    layers = [Layer(at, 1.0, 2.0, 3, 4) for at in range(3)]
    graph = LayerGraph.sort(layers, [Edge(a.id, b.id, 5) for a, b in pairwise(layers)])
    variants = [Variant(1), Variant(2, sequence=True), Variant(1, 2, 4, microbatch=2)]
    cluster = Cluster(8, 100, (Level(8, 1.0, 0.0),))
    return Problem("chain", dict.fromkeys(variants, graph), cluster, Training(16), Choices(zero=frozenset({1})))


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("zero=none", "zero", {0}),
        ("zero=any", "zero", {0, 1, 2, 3}),
        ("zero=3", "zero", {3}),
        ("zero=0,3", "zero", {0, 3}),
        ("zero=1..3", "zero", {1, 2, 3}),
        ("zero_degree=2,4", "zero_degree", {2, 4}),
        ("zero_degree=any", "zero_degree", None),
        ("tensor=2", "tensor", {2}),
        ("tensor=1,2", "tensor", {1, 2}),
        ("expert=2", "expert", {2}),
        ("context=4", "context", {4}),
        ("microbatch=2", "microbatch", {2}),
        ("replicas=8", "replicas", {8}),
        ("stages=8..16", "stages", set(range(8, 17))),
        ("stages=1,4..6", "stages", {1, 4, 5, 6}),
        (" stages = 1, 2 ", "stages", {1, 2}),
        ("sequence=true", "sequence", True),
        ("sequence=false", "sequence", False),
        ("sequence=any", "sequence", None),
        ("recompute=full", "recompute", "full"),
        ("recompute=none", "recompute", "none"),
    ],
)
def test_setting(setting: str, name: str, value: object) -> None:
    """One setting changes one choice, and nothing else."""
    before = problem()
    after = apply_settings(before, [setting])
    assert getattr(after.choices, name) == value
    assert after == before.with_choices(**{name: getattr(after.choices, name)})


def test_no_setting() -> None:
    """Nothing set, nothing changed."""
    assert apply_settings(problem(), []) == problem()


def test_later_setting_counts() -> None:
    """Of two settings of one key the later counts; settings of different keys add up."""
    choices = apply_settings(problem(), ["zero=none", "stages=2", "zero=2"]).choices
    assert (choices.zero, choices.stages) == (frozenset({2}), frozenset({2}))


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        (["zero"], "--set zero: no KEY=VALUE; write it as in zero=none or tensor=1,2"),
        ([""], "--set: no KEY=VALUE; write it as in zero=none or tensor=1,2"),
        (["zreo=1"], '--set zreo=1: "zreo" is no choice; did you mean "zero"?'),
        (
            ["preset=paper"],
            '--set preset=paper: "preset" is no choice; the choices are tensor, expert, context, microbatch, sequence, '
            "replicas, stages, zero, zero_degree, recomputed, chunks, hybrid, stage_tensor, shard_inside, "
            "splits_batch, stage_recompute, schedules, price_at_most, recompute, down",
        ),
        (["zero=4"], f"--set zero=4: 4 is out of range; {ZERO}"),
        (["zero=all"], f'--set zero=all: "all" is no whole number and no range; {ZERO}'),
        (["tensor="], f'--set tensor=: "" is no whole number and no range; {ALLOWED}'),
        (["tensor=0"], f"--set tensor=0: 0 is out of range; {ALLOWED}"),
        (["tensor=-1"], f'--set tensor=-1: "-1" is no whole number and no range; {ALLOWED}'),
        (["tensor=2.0"], f'--set tensor=2.0: "2.0" is no whole number and no range; {ALLOWED}'),
        (["tensor=1,,2"], f'--set tensor=1,,2: "" is no whole number and no range; {ALLOWED}'),
        (["tensor=none"], f'--set tensor=none: "none" is no whole number and no range; {ALLOWED}'),
        (["stages=16..8"], f"--set stages=16..8: 16..8 is an empty range; {ALLOWED}"),
        (["stages=1..9999999"], f"--set stages=1..9999999: 1..9999999 holds more than 65536 values; {ALLOWED}"),
        (["replicas=9999999999"], f"--set replicas=9999999999: 9999999999 is out of range; {ALLOWED}"),
        (["replicas=٣"], f'--set replicas=٣: "٣" is no whole number and no range; {ALLOWED}'),
        (["sequence=yes"], '--set sequence=yes: "yes" is none of its values; give true, false or any'),
        (["recompute=some"], '--set recompute=some: "some" is none of its values; give none or full'),
        (
            ["zero=none", "tensor=4"],
            "--set zero=none tensor=4: no variant of the model is allowed; the model has "
            "(tensor=1 expert=1 context=1 sequence=false microbatch=1), "
            "(tensor=1 expert=2 context=4 sequence=false microbatch=2), "
            "(tensor=2 expert=1 context=1 sequence=true microbatch=1)",
        ),
    ],
)
def test_bad_setting(settings: list[str], want: str) -> None:
    """The error names the setting, what is wrong with its value, and what would be right."""
    with pytest.raises(InvalidProblem) as caught:
        apply_settings(problem(), settings)
    assert str(caught.value) == want


def test_devices_that_are_down() -> None:
    """They are reserved in the place of those that were, and `none` forgets them; other constraints stay."""
    asked = problem().with_constraints(ReservedDevices([0]), MaxStages(3))
    down = apply_settings(asked, ["down=1..2,5"])
    assert down.constraints == (MaxStages(3), ReservedDevices([1, 2, 5]))
    assert apply_settings(down, ["down=none", "zero=none"]).constraints == (MaxStages(3),)


@pytest.mark.parametrize(
    ("setting", "want"),
    [
        ("down=x", '--set down=x: "x" is no whole number and no range; give devices from 0 on, as in 7 or 8..15,40'),
        ("down=9999", "--set down=9999: there is no device 9999; the devices of the cluster are 0 to 7"),
    ],
)
def test_no_devices(setting: str, want: str) -> None:
    """What is no device, or none of the cluster, is refused."""
    with pytest.raises(InvalidProblem) as caught:
        apply_settings(problem(), [setting])
    assert str(caught.value).startswith(want), caught.value
