"""Evidence beside its event: documents -> the newest few of each event, with their findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clustertwin.core.errors import InputError
from clustertwin.service.store.database import Database
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, JobFinding, parse_evidence, to_json
from clustertwin.telemetry.diagnosis.odd_rank import find

MOST_OF_EVENT = 8  # the first stays, because it shows how the event began


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    id: int
    evidence: JobEvidence
    finding: JobFinding
    outcomes: tuple[dict[str, Any], ...] = ()  # of each choice, if Slurm answered


class EvidenceStore:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, event: str, evidence: JobEvidence, outcomes: Sequence[dict[str, Any]] = ()) -> None:
        """Store a document. Beyond the limit, the oldest after the first is deleted."""
        with self._db.transaction() as connection:
            connection.execute(
                "INSERT INTO evidence (event, taken_s, document, outcomes) VALUES (?, ?, ?, ?)",
                (event, evidence.taken_s, to_json(evidence).decode(), json.dumps(list(outcomes))),
            )
            connection.execute(
                "DELETE FROM evidence WHERE event = ? AND id NOT IN (SELECT MIN(id) FROM evidence WHERE event = ?)"
                " AND id NOT IN (SELECT id FROM evidence WHERE event = ? ORDER BY id DESC LIMIT ?)",
                (event, event, event, MOST_OF_EVENT - 1),
            )

    def of(self, event: str) -> list[StoredEvidence]:
        """The evidence of an event that can be read, newest first."""
        rows = self._db.rows("SELECT * FROM evidence WHERE event = ? ORDER BY id DESC", (event,))
        stored = []
        for row in rows:
            try:
                evidence = parse_evidence(row["document"].encode(), "state.sqlite")
                outcomes = tuple(json.loads(row["outcomes"]))
            except (InputError, ValueError, TypeError, AttributeError):
                continue  # damaged on the disk; the other looks still count
            stored.append(StoredEvidence(int(row["id"]), evidence, find(evidence), outcomes))
        return stored


def lasting(stored: list[StoredEvidence]) -> tuple[JobFinding, float] | None:
    """The newest finding and for how many seconds it has been the same, kind and ranks; None without evidence."""
    if not stored:
        return None
    newest = stored[0]
    first = newest
    for entry in stored:
        if (entry.finding.kind, entry.finding.ranks) != (newest.finding.kind, newest.finding.ranks):
            break
        first = entry
    return newest.finding, newest.evidence.taken_s + newest.evidence.window_s - first.evidence.taken_s
