"""The SQLite file of the service: a path -> transactions that are on disk when they return.

WAL mode lets commands read and write while the service runs, and lets pages read while the loop writes: reads use
connections of their own (`database_readers`). `synchronous=FULL` costs a few milliseconds for each transaction, so
writers group their rows. If the disk is full, a transaction raises an `OutputError` and changes nothing. If the file
was moved away, deleted or replaced, nothing is read or written any more: SQLite would go on in the old file.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clustertwin.core.errors import InputError, OutputError
from clustertwin.service.store.database_readers import Readers, connect
from clustertwin.service.store.home_format import refuse_newer

_SCHEMA_1 = """
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


#: Tokens can expire, a login is a session, and the service remembers that a token has existed.
_SCHEMA_2 = """
ALTER TABLE tokens ADD COLUMN expires_s REAL;
CREATE TABLE sessions (
  hash TEXT PRIMARY KEY, token_hash TEXT NOT NULL, made_s REAL NOT NULL, expires_s REAL NOT NULL
) STRICT;
CREATE TABLE access (id INTEGER PRIMARY KEY CHECK (id = 1), needs_token INTEGER NOT NULL) STRICT;
INSERT INTO access
  SELECT 1, EXISTS (SELECT 1 FROM tokens) OR EXISTS (SELECT 1 FROM audit WHERE action = 'token added');
"""

#: An event has a cause and a title. The store writes the titles of older events.
_SCHEMA_3 = """
ALTER TABLE events ADD COLUMN cause TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN question TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN title TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN since_s INTEGER NOT NULL DEFAULT 0;
CREATE INDEX events_settled ON events (id) WHERE end_s IS NULL AND verdict IN ('dismissed', 'new-normal');
CREATE INDEX events_without_title ON events (id) WHERE title = '';
"""

#: Evidence of jobs, actions with their journal, and rules that a person has suspended.
_SCHEMA_4 = """
CREATE TABLE evidence (
  id INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL, taken_s REAL NOT NULL, document TEXT NOT NULL,
  outcomes TEXT NOT NULL DEFAULT '[]'
) STRICT;
CREATE INDEX evidence_by_event ON evidence (event, id);
CREATE TABLE actions (
  id TEXT PRIMARY KEY, event TEXT NOT NULL, job TEXT NOT NULL, verb TEXT NOT NULL, rule TEXT NOT NULL,
  state TEXT NOT NULL, proposed_s REAL NOT NULL, changed_s REAL NOT NULL, who TEXT NOT NULL DEFAULT '',
  result TEXT NOT NULL DEFAULT '', step INTEGER NOT NULL DEFAULT 0, plan TEXT NOT NULL, measured_node_hours REAL
) STRICT;
CREATE UNIQUE INDEX actions_once ON actions (event, verb) WHERE state != 'expired';
CREATE TABLE suspended_rules (
  rule TEXT PRIMARY KEY, since_s REAL NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL
) STRICT;
CREATE TABLE secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""

#: When the first command of an action was about to run. A promise holds from then on.
_SCHEMA_5 = "ALTER TABLE actions ADD COLUMN begun_s REAL;"

#: Since when all looks at a job have made the same finding. Looks in between are deleted.
_SCHEMA_6 = "ALTER TABLE evidence ADD COLUMN same_since_s REAL;"

#: The channel that explains an event. The index is used by queries with exactly this text only.
CHANNEL = "COALESCE(CASE WHEN json_valid(why) THEN json_extract(why, '$.ratios[0].channel') END, '')"
#: Indexes for what pages and metrics ask most: similar events, events of a job, and counts by verdict.
_SCHEMA_7 = f"""
CREATE INDEX events_alike ON events (view, {CHANNEL}, verdict = '', onset_s DESC, id);
CREATE INDEX events_by_jobs ON events (jobs);
CREATE INDEX events_by_verdict ON events (verdict, end_s);
"""

#: An index for the events of a node.
_SCHEMA_8 = "CREATE INDEX events_by_places ON events (places);"

#: The script at index n turns version n of the schema into version n + 1. A new database runs all of them.
SCHEMAS = (_SCHEMA_1, _SCHEMA_2, _SCHEMA_3, _SCHEMA_4, _SCHEMA_5, _SCHEMA_6, _SCHEMA_7, _SCHEMA_8)
#: The version of the schema, stored as SQLite's user_version.
VERSION = len(SCHEMAS)
_LEAST_FREE_BYTES = 64 << 10
#: SQLite's errors that mean a damaged file: not a database, corrupt, or a table that has gone.
_DAMAGED = ("not a database", "malformed", "no such table", "no such column", "Could not decode")


class Database:
    """One connection for writing and one for each reader. All threads share them, and each does one thing at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = threading.RLock()
        self.readers = Readers(path)
        if path.exists() and not path.is_file():  # SQLite would wait for a FIFO for ever
            raise InputError(path, "not a file; move it away to start with an empty database")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = connect(path)
            path.chmod(0o600)  # it contains names, comments and hashes of tokens
        except PermissionError as error:
            raise OutputError(
                f"{path}: belongs to another user, perhaps because a command ran as root; `twin doctor --home "
                f"{path.parent}` names all such files"
            ) from error
        except (OSError, sqlite3.Error) as error:
            raise OutputError(f"{path}: cannot be opened: {error}") from error
        with self._reporting():
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        self._file = _identity(path)
        self._create()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit the whole block or nothing. The data is on disk when the block ends."""
        with self._writing, self._reporting():
            self._check_place()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        """Read committed rows, without waiting for a writer. `Overloaded` if a query of a request takes too long."""
        self._check_place()
        with self._reporting(reading=True):
            return self.readers.rows(query, values)

    def check(self) -> None:
        """Read the whole file, and raise if a page of it is damaged."""
        (result,) = self.rows("PRAGMA quick_check(1)")[0]
        if result != "ok":
            raise self._damaged(" ".join(str(result).split()))

    def close(self) -> None:
        with self._writing:
            self.readers.close()
            self._connection.close()

    def _check_place(self) -> None:
        """Raise if the open file is not at its path any more: what is written to it would be lost with the process."""
        if _identity(self.path) != self._file:
            raise InputError(
                self.path,
                "the database was moved, deleted or replaced while it was open; stop this process, check the file, "
                "and start it again",
            )

    def _create(self) -> None:
        with self.transaction() as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            for script in SCHEMAS[version:]:
                # executescript would commit by itself. Single statements keep the schema in one transaction.
                for statement in _statements(script):
                    connection.execute(statement)
            if version < VERSION:
                connection.execute(f"PRAGMA user_version = {VERSION}")
        if version > VERSION:
            self.close()
            refuse_newer(self.path, version, VERSION)

    @contextmanager
    def _reporting(self, reading: bool = False) -> Iterator[None]:
        """Turn SQLite's errors into errors that name the file."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            # A write that fails can mean a bad disk or a full one; a read that fails means that data is missing.
            if any(text in str(error) for text in _DAMAGED) or (reading and "disk I/O error" in str(error)):
                raise self._damaged(error) from error
            reason = f"{error}; the disk is full" if _is_full(self.path) else error
            raise OutputError(f"{self.path}: {reason}; data written earlier is intact") from error

    def _damaged(self, reason: object) -> InputError:
        return InputError(
            self.path,
            f"the database is damaged: {reason}; restore a copy, or move the file away to start with an empty one",
        )


def _is_full(path: Path) -> bool:
    """Whether there is less room than SQLite needs to open a database. It calls that a disk I/O error."""
    try:
        return shutil.disk_usage(path.parent).free < _LEAST_FREE_BYTES
    except OSError:
        return False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
