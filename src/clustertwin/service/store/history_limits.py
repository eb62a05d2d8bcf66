"""How long the database keeps history: limits in days and bytes -> the oldest rows are deleted.

Open events are always kept. An event goes with its evidence and its actions. Entries of the audit log are deleted by
this module only, and each time an entry of its own says how many and up to when. The file does not shrink: SQLite uses
the freed pages again.

An age is measured by the clock of this machine, which may be wrong for a while. If it is far after everything in the
database, nothing is too old.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clustertwin.service.store import audit_log
from clustertwin.service.store.database import Database

#: Rows that one transaction deletes, so that writers wait for milliseconds only.
BATCH = 500
_DAY_S = 86_400.0
#: A clock that is this long after the newest entry is not believed.
_NOT_BELIEVED_S = 30 * _DAY_S
_NEWEST = """SELECT MAX(at_s) FROM (SELECT MAX(end_s) AS at_s FROM events UNION ALL SELECT MAX(seen_s) FROM events
             UNION ALL SELECT MAX(at_s) FROM audit)"""
_log = logging.getLogger("uvicorn.error")
#: Until the data is below the limit of bytes, events are deleted in this order; those with a verdict go last.
_OLDEST = "SELECT id FROM events WHERE end_s IS NOT NULL {and_} ORDER BY verdict != '', onset_s, id LIMIT {limit}"


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """0: no limit."""

    events_days: float = 730.0  # after the end of an event
    audit_days: float = 1825.0
    database_gb: float = 2.0


@dataclass(frozen=True, slots=True)
class DeletedHistory:
    events: int = 0
    audit: int = 0


def used_bytes(database: Database) -> int:
    """The bytes of a database that hold data."""
    pages, free, page_bytes = (
        int(database.rows(f"PRAGMA {name}")[0][0]) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * page_bytes


def apply_limits(database: Database, limits: HistoryLimits, now_s: float) -> DeletedHistory:
    """Delete what is over a limit; how many events and entries of the audit log were deleted."""
    events, ages_count = 0, _is_believed(database, limits, now_s)
    if limits.events_days and ages_count:
        while deleted := _delete_events(database, f"AND {_too_old(limits, now_s)}"):
            events += deleted
    while limits.database_gb and used_bytes(database) > limits.database_gb * 1e9:
        deleted = _delete_events(database, "")
        events += deleted
        if not deleted:
            break  # what is left are open events and the audit log
    audit = 0
    if limits.audit_days and ages_count:
        audit = _delete_audit(database, now_s - limits.audit_days * _DAY_S, now_s)
    return DeletedHistory(events, audit)


def _is_believed(database: Database, limits: HistoryLimits, now_s: float) -> bool:
    """Whether ages by this clock can be trusted."""
    newest_s = database.rows(_NEWEST)[0][0]
    if newest_s is None or now_s - newest_s <= _NOT_BELIEVED_S:
        return True
    if limits.events_days and database.rows(f"SELECT 1 FROM events WHERE {_too_old(limits, now_s)} LIMIT 1"):
        days = (now_s - newest_s) / _DAY_S
        _log.warning("no history is deleted for its age: the clock is %.0f days after the newest entry", days)
    return False


def _too_old(limits: HistoryLimits, now_s: float) -> str:
    return f"end_s < {now_s - limits.events_days * _DAY_S:.3f}"


def _delete_events(database: Database, condition: str) -> int:
    with database.transaction() as connection:
        chosen = _OLDEST.format(and_=condition, limit=BATCH)
        ids = [(row["id"],) for row in connection.execute(chosen)]
        for table, column in (("evidence", "event"), ("actions", "event"), ("events", "id")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", ids)
    return len(ids)


def _delete_audit(database: Database, before_s: float, now_s: float) -> int:
    """Delete in the order of the log up to the first entry that stays, so that the log has no holes."""
    with database.transaction() as connection:
        row = connection.execute("SELECT MIN(id) FROM audit WHERE at_s >= ?", (before_s,)).fetchone()
        first_kept = row[0] if row[0] is not None else 2**62
        old = connection.execute("SELECT COUNT(*) FROM audit WHERE id < ?", (first_kept,)).fetchone()[0]
        if old == 0:
            return 0
        with _unlocked(connection):
            connection.execute("DELETE FROM audit WHERE id < ?", (first_kept,))
        after = {"entries": old, "before_s": before_s}
        audit_log.append(connection, now_s, "retention", "audit shortened", "audit", after=after)
    return int(old)


@contextmanager
def _unlocked(connection: sqlite3.Connection) -> Iterator[None]:
    """Without the trigger that refuses to delete entries. If the block fails, the transaction undoes that too."""
    (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'audit_is_not_cut'").fetchone()
    connection.execute("DROP TRIGGER audit_is_not_cut")
    yield
    connection.execute(sql)
