"""When not to be disturbed: maintenance windows, in which nodes are not judged, and silences, which only hush.

In a maintenance window a node's scores are unknown, so nothing there becomes an event. A silenced event is recorded
and shown like any other, and nobody is told of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase

from clustertwin.core.errors import SettingsError
from clustertwin.service.store import audit_log
from clustertwin.service.store.database import Database
from clustertwin.telemetry.detection.events.event import Event


def _matches(name: str, pattern: str) -> bool:
    """A name is itself also where it reads like a pattern: [::1]:9400, job[3]."""
    return name == pattern or fnmatchcase(name, pattern)


@dataclass(frozen=True, slots=True)
class Maintenance:
    nodes: tuple[str, ...]  # names, or patterns like `n0*`
    start_s: float
    end_s: float
    reason: str = ""
    who: str = ""
    id: int = 0

    def holds(self, node: str) -> bool:
        return any(_matches(node, pattern) for pattern in self.nodes)


@dataclass(frozen=True, slots=True)
class Silence:
    """Every pattern that is given must match; an empty one matches anything."""

    until_s: float
    node: str = ""
    job: str = ""
    owner: str = ""
    view: str = ""
    reason: str = ""
    who: str = ""
    id: int = 0

    def holds(self, event: Event) -> bool:
        return (
            (not self.node or any(_matches(node, self.node) for node in event.nodes))
            and (not self.job or any(_matches(job, self.job) for job in event.jobs))
            and (not self.owner or _matches(event.owner, self.owner))
            and (not self.view or self.view == event.view)
        )


def hushed(event: Event, silences: Iterable[Silence]) -> bool:
    return any(silence.holds(event) for silence in silences)


class Quiet:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add_maintenance(self, window: Maintenance, now_s: float) -> Maintenance:
        if not window.nodes or not max(window.start_s, now_s) < window.end_s:
            raise SettingsError("a maintenance window needs nodes, and an end after its start and after now")
        with self._db.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO maintenance (nodes, start_s, end_s, reason, who) VALUES (?, ?, ?, ?, ?)",
                (json.dumps(window.nodes), window.start_s, window.end_s, window.reason, window.who),
            )
            added = Maintenance(**{**asdict(window), "id": int(cursor.lastrowid or 0)})
            audit_log.note(connection, now_s, window.who, "maintenance", f"maintenance {added.id}", after=asdict(added))
        return added

    def maintenance(self, now_s: float) -> list[Maintenance]:
        """Those that have not ended."""
        rows = self._db.rows("SELECT * FROM maintenance WHERE end_s > ? ORDER BY start_s, id", (now_s,))
        return [Maintenance(**{**dict(row), "nodes": tuple(json.loads(row["nodes"]))}) for row in rows]

    def end_maintenance(self, number: int, who: str, now_s: float) -> bool:
        """Let it end now; whether there was one."""
        with self._db.transaction() as connection:
            done = connection.execute(
                "UPDATE maintenance SET end_s = ? WHERE id = ? AND end_s > ?", (now_s, number, now_s)
            ).rowcount
            if done:
                audit_log.note(connection, now_s, who, "end maintenance", f"maintenance {number}")
        return bool(done)

    def add_silence(self, silence: Silence, now_s: float) -> Silence:
        if silence.until_s <= now_s or not (silence.node or silence.job or silence.owner or silence.view):
            raise SettingsError("a silence needs an end after now, and at least one of node, job, owner and view")
        with self._db.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO silences (node, job, owner, view, until_s, reason, who) VALUES (?, ?, ?, ?, ?, ?, ?)",
                tuple(getattr(silence, name) for name in ("node", "job", "owner", "view", "until_s", "reason", "who")),
            )
            added = Silence(**{**asdict(silence), "id": int(cursor.lastrowid or 0)})
            audit_log.note(connection, now_s, silence.who, "silence", f"silence {added.id}", after=asdict(added))
        return added

    def silences(self, now_s: float) -> list[Silence]:
        """Those that have not ended."""
        rows = self._db.rows("SELECT * FROM silences WHERE until_s > ? ORDER BY until_s, id", (now_s,))
        return [Silence(**dict(row)) for row in rows]

    def end_silence(self, number: int, who: str, now_s: float) -> bool:
        """Let it end now; whether there was one."""
        with self._db.transaction() as connection:
            done = connection.execute(
                "UPDATE silences SET until_s = ? WHERE id = ? AND until_s > ?", (now_s, number, now_s)
            ).rowcount
            if done:
                audit_log.note(connection, now_s, who, "end silence", f"silence {number}")
        return bool(done)
