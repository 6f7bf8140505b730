"""``nest validate``."""

from __future__ import annotations

import click

from nest.cli.exits import ExitCode
from nest.cli.options import json_option
from nest.cli.output import print_json, screen


@click.command("validate")
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@click.option("--rows", is_flag=True, help="Print every row, not the averages alone.")
@json_option
def validate_command(*, names: tuple[str, ...], rows: bool, as_json: bool) -> int:
    """Compare the cost model with published measurements of time and memory.

    Constants were fitted on the few rows that are marked; all others are predicted.
    """
    from nest.report.validation import Found, validation_document, validation_text
    from nest.validation import FACTS, TABLES, FactTable, compare, table_named

    tables = [table_named(name) for name in names] or [*TABLES, *FACTS]
    found = [
        Found(table, facts=table.facts())
        if isinstance(table, FactTable)
        else Found(table, [compare(case) for case in table.cases()])
        for table in tables
    ]
    if as_json:
        print_json(validation_document(found))
    else:
        click.echo(validation_text(found, screen(), rows=rows or bool(names)))
    return ExitCode.OK
