"""Each reader has its own connection: a slow query of a request stops neither the loop nor access control."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from clustertwin.core.errors import Overloaded
from clustertwin.service.serving import _LoopThread
from clustertwin.service.store.database_readers import reading_as
from clustertwin.service.store.event_store import Store

FOR_EVER = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n"


@pytest.fixture
def store(tmp_path: Path):
    store = Store(tmp_path / "state.sqlite")
    yield store
    store.close()


def test_a_query_of_a_request_that_takes_too_long_is_ended(store):
    store.database.readers["request"].most_s = 0.05
    with reading_as("request"):
        with pytest.raises(Overloaded, match=r"state\.sqlite: the query took more than 0\.05 s; ask for less"):
            store.database.rows(FOR_EVER)
        assert store.count() == 0  # the next one is not affected


def test_a_request_does_not_wait_for_its_turn_for_ever(store):
    reader = store.database.readers["request"]
    reader.most_s = 0.05
    with reader.turn, reading_as("request"), pytest.raises(Overloaded, match="other requests use the database"):
        store.count()


def test_the_loop_reads_while_requests_and_others_are_at_it(store):
    class Loop:
        windows = None

        def run(self, stop: threading.Event) -> None:
            self.windows = store.quiet_periods.maintenance(0.0)

    loop, readers = Loop(), store.database.readers
    with readers["other"].turn, readers["request"].turn, readers["guard"].turn:
        thread = _LoopThread(loop, threading.Event())  # type: ignore[arg-type]
        thread.start()
        thread.join(timeout=60)
        assert loop.windows == []


def test_no_reader_can_write_and_none_opens_a_closed_database_again(tmp_path):
    store = Store(tmp_path / "state.sqlite")
    with reading_as("guard"), pytest.raises(Exception, match="readonly"):
        store.database.rows("DELETE FROM tokens")
    store.close()
    for name in ("other", "loop", "guard", "request"):
        with reading_as(name), pytest.raises(sqlite3.ProgrammingError, match="closed"):
            store.count()
