"""The part of an event's page about the job's processes: an event and a role -> evidence, outcomes, actions."""

from __future__ import annotations

from typing import Any

from clustertwin.service.act.action_journal import Journal
from clustertwin.service.act.evidence_store import EvidenceStore
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.event_store import Case
from clustertwin.service.web.pages.actions import shown_actions
from clustertwin.telemetry.diagnosis.rank_state import STATES, caller

MOST_RANKS = 64


def event_evidence(state: ServiceState, case: Case, role: str) -> dict[str, Any] | None:
    """None if there is no evidence, or if the reader may not see it: the role read may not."""
    if role not in ("vet", "admin"):
        return None
    stored = EvidenceStore(state.store.database).of(case.id)
    actions = Journal(state.store.database).actions(event=case.id)
    if not stored and not actions:
        return None
    newest = stored[0] if stored else None
    ranks = []
    if newest is not None:
        odd = set(newest.finding.ranks)
        order = sorted(newest.evidence.processes, key=lambda process: process.rank not in odd)
        ranks = [
            {"process": process, "odd": process.rank in odd, "meaning": STATES.get(process.does, process.does),
             "place": caller(process.stack)}
            for process in order[:MOST_RANKS]
        ]  # fmt: skip
    return {
        "newest": newest,
        "looks": len(stored),
        "ranks": ranks,
        "left_out": len(newest.evidence.processes) - len(ranks) if newest else 0,
        "actions": shown_actions(state, actions),
    }
