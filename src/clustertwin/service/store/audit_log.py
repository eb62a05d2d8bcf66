"""The audit log: who did what and when. SQLite triggers refuse changes; only `history_limits` deletes old entries."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from clustertwin.service.store.database import Database


@dataclass(frozen=True, slots=True)
class AuditEntry:
    id: int
    at_s: float
    who: str
    action: str  # vet, undo, promote, rollback, freeze, resume, maintenance, silence, token added …
    subject: str  # an event, a model, a token …
    before: dict[str, Any]
    after: dict[str, Any]


def append(
    connection: sqlite3.Connection,
    at_s: float,
    who: str,
    action: str,
    subject: str,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """Add an entry in the same transaction as the action itself."""
    connection.execute(
        "INSERT INTO audit (at_s, who, action, subject, before, after) VALUES (?, ?, ?, ?, ?, ?)",
        (at_s, who, action, subject, json.dumps(before or {}), json.dumps(after or {})),
    )


def read(database: Database, subject: str = "", before_id: int = 0, limit: int = 100) -> list[AuditEntry]:
    """Entries, newest first. `before_id` gives the next page."""
    where, values = ["1"], []
    if subject:
        where, values = [*where, "subject = ?"], [subject]
    if before_id:
        where, values = [*where, "id < ?"], [*values, str(before_id)]
    query = f"SELECT * FROM audit WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?"
    return [
        AuditEntry(
            row["id"],
            row["at_s"],
            row["who"],
            row["action"],
            row["subject"],
            json.loads(row["before"]),
            json.loads(row["after"]),
        )
        for row in database.rows(query, (*values, limit))
    ]
