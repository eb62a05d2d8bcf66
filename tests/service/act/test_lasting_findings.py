"""For how long a finding has been the same: looks that were deleted, pauses, and clocks that were set count as well."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.service.act.paper_slurm import PaperSlurm
from tests.service.act.test_actions import EVENT, NOW_S, hand_of, stopped

from clustertwin.service.act.evidence_store import EvidenceStore, lasting
from clustertwin.service.store.database import SCHEMAS
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, to_json

WINDOW_S = 2.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state.sqlite")
    store.write([(EVENT, None)])
    yield store
    store.close()


def working(taken_s: float) -> JobEvidence:
    evidence = stopped(taken_s)
    ranks = tuple(replace(rank, does="waits-in-mpi", state="R") for rank in evidence.processes)
    return replace(evidence, processes=ranks, messages_pass=True)


def lasts_s(evidence: EvidenceStore) -> float:
    latest = lasting(evidence.of("ab12"))
    assert latest is not None
    assert latest[0].kind == "stopped"
    return latest[1]


def test_a_finding_does_not_last_over_looks_that_were_deleted(store):
    """Of an hour of work only the look before it was left, so that a rule acted after seven minutes of one hour."""
    evidence = EvidenceStore(store.database)
    evidence.add("ab12", stopped(NOW_S))
    for minute in range(1, 11):
        evidence.add("ab12", working(NOW_S + 60 * minute))
    for minute in range(11, 18):
        evidence.add("ab12", stopped(NOW_S + 60 * minute))
    assert {entry.finding.kind for entry in evidence.of("ab12")} == {"stopped"}
    assert lasts_s(evidence) == 6 * 60 + WINDOW_S


def test_a_finding_does_not_last_over_an_hour_without_a_look(store):
    evidence = EvidenceStore(store.database)
    evidence.add("ab12", stopped(NOW_S))
    evidence.add("ab12", stopped(NOW_S + 3600))
    assert lasts_s(evidence) == WINDOW_S
    patient = EvidenceStore(store.database, longest_gap_s=3600.0)
    patient.add("ab12", stopped(NOW_S + 7200))
    assert lasts_s(patient) == 3600 + WINDOW_S


@pytest.mark.parametrize("step_s", [-300.0, 300.0])
def test_a_finding_does_not_last_over_a_clock_that_was_set(tmp_path, store, step_s):
    hand = hand_of(tmp_path, store, PaperSlurm(), "auto")
    hand.check_clock(NOW_S, 0.0)
    hand.evidence.add("ab12", stopped(NOW_S))
    hand.check_clock(NOW_S + 60, 60.0)
    hand.evidence.add("ab12", stopped(NOW_S + 60))
    assert lasts_s(hand.evidence) == 60 + WINDOW_S
    hand.check_clock(NOW_S + 120 + step_s, 120.0)
    hand.evidence.add("ab12", stopped(NOW_S + 120 + step_s))
    assert lasts_s(hand.evidence) == WINDOW_S
    hand.evidence.add("ab12", stopped(NOW_S + 180 + step_s))
    assert lasts_s(hand.evidence) == 60 + WINDOW_S


def test_a_finding_lasts_over_a_restart_of_the_service(tmp_path):
    for minute in range(3):
        store = Store(tmp_path / "state.sqlite")
        EvidenceStore(store.database).add("ab12", stopped(NOW_S + 60 * minute))
        store.close()
    store = Store(tmp_path / "state.sqlite")
    assert lasts_s(EvidenceStore(store.database)) == 120 + WINDOW_S
    store.close()


def test_the_looks_of_an_earlier_release_are_read_and_a_rule_waits_again(tmp_path):
    """Schema 5 did not store since when a finding was the same."""
    path = tmp_path / "state.sqlite"
    with sqlite3.connect(path) as old:
        old.executescript("".join(SCHEMAS[:5]) + "PRAGMA user_version = 5;")
        rows = [("ab12", at_s, to_json(stopped(at_s)).decode()) for at_s in (NOW_S, NOW_S + 60)]
        old.executemany("INSERT INTO evidence (event, taken_s, document) VALUES (?, ?, ?)", rows)
    store = Store(path)
    evidence = EvidenceStore(store.database)
    assert len(evidence.of("ab12")) == 2
    assert lasts_s(evidence) == WINDOW_S
    evidence.add("ab12", stopped(NOW_S + 120))
    assert lasts_s(evidence) == 60 + WINDOW_S
    store.close()
