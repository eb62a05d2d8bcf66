"""Limits of the history: days and bytes; what is open or vetted stays longest, and the audit log says what went."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest
from tests.service.web.test_api import EVENT, WHY

from clustertwin.service.store import audit_log, history_limits
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.history_limits import DeletedHistory, HistoryLimits, apply_limits, used_bytes
from clustertwin.service.store.quiet_periods import MaintenanceWindow, Silence

DAY_S = 86_400
NONE = HistoryLimits(0, 0, 0, 0)


@pytest.fixture
def store(tmp_path):
    """Event e0 is open, e1 to e9 ended on days 1 to 9, and e3 has a verdict."""
    store = Store(tmp_path / "state.sqlite")
    ends = [None, *(day * DAY_S for day in range(1, 10))]
    events = [replace(EVENT, id=f"e{i}", onset_s=i, seen_s=i + 1, end_s=end_s) for i, end_s in enumerate(ends)]
    store.write([(event, WHY) for event in events])
    store.vet(["e3"], "confirmed", who="ada", now_s=3.0 * DAY_S)
    yield store
    store.close()


def ids(store):
    return sorted(case.id for case in store.events())


def test_without_limits_nothing_goes(store):
    assert apply_limits(store.database, NONE, 1e12) == DeletedHistory()
    assert len(ids(store)) == 10


def test_events_go_after_their_days_with_their_evidence_and_open_ones_stay(store):
    with store.database.transaction() as connection:
        connection.executemany(
            "INSERT INTO evidence (event, taken_s, document) VALUES (?, 1, '{}')", [("e2",), ("e9",), ("e0",)]
        )
    assert apply_limits(store.database, replace(NONE, events_days=5), 10.0 * DAY_S).events == 4
    assert ids(store) == ["e0", "e5", "e6", "e7", "e8", "e9"]
    assert [row["event"] for row in store.database.rows("SELECT event FROM evidence ORDER BY id")] == ["e9", "e0"]


def test_above_the_bytes_the_oldest_go_first_and_vetted_ones_last(store, monkeypatch):
    monkeypatch.setattr("clustertwin.service.store.history_limits.BATCH", 1)
    with store.database.transaction() as connection:
        connection.execute("UPDATE events SET comment = ?", ("x" * 20_000,))
    before = used_bytes(store.database)
    apply_limits(store.database, replace(NONE, database_gb=(before - 100_000) / 1e9), 0.0)
    assert "e1" not in ids(store)
    assert {"e0", "e3", "e9"} <= set(ids(store))
    apply_limits(store.database, replace(NONE, database_gb=1e-9), 0.0)
    assert ids(store) == ["e0"]  # a limit below the smallest database ends the search


def test_the_audit_log_is_shortened_from_its_beginning_and_says_so(store):
    for day in range(4, 8):
        store.append_audit("ada", "vet", f"e{day}", day * DAY_S)
    assert apply_limits(store.database, replace(NONE, audit_days=4), 10.0 * DAY_S).audit == 3
    entries = store.audit()
    assert [entry.at_s / DAY_S for entry in entries] == [10, 7, 6]
    assert (entries[0].action, entries[0].after["entries"]) == ("audit shortened", 3)
    assert apply_limits(store.database, replace(NONE, audit_days=4), 10.0 * DAY_S).audit == 0
    with pytest.raises(sqlite3.IntegrityError, match="only grows"), store.database.transaction() as connection:
        connection.execute("DELETE FROM audit")


def add_audit(store, entries: int, letters: int, at_s: float = 1.0) -> None:
    with store.database.transaction() as connection:
        for _ in range(entries):
            audit_log.append(connection, at_s, "eve", "vet", "e1", after={"comment": "x" * letters})


def test_a_long_audit_log_costs_no_event(store):
    add_audit(store, 500, 4000)
    assert used_bytes(store.database) > 1e6
    assert apply_limits(store.database, replace(NONE, database_gb=1e-3), 0.0) == DeletedHistory()
    assert len(ids(store)) == 10


def test_above_its_bytes_the_audit_log_loses_its_oldest_entries_and_says_so(store):
    add_audit(store, 300, 4000)
    add_audit(store, 1, 10, at_s=7.0)
    deleted = apply_limits(store.database, replace(NONE, audit_mb=0.4), 9.0).audit
    entries = store.audit(limit=1000)
    assert 200 < deleted < 210
    assert (entries[0].action, entries[0].after) == ("audit shortened", {"entries": deleted, "up_to_s": 3.0 * DAY_S})
    assert (entries[1].at_s, len(entries)) == (7.0, 302 - deleted + 1)  # with the verdict of the fixture
    assert apply_limits(store.database, replace(NONE, audit_mb=0.4), 9.0).audit == 0


def test_quiet_periods_that_have_ended_do_not_stay_for_ever(store, monkeypatch):
    monkeypatch.setattr(history_limits, "ENDED_PERIODS_BYTES", 5000)
    periods = store.quiet_periods
    for number in range(12):
        periods.add_maintenance(MaintenanceWindow((f"n{number}" * 60,), 0.0, 100.0 + number), 1.0)
        periods.add_silence(Silence(100.0 + number, node="n1", reason="x" * 1000), 1.0)
    periods.add_maintenance(MaintenanceWindow(("n1",), 0.0, 9e9), 1.0)
    apply_limits(store.database, NONE, 1000.0)
    assert 0 < len(periods.silences(0.0)) <= 5
    assert 9e9 in [window.end_s for window in periods.maintenance(0.0)]
    monkeypatch.setattr(history_limits, "ENDED_PERIODS_BYTES", 1e9)
    apply_limits(store.database, replace(NONE, events_days=1), 2.0 * DAY_S)
    assert ([window.end_s for window in periods.maintenance(0.0)], periods.silences(0.0)) == ([9e9], [])


def test_a_clock_far_after_the_newest_entry_deletes_nothing(store, caplog):
    """A clock that is years ahead for a second would delete all events and the audit log."""
    limits = HistoryLimits(events_days=730, audit_days=1825, database_gb=0)
    assert apply_limits(store.database, limits, 5000.0 * DAY_S) == DeletedHistory()
    assert "the clock is 4991 days after the newest entry" in caplog.text


def test_an_entry_made_while_the_clock_is_wrong_does_not_confirm_it(store):
    """One verdict was enough: an hour later all events and the audit log were deleted."""
    limits = HistoryLimits(events_days=730, audit_days=1825, database_gb=0)
    store.append_audit("ada", "vet", "e9", 5000.0 * DAY_S)
    assert apply_limits(store.database, limits, 5000.1 * DAY_S) == DeletedHistory()
    store.append_audit("ada", "vet", "e9", 5029.0 * DAY_S)
    assert apply_limits(store.database, limits, 5029.0 * DAY_S) == DeletedHistory()
    assert apply_limits(store.database, limits, 5031.0 * DAY_S) == DeletedHistory(events=9, audit=1)


def test_a_long_audit_log_is_shortened_in_many_transactions(store, monkeypatch):
    """One transaction for a million entries made the loop wait for ten seconds."""
    monkeypatch.setattr(history_limits, "AUDIT_BATCH", 40)
    add_audit(store, 100, 10)
    begun = []
    transaction = store.database.transaction
    monkeypatch.setattr(store.database, "transaction", lambda: begun.append(1) or transaction())
    assert apply_limits(store.database, replace(NONE, audit_mb=1e-6), 9.0).audit == 101
    assert len(begun) - 2 == 3  # besides those of maintenance windows and silences
    shortened = [entry.after["entries"] for entry in store.audit() if entry.action == "audit shortened"]
    assert shortened == [21, 40, 40]
