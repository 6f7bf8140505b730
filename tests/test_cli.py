"""The command line: what it prints where, and how it exits."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from commands import (
    best_plan,
    chain,
    complaint,
    hopeless_path,
    nest,
    one_object,
    plan_path,
    problem_path,
)
from pace import children_s, is_within

from nest import __version__
from nest.cli import cli, run
from nest.cli.program import COMMANDS
from nest.cluster import Cluster, Level
from nest.errors import Infeasible, InvalidPlan, InvalidProblem, LimitReached
from nest.files import plan_document, read_plan, write_problem
from nest.problem import Problem
from nest.result import Result, Status
from nest.solve import Disagreement, solve
from nest.units import TimeScale

__all__ = ["hopeless_path", "plan_path", "problem_path"]  # fixtures


def test_module_is_the_command_line() -> None:
    """``python -m nest`` does what the script does, wherever that is."""
    done = subprocess.run([sys.executable, "-m", "nest", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("nest ")


def test_help_is_quick() -> None:
    """Help comes at once: it takes a tenth of a second of the processor; the limit is generous to slow machines."""

    def help_comes() -> None:
        done = nest("--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert "solve" in done.stdout

    assert is_within(1.5, help_comes, children_s)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_every_command_has_help(command: click.Command) -> None:
    """Every command says what it does and which options it takes, also one that is called without the program first."""
    for result in (CliRunner().invoke(command, ["-h"]), CliRunner().invoke(cli, [str(command.name), "-h"])):
        assert result.exit_code == 0
        assert "--json" in result.output
        assert len(result.output.splitlines()[2].strip()) > 10


def test_no_command_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command there is help, but no success that a script could mistake for an answer."""
    assert run([]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "Commands:" in streams.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is the package's."""
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"nest {__version__}\n"


def test_versions(capsys: pytest.CaptureFixture[str]) -> None:
    """Versions of what results depend on, and no import of the optional ones."""
    before = set(sys.modules)
    assert run(["versions"]) == 0
    assert f"python    {sys.version.split()[0]}" in capsys.readouterr().out
    assert run(["versions", "--json"]) == 0
    known = one_object(capsys.readouterr().out)
    assert {"nest", "python", "platform", "numpy", "click", "rich", "msgspec"} <= known.keys()
    assert "missing" not in known.values()
    assert "torch" not in set(sys.modules) - before


def test_solve_prints_a_plan(problem_path: Path) -> None:
    """A person sees table and summary, without colours in a pipe and with nothing on standard error."""
    done = nest("solve", problem_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "optimal: proven" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_solve_json(problem_path: Path) -> None:
    """A program sees one JSON object, with the objective that the library finds."""
    done = nest("solve", problem_path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = one_object(done.stdout)
    assert (document["status"], document["objective_ticks"]) == ("optimal", solve(chain()).objective_ticks)
    assert document["bound_ticks"] == document["objective_ticks"]
    assert document["plan"] == plan_document(best_plan())


def test_solve_writes_the_plan(problem_path: Path, tmp_path: Path) -> None:
    """The file of -o holds the plan, judged figures included."""
    target = tmp_path / "out.json"
    assert run(["solve", str(problem_path), "-o", str(target)]) == 0
    assert read_plan(target) == best_plan()


def test_settings_and_preset_count(problem_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--set and --preset change the problem that is solved, also both at once."""
    assert run(["solve", str(problem_path), "--json", "--set", "stages=4", "--set", "replicas=1"]) == 0
    plan = one_object(capsys.readouterr().out)["plan"]
    assert (len(plan["stages"]), plan["replicas"]) == (4, 1)
    assert run(["show", str(problem_path), "--json", "--set", "zero=none", "--preset", "artifact"]) == 0
    facts = one_object(capsys.readouterr().out)
    assert (facts["choices"]["zero"], facts["preset"]) == ([0], "artifact")


def test_infeasible(hopeless_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A problem without a plan exits with 3, says why on standard output, and writes no plan."""
    target = tmp_path / "out.json"
    assert run(["solve", str(hopeless_path), "-o", str(target)]) == 3
    streams = capsys.readouterr()
    assert "infeasible: " in streams.out
    assert streams.err == ""
    assert not target.exists()
    assert run(["solve", str(hopeless_path), "--json"]) == 3
    document = one_object(capsys.readouterr().out)
    assert (document["status"], document["plan"]) == ("infeasible", None)
    assert document["reason"]


def test_limit_without_a_plan(
    problem_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that is reached before any plan is found exits with 4; the limit is passed on to the solver."""
    limits = []

    def out_of_time(problem: Problem, *, backend: str, time_limit_s: float | None, report: object, cuts: str) -> Result:
        assert report is None
        limits.append((backend, time_limit_s, cuts))
        return Result(Status.UNKNOWN, None, None, TimeScale(9), problem.time_unit_s, "dp", 1.5, "out of time")

    monkeypatch.setattr("nest.solve.solve", out_of_time)
    assert run(["solve", str(problem_path), "--time-limit", "1.5"]) == 4
    assert "out of time" in capsys.readouterr().out
    assert limits == [("auto", 1.5, "all")]


def test_limit_with_a_plan(problem_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is not proven is a plan: exit 0."""
    found = replace(solve(chain()), status=Status.FEASIBLE, bound_ticks=None)
    monkeypatch.setattr("nest.solve.solve", lambda *_, **__: found)
    assert run(["solve", str(problem_path)]) == 0


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "soon"])
def test_wrong_time_limit(problem_path: Path, limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit is a finite number of seconds above 0."""
    assert run(["solve", str(problem_path), "--time-limit", limit]) == 2
    assert "--time-limit" in complaint(capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["solve"],
        ["solve", "PROBLEM", "--nonsense"],
        ["solve", "PROBLEM", "too", "many"],
        ["solve", "PROBLEM", "--preset", "nonsense"],
        ["solve", "PROBLEM", "--set", "nonsense=1"],
        ["solve", "PROBLEM", "--set", "stages"],
        ["solve", "PROBLEM", "--json", "--set", "stages=0"],
        ["solve", "no/such/file.toml", "--json"],
        ["show", "PROBLEM", "--set", "tensor=64"],
        ["evaluate", "PROBLEM"],
        ["evaluate", "PROBLEM", "PROBLEM"],
        ["evaluate", "PROBLEM", "no/such/plan.json"],
    ],
    ids=" ".join,
)
def test_invalid_input(arguments: list[str], problem_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is wrong with what was typed or read: exit 2 and one line on standard error."""
    assert run([str(problem_path) if word == "PROBLEM" else word for word in arguments]) == 2
    assert "internal" not in complaint(capsys)


def test_evaluate_a_legal_plan(problem_path: Path, plan_path: Path) -> None:
    """The plan of `solve` is legal, worth what it said, and its claims hold."""
    done = nest("evaluate", problem_path, plan_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "legal: " in done.stdout
    assert "Differs" not in done.stdout
    verdict = one_object(nest("evaluate", problem_path, plan_path, "--json").stdout)
    assert (verdict["legal"], verdict["objective_ticks"]) == (True, solve(chain()).objective_ticks)
    assert verdict["violations"] == verdict["differences"] == []
    assert [stage["load_s"] for stage in verdict["stages"]] == [stage.load_s for stage in best_plan().stages]


def test_evaluate_a_plan_that_breaks_a_rule(
    problem_path: Path, plan_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broken rule exits with 3 and is named, for people and for programs."""
    arguments = ["evaluate", str(problem_path), str(plan_path), "--set", "replicas=3"]
    assert run(arguments) == 3
    assert "Broken     replicas: " in capsys.readouterr().out
    assert run([*arguments, "--json"]) == 3
    verdict = one_object(capsys.readouterr().out)
    assert (verdict["legal"], [found["rule"] for found in verdict["violations"]]) == (False, ["replicas"])


def test_evaluate_reports_false_claims(problem_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A result whose objective and load were edited is still judged, and the differences are listed."""
    assert run(["solve", str(problem_path), "--json"]) == 0
    document = one_object(capsys.readouterr().out)
    document["objective"] = 1.5
    document["plan"]["stages"][0]["load_s"] = 0.25
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    assert run(["evaluate", str(problem_path), str(path), "--json"]) == 0
    found = one_object(capsys.readouterr().out)["differences"]
    assert [(claim["where"], claim["claimed"]) for claim in found] == [("objective", 1.5), ("stages[0].load_s", 0.25)]
    assert run(["evaluate", str(problem_path), str(path)]) == 0
    assert "Differs    objective: claimed 1.5, judged " in capsys.readouterr().out


@pytest.mark.parametrize("claim", [None, "much", [], float("nan"), float("inf"), 10**400], ids=str)
def test_evaluate_ignores_what_is_no_claim(
    claim: object, problem_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An objective that is no number to compare with is none."""
    path = tmp_path / "result.json"
    result = {"schema": "nest.result/1", "objective": claim, "plan": plan_document(best_plan())}
    path.write_text(json.dumps(result))
    assert run(["evaluate", str(problem_path), str(path), "--json"]) == 0
    assert one_object(capsys.readouterr().out)["differences"] == []


def test_json_leaves_no_trace(problem_path: Path) -> None:
    """Printing a large number does not change what the process may print or read afterwards."""
    before = sys.get_int_max_str_digits()
    assert run(["show", str(problem_path), "--json"]) == 0
    assert sys.get_int_max_str_digits() == before


def test_show(problem_path: Path) -> None:
    """What was read, for people and for programs, and how many plans there are, exactly."""
    text = nest("show", problem_path).stdout
    facts = one_object(nest("show", problem_path, "--json").stdout)
    assert f"{facts['plans']:,} plans" in text
    assert facts["variants"][0]["layers"] == 4
    assert facts["cluster"]["devices"] == 4


def test_show_counts_beyond_any_number_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact count of a deep model may have more digits than Python is told to print."""
    monkeypatch.setenv("PYTHONINTMAXSTRDIGITS", "640")
    path = tmp_path / "deep.toml"
    problem = replace(chain(4_000), cluster=Cluster(4_000, 1000, (Level(4_000, 1e3, 0.0),)))
    write_problem(problem.with_choices(zero=frozenset({0}), replicas=frozenset({1})), path)
    done = nest("show", path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    digits = done.stdout.rsplit('"plans": ', maxsplit=1)[1].rstrip("}\n")
    assert len(digits) > 640
    assert Decimal(digits) == Decimal(2**3_999)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidProblem("a", "b"), 2),
        (InvalidPlan("a", "b"), 2),
        (Infeasible("a"), 3),
        (LimitReached("a"), 4),
        (Disagreement("a"), 5),
        (ZeroDivisionError("a"), 5),
        (MemoryError(), 5),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_exit_code_of_an_error(
    error: Exception,
    code: int,
    problem_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each kind of failure has its exit code and is one line, without a traceback."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.delenv("NEST_DEBUG", raising=False)
    monkeypatch.setattr("nest.solve.solve", fail)
    assert run(["solve", str(problem_path), "--json"]) == code
    line = complaint(capsys)
    assert line.startswith("nest: internal error: ") == line.endswith("; please report\n") == (code == 5)


def test_traceback_on_request(
    problem_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NEST_DEBUG=1 shows where an internal error came from."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a")

    monkeypatch.setenv("NEST_DEBUG", "1")
    monkeypatch.setattr("nest.solve.solve", fail)
    assert run(["solve", str(problem_path)]) == 5
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("preset", ["paper", "default"])
@pytest.mark.parametrize("backend", ["dp", "cpsat", "pyomo"])
def test_backends_agree(problem_path: Path, backend: str, preset: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every solver gives the same optimum, and the result says which one it was."""
    asked_for = ["solve", str(problem_path), "--preset", preset, "--set", "zero=none", "--json"]
    assert run(asked_for) == 0
    auto = json.loads(capsys.readouterr().out)
    assert run([*asked_for, "--backend", backend]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert asked["objective_ticks"] == auto["objective_ticks"] == asked["bound_ticks"]
    assert asked["backend"] == backend


def test_backend_out_of_scope(problem_path: Path) -> None:
    """A solver that does not keep a constraint under a preset says so, in a line."""
    problem_path.write_text(problem_path.read_text() + '\n[[constraints]]\nkind = "distinct_stages"\nmost = 1\n')
    done = nest("solve", problem_path, "--backend", "cpsat", "--preset", "simulated")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("show", "missing.toml", "--vocab", "9"), "missing.toml: there is no such file; check the path"),
        (("ablate", "x.toml", "--model", "y"), "No such option '--model'; see 'nest ablate --help'"),
        (("solve", "x.toml", "--model", "y"), "--model and x.toml: give one of them; see 'nest solve --help'"),
        (("solve", "x.toml", "--tensor", "2"), "--tensor goes with --model; a file has its own: change it with --set"),
        (("report", "x.json", "-o", "x.pdf"), "Invalid value for '-o': x.pdf is to be a page in HTML; --png and --svg"),
    ],
)
def test_what_does_not_go_is_said_in_one_line(
    typed: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A hint at an option that nobody meant, an option that goes with itself, a picture that is a page."""
    monkeypatch.chdir(tmp_path)
    assert run(typed) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"nest: {said}")


def test_other_files_of_ours_are_no_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that was given as a plan had an unknown key."""
    path = tmp_path / "run.toml"
    path.write_text('schema = "nest.run/1"\nmodel = "config.json"\n')
    assert run(["evaluate", str(path)]) == 2
    assert 'schema: "nest.run/1": a run, not a plan; give a plan ("nest.plan/1")' in capsys.readouterr().err
