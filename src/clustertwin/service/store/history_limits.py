"""How long the database keeps history: limits in days and bytes -> the oldest rows are deleted.

Open events are always kept. An event goes with its evidence and its actions, and only because of its age or because
events need too many bytes: other tables have limits of their own. Entries of the audit log are deleted by this module
only, and each time an entry of its own says how many and up to when. The file does not shrink: SQLite uses the freed
pages again.

An age is measured by the clock of this machine, which may be wrong for a while. If it is far after everything in the
database, or after everything but the entries of the last weeks, nothing is too old.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from clustertwin.core.durations import DAY_S
from clustertwin.service.store import audit_log
from clustertwin.service.store.database import Database

#: Rows that one transaction deletes, so that writers wait for milliseconds only.
BATCH = 500
#: Entries of the audit log are small, and each transaction adds one.
AUDIT_BATCH = 20_000
#: Between two transactions: without a pause, writers would seldom get their turn.
_PAUSE_S = 0.005
#: Bytes of maintenance windows and of silences that have ended. The newest are kept: a night reads those of its day.
ENDED_PERIODS_BYTES = 16e6
#: A clock that is this long after the newest entry is not believed. Entries that were made by it do not confirm it
#: before they are as old, unless the one before them is not much older.
_NOT_BELIEVED_S, _GAP_S = 30 * DAY_S, 60 * DAY_S
_NEWEST = """SELECT MAX(at_s), MAX(CASE WHEN at_s <= ? THEN at_s END) FROM (
             SELECT end_s AS at_s FROM events UNION ALL SELECT seen_s FROM events UNION ALL SELECT at_s FROM audit)"""
_log = logging.getLogger("uvicorn.error")
#: Until the data is below the limit of bytes, events are deleted in this order; those with a verdict go last.
_OLDEST = "SELECT id FROM events WHERE end_s IS NOT NULL {and_} ORDER BY verdict != '', onset_s, id LIMIT {limit}"
#: The bytes of a row. What people can write is in these tables and, within limits, in the comments of events.
_ROW_BYTES = {
    "audit": "50 + LENGTH(before) + LENGTH(after) + 2 * LENGTH(subject) + LENGTH(who)",
    "maintenance": "50 + LENGTH(nodes) + LENGTH(reason)",
    "silences": "50 + LENGTH(node) + LENGTH(job) + LENGTH(owner) + LENGTH(view) + LENGTH(reason)",
}
_ENDS = {"maintenance": "end_s", "silences": "until_s"}


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """0: no limit."""

    events_days: float = 730.0  # after the end of an event
    audit_days: float = 1825.0
    database_gb: float = 2.0  # without the audit log
    audit_mb: float = 500.0


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
    audit = 0
    if not _is_believed(database, limits, now_s):
        limits = replace(limits, events_days=0, audit_days=0)
    if limits.audit_days:
        audit += _delete_audit(database, _first_since(database, now_s - limits.audit_days * DAY_S), now_s)
    if limits.audit_mb:
        audit += _delete_audit(database, _last_beyond(database, "audit", limits.audit_mb * 1e6) + 1, now_s)
    _delete_periods(database, limits, now_s)
    events = 0
    if limits.events_days:
        while deleted := _delete_events(database, f"AND {_too_old(limits, now_s)}"):
            events += deleted
            time.sleep(_PAUSE_S)
    if limits.database_gb and used_bytes(database) > limits.database_gb * 1e9:
        most_bytes = limits.database_gb * 1e9 + _other_bytes(database)
        while used_bytes(database) > most_bytes:
            deleted = _delete_events(database, "")
            events += deleted
            if not deleted:
                break  # what is left are open events
            time.sleep(_PAUSE_S)
    return DeletedHistory(events, audit)


def _is_believed(database: Database, limits: HistoryLimits, now_s: float) -> bool:
    """Whether ages by this clock can be trusted."""
    which = "the newest entry"
    newest_s, before_s = database.rows(_NEWEST, (now_s - _NOT_BELIEVED_S,))[0]
    if newest_s is None or now_s - newest_s <= _NOT_BELIEVED_S:
        if before_s is None or now_s - before_s <= _NOT_BELIEVED_S + _GAP_S:
            return True
        newest_s, which = before_s, "all but the latest entries"
    if limits.events_days and database.rows(f"SELECT 1 FROM events WHERE {_too_old(limits, now_s)} LIMIT 1"):
        days = (now_s - newest_s) / DAY_S
        _log.warning("no history is deleted for its age: the clock is %.0f days after %s", days, which)
    return False


def _too_old(limits: HistoryLimits, now_s: float) -> str:
    return f"end_s < {now_s - limits.events_days * DAY_S:.3f}"


def _other_bytes(database: Database) -> int:
    """The bytes of tables that are not about events. Less than their pages, which are not full."""
    sums = [f"(SELECT TOTAL({size}) FROM {table})" for table, size in _ROW_BYTES.items()]
    return int(database.rows(f"SELECT {' + '.join(sums)}")[0][0])


def _delete_events(database: Database, condition: str) -> int:
    with database.transaction() as connection:
        chosen = _OLDEST.format(and_=condition, limit=BATCH)
        ids = [(row["id"],) for row in connection.execute(chosen)]
        for table, column in (("evidence", "event"), ("actions", "event"), ("events", "id")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", ids)
    return len(ids)


def _delete_periods(database: Database, limits: HistoryLimits, now_s: float) -> None:
    """Delete maintenance windows and silences that ended long ago, and the oldest of too many that have ended."""
    for table, end_s in _ENDS.items():
        last = _last_beyond(database, table, ENDED_PERIODS_BYTES)
        before_s = now_s - limits.events_days * DAY_S if limits.events_days else 0.0
        with database.transaction() as connection:
            connection.execute(
                f"DELETE FROM {table} WHERE {end_s} < ? OR (id <= ? AND {end_s} <= ?)", (before_s, last, now_s)
            )


def _first_since(database: Database, since_s: float) -> int:
    """The first entry of the audit log that is kept. All later ones are kept too, so that the log has no holes."""
    first = "(SELECT MIN(id) FROM audit WHERE at_s >= ?)"
    return int(database.rows(f"SELECT COALESCE({first}, MAX(id) + 1, 0) FROM audit", (since_s,))[0][0])


def _last_beyond(database: Database, table: str, most_bytes: float) -> int:
    """The newest row that is too much, if the newest rows are kept up to these bytes; 0 if none is."""
    totals = f"SELECT id, SUM({_ROW_BYTES[table]}) OVER (ORDER BY id DESC) AS total FROM {table}"
    last = database.rows(f"SELECT MAX(id) FROM ({totals}) WHERE total > ?", (most_bytes,))[0][0]
    return int(last or 0)


def _delete_audit(database: Database, first_kept: int, now_s: float) -> int:
    """Delete the entries before this one; their number."""
    oldest = database.rows("SELECT MIN(id) FROM audit")[0][0]
    deleted = 0
    while oldest is not None and oldest < first_kept:
        oldest = min(oldest + AUDIT_BATCH, first_kept)
        with database.transaction() as connection:
            old = connection.execute("SELECT COUNT(*), MAX(at_s) FROM audit WHERE id < ?", (oldest,)).fetchone()
            with _unlocked(connection):
                connection.execute("DELETE FROM audit WHERE id < ?", (oldest,))
            after = {"entries": old[0], "up_to_s": old[1]}
            audit_log.append(connection, now_s, "retention", "audit shortened", "audit", after=after)
        deleted += int(old[0])
        time.sleep(_PAUSE_S)
    return deleted


@contextmanager
def _unlocked(connection: sqlite3.Connection) -> Iterator[None]:
    """Without the trigger that refuses to delete entries. If the block fails, the transaction undoes that too."""
    (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'audit_is_not_cut'").fetchone()
    connection.execute("DROP TRIGGER audit_is_not_cut")
    yield
    connection.execute(sql)
