"""Evidence beside its event: documents -> the newest few of each event, with their findings.

Looks between the first and the newest few are deleted. So each look is stored with the time since which all looks have
made the same finding: an action depends on it, and it cannot be read from the looks that are left.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clustertwin.core.errors import InputError
from clustertwin.service.store.database import Database
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, JobFinding, parse_evidence, to_json
from clustertwin.telemetry.diagnosis.odd_rank import find

MOST_OF_EVENT = 8  # the first stays, because it shows how the event began
#: A finding has not lasted if nobody looked for longer than this.
LONGEST_GAP_S = 600.0


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    id: int
    evidence: JobEvidence
    finding: JobFinding
    outcomes: tuple[dict[str, Any], ...] = ()  # of each choice, if Slurm answered
    same_since_s: float = 0.0  # the first look since which all looks have made this finding


class EvidenceStore:
    def __init__(self, database: Database, longest_gap_s: float = LONGEST_GAP_S) -> None:
        self._db, self._longest_gap_s = database, longest_gap_s
        self._last_before_step = 0  # the last look before the clock was set; it does not tell how long ago it was

    def add(self, event: str, evidence: JobEvidence, outcomes: Sequence[dict[str, Any]] = ()) -> None:
        """Store a document. Beyond the limit, the oldest after the first is deleted."""
        with self._db.transaction() as connection:
            newest = connection.execute(
                "SELECT * FROM evidence WHERE event = ? ORDER BY id DESC LIMIT 1", (event,)
            ).fetchone()
            connection.execute(
                "INSERT INTO evidence (event, taken_s, document, outcomes, same_since_s) VALUES (?, ?, ?, ?, ?)",
                (
                    event,
                    evidence.taken_s,
                    to_json(evidence).decode(),
                    json.dumps(list(outcomes)),
                    self._same_since_s(evidence, newest),
                ),
            )
            connection.execute(
                "DELETE FROM evidence WHERE event = ? AND id NOT IN (SELECT MIN(id) FROM evidence WHERE event = ?)"
                " AND id NOT IN (SELECT id FROM evidence WHERE event = ? ORDER BY id DESC LIMIT ?)",
                (event, event, event, MOST_OF_EVENT - 1),
            )

    def of(self, event: str) -> list[StoredEvidence]:
        """The evidence of an event that can be read, newest first."""
        rows = self._db.rows("SELECT * FROM evidence WHERE event = ? ORDER BY id DESC", (event,))
        return [stored for stored in map(_stored, rows) if stored is not None]

    def begin_anew(self) -> None:
        """The clock was set: the time between looks before and after it is not known, and no finding has lasted."""
        self._last_before_step = int(self._db.rows("SELECT COALESCE(MAX(id), 0) FROM evidence")[0][0])

    def _same_since_s(self, evidence: JobEvidence, newest: sqlite3.Row | None) -> float:
        before = _stored(newest) if newest is not None else None
        if before is None or before.id <= self._last_before_step:
            return evidence.taken_s
        lasts = 0 <= evidence.taken_s - before.evidence.taken_s <= self._longest_gap_s
        return before.same_since_s if lasts and _claim(before.finding) == _claim(find(evidence)) else evidence.taken_s


def lasting(stored: list[StoredEvidence]) -> tuple[JobFinding, float] | None:
    """The newest finding and for how many seconds it has been the same, kind and ranks; None without evidence."""
    if not stored:
        return None
    newest = stored[0]
    return newest.finding, newest.evidence.taken_s + newest.evidence.window_s - newest.same_since_s


def _claim(finding: JobFinding) -> tuple[str, tuple[int, ...]]:
    return finding.kind, finding.ranks


def _stored(row: sqlite3.Row) -> StoredEvidence | None:
    """None for a look that is damaged on the disk; the other looks still count."""
    try:
        evidence = parse_evidence(row["document"].encode(), "state.sqlite")
        outcomes = tuple(json.loads(row["outcomes"]))
    except (InputError, ValueError, TypeError, AttributeError):
        return None
    # Looks of earlier releases have no such time. Their finding lasts from the look itself.
    since_s = row["same_since_s"] if row["same_since_s"] is not None else evidence.taken_s
    return StoredEvidence(int(row["id"]), evidence, find(evidence), outcomes, since_s)
