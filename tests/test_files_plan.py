"""Plans and results as files: nothing is lost, what is wrong is named, nothing half-written is left."""

from __future__ import annotations

import copy
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_problems import random_plan, random_problem

from nest.errors import InvalidPlan
from nest.files import plan_document, read_claimed_plan, read_plan, result_document, write_plan, write_result
from nest.plan import Plan, Sharding, Stage, inside_stage
from nest.problem import Variant
from nest.result import Result, Status
from nest.units import TimeScale

PLAN = Plan(
    variant=Variant(tensor=2, expert=1, context=3, sequence=True, microbatch=4),
    replicas=5,
    replica_stride=18,
    stages=(
        Stage((-1, "ünï\n", 0), 6, 12, "full", inside_stage(3, 2), 0.1 + 0.2, 1234567890123),
        Stage((1,), 0, 6, sharding=Sharding("replicas", 1, 5), load_s=0.0, memory_bytes=0.5),
    ),
)
RESULT = Result(Status.OPTIMAL, 123456789, 123456789, TimeScale(9), 1e-3, "dp", 0.25, plan=PLAN)

COUNT = "give a whole number from 1 to 2147483648"
SHARDING = "kind 'none' goes with zero 0 and degree 1, any other kind with zero 1 to 3 and a degree above 1"


def test_round_trip(tmp_path: Path) -> None:
    """A plan written and read is equal to the last bit."""
    write_plan(PLAN, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == PLAN


def test_round_trip_of_random_plans(tmp_path: Path) -> None:
    """The same for plans of random problems, which no judge has seen."""
    for seed in range(40):
        plan = random_plan(seed, random_problem(seed))
        write_plan(plan, tmp_path / "plan.json")
        assert read_plan(tmp_path / "plan.json") == plan, f"seed {seed}"


def test_document() -> None:
    """The keys of a plan, as documented."""
    assert plan_document(PLAN) == {
        "schema": "nest.plan/1",
        "microbatch": 4,
        "tensor": 2,
        "sequence": True,
        "expert": 1,
        "context": 3,
        "replicas": 5,
        "replica_stride": 18,
        "arrangement": "replica-major-reversed",
        "schedule": "1f1b",
        "stages": [
            {
                "layers": [-1, "ünï\n", 0],
                "first_device": 6,
                "devices": 12,
                "recompute": "full",
                "sharding": {"kind": "stage", "zero": 3, "degree": 2},
                "load_s": 0.1 + 0.2,
                "memory_bytes": 1234567890123,
            },
            {
                "layers": [1],
                "first_device": 0,
                "devices": 6,
                "recompute": "none",
                "sharding": {"kind": "replicas", "zero": 1, "degree": 5},
                "load_s": 0.0,
                "memory_bytes": 0.5,
            },
        ],
    }


def test_result_document() -> None:
    """The keys of a result, as documented; the objective is in the problem's unit."""
    assert result_document(RESULT) == {
        "schema": "nest.result/1",
        "status": "optimal",
        "objective": 123.456789,
        "objective_ticks": 123456789,
        "bound_ticks": 123456789,
        "tick_s": 1e-9,
        "backend": "dp",
        "choice": None,
        "wall_s": 0.25,
        "reason": None,
        "explanation": None,
        "certificate": None,
        "plan": plan_document(PLAN),
    }


def test_plan_of_a_result(tmp_path: Path) -> None:
    """Where a plan is expected, a whole result will do."""
    write_result(RESULT, tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text()) == result_document(RESULT)
    assert read_plan(tmp_path / "result.json") == PLAN
    assert read_claimed_plan(tmp_path / "result.json")[:2] == (PLAN, RESULT.objective)


@pytest.mark.parametrize("claim", [None, "much", [], float("nan"), float("inf"), 10**400], ids=str)
def test_plan_without_a_claim(claim: object, tmp_path: Path) -> None:
    """A plan alone claims no objective, nor does a result whose objective is no number to compare with."""
    write_plan(PLAN, tmp_path / "plan.json")
    assert read_claimed_plan(tmp_path / "plan.json")[:2] == (PLAN, None)
    (tmp_path / "result.json").write_text(json.dumps(result_document(RESULT) | {"objective": claim}))
    assert read_claimed_plan(tmp_path / "result.json")[:2] == (PLAN, None)


def test_result_without_plan(tmp_path: Path) -> None:
    """A result without a plan says so, and why."""
    path = tmp_path / "result.json"
    result = replace(RESULT, status=Status.INFEASIBLE, objective_ticks=None, bound_ticks=None, reason="no", plan=None)
    write_result(result, path)
    with pytest.raises(InvalidPlan) as caught:
        read_plan(path)
    want = f'{path}: plan: the result holds none (status "infeasible", reason "no"); give another'
    assert str(caught.value) == want


def test_figures_may_be_absent(tmp_path: Path) -> None:
    """The judge's figures may be null or left out."""
    tree = plan_document(PLAN)
    tree["stages"][0]["load_s"] = None
    del tree["stages"][0]["memory_bytes"]
    (tmp_path / "plan.json").write_text(json.dumps(tree))
    stage = read_plan(tmp_path / "plan.json").stages[0]
    assert (stage.load_s, stage.memory_bytes) == (None, None)


BAD: list[tuple[list[str | int], object, str]] = [
    (["tensor"], None, f"tensor: null; {COUNT}"),
    (["tensor"], 0, f"tensor: 0; {COUNT}"),
    (["sequence"], 1, "sequence: 1; give true or false"),
    (["replicas"], 2.0, f"replicas: 2.0; {COUNT}"),
    (["replicaz"], 2, "replicaz: unknown key; known keys are schema"),
    (["schema"], "nest.plan/2", 'schema: "nest.plan/2"; give "nest.plan/1", the version read here'),
    (["arrangement"], "x", 'arrangement: "x"; give "replica-major", "replica-major-reversed" or "stage-major"'),
    (["schedule"], "zigzag", 'schedule: "zigzag"; give one of 1f1b, gpipe, interleaved, zb-h1'),
    (["stages"], [], "stages: []; give a list of stages, at least one"),
    (["stages", 1, "layers"], 7, "stages[1].layers: 7; give a list of layer ids"),
    (["stages", 1, "layers", 0], True, "stages[1].layers[0]: true; give the id of a layer, a whole number or a string"),
    (["stages", 1, "first_device"], -1, "stages[1].first_device: -1; give a whole number from 0 to 2147483648"),
    (["stages", 1, "device"], 6, "stages[1].device: unknown key; known keys are layers"),
    (["stages", 1, "load_s"], float("nan"), "stages[1].load_s: NaN; give seconds, a number from 0 on, or null"),
    (["stages", 0, "sharding", "zero"], 4, "stages[0].sharding.zero: 4; give a ZeRO type, 0 to 3"),
    (
        ["stages", 0, "sharding", "degree"],
        1,
        f"stages[0].sharding: kind 'stage', zero 3, degree 1 do not go together; {SHARDING}",
    ),
]


@pytest.mark.parametrize("in_result", [False, True], ids=["plan", "result"])
@pytest.mark.parametrize(("keys", "value", "want"), BAD)
def test_bad_plan(keys: list[str | int], value: object, want: str, in_result: bool, tmp_path: Path) -> None:
    """One thing is wrong with a plan, alone or in a result: file, key, value and remedy are named."""
    tree: Any = copy.deepcopy(plan_document(PLAN))
    place = tree
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(result_document(RESULT) | {"plan": tree} if in_result else tree))
    with pytest.raises(InvalidPlan) as caught:
        read_plan(path)
    assert str(caught.value).startswith(f"{path}: {'plan.' if in_result else ''}{want}")


def test_missing_and_misspelt_keys(tmp_path: Path) -> None:
    """A missing key is named; where a misspelt one stands for it, that one comes first, with the right spelling."""
    path = tmp_path / "plan.json"
    for spelling, want in (
        (None, f"replicas: missing; {COUNT}"),
        ("replica", 'replica: unknown key; did you mean "replicas"?'),
    ):
        tree = {name: value for name, value in plan_document(PLAN).items() if name != "replicas"}
        path.write_text(json.dumps(tree | ({spelling: 5} if spelling else {})))
        with pytest.raises(InvalidPlan) as caught:
            read_plan(path)
        assert str(caught.value) == f"{path}: {want}"


def test_no_plan_at_all(tmp_path: Path) -> None:
    """A problem, or any other file, is no plan."""
    path = tmp_path / "plan.json"
    for text, want in (
        ("{}", 'schema: missing; give schema = "nest.plan/1", or give a whole result ("nest.result/1")'),
        (
            'schema = "nest.problem/1"',
            'schema: "nest.problem/1": a problem, not a plan; give a plan ("nest.plan/1"); '
            "nest solve, nest show and nest certify take this one",
        ),
    ):
        path.write_text(text)
        with pytest.raises(InvalidPlan) as caught:
            read_plan(path)
        assert str(caught.value) == f"{path}: {want}"


class TestWriting:
    """A file is there whole or not at all."""

    def test_replaces(self, tmp_path: Path) -> None:
        """An existing file is replaced, and nothing else is left beside it."""
        target = tmp_path / "plan.json"
        target.write_text("old")
        write_plan(PLAN, target)
        assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]
        assert read_plan(target) == PLAN

    @pytest.mark.parametrize("step", ["write_bytes", "replace"])
    def test_failure_leaves_nothing(self, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """When the disk is full halfway, the old file stays, no temporary one does, and the error names the target."""
        target = tmp_path / "plan.json"
        target.write_text("old")

        def fail(path: Path, what: bytes | Path) -> None:
            if isinstance(what, bytes):
                with path.open("wb") as file:
                    file.write(what[: len(what) // 2])
            raise OSError(28, "No space left on device", "some temporary name")

        monkeypatch.setattr(Path, step, fail)
        with pytest.raises(OSError, match="No space left on device") as caught:
            write_plan(PLAN, target)
        assert caught.value.filename == str(target)
        assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]
        assert target.read_text() == "old"

    def test_interrupted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An interrupt leaves nothing either."""

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_plan(PLAN, tmp_path / "plan.json")
        assert list(tmp_path.iterdir()) == []

    def test_missing_directory(self, tmp_path: Path) -> None:
        """The error names the file that was asked for, not the temporary one."""
        with pytest.raises(FileNotFoundError) as caught:
            write_plan(PLAN, tmp_path / "no" / "plan.json")
        assert caught.value.filename == str(tmp_path / "no" / "plan.json")

    def test_link(self, tmp_path: Path) -> None:
        """A link stays a link; the file that it leads to is replaced."""
        (tmp_path / "real.json").write_text("old")
        (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
        write_plan(PLAN, tmp_path / "link.json")
        assert (tmp_path / "link.json").is_symlink()
        assert read_plan(tmp_path / "real.json") == PLAN

    def test_device(self) -> None:
        """A device is written to, never replaced by a file."""
        write_plan(PLAN, "/dev/null")
        assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)

    def test_permissions(self, tmp_path: Path) -> None:
        """A new file has the permissions that the user's mask gives, not those of a private temporary file."""
        write_plan(PLAN, tmp_path / "plan.json")
        mask = os.umask(0)
        os.umask(mask)
        assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o666 & ~mask
