"""What commands print: one JSON document on standard output, or a table for a person; progress on standard error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

Json = typer.Option(False, "--json", help="One JSON document on standard output.")

#: Progress and notes go here, so that standard output stays a document.
err = Console(stderr=True)


def print_json(document: Any) -> None:
    """One JSON document; numpy scalars and arrays are welcome."""
    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    typer.echo(orjson.dumps(document, option=option).decode())


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], whole: Sequence[str] = ()
) -> None:
    """A table; cells that are numbers are set right, and columns named in `whole` are never cut."""
    table = Table(title=title, title_justify="left", header_style="bold")
    rows = [list(row) for row in rows]
    for i, column in enumerate(columns):
        numeric = all(isinstance(row[i], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=column in whole)
    for row in rows:
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 1000  # for `grep` and `awk` nothing is cut
    console.print(table)
