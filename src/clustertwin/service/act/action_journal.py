"""The journal of actions: a proposal -> its states, each on disk before the next step begins.

proposed -> approved -> running -> done or failed; proposed -> dismissed or expired; advised stays. `running` is written
before the first command, and each command's number before that command. Only one process at a time acts (`acting`), so
a row that is `running` when the lock is taken belongs to a process that was killed. It is completed or closed by what
Slurm shows, and a signal that may have been sent is not sent again.

An approval carries a code. The code is a keyed hash of what the page showed, so a forged one, one of an older page and
one that was used before are refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.core.errors import InputError, SettingsError, SourceError
from clustertwin.service.act.slurm_commands import JobFacts
from clustertwin.service.store import audit_log
from clustertwin.service.store.database import Database
from clustertwin.service.store.id_prefixes import find_id

#: A proposal that nobody answers for this long expires.
EXPIRES_S = 3600.0
#: A proposal that is this far in the future was made before the clock was set back.
SET_BACK_S = 60.0
#: How long a process waits for another one that acts.
LOCK_S = 30.0


class ApprovalRefused(SettingsError):
    """An approval that is forged, stale, used before, or for another action."""


@dataclass(frozen=True, slots=True)
class ActionPlan:
    """All that an action needs, as it was shown. It does not change after the proposal."""

    facts: JobFacts
    cause: str
    sentence: str
    sure: float
    mode: str
    signal: str
    grace_s: float
    promised_node_hours: float = 0.0
    promised_low: float = 0.0
    promised_high: float = 0.0
    outcomes: tuple[dict[str, Any], ...] = field(default=())
    reserve_s: float = 0.0  # of a reservation


@dataclass(frozen=True, slots=True)
class ActionRecord:
    id: str
    event: str
    job: str
    verb: str
    rule: str
    state: str
    proposed_s: float
    changed_s: float
    who: str
    result: str
    plan: ActionPlan
    step: int = 0  # commands that were begun
    measured_node_hours: float | None = None
    begun_s: float | None = None  # Unix time at which it began to be done

    @property
    def promise(self) -> tuple[float, float, float]:
        """The promised node-hours, low and high, from the time of the action: a person decides after the proposal."""
        plan = self.plan
        late = max((self.begun_s or self.proposed_s) - self.proposed_s, 0.0) * len(plan.facts.nodes) / 3600
        hours = (plan.promised_node_hours, plan.promised_low, plan.promised_high)
        middle, low, high = (max(value - late, 0.0) for value in hours)
        return middle, low, high


class Journal:
    def __init__(self, database: Database) -> None:
        self._db = database

    def propose(self, event: str, verb: str, rule: str, plan: ActionPlan, now_s: float) -> ActionRecord | None:
        """Store a proposal. None if there is one for this event and action already."""
        action_id, state = secrets.token_hex(6), "advised" if plan.mode == "advise" else "proposed"
        row = (action_id, event, plan.facts.job, verb, rule, state, now_s, now_s, json.dumps(asdict(plan)))
        try:
            with self._db.transaction() as connection:
                connection.execute(
                    "INSERT INTO actions (id, event, job, verb, rule, state, proposed_s, changed_s, plan)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    row,
                )
                after = {"action": verb, "job": plan.facts.job, "rule": rule, "event": event}
                audit_log.append(connection, now_s, f"rule {rule}", f"action {state}", action_id, after=after)
        except sqlite3.IntegrityError:
            return None
        return self.action(action_id)

    def action(self, action_id: str) -> ActionRecord:
        rows = self._db.rows("SELECT * FROM actions WHERE id = ?", (action_id,))
        if not rows:
            raise SettingsError(f"there is no action {action_id!r}")
        return _record(rows[0])

    def find(self, name: str) -> str:
        """The full id of the action whose id is `name` or is the only one that begins with it."""
        return find_id(self._db, "actions", name)

    def actions(self, states: Sequence[str] = (), event: str = "", limit: int = 200) -> list[ActionRecord]:
        """Actions, newest first."""
        where, values = ["1"], []
        if states:
            where.append(f"state IN ({', '.join('?' * len(states))})")
            values += list(states)
        if event:
            where.append("event = ?")
            values.append(event)
        query = f"SELECT * FROM actions WHERE {' AND '.join(where)} ORDER BY proposed_s DESC, id LIMIT {int(limit)}"
        return _records(self._db.rows(query, tuple(values)))

    def unmeasured(self, since_s: float) -> list[ActionRecord]:
        """Actions and advice since this time whose saving is not known yet, newest first."""
        rows = self._db.rows(
            "SELECT * FROM actions WHERE measured_node_hours IS NULL AND proposed_s >= ?"
            " AND state IN ('done', 'advised', 'dismissed', 'expired') ORDER BY proposed_s DESC, id LIMIT 1000",
            (since_s,),
        )
        return _records(rows)

    def measured(self, limit: int) -> list[ActionRecord]:
        """Actions whose saving is known, newest first."""
        query = "SELECT * FROM actions WHERE measured_node_hours IS NOT NULL ORDER BY proposed_s DESC, id LIMIT ?"
        return _records(self._db.rows(query, (limit,)))

    def count_since(self, rule: str, since_s: float) -> int:
        """Actions of a rule that were begun since this time."""
        rows = self._db.rows(
            "SELECT COUNT(*) FROM actions WHERE rule = ? AND changed_s >= ?"
            " AND state IN ('approved', 'running', 'done', 'failed')",
            (rule, since_s),
        )
        return int(rows[0][0])

    def code(self, action: ActionRecord) -> str:
        """The code that approves exactly this action in this state."""
        shown = json.dumps([action.id, action.event, action.verb, action.state, asdict(action.plan)], sort_keys=True)
        return hmac.new(self._secret(), shown.encode(), hashlib.sha256).hexdigest()

    def approve(self, action_id: str, code: str, who: str, now_s: float) -> ActionRecord:
        """Allow an action. The code must be that of the action as it is now."""
        action = self.action(action_id)
        if action.state != "proposed":
            raise ApprovalRefused(f"action {action_id} is {action.state}, so it cannot be approved again")
        if why := expired(action.proposed_s, now_s):
            self._move(action_id, ("proposed",), "expired", "", now_s, why)
            raise ApprovalRefused(f"action {action_id} has expired: {why}")
        if not hmac.compare_digest(self.code(action), code):
            raise ApprovalRefused("the approval does not belong to this action as it is now; load the page again")
        self._move(action_id, ("proposed",), "approved", who, now_s)
        return self.action(action_id)

    def dismiss(self, action_id: str, who: str, now_s: float, why: str = "") -> ActionRecord:
        """Refuse an action. Its rule is suspended until someone resumes it."""
        action = self.action(action_id)
        self._move(action_id, ("proposed", "approved"), "dismissed", who, now_s, why)
        self.suspend_rule(action.rule, who, now_s, f"action {action_id} was dismissed")
        return self.action(action_id)

    def withdraw(self, action_id: str, why: str, now_s: float) -> None:
        """Close a proposal that no longer holds."""
        self._move(action_id, ("proposed",), "expired", "", now_s, why)

    def begin(self, action_id: str, now_s: float) -> ActionRecord:
        """The write ahead: from now on the action counts as begun, whatever happens."""
        self._move(action_id, ("approved",), "running", "", now_s)
        return self.action(action_id)

    def begin_step(self, action_id: str, step: int) -> None:
        """Write ahead that the command with this number (from 1) is about to run."""
        with self._db.transaction() as connection:
            connection.execute("UPDATE actions SET step = ? WHERE id = ?", (step, action_id))

    def finish(self, action_id: str, ok: bool, result: str, now_s: float) -> ActionRecord:
        self._move(action_id, ("running",), "done" if ok else "failed", "", now_s, result)
        return self.action(action_id)

    def expire(self, now_s: float) -> None:
        """Close proposals that nobody answered."""
        for action in self.actions(("proposed",)):
            if why := expired(action.proposed_s, now_s):
                self._move(action.id, ("proposed",), "expired", "", now_s, why)

    def measure(self, action_id: str, node_hours: float) -> None:
        """Enter the measured saving."""
        with self._db.transaction() as connection:
            connection.execute("UPDATE actions SET measured_node_hours = ? WHERE id = ?", (node_hours, action_id))

    def suspend_rule(self, rule: str, who: str, now_s: float, why: str) -> None:
        with self._db.transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO suspended_rules VALUES (?, ?, ?, ?)", (rule, now_s, who, why))
            audit_log.append(connection, now_s, who, "rule suspended", rule, after={"why": why})

    def resume_rule(self, rule: str, who: str, now_s: float) -> None:
        with self._db.transaction() as connection:
            if not connection.execute("DELETE FROM suspended_rules WHERE rule = ? RETURNING rule", (rule,)).fetchone():
                raise SettingsError(f"rule {rule!r} is not suspended")
            audit_log.append(connection, now_s, who, "rule resumed", rule)

    def suspended_rules(self) -> dict[str, str]:
        """The suspended rules, each with the reason."""
        return {row["rule"]: row["why"] for row in self._db.rows("SELECT rule, why FROM suspended_rules ORDER BY rule")}

    def _move(
        self, action_id: str, allowed: Sequence[str], state: str, who: str, now_s: float, result: str = ""
    ) -> None:
        """Change the state, if it is still one of those allowed."""
        with self._db.transaction() as connection:
            row = connection.execute("SELECT state, who, verb, job FROM actions WHERE id = ?", (action_id,)).fetchone()
            if row is None:
                raise SettingsError(f"there is no action {action_id!r}")
            if row["state"] not in allowed:
                raise ApprovalRefused(f"action {action_id} is {row['state']}, so it cannot become {state}")
            connection.execute(
                "UPDATE actions SET state = ?, changed_s = ?, who = CASE ? WHEN '' THEN who ELSE ? END, result = ?,"
                " begun_s = CASE ? WHEN 'running' THEN ? ELSE begun_s END WHERE id = ?",
                (state, now_s, who, who, result, state, now_s, action_id),
            )
            after = {"action": row["verb"], "job": row["job"], "result": result}
            audit_log.append(
                connection, now_s, who or row["who"], f"action {state}", action_id, {"state": row["state"]}, after
            )

    def _secret(self) -> bytes:
        rows = self._db.rows("SELECT value FROM secrets WHERE name = 'approval'")
        if not rows:
            with self._db.transaction() as connection:
                connection.execute("INSERT OR IGNORE INTO secrets VALUES ('approval', ?)", (secrets.token_hex(32),))
            rows = self._db.rows("SELECT value FROM secrets WHERE name = 'approval'")
        return bytes.fromhex(rows[0]["value"])


def expired(since_s: float, now_s: float) -> str:
    """Why a proposal or an approval of this time does not hold any more; empty while it holds.

    >>> expired(100.0, 200.0), expired(100.0, 4000.0)
    ('', 'nobody answered in time')
    """
    if now_s < since_s - SET_BACK_S:
        return "the clock was set back"
    return "nobody answered in time" if now_s - since_s > EXPIRES_S else ""


@contextmanager
def acting(home: Path) -> Iterator[None]:
    """One process at a time acts. A second one waits, but not for one that was stopped and keeps the lock."""
    with files.reporting(home):
        lock = os.open(home / "act.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(lock, home)
        yield
    finally:
        os.close(lock)


def _lock(lock: int, home: Path) -> None:
    end_s = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end_s:
                raise SourceError(
                    f"another process acts and holds {home / 'act.lock'}; approved actions wait for it"
                ) from None
        time.sleep(0.1)


def _records(rows: Sequence[sqlite3.Row]) -> list[ActionRecord]:
    """A damaged action is left out, so that it does not hide the others."""
    records = []
    for row in rows:
        with suppress(InputError):
            records.append(_record(row))
    return records


def _record(row: sqlite3.Row) -> ActionRecord:
    try:
        plain = json.loads(row["plan"])
        plain["facts"]["nodes"] = tuple(plain["facts"]["nodes"])
        facts = JobFacts(**plain.pop("facts"))
        plan = ActionPlan(**{**plain, "facts": facts, "outcomes": tuple(plain["outcomes"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError("state.sqlite", f"action {row['id']} is damaged") from error
    keys = ("id", "event", "job", "verb", "rule", "state", "proposed_s", "changed_s", "who", "result")
    values = {key: row[key] for key in keys}
    later = {key: row[key] for key in ("step", "measured_node_hours", "begun_s")}
    return ActionRecord(**values, plan=plan, **later)
