"""Quiet periods: maintenance windows, in which nodes are not scored, and silences, which suppress notifications.

In a maintenance window a node's scores are unknown, so it has no events. A silenced event is stored and shown like any
other, but nobody is notified.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from clustertwin.core.errors import SettingsError
from clustertwin.core.foreign_files import LATEST_S
from clustertwin.service.store import audit_log
from clustertwin.service.store.database import Database
from clustertwin.service.store.name_patterns import NamePatterns, check, is_pattern, matches
from clustertwin.telemetry.detection.events.event import Event

#: Budgets of all maintenance windows and of all silences that have not ended. The loop matches them with every node.
MOST_PERIODS = 200
MOST_PATTERNS = 200
MOST_NAMES = 10_000


class _Matcher:
    """A slot for compiled patterns that is no field: `asdict` and comparisons ignore it."""

    __slots__ = ("_patterns",)
    _patterns: NamePatterns


@dataclass(frozen=True, slots=True)
class MaintenanceWindow(_Matcher):
    nodes: tuple[str, ...]  # names, or patterns such as `n0*`
    start_s: float
    end_s: float
    reason: str = ""
    who: str = ""
    id: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "_patterns", NamePatterns(self.nodes))

    def covers(self, node: str) -> bool:
        return self._patterns.match(node)


@dataclass(frozen=True, slots=True)
class Silence:
    """Covers an event if every pattern matches. An empty pattern matches every event."""

    until_s: float
    node: str = ""
    job: str = ""
    owner: str = ""
    view: str = ""
    reason: str = ""
    who: str = ""
    id: int = 0

    def covers(self, event: Event) -> bool:
        return (
            (not self.node or any(matches(node, self.node) for node in event.nodes))
            and (not self.job or any(matches(job, self.job) for job in event.jobs))
            and (not self.owner or matches(event.owner, self.owner))
            and (not self.view or self.view == event.view)
        )


@lru_cache(maxsize=2 * MOST_PERIODS)
def _stored(nodes: str, **values: Any) -> MaintenanceWindow:
    """A stored window: the same object each time, because it remembers which nodes it covers."""
    return MaintenanceWindow(nodes=tuple(json.loads(nodes)), **values)


def is_silenced(event: Event, silences: Iterable[Silence]) -> bool:
    return any(silence.covers(event) for silence in silences)


class QuietPeriods:
    """The maintenance windows and silences in the database."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add_maintenance(self, window: MaintenanceWindow, now_s: float) -> MaintenanceWindow:
        if not all(window.nodes or [""]) or not max(window.start_s, now_s) < window.end_s <= LATEST_S:
            raise SettingsError(
                "a maintenance window needs at least one node, and must end after it begins and after now"
            )
        check(window.nodes)
        windows = self.maintenance(now_s)
        nodes = [node for open_window in (window, *windows) for node in open_window.nodes]
        _check_budget("maintenance windows", len(windows), nodes)
        with self._db.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO maintenance (nodes, start_s, end_s, reason, who) VALUES (?, ?, ?, ?, ?)",
                (json.dumps(window.nodes), window.start_s, window.end_s, window.reason, window.who),
            )
            added = MaintenanceWindow(**{**asdict(window), "id": int(cursor.lastrowid or 0)})
            audit_log.append(
                connection, now_s, window.who, "maintenance", f"maintenance {added.id}", after=asdict(added)
            )
        return added

    def maintenance(self, now_s: float) -> list[MaintenanceWindow]:
        """Windows that have not ended."""
        rows = self._db.rows("SELECT * FROM maintenance WHERE end_s > ? ORDER BY start_s, id", (now_s,))
        return [_stored(**dict(row)) for row in rows]

    def end_maintenance(self, number: int, who: str, now_s: float) -> bool:
        """End a window now. False if there is no such window, or it has ended."""
        return self._end("maintenance", "maintenance", "end_s", number, who, now_s)

    def add_silence(self, silence: Silence, now_s: float) -> Silence:
        if not (silence.node or silence.job or silence.owner or silence.view):
            raise SettingsError("a silence needs at least one of node, job, owner and view")
        if silence.until_s <= now_s:
            raise SettingsError("a silence must end after now")
        check((silence.node, silence.job, silence.owner))
        silences = self.silences(now_s)
        names = [name for each in (silence, *silences) for name in (each.node, each.job, each.owner)]
        _check_budget("silences", len(silences), names)
        with self._db.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO silences (node, job, owner, view, until_s, reason, who) VALUES (?, ?, ?, ?, ?, ?, ?)",
                tuple(getattr(silence, name) for name in ("node", "job", "owner", "view", "until_s", "reason", "who")),
            )
            added = Silence(**{**asdict(silence), "id": int(cursor.lastrowid or 0)})
            audit_log.append(connection, now_s, silence.who, "silence", f"silence {added.id}", after=asdict(added))
        return added

    def silences(self, now_s: float) -> list[Silence]:
        """Silences that have not ended."""
        rows = self._db.rows("SELECT * FROM silences WHERE until_s > ? ORDER BY until_s, id", (now_s,))
        return [Silence(**dict(row)) for row in rows]

    def end_silence(self, number: int, who: str, now_s: float) -> bool:
        """End a silence now. False if there is no such silence, or it has ended."""
        return self._end("silence", "silences", "until_s", number, who, now_s)

    def _end(self, noun: str, table: str, column: str, number: int, who: str, now_s: float) -> bool:
        if not 0 < number < 2**63:  # SQLite has no larger numbers
            return False
        with self._db.transaction() as connection:
            done = connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE id = ? AND {column} > ?", (now_s, number, now_s)
            ).rowcount
            if done:
                audit_log.append(connection, now_s, who, f"end {noun}", f"{noun} {number}")
        return bool(done)


def _check_budget(what: str, periods: int, names: list[str]) -> None:
    """Raise if the periods that have not ended, with a new one, exceed a budget."""
    patterns = sum(map(is_pattern, names))
    for count, most, noun in (
        (periods + 1, MOST_PERIODS, what),
        (patterns, MOST_PATTERNS, f"patterns in all {what}"),
        (len(names) - patterns, MOST_NAMES, f"names in all {what}"),
    ):
        if count > most:
            raise SettingsError(f"{count} {noun}: at most {most} are allowed; end one that you no longer need")
