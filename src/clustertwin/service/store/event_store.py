"""The store of events: events with their explanations and verdicts -> cases, page by page.

store = Store(home / "state.sqlite")
store.write([(change.event, why)])                  # one transaction for all events of a scoring
store.vet([case.id], "confirmed", who="ada", comment="disk 3 is dying", now_s=now_s)
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from clustertwin.core.errors import InputError, SettingsError, TwinError
from clustertwin.service.store import audit_log
from clustertwin.service.store.database import CHANNEL, Database
from clustertwin.service.store.id_prefixes import find_id
from clustertwin.service.store.quiet_periods import QuietPeriods
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import Explanation, Measure, NodeRatio, Ratio
from clustertwin.telemetry.detection.events.explanation_text import title_of
from clustertwin.telemetry.learning.night.verdicts import SETTLED, VettedSpan

Verdict = Literal["confirmed", "dismissed", "new-normal"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
LONGEST_COMMENT = 4000

#: What a later state of an event replaces. Its model, its cause and its question never change.
_UPDATED = ("places", "jobs", "owner", "onset_s", "seen_s", "end_s", "score", "view", "title", "since_s")
_COLUMNS = (
    *("id", "places", "jobs", "owner", "onset_s", "seen_s", "end_s", "score", "view", "model"),
    *("cause", "question", "title", "since_s", "why"),
)


class NoSuchEvent(TwinError):
    """There is no event with this id."""


@dataclass(frozen=True, slots=True)
class Case:
    """An event, its explanation, and the verdict that a person gave."""

    event: Event
    why: Explanation | None
    verdict: str = ""  # one of `VERDICTS`, or empty
    who: str = ""
    comment: str = ""
    vetted_s: float | None = None

    @property
    def id(self) -> str:
        return self.event.id

    @property
    def is_settled(self) -> bool:
        return self.verdict in SETTLED


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events to select. A field that is None or empty matches every event."""

    open: bool | None = None
    verdict: str | None = None  # "" selects events without a verdict
    node: str = ""
    job: str = ""
    owner: str = ""
    view: str = ""
    start_s: float | None = None  # selects events that end at this second or later
    end_s: float | None = None  # selects events that begin at this second or earlier
    unsettled: bool = False  # only events that are not dismissed and not new normal


class Store:
    def __init__(self, path: Path) -> None:
        self.database = Database(path)
        self.quiet_periods = QuietPeriods(self.database)
        self._write_missing_titles()

    def write(self, events: Iterable[tuple[Event, Explanation | None]]) -> None:
        """Insert or update events. An explanation stays until there is a newer one."""
        rows = [_row(event, why) for event, why in events]
        if not rows:
            return
        with self.database.transaction() as connection:
            connection.executemany(
                f"INSERT INTO events ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
                f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _UPDATED)},"
                " why = COALESCE(excluded.why, why)",
                rows,
            )

    def _write_missing_titles(self) -> None:
        """Give the events of a release without titles their titles."""
        rows = self.database.rows("SELECT * FROM events WHERE title = ''")
        if rows:
            titles = [(title_of(case.event, case.why), case.id) for case in map(_case, rows)]
            with self.database.transaction() as connection:
                connection.executemany("UPDATE events SET title = ? WHERE id = ?", titles)

    def events(self, which: Filter = Filter(), limit: int = 100, offset: int = 0) -> list[Case]:
        """Events, newest first."""
        where, values = _where(which)
        query = f"SELECT * FROM events WHERE {where} ORDER BY onset_s DESC, id LIMIT ? OFFSET ?"
        return [_case(row) for row in self.database.rows(query, (*values, limit, offset))]

    def count(self, which: Filter = Filter()) -> int:
        where, values = _where(which)
        return int(self.database.rows(f"SELECT COUNT(*) FROM events WHERE {where}", tuple(values))[0][0])

    def settled_open(self) -> frozenset[str]:
        """The ids of open events that a verdict has settled; from an index, because every page needs them."""
        rows = self.database.rows(f"SELECT id FROM events WHERE end_s IS NULL AND verdict IN {SETTLED}")
        return frozenset(str(row["id"]) for row in rows)

    def event(self, event_id: str) -> Case:
        rows = self.database.rows("SELECT * FROM events WHERE id = ?", (event_id,))
        if not rows:
            raise NoSuchEvent(f"there is no event {event_id!r}")
        return _case(rows[0])

    def is_settled(self, event_id: str) -> bool:
        """Whether a verdict has settled the event. One that is deleted has no verdict."""
        try:
            return self.event(event_id).is_settled
        except NoSuchEvent:
            return False

    def find(self, name: str) -> str:
        """The full id of the event whose id is `name` or is the only one that begins with it."""
        return find_id(self.database, "events", name, NoSuchEvent)

    def alike(self, case: Case, limit: int = 10) -> list[Case]:
        """Earlier events of the same view and channel: those with a verdict first, then the newest."""
        channel = case.why.channel if case.why else ""
        rows = self.database.rows(
            f"SELECT * FROM events WHERE id != ? AND view = ? AND {CHANNEL} = ? AND onset_s <= ?"
            " ORDER BY verdict = '', onset_s DESC, id LIMIT ?",
            (case.id, case.event.view, channel, case.event.onset_s, limit),
        )
        return [_case(row) for row in rows]

    def vet(self, ids: Sequence[str], verdict: str, *, who: str, comment: str = "", now_s: float) -> list[Case]:
        """Store a verdict for all of these events. If one of them does not exist, none is changed."""
        if verdict not in VERDICTS:
            raise SettingsError(f"unknown verdict {verdict!r}; use one of {', '.join(VERDICTS)}")
        if len(comment) > LONGEST_COMMENT:
            raise SettingsError(f"the comment has {len(comment)} characters; the limit is {LONGEST_COMMENT}")
        after = {"verdict": verdict, "who": who, "comment": comment, "vetted_s": now_s}
        with self.database.transaction() as connection:
            for event_id in dict.fromkeys(ids):
                before = _read_verdict(connection, event_id)
                _write_verdict(connection, event_id, after)
                audit_log.append(connection, now_s, who, "vet", event_id, before, after)
        return [self.event(event_id) for event_id in dict.fromkeys(ids)]

    def undo(self, event_id: str, *, who: str, now_s: float) -> Case:
        """Restore the verdict before the last change. To undo an undo is to redo."""
        return self.undo_all([event_id], who=who, now_s=now_s)[0]

    def undo_all(self, ids: Sequence[str], *, who: str, now_s: float, own: bool = False) -> list[Case]:
        """Undo the last verdict of all of these events. If one of them has none, none is changed.

        With `own`, also if one of them is somebody else's: a list does not show that it has changed meanwhile.
        """
        with self.database.transaction() as connection:
            for event_id in dict.fromkeys(ids):
                current = _read_verdict(connection, event_id)
                last = connection.execute(
                    "SELECT who, before FROM audit WHERE subject = ? AND action IN ('vet', 'undo')"
                    " ORDER BY id DESC LIMIT 1",
                    (event_id,),
                ).fetchone()
                if last is None:
                    raise SettingsError(f"nothing to undo: event {event_id} never had a verdict")
                if own and last["who"] != who:
                    changed = f"{last['who']} has changed the verdict of event {event_id} since"
                    raise SettingsError(f"nothing is undone: {changed}; open the event to undo it")
                previous = json.loads(last["before"])
                _write_verdict(connection, event_id, previous)
                audit_log.append(connection, now_s, who, "undo", event_id, current, previous)
        return [self.event(event_id) for event_id in dict.fromkeys(ids)]

    def between(self, start_s: float, end_s: float) -> list[VettedSpan]:
        """Verdicts and maintenance windows that overlap this time, for the nightly cycle.

        An open event counts until it was last seen.
        """
        rows = self.database.rows(
            "SELECT * FROM events WHERE verdict != '' AND onset_s < ? AND COALESCE(end_s, seen_s) > ? ORDER BY onset_s",
            (end_s, start_s),
        )
        cases = [_case(row) for row in rows]
        vetted = [
            VettedSpan(
                node, cpus, case.event.onset_s, case.event.end_s or case.event.seen_s, cast(Verdict, case.verdict)
            )
            for case in cases
            for node, cpus in case.event.places
        ]
        for window in self.quiet_periods.maintenance(start_s):
            if window.start_s < end_s:
                vetted += [VettedSpan(node, (), window.start_s, window.end_s, "maintenance") for node in window.nodes]
        return vetted

    def audit(self, subject: str = "", before_id: int = 0, limit: int = 100) -> list[audit_log.AuditEntry]:
        return audit_log.read(self.database, subject, before_id, limit)

    def append_audit(
        self, who: str, action: str, subject: str, now_s: float, after: dict[str, Any] | None = None
    ) -> None:
        """Add an audit entry for an action outside this store, such as a promotion or a freeze."""
        with self.database.transaction() as connection:
            audit_log.append(connection, now_s, who, action, subject, after=after)

    def close(self) -> None:
        self.database.close()


def _row(event: Event, why: Explanation | None) -> tuple[Any, ...]:
    return (
        event.id,
        json.dumps(event.places),
        json.dumps(event.jobs),
        event.owner,
        event.onset_s,
        event.seen_s,
        event.end_s,
        event.score,
        event.view,
        event.model,
        event.cause,
        event.question,
        event.title or title_of(event, why),
        event.since_s,
        None if why is None else json.dumps(asdict(why)),
    )


def _case(row: sqlite3.Row) -> Case:
    try:
        return _parse_case(row)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError("state.sqlite", f"event {row['id']!r} is damaged: {error}") from error


def _parse_case(row: sqlite3.Row) -> Case:
    event = Event(
        id=row["id"],
        places=tuple((node, tuple(cpus)) for node, cpus in json.loads(row["places"])),
        jobs=tuple(json.loads(row["jobs"])),
        owner=row["owner"],
        onset_s=row["onset_s"],
        seen_s=row["seen_s"],
        end_s=row["end_s"],
        score=row["score"],
        view=row["view"],
        model=row["model"],
        cause=row["cause"],
        question=row["question"],
        title=row["title"],
        since_s=row["since_s"],
    )
    why = None
    if row["why"] is not None:
        plain = json.loads(row["why"])
        ratios = tuple(Ratio(**ratio) for ratio in plain["ratios"])
        nearest = tuple((name, distance) for name, distance in plain.get("nearest", ()))
        node_ratios = tuple(NodeRatio(**ratio) for ratio in plain.get("node_ratios", ()))
        measure = Measure(**plain["measure"]) if plain.get("measure") else None
        parsed = {"ratios": ratios, "nearest": nearest, "node_ratios": node_ratios, "measure": measure}
        why = Explanation(**{**plain, **parsed})
    return Case(event, why, row["verdict"], row["who"], row["comment"], row["vetted_s"])


def _where(which: Filter) -> tuple[str, list[Any]]:
    clauses: list[str] = ["1"]
    values: list[Any] = []
    if which.open is not None:
        clauses.append("end_s IS NULL" if which.open else "end_s IS NOT NULL")
    for column in ("owner", "view"):
        if value := getattr(which, column):
            clauses.append(f"{column} = ?")
            values.append(value)
    if which.verdict is not None:
        clauses.append("verdict = ?")
        values.append(which.verdict)
    if which.unsettled:
        clauses.append(f"verdict NOT IN {SETTLED}")
    # Subqueries, which scan the index of the places or of the jobs: it is much smaller than the table.
    # instr() first: it is several times as fast as parsing the JSON, and rules out most rows.
    if which.node:
        clauses.append(
            "rowid IN (SELECT rowid FROM events WHERE instr(places, ?)"
            " AND EXISTS (SELECT 1 FROM json_each(places) WHERE json_extract(value, '$[0]') = ?))"
        )
        values += [json.dumps(which.node), which.node]
    if which.job:
        clauses.append(
            "rowid IN (SELECT rowid FROM events WHERE instr(jobs, ?)"
            " AND EXISTS (SELECT 1 FROM json_each(jobs) WHERE value = ?))"
        )
        values += [json.dumps(which.job), which.job]
    if which.start_s is not None:
        clauses.append("(end_s IS NULL OR end_s >= ?)")
        values.append(which.start_s)
    if which.end_s is not None:
        clauses.append("onset_s <= ?")
        values.append(which.end_s)
    return " AND ".join(clauses), values


def _read_verdict(connection: sqlite3.Connection, event_id: str) -> dict[str, Any]:
    row = connection.execute("SELECT verdict, who, comment, vetted_s FROM events WHERE id = ?", (event_id,)).fetchone()
    if row is None:
        raise NoSuchEvent(f"there is no event {event_id!r}")
    return dict(row)


def _write_verdict(connection: sqlite3.Connection, event_id: str, verdict: dict[str, Any]) -> None:
    connection.execute(
        "UPDATE events SET verdict = :verdict, who = :who, comment = :comment, vetted_s = :vetted_s WHERE id = :id",
        {**verdict, "id": event_id},
    )
