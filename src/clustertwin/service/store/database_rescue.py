"""A damaged SQLite file of the service -> a new one with every row that can still be read.

A damaged page hides the rows behind it. Each table is therefore read from its beginning and from its end, until SQLite
meets the damage. Without the row that says whether clients need a token, they need one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from clustertwin.core.errors import OutputError
from clustertwin.service.store.database import Database

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


def damage_of(path: Path) -> str:
    """What SQLite finds wrong with a file, in one line; empty if nothing is."""
    try:
        with closing(sqlite3.connect(path, timeout=10.0)) as connection:
            connection.execute("PRAGMA query_only = ON")
            (result,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if result == "ok" else " ".join(str(result).split())


def rescue(damaged: Path, target: Path) -> dict[str, int]:
    """Copy the rows that can be read to a new database; the number of rows of each table."""
    database = Database(target)
    rescued: dict[str, int] = {}
    try:
        tables = [str(row["name"]) for row in database.rows(_TABLES)]
        with closing(sqlite3.connect(damaged)) as source, database.transaction() as connection:
            connection.execute("UPDATE access SET needs_token = 1")
            source.row_factory = sqlite3.Row
            for table in tables:
                columns = {str(row["name"]) for row in connection.execute(f"PRAGMA table_info({table})")}
                rescued[table] = sum(_insert(connection, table, row, columns) for row in _rows(source, table))
    finally:
        database.close()
    if target.with_name(f"{target.name}-wal").exists():  # SQLite could not move the rows into the file itself
        raise OutputError(f"{target}: cannot be completed; is the disk full?")
    return rescued


def _insert(connection: sqlite3.Connection, table: str, row: sqlite3.Row, columns: set[str]) -> int:
    """Add a row; 1 if it is new and fits the table."""
    names = [name for name in row.keys() if name in columns]  # noqa: SIM118 - a row iterates over its values
    verb = "REPLACE" if table == "access" else "INSERT OR IGNORE"
    query = f"{verb} INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    try:
        return connection.execute(query, tuple(row[name] for name in names)).rowcount
    except sqlite3.IntegrityError:  # a damaged value has another type than the column
        return 0


def _rows(source: sqlite3.Connection, table: str) -> Iterator[sqlite3.Row]:
    """The rows before the damage, and those after it."""
    for order in ("", " ORDER BY rowid DESC"):
        with suppress(sqlite3.Error, UnicodeDecodeError):
            yield from source.execute(f"SELECT * FROM {table} NOT INDEXED{order}")
            return
