"""Plan files that carry their problem: commands that need the plan alone, wherever it lies."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nest.cli.certify import certify_command
from nest.cli.evaluate import evaluate_command
from nest.cli.exits import ExitCode
from nest.cli.simulate import simulate_command
from nest.cli.solve import solve_command
from nest.errors import InvalidPlan, InvalidProblem
from nest.evaluate import evaluate
from nest.files import problem_text, read_claimed_plan, read_plan, read_problem, write_plan
from nest.files.origin import Origin
from nest.runs import problem_of, read_run, read_self_contained

INSTANCE = Path(__file__).parents[1] / "instances" / "llama2-7b_tpuv4_64.toml"

ARGUMENTS = """
--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048
--tokenizer-type GPT2BPETokenizer
"""

CLUSTER = """
schema = "nest.cluster/1"
device = "h100-sxm"
network = "topology.conf"
like = "dgx-h100"
gpus_per_node = 8
"""

TOPOLOGY = "SwitchName=s0 Nodes=a,b\n"

RUN = """
schema = "nest.run/1"
model = "model.sh"
profile = "profile.csv"
cluster = "cluster.toml"
sequence = 2048
global_batch = 32
reserve_gib = 1.5
lengths = []

[choices]
tensor = [1, 2]
microbatch = 1
zero = [0, 1]
"""


PROFILE = """kind,microbatch,tensor,forward_ms,backward_ms
attention+mlp,1,1,1.5,3.0
attention+mlp,1,2,0.9,1.8
"""


def run(command: click.Command, *arguments: str | Path) -> tuple[int, str]:
    """Return exit code and output of a command."""
    result = CliRunner().invoke(command, [str(each) for each in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), result.output


def solved(folder: Path, *arguments: str | Path) -> Path:
    """Solve what is asked, and return the path of the plan."""
    path = folder / "plan.json"
    run(solve_command, *arguments, "-o", path)
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Write a run and all that it refers to, and return the folder."""
    texts = {"run.toml": RUN, "model.sh": ARGUMENTS, "cluster.toml": CLUSTER, "topology.conf": TOPOLOGY}
    texts["profile.csv"] = PROFILE
    texts["model.sh"] += " --padded-vocab-size 51200\n"
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_run_is_carried_whole(files: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Model, cluster, network and measured times go along: the plan is judged the same where none of the files is."""
    plan = solved(files, files / "run.toml", "--set", "replicas=4")
    before, expected = read_run(files / "run.toml"), read_claimed_plan(plan).plan
    other = shutil.copy(plan, tmp_path_factory.mktemp("elsewhere") / "moved.json")
    for name in ("run.toml", "model.sh", "cluster.toml", "topology.conf", "profile.csv"):
        (files / name).unlink()
    found = read_self_contained(other)
    assert found.run is not None
    assert before.profile is not None
    assert replace(found.run, profile=None) == replace(before, profile=None)
    assert found.plan == expected
    assert found.problem == problem_of(before).problem.with_choices(replicas=frozenset({4}))
    verdict = evaluate(found.problem, found.plan)
    assert verdict.legal
    assert verdict.loads_s == [stage.load_s for stage in found.plan.stages]


def test_what_is_typed_is_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was typed comes back the same: model file, vocabulary, pins and sizes of the software."""
    monkeypatch.chdir(tmp_path)
    Path("args.txt").write_text(ARGUMENTS)
    typed = ("--model", "args.txt", "--vocab", "50257", "--cluster", "dgx-h100:16", "--global-batch", "32")
    pins = ("--reserve", "1.25", "--zero", "1", "--sequence-parallel", "--padding", "64", "--no-flash")
    plan = solved(tmp_path, *typed, *pins, "--recompute", "selective", "--tensor", "2")
    os.chdir("/")
    found = read_self_contained(plan)
    assert found.run is not None
    assert found.run.padding == 64
    assert found.run.reserve_bytes == 5 * 2**28
    assert found.run.flash is False
    assert found.problem.choices.sequence is True
    assert found.problem.choices.stage_recompute == frozenset({"selective"})
    assert evaluate(found.problem, found.plan).loads_s == [stage.load_s for stage in found.plan.stages]
    assert found.provenance["nest"]
    assert found.provenance["written"].endswith("+00:00")


def test_a_family_is_carried(tmp_path: Path) -> None:
    """So does a model of a few numbers."""
    numbers = ("--family", "moe", "--layers", "2", "--hidden", "512", "--heads", "8", "--experts", "4", "--top-k", "2")
    plan = solved(tmp_path, *numbers, "--seq", "1024", "--cluster", "dgx-h100:8", "--global-batch", "8")
    found = read_self_contained(plan)
    assert found.run is not None
    assert (found.run.model.family, found.run.model.layers, found.run.sequence) == ("moe", 2, 1024)
    again = evaluate(found.problem, found.plan).loads_s
    # Ticks are those of the variants that are posed, which are others.
    assert again == pytest.approx([stage.load_s for stage in found.plan.stages], rel=1e-11)


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """Write a problem file and a plan beside it, and return the path of the problem."""
    (tmp_path / "problems").mkdir()
    path = tmp_path / "problems" / "problem.toml"
    shutil.copy(INSTANCE, path)
    solved(tmp_path, path, "--preset", "artifact", "--set", "zero=none", "--set", "stages=4..8")
    return path


@pytest.mark.usefixtures("problem")
def test_a_problem_file_is_named(tmp_path: Path) -> None:
    """Its path is relative, so that folder and plan may be moved together; what was typed counts."""
    plan = tmp_path / "plan.json"
    origin = read_claimed_plan(plan).origin
    assert origin is not None
    assert (origin.file, origin.preset, origin.settings) == (
        "problems/problem.toml",
        "artifact",
        ("zero=none", "stages=4..8"),
    )
    found = read_self_contained(plan)
    assert (found.run, found.problem.preset.name, found.problem.choices.zero) == (None, "artifact", frozenset({0}))
    assert run(evaluate_command, plan)[0] == ExitCode.OK
    assert run(simulate_command, plan)[0] == ExitCode.OK
    assert run(certify_command, plan)[0] == ExitCode.OK


def test_a_lost_problem_is_refused(problem: Path, tmp_path: Path) -> None:
    """A plan is not judged by another file of the same name, nor by none; one that is given takes its place."""
    plan, moved = tmp_path / "plan.json", tmp_path / "moved.toml"
    text = problem.read_text()
    problem.write_text(text.replace("fanout", "fanout ", 1))
    with pytest.raises(
        InvalidPlan, match=r"plan\.json: problem\.file: .*SHA-256 differs; restore it, or give --problem"
    ):
        read_self_contained(plan)
    problem.unlink()
    with pytest.raises(InvalidPlan, match=r"problem\.file: .*No such file.*; give --problem FILE"):
        read_self_contained(plan)
    moved.write_text(text)
    found = read_self_contained(plan, problem=moved)
    assert (found.problem.preset.name, found.problem.choices.stages) == ("artifact", frozenset(range(4, 9)))
    moved.write_text(text + "\n# another\n")
    assert read_self_contained(plan, problem=moved).problem.choices.stages != frozenset(range(4, 9))


def test_old_plans_and_forms(problem: Path, tmp_path: Path) -> None:
    """Plans without a problem are judged as before, by a problem that is given in either form."""
    plan = tmp_path / "plan.json"
    write_plan(read_plan(plan), plan)
    with pytest.raises(InvalidPlan, match="does not say which problem it is a plan of; give --problem FILE"):
        run(evaluate_command, plan)
    asked = ("--preset", "artifact", "--set", "zero=none")
    old, new = run(evaluate_command, problem, plan, *asked), run(evaluate_command, plan, "--problem", problem, *asked)
    assert old == new
    assert old[0] == ExitCode.OK
    with pytest.raises(click.UsageError, match="give the problem once"):
        run(evaluate_command, problem, plan, "--problem", problem)


def test_a_better_plan_carries_the_problem(problem: Path, tmp_path: Path) -> None:
    """What certify writes can be judged alone, too."""
    plan, better = tmp_path / "plan.json", tmp_path / "sub" / "better.json"
    better.parent.mkdir()
    worse = solved(tmp_path, problem, "--preset", "artifact", "--set", "stages=16", "--set", "zero=none")
    document = json.loads(worse.read_text())
    document["problem"]["settings"] = ["zero=none"]
    plan.write_text(json.dumps(document))
    assert run(certify_command, plan, "-o", better)[0] == ExitCode.REFUTED
    origin = read_claimed_plan(better).origin
    assert origin is not None
    assert origin.file == "../problems/problem.toml"
    assert run(certify_command, better)[0] == ExitCode.OK


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({}, "problem: none of run, text and file"),
        ({"text": "schema = 3"}, "schema: 3"),
        ({"file": "a.toml"}, r"problem\.sha256: missing"),
        ({"file": "a.toml", "sha256": "no"}, r"problem\.sha256: \"no\"; give a SHA-256"),
        ({"run": {}, "file": "a.toml"}, "problem: both run and file"),
        ({"run": {"schema": "nest.run/1"}}, r"problem\.run\.model: missing"),
        ({"run": 3}, r"problem\.run: 3; give a run"),
    ],
    ids=str,
)
def test_broken_problems(problem: dict[str, Any], message: str, tmp_path: Path) -> None:
    """A key that makes no sense is refused with the plan's name."""
    plan = solved(tmp_path, INSTANCE, "--set", "zero=none")
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "problem": problem}))
    with pytest.raises(InvalidProblem, match=message) as caught:
        read_self_contained(plan)
    assert caught.value.source == str(plan)


def test_a_whole_problem_is_carried(tmp_path: Path) -> None:
    """A problem that is no file and no run goes along as text."""
    plan = solved(tmp_path, INSTANCE, "--set", "zero=none")
    problem = read_problem(INSTANCE)
    write_plan(read_plan(plan), plan, Origin(text=problem_text(problem), settings=("zero=none",)))
    found = read_self_contained(plan)
    assert (found.run, found.problem) == (None, problem.with_choices(zero=frozenset({0})))


def test_origin_is_one_of_several() -> None:
    """In Python, too."""
    with pytest.raises(InvalidPlan, match="none of"):
        Origin()
