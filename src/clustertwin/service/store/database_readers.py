"""Who reads the database: the loop, access control, requests and others -> a connection for each of them.

A slow query of a page then delays neither scoring nor access control. The queries of requests have a deadline, which
counts their turn too.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from pathlib import Path
from typing import Any, Literal

from clustertwin.core.errors import Overloaded

#: `other` is for commands and for the threads beside the loop.
ReaderName = Literal["other", "loop", "guard", "request"]
#: How long a query of a request may wait for its turn, and how long it may run.
REQUEST_S = 5.0
#: SQLite looks at the clock after this many of its steps, which take less than a millisecond.
_STEPS = 10_000

_name: ContextVar[ReaderName] = ContextVar("reader_name", default="other")


@contextmanager
def reading_as(name: ReaderName) -> Iterator[None]:
    """Inside the block, and in the worker threads that it awaits, `Readers.rows` uses the connection of this reader."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


class Readers:
    """The connections that only read."""

    def __init__(self, path: Path) -> None:
        self._readers: dict[ReaderName, Reader] = {
            "other": Reader(path),
            "loop": Reader(path),
            "guard": Reader(path),
            "request": Reader(path, REQUEST_S),
        }

    def __getitem__(self, name: ReaderName) -> Reader:
        return self._readers[name]

    def rows(self, query: str, values: tuple[Any, ...]) -> list[sqlite3.Row]:
        return self._readers[_name.get()].rows(query, values)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


class Reader:
    """One connection, which does one query at a time. It is opened by the first query."""

    def __init__(self, path: Path, most_s: float = inf) -> None:
        self._path, self.most_s = path, most_s
        self.turn = threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self._until_s = inf
        self._is_closed = False

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        """`Overloaded` if the query waits or runs for too long."""
        if not self.turn.acquire(timeout=-1 if self.most_s == inf else self.most_s):
            raise Overloaded(
                f"{self._path}: other requests use the database for more than {self.most_s:g} s; try again"
            )
        try:
            self._until_s = time.monotonic() + self.most_s
            return self._open().execute(query, values).fetchall()
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise Overloaded(f"{self._path}: the query took more than {self.most_s:g} s; ask for less") from error
            raise
        finally:
            self.turn.release()

    def close(self) -> None:
        with self.turn:
            self._is_closed = True
            if self.connection is not None:
                self.connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._is_closed:
            raise sqlite3.ProgrammingError("the database is closed")
        if self.connection is None:
            connection = connect(self._path)
            connection.execute("PRAGMA query_only = ON")
            if self.most_s != inf:
                connection.set_progress_handler(lambda: time.monotonic() > self._until_s, _STEPS)
            self.connection = connection
        return self.connection


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    connection.row_factory = sqlite3.Row
    return connection
