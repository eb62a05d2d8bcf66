"""Who did what and when: an append-only log; SQLite itself refuses to change or delete a line of it."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from clustertwin.service.store.database import Database


@dataclass(frozen=True, slots=True)
class Entry:
    id: int
    at_s: float
    who: str
    action: str  # vet, undo, promote, rollback, freeze, resume, maintenance, silence, token …
    subject: str  # an event, a model, a node …
    before: dict[str, Any]
    after: dict[str, Any]


def note(
    connection: sqlite3.Connection,
    at_s: float,
    who: str,
    action: str,
    subject: str,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """Write a line inside the transaction whose doing it tells of."""
    connection.execute(
        "INSERT INTO audit (at_s, who, action, subject, before, after) VALUES (?, ?, ?, ?, ?, ?)",
        (at_s, who, action, subject, json.dumps(before or {}), json.dumps(after or {})),
    )


def read(database: Database, subject: str = "", before_id: int = 0, limit: int = 100) -> list[Entry]:
    """Newest first; `before_id` pages on."""
    where, values = ["1"], []
    if subject:
        where, values = [*where, "subject = ?"], [subject]
    if before_id:
        where, values = [*where, "id < ?"], [*values, str(before_id)]
    query = f"SELECT * FROM audit WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?"
    return [
        Entry(
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
