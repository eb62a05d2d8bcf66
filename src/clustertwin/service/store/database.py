"""The service's one SQLite file: a path -> transactions that are on disk when they return.

WAL lets the command line read and write beside the running service, and pages read while the loop writes: reading has
a connection of its own. `synchronous=FULL` costs a few milliseconds for each transaction, so writers group their rows.
A refusal of the disk is an `OutputError`; nothing is half written.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clustertwin.core.errors import InputError, OutputError

VERSION = 1

SCHEMA = """
CREATE TABLE events (
  id TEXT PRIMARY KEY, places TEXT NOT NULL, jobs TEXT NOT NULL, owner TEXT NOT NULL,
  onset_s INTEGER NOT NULL, seen_s INTEGER NOT NULL, end_s INTEGER,
  score REAL NOT NULL, view TEXT NOT NULL, model TEXT NOT NULL, why TEXT,
  verdict TEXT NOT NULL DEFAULT '', who TEXT NOT NULL DEFAULT '', comment TEXT NOT NULL DEFAULT '', vetted_s REAL
) STRICT;
CREATE INDEX events_by_onset ON events (onset_s DESC, id);
CREATE INDEX events_open ON events (onset_s DESC, id) WHERE end_s IS NULL;
CREATE TABLE maintenance (
  id INTEGER PRIMARY KEY AUTOINCREMENT, nodes TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL NOT NULL,
  reason TEXT NOT NULL, who TEXT NOT NULL
) STRICT;
CREATE TABLE silences (
  id INTEGER PRIMARY KEY AUTOINCREMENT, node TEXT NOT NULL, job TEXT NOT NULL, owner TEXT NOT NULL,
  view TEXT NOT NULL, until_s REAL NOT NULL, reason TEXT NOT NULL, who TEXT NOT NULL
) STRICT;
CREATE TABLE tokens (
  name TEXT PRIMARY KEY, role TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, made_s REAL NOT NULL
) STRICT;
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL,
  subject TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_subject ON audit (subject, id);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit only grows'); END;
CREATE TRIGGER audit_is_not_cut BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit only grows'); END;
"""


class Database:
    """Two connections that threads share, each one statement or transaction at a time: to write, and to read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing, self._reading = threading.RLock(), threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection, self._reader = _connect(path), _connect(path)
        except (OSError, sqlite3.Error) as error:
            raise OutputError(f"{path}: cannot be opened: {error}") from error
        with self._told():
            path.chmod(0o600)  # it holds who said what, and hashes of tokens
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._reader.execute("PRAGMA query_only = ON")
        self._create()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of the block or none of it; on disk when it ends."""
        with self._writing, self._told():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        """What was committed; never waits for a writer."""
        with self._reading, self._told():
            return self._reader.execute(query, values).fetchall()

    def close(self) -> None:
        with self._writing, self._reading:
            self._reader.close()
            self._connection.close()

    def _create(self) -> None:
        with self.transaction() as connection:
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if found == 0:
                # executescript would commit on its own; statement by statement the schema comes whole or not at all.
                for statement in _statements(SCHEMA):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
        if found not in (0, VERSION):
            self.close()
            raise InputError(self.path, f"made by another release: its format is {found}, this one knows {VERSION}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's refusals as one sentence."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            if "not a database" in str(error) or "malformed" in str(error):
                raise InputError(self.path, f"{error}: move it away to begin anew") from error
            raise OutputError(f"{self.path}: {error}; what was written before is whole") from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    connection.row_factory = sqlite3.Row
    return connection


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
