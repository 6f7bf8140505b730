"""Tables of measured layers: how they are read, what is refused, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nest.cli.program import run
from nest.errors import InvalidProblem
from nest.layer_tables import (
    LayerFigures,
    LayerTable,
    Point,
    TableRow,
    is_layer_table,
    layer_table_csv,
    layers_schema,
    read_layer_table,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"
MIB = 2**20

HEAD = "layer,tensor,microbatch,forward_ms,backward_ms,parameters,kept_mib,output_mib"
ROWS = ("embed,1,2,0.5,1,1000,1,4", "block,1,2,2,4,2000,8,4", "head,1,2,1,2.5,1000,2,")


def table(text: str, tmp_path: Path, name: str = "layers.csv") -> LayerTable:
    """Return the table that a text is."""
    path = tmp_path / name
    path.write_text(text)
    assert is_layer_table(path)
    return read_layer_table(path)


def csv(*rows: str, head: str = HEAD) -> str:
    """Return a table in CSV."""
    return "\n".join((head, *rows, ""))


def test_columns_end_in_units(tmp_path: Path) -> None:
    """Times become seconds and sizes bytes, whatever their units; rows keep the order of the model."""
    read = table("# by hand\n" + csv(*ROWS), tmp_path)
    assert read.name == "layers"
    assert [row.name for row in read.layers] == ["embed", "block", "head"]
    assert read.points == read.complete == (Point(1, 2),)
    block = read.at(Point(1, 2))[1].figures
    assert (block.forward_s, block.backward_s) == (2e-3, 4e-3)
    assert (block.parameters, block.kept_bytes, block.output_bytes) == (2000, 8 * MIB, 4 * MIB)
    other = csv("a,3,5e-6,2,1.5,1", head="layer,forward_us,backward_s,weights_kib,kept_gib,output_bytes")
    figures = table(other, tmp_path).rows[0].figures
    assert (figures.forward_s, figures.backward_s) == pytest.approx((3e-6, 5e-6))
    assert (figures.weight_bytes, figures.kept_bytes, figures.output_bytes) == (2048, 3 * 2**29, 1)


def test_three_syntaxes_say_the_same(tmp_path: Path) -> None:
    """CSV, JSON and TOML hold the same rows."""
    rows = [
        {"layer": "a", "microbatch": 1, "forward_ms": 1, "backward_ms": 2, "parameters": 8, "kept_kib": 1},
        {"layer": "b", "microbatch": 1, "forward_ms": 2, "backward_ms": 2, "parameters": 8, "kept_kib": 1},
    ]
    rows[0]["output_kib"] = 3
    text = csv(
        "a,1,1,2,8,1,3", "b,1,2,2,8,1,", head="layer,microbatch,forward_ms,backward_ms,parameters,kept_kib,output_kib"
    )
    as_json = json.dumps({"schema": "nest.layers/1", "name": "layers", "rows": rows})
    inline = ["{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in row.items()) + " }" for row in rows]
    as_toml = f'schema = "nest.layers/1"\nrows = [{", ".join(inline)}]\n'
    found = [
        [(row.name, row.point, row.figures) for row in table(each, tmp_path, f"layers.{kind}").rows]
        for kind, each in (("csv", text), ("json", as_json), ("toml", as_toml))
    ]
    assert found[0] == found[1] == found[2]


def test_a_table_on_its_side(tmp_path: Path) -> None:
    """Columns below each other are rows beside each other."""
    upright = csv(*ROWS)
    cells = [line.split(",") for line in upright.split()]
    aside = "\n".join(",".join(each) for each in zip(*cells, strict=True))
    assert [row.figures for row in table(aside, tmp_path).rows] == [
        row.figures for row in table(upright, tmp_path).rows
    ]


def test_names_with_commas_and_colons(tmp_path: Path) -> None:
    """A quoted name is one cell."""
    text = csv('"Conv2d(3, 4, bias=False): first",1,1,1,1,1,1,1', "b,1,1,1,1,1,1,")
    assert table(text, tmp_path).layers[0].name == "Conv2d(3, 4, bias=False): first"


def test_rows_in_any_order_have_places(tmp_path: Path) -> None:
    """Places say the order of the model, and layers of one name are told apart by them."""
    head = f"place,{HEAD}"
    read = table(csv("2,block,1,2,2,4,1,1,1", "0,stem,1,2,2,4,1,1,1", "1,block,1,2,3,4,1,1,1", head=head), tmp_path)
    assert [(row.place, row.name) for row in read.layers] == [(0, "stem"), (1, "block"), (2, "block")]
    assert [row.figures.forward_s for row in read.at(Point(1, 2))] == [2e-3, 3e-3, 2e-3]


def test_order_that_differs_is_refused(tmp_path: Path) -> None:
    """Two orders at two points leave open which is the model's."""
    other = [row.replace(",1,2,", ",2,2,", 1) for row in (ROWS[1], ROWS[0], ROWS[2])]
    with pytest.raises(InvalidProblem, match=r"line 6: layer 'embed' comes behind 'block' at tensor 2, microbatch 2"):
        table(csv(*ROWS, *other), tmp_path)


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ((*ROWS, ROWS[1]), "line 5: layer 'block' again at tensor 1, microbatch 2, as in line 3"),
        (("a,1,2,-1,1,1,1,1",), "line 2.forward_ms: -1"),
        (("a,1,0,1,1,1,1,1",), "line 2.microbatch: 0"),
        (("a,1,2,1,1,1,1",), "line 2: 7 cells for 8 columns"),
        (("a,1,2,fast,1,1,1,1",), 'line 2.forward_ms: "fast"'),
        ((), "no rows"),
    ],
)
def test_wrong_rows_are_named(rows: tuple[str, ...], what: str, tmp_path: Path) -> None:
    """One line says where, and what would be right."""
    with pytest.raises(InvalidProblem) as caught:
        table(csv(*rows), tmp_path)
    assert what in str(caught.value)
    assert str(tmp_path / "layers.csv") in str(caught.value)


@pytest.mark.parametrize(
    ("head", "row", "what"),
    [
        ("layer,forward_min", "a,1", "there is no column 'forward_min'"),
        ("layer,forward_ms,forward_us", "a,1,1", "both forward_ms and forward_us"),
        ("layer,forward_ms,together_ms", "a,1,1", "together beside forward and backward"),
        ("layer,forward_ms,parameters,weights_bytes", "a,1,1,1", "parameters beside weights"),
        ("layer,forward_ms,kept_bytes,memory_bytes", "a,1,1,1", "kept beside memory"),
        ("name,forward_ms", "a,1", "there is no column 'name'"),
    ],
)
def test_wrong_columns_are_named(head: str, row: str, what: str, tmp_path: Path) -> None:
    """A column without a unit that is known, or that says a thing twice, is no table."""
    with pytest.raises(InvalidProblem, match=what):
        table(csv(row, head=head), tmp_path)


def test_other_tables_are_none(tmp_path: Path) -> None:
    """Measured times of kinds of blocks, models and lists are not taken for tables of layers."""
    for text in ("kind,microbatch,tensor\n", "a,b\n1,2\n", '{"rows": []}', "layers = 3\n", ""):
        (tmp_path / "other").write_text(text)
        assert not is_layer_table(tmp_path / "other")
    assert not is_layer_table(tmp_path)


def test_gaps_are_named(tmp_path: Path) -> None:
    """A point of which a layer is missing, or that nobody measured, is not complete."""
    more = ("embed,2,2,1,1,500,1,4", "block,2,2,1,1,1000,1,4", "embed,1,4,1,1,1000,2,8", "head,2,2,1,1,500,1,")
    read = table(csv(*ROWS, *more), tmp_path)
    assert read.complete == (Point(1, 2), Point(2, 2))
    assert read.missing == {Point(1, 4): "no row for layer 'block', 'head'", Point(2, 4): "not measured"}


def test_what_is_lacking_is_named(tmp_path: Path) -> None:
    """Empty cells are named with their layers; the last layer sends nothing on."""
    read = table(csv("a,1,1,1,,1,1,1", "b,1,1,1,1,,,", "c,1,1,1,1,1,1,"), tmp_path)
    assert read.lacking == (
        "no time of the backward pass (backward_ms) of line 2, layer 'a'",
        "no weights (parameters, weights_bytes) of line 3, layer 'b'",
        "no bytes kept until the backward pass (kept_bytes, or memory_bytes of all) of line 3, layer 'b'",
        "no bytes that go to the next layer (output_bytes) of line 3, layer 'b'",
    )
    with pytest.raises(InvalidProblem, match="no time of the backward pass"):
        read.require_whole()


def test_copies_between_widths_are_seen() -> None:
    """Figures that do not change with the tensor width were copied, or are those of whole layers."""

    def rows(tensor: int, forward: float, weights: int, kept: int) -> list[TableRow]:
        figures = LayerFigures(forward, 2.0, weight_bytes=weights, kept_bytes=kept, output_bytes=1)
        return [TableRow(name, Point(tensor, 1), figures) for name in "ab"]

    def warned(*others: TableRow) -> str:
        return "; ".join(LayerTable("m", (*rows(1, 1.0, 8, 6), *others)).warnings)

    assert warned(*rows(2, 0.5, 4, 3)) == ""
    assert warned(*rows(2, 0.5, 8, 3)).startswith("the weights at tensor 1, microbatch 1 and at tensor 2, microbatch 1")
    assert "those of whole layers" in warned(*rows(2, 0.5, 8, 3))
    assert "the times" not in warned(*rows(2, 0.5, 4, 3))
    assert "copied" in warned(*rows(2, 1.0, 4, 3))
    assert "the bytes kept" in warned(*rows(2, 0.5, 4, 6))


def test_written_tables_are_read_back(tmp_path: Path) -> None:
    """What is written in CSV says the same, with empty cells for what nobody measured."""
    head = f"{HEAD},count,repeats,all_reduce_mib,input_bytes,working_mib"
    read = table(csv("a,2,1,1,2,3,4,5,3,no,6,7,8", "b,2,1,1,2,3,4,,1,yes,,,", head=head), tmp_path)
    again = table(layer_table_csv(read), tmp_path, "again.csv")
    assert [(row.name, row.count, row.repeats, row.point, row.figures) for row in again.rows] == [
        (row.name, row.count, row.repeats, row.point, row.figures) for row in read.rows
    ]


def test_rows_without_a_microbatch(tmp_path: Path) -> None:
    """They are of one sequence, and it is said so: a batch that nobody names may be another."""
    read = table(csv("a,1,1,1,1", head="layer,forward_ms,backward_ms,parameters,kept_mib"), tmp_path)
    assert read.points == (Point(1, 1),)
    assert read.notes == ("rows that name no microbatch are taken to be of one sequence",)


def test_schema_is_current() -> None:
    """The published JSON Schema is the one that the reader's declarations make."""
    command = "import json, nest.layer_tables as l; print(json.dumps(l.layers_schema(), indent=2))"
    published = json.loads((DOCS / "layers.schema.json").read_text())
    assert published == layers_schema(), f"write it again: python -c '{command}' > docs/layers.schema.json"


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Layers, sums by point, what is missing; the same as JSON, and as a table in CSV."""
    path = tmp_path / "layers.csv"
    path.write_text(csv(*ROWS, "embed,2,2,1,1,500,1,4"))
    assert run(["show", str(path), "-o", str(tmp_path / "out.csv")]) == 0
    shown = capsys.readouterr().out
    assert "tensor 1, microbatch 2: forward 3.5 ms, backward 7.5 ms" in shown
    assert "tensor 2, microbatch 2: no row for layer 'block', 'head'" in shown
    assert len(read_layer_table(tmp_path / "out.csv").rows) == 4
    assert run(["show", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["schema"] == "nest.layer-table/1"
    assert facts["points"][0]["forward_s"] == pytest.approx(3.5e-3)
    assert [each["complete"] for each in facts["points"]] == [True, False]
    assert run(["show", str(path), "--set", "zero=none"]) == 2
    assert "'--set' says nothing of a table of layers" in capsys.readouterr().err
