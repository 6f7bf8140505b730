"""Side constraints in problem files: read, written back, refused, as the page on them and the schema say."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import ClassVar

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from bad_files import GOOD
from random_constraints import random_constraints
from random_problems import Size, random_problem
from test_files import in_order

from nest.constraints import (
    KINDS,
    AllowedDegrees,
    Apart,
    Budget,
    Constraint,
    CutsAt,
    DistinctStages,
    Divides,
    EqualStages,
    LevelTraffic,
    LocalConstraint,
    MaxDevices,
    MaxStages,
    MemoryHeadroom,
    Pin,
    ReservedDevices,
    SameSharding,
    Together,
    WithinLevel,
)
from nest.errors import InvalidProblem
from nest.files import problem_schema, problem_text, read_problem, write_problem
from nest.files.constraint_schema import AnyConstraint

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "constraints.md").read_text(encoding="utf-8")
VALIDATOR = jsonschema.Draft202012Validator(problem_schema())

TABLES = [
    ('kind = "allowed_degrees"\naxis = "tensor"\nvalues = "1..3,8"', AllowedDegrees("tensor", [1, 2, 3, 8])),
    ('kind = "allowed_degrees"\naxis = "stages"\nvalues = 4', AllowedDegrees("stages", [4])),
    (
        'kind = "divides"\nheads = 32\nkv_heads = 8\nreplicate_kv = false',
        Divides(heads=32, kv_heads=8, replicate_kv=False),
    ),
    ('kind = "divides"\nbatch = true\nexperts = 4', Divides(batch=True, experts=4)),
    ('kind = "max_stages"\nstages = 4', MaxStages(4)),
    ('kind = "max_devices"\ndevices = 4', MaxDevices(4)),
    ('kind = "reserved_devices"\ndevices = [7, 5]', ReservedDevices([5, 7])),
    ('kind = "memory_headroom"\nfraction = 0.1', MemoryHeadroom(fraction=0.1)),
    ('kind = "memory_headroom"\nbytes = 1e8', MemoryHeadroom(bytes=10**8)),
    ('kind = "together"\nlayers = [1, 2]', Together([1, 2])),
    ('kind = "apart"\nlayers = [0, 9]', Apart([0, 9])),
    ('kind = "cuts_at"\nlayers = [3, 6]', CutsAt([3, 6])),
    ('kind = "equal_stages"', EqualStages()),
    ('kind = "equal_stages"\nlast_lighter = 1\ncounting = [1, 2, 3]', EqualStages(0, 1, [1, 2, 3])),
    ('kind = "within_level"\nwhat = "tensor"\nlevel = "node"', WithinLevel("tensor", "node")),
    ('kind = "within_level"\nwhat = "stage"\nlevel = 1', WithinLevel("stage", 1)),
    ('kind = "pin"\nlayer = 9\ndevices = [0, 1]', Pin([0, 1], layer=9)),
    ('kind = "pin"\nstage = -1\ndevices = [0, 1]', Pin([0, 1], stage=-1)),
    ('kind = "level_traffic"\nlevel = "rack"\nmost_bytes = 1e12', LevelTraffic("rack", 10**12)),
    (
        'kind = "budget"\nmost = 2.5\nprice_per_device_hour = 4\nunit = "USD"',
        Budget(2.5, price_per_device_hour=4, unit="USD"),
    ),
    ('kind = "budget"\nmost = 100\nrate_per_device_s = 0.1', Budget(100, rate_per_device_s=0.1)),
    ('kind = "budget"\nmost = 1e9\nwatts_per_device = 700', Budget(10**9, watts_per_device=700)),
    ('kind = "distinct_stages"\nmost = 2', DistinctStages(2)),
    ('kind = "same_sharding"\nlayers = [0, 9]', SameSharding([0, 9])),
]


def with_tables(*tables: str) -> str:
    """Return a problem file with these side constraints."""
    return "\n".join([GOOD, *(f"[[constraints]]\n{table}" for table in tables)])


@pytest.mark.parametrize(("table", "constraint"), TABLES, ids=[table.split("\n")[0] for table, _ in TABLES])
def test_table(table: str, constraint: Constraint, tmp_path: Path) -> None:
    """A table is read as the class of its kind, in TOML and JSON, and fits the published schema."""
    tree = tomllib.loads(with_tables(table))
    VALIDATOR.validate(tree)
    for text in (with_tables(table), json.dumps(tree)):
        (tmp_path / "problem").write_text(text)
        problem = read_problem(tmp_path / "problem")
        assert problem.constraints == (constraint,)
        write_problem(problem, tmp_path / "again.toml")
        assert read_problem(tmp_path / "again.toml") == problem


def test_all_together(tmp_path: Path) -> None:
    """Several tables keep their order, and every kind has one above."""
    (tmp_path / "problem.toml").write_text(with_tables(*(table for table, _ in TABLES)))
    assert read_problem(tmp_path / "problem.toml").constraints == tuple(constraint for _, constraint in TABLES)
    assert {type(constraint) for _, constraint in TABLES} == set(KINDS.values())


def test_random_constraints_round_trip(tmp_path: Path) -> None:
    """Whatever constraint is written is read back equal; the file fits the schema."""
    for seed in range(150):
        problem = in_order(random_problem(seed, Size(layers=6), ugly=seed % 2 == 0))
        problem = problem.with_constraints(*random_constraints(seed, problem))
        write_problem(problem, tmp_path / "problem.toml")
        assert read_problem(tmp_path / "problem.toml") == problem, seed
        VALIDATOR.validate(tomllib.loads(problem_text(problem)))


def test_declarations_match_the_classes() -> None:
    """Each class has a table with its name and its keys."""
    tables = {table.__struct_config__.tag: table for table in AnyConstraint.__args__}
    assert list(tables) == list(KINDS)
    for kind, table in tables.items():
        assert sorted(table.__struct_fields__) == sorted(spec.name for spec in fields(KINDS[str(kind)])), kind  # type: ignore[arg-type]
        defaults = {field.name for field in msgspec.structs.fields(table) if not field.required}
        optional = {spec.name for spec in fields(KINDS[str(kind)]) if spec.default is not MISSING}  # type: ignore[arg-type]
        assert defaults == optional, kind


LAYERS = "give a list of layer ids"
REFUSED = [
    (
        'axis = "tensor"',
        "constraints[0].kind: missing; give one of allowed_degrees, divides, max_stages, max_devices, ",
    ),
    ('kind = "max_stage"', 'constraints[0].kind: "max_stage"; did you mean "max_stages"?'),
    ('kind = "xyz"', 'constraints[0].kind: "xyz"; give one of allowed_degrees, divides, '),
    ("kind = [1]", "constraints[0].kind: [1]; give one of allowed_degrees, divides, "),
    ('knd = "pin"', 'constraints[0].kind: missing (there is a key "knd"); give one of allowed_degrees, '),
    ('kind = "max_stages"', "constraints[0].stages: missing; give a whole number from 1 to 2147483648"),
    ('kind = "max_stages"\nstages = 0', "constraints[0].stages: 0; give a whole number from 1 to 2147483648"),
    ('kind = "max_stages"\nstage = 1', 'constraints[0].stage: unknown key; did you mean "stages"?'),
    ('kind = "max_stages"\nstages = 1\nx = 1', "constraints[0].x: unknown key; known keys are stages"),
    ('kind = "together"\nlayers = 1', f"constraints[0].layers: 1; {LAYERS}"),
    ('kind = "together"\nlayers = []', f"constraints[0].layers: []; {LAYERS}"),
    ('kind = "together"\nlayers = [1, 77]', "constraints[0].layers: 77 is no layer; name the id of a layer"),
    ('kind = "together"\nlayers = [1, 1]', "constraints[0].layers: 1 is listed twice; list each once"),
    (
        'kind = "within_level"\nwhat = "tensor"\nlevel = "nod"',
        "constraints[0].level: 'nod' is no level of the cluster; the levels are 0 ('node'), 1 ('rack')",
    ),
    (
        'kind = "within_level"\nwhat = "zero"\nlevel = 0',
        'constraints[0].what: "zero"; give "tensor", "context", "expert" or "stage"',
    ),
    (
        'kind = "within_level"\nwhat = "stage"\nlevel = 1.5',
        "constraints[0].level: 1.5; give a level of the cluster: its number, from 0 for the innermost, or its name",
    ),
    (
        'kind = "allowed_degrees"\naxis = "tensor"\nvalues = "any"',
        'constraints[0].values: "any"; give whole numbers from 1, as in 4, 1,2 or 8..16 (both ends included)',
    ),
    (
        'kind = "allowed_degrees"\naxis = "tensor"\nvalues = "4..2"',
        "constraints[0].values: 4..2 is an empty range; give whole numbers from 1, as in 4, 1,2 or 8..16 (both ends ",
    ),
    ('kind = "pin"\ndevices = [0]', "constraints[0].devices: [0]; give the first and the last device, as in [0, 7]"),
    ('kind = "pin"\ndevices = [0, 1]', "constraints[0]: neither layer nor stage is given; give one of them"),
    (
        'kind = "pin"\ndevices = [0, 8]\nstage = 0',
        "constraints[0].devices: there is no device 8; the devices of the cluster are 0 to 7",
    ),
    (
        'kind = "memory_headroom"\nfraction = 1.0',
        "constraints[0].fraction: 1.0; give a number from 0 to below 1",
    ),
    ('kind = "budget"\nmost = nan', "constraints[0].most: NaN; give a number from 0 to 1e18"),
    ('kind = "budget"\nmost = 1', "constraints[0]: no rate is given; give one of rate_per_device_s, price_per_device_"),
]


@pytest.mark.parametrize(("table", "message"), REFUSED, ids=[message.split(";")[0] for _, message in REFUSED])
def test_refused(table: str, message: str, tmp_path: Path) -> None:
    """One line names the file, the table, the key, the value and what would be right."""
    path = tmp_path / "problem.toml"
    path.write_text(with_tables(table))
    with pytest.raises(InvalidProblem) as caught:
        read_problem(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: {message}")
    assert "\n" not in line


def test_no_list(tmp_path: Path) -> None:
    """One table in the place of the list is refused with a hint at the list."""
    (tmp_path / "problem.toml").write_text(f'{GOOD}\n[constraints]\nkind = "max_stages"\nstages = 1\n')
    with pytest.raises(InvalidProblem, match=r"constraints: a table; give a list of side constraints"):
        read_problem(tmp_path / "problem.toml")


@dataclass(frozen=True)
class Own(LocalConstraint):
    """A constraint that files cannot know."""

    kind: ClassVar[str] = "own"

    @property
    def text(self) -> str:
        """Nothing in particular."""
        return "anything"


def test_own_constraint_is_not_written(tmp_path: Path) -> None:
    """A class of one's own has no form in files, and is never left out silently."""
    (tmp_path / "problem.toml").write_text(GOOD)
    problem = read_problem(tmp_path / "problem.toml").with_constraints(Own())
    with pytest.raises(
        InvalidProblem, match=r"constraints: Own is no side constraint that files know; files know allo"
    ):
        problem_text(problem)


def test_page_shows_every_kind(tmp_path: Path) -> None:
    """The page on side constraints has a section and an example for each kind, and each example is read."""
    examples = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    kinds = set()
    for text in examples:
        kinds |= {table["kind"] for table in tomllib.loads(text)["constraints"]}
        (tmp_path / "problem.toml").write_text(f"{GOOD}\n{text}")
        assert read_problem(tmp_path / "problem.toml").constraints
    assert kinds == set(KINDS)
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) >= set(KINDS)
