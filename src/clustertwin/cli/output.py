"""What commands print: one JSON document on standard output, or a table for a person; progress on standard error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import isnan
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clustertwin.core.formatting import visible_lines

Json = typer.Option(False, "--json", help="One JSON document on standard output.")


class NoteConsole(Console):
    """Notes name files, and repeat what is in logs: control characters in them are spelled out."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible_lines(text), **options)


#: Progress and notes go here, so that standard output stays a document. They name files and users, which may look
#: like markup.
err = NoteConsole(stderr=True, markup=False, emoji=False)


WIDE = 1000  # columns


class OutputConsole(Console):
    def on_broken_pipe(self) -> None:
        """`cli.app` ends the command without an error; rich would exit with code 1."""
        raise BrokenPipeError


def print_json(document: Any) -> None:
    """One JSON document; numpy scalars and arrays are welcome."""
    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    try:
        text = orjson.dumps(document, option=option)
    except TypeError:  # perhaps for a file name
        text = orjson.dumps(_in_utf8(document), option=option)
    typer.echo(text.decode())


def _in_utf8(value: Any) -> Any:
    """The value with bytes that are not UTF-8, as a file name may have, spelled out."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_in_utf8(key): _in_utf8(item) for key, item in value.items()}
    return [_in_utf8(item) for item in value] if isinstance(value, list | tuple) else value


def interval(low: float, high: float) -> str:
    """`0.5 – 2`; a dash where it is not known, as a ratio of two waits of zero.

    >>> interval(0.5, 2.0), interval(float("nan"), float("nan"))
    ('0.5 – 2', '–')
    """
    return "–" if isnan(low) or isnan(high) else f"{low:.3g} – {high:.3g}"


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    whole: Sequence[str] = (),
    instead: str = "",
) -> None:
    """A table; numbers are set right, columns named in `whole` are never cut. Without rows, the sentence `instead`."""
    rows = [list(row) for row in rows]
    if instead and not rows:
        typer.echo(instead)
        return
    table = Table(header_style="bold", show_header=any(columns))
    for i, column in enumerate(columns):
        numeric = all(isinstance(row[i], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=column in whole)
    cells = [[f"{cell:.4g}" if isinstance(cell, float) else visible_lines(str(cell)) for cell in row] for row in rows]
    for row in cells:
        table.add_row(*map(Text, row))
    console = OutputConsole()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE  # for `grep` and `awk` nothing is cut
    needed = console.measure(table, options=console.options.update(width=WIDE)).minimum
    if needed > console.width:
        _print_records(title, columns, cells)
    else:
        if title:  # not the table's own, which would be wrapped to its width
            console.print(Text(title, style="italic"))
        console.print(table)


def _print_records(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Each row as lines of a name and a value, for a terminal in which a table would cut words or numbers."""
    if title:
        typer.echo(title)
    for row in rows:
        typer.echo("")
        for column, cell in zip(columns, row, strict=True):
            typer.echo(f"{column or '·'}: {cell}".replace("\n", "\n  "))  # a comment cannot pass for a field
