"""The store: what was acknowledged is on disk, and verdicts can be undone and are never lost."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from clustertwin.core.errors import InputError, OutputError, SettingsError
from clustertwin.service.store.database import VERSION
from clustertwin.service.store.event_store import Case, Filter, NoSuchEvent, Store
from clustertwin.service.store.quiet_periods import MaintenanceWindow, Silence
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import Explanation, Ratio

EVENT = Event("e1", (("a", (0, 1)), ("b", (3,))), ("17",), "ada", 100, 160, None, 4.5, "reconstruction", "linear-x")
EVENT = replace(EVENT, cause="stalled-io", question="harm", title="Job 17 waits for I/O", since_s=90)
WHY = Explanation("reconstruction", 60, 160, 80, 3, 5, "job", (Ratio("iowait", 0.7, 0.02, None),))


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "state.sqlite")
    yield store
    store.close()


def test_an_event_is_read_as_it_was_written(store):
    store.write([(EVENT, WHY)])
    case = store.event("e1")
    assert (case.event, case.why, case.verdict) == (EVENT, WHY, "")


def test_an_updated_event_keeps_its_explanation_and_its_verdict(store):
    store.write([(EVENT, WHY)])
    store.vet(["e1"], "confirmed", who="ada", now_s=200)
    store.write([(replace(EVENT, end_s=180, score=6.0), None)])
    case = store.event("e1")
    assert store.count() == 1
    assert (case.event.end_s, case.event.score, case.why, case.verdict) == (180, 6.0, WHY, "confirmed")


def test_filters(store):
    other = replace(EVENT, id="e2", places=(("c", (0,)),), jobs=(), owner="", onset_s=500, end_s=600)
    store.write([(EVENT, WHY), (other, None)])
    store.vet(["e2"], "dismissed", who="bob", now_s=700)

    def ids(**which: object) -> list[str]:
        return [case.id for case in store.events(Filter(**which))]

    assert ids() == ["e2", "e1"]  # newest first
    assert ids(open=True) == ["e1"]
    assert ids(node="b") == ["e1"]
    assert ids(job="17") == ["e1"]
    assert ids(verdict="") == ["e1"]
    assert ids(verdict="dismissed") == ["e2"]
    assert ids(start_s=650) == ["e1"]
    assert ids(end_s=200) == ["e1"]
    assert [case.id for case in store.events(limit=1, offset=1)] == ["e1"]


def test_undo_and_redo_of_a_verdict_are_in_the_audit_log(store):
    store.write([(EVENT, WHY)])
    store.vet(["e1"], "dismissed", who="ada", comment="<b>known</b>", now_s=200)
    store.vet(["e1"], "confirmed", who="bob", now_s=210)
    assert store.undo("e1", who="bob", now_s=220).verdict == "dismissed"
    assert store.event("e1").comment == "<b>known</b>"
    assert store.undo("e1", who="bob", now_s=230).verdict == "confirmed"
    assert [(entry.who, entry.action) for entry in store.audit("e1")] == [
        ("bob", "undo"),
        ("bob", "undo"),
        ("bob", "vet"),
        ("ada", "vet"),
    ]


def test_a_bulk_verdict_with_one_unknown_event_changes_none(store):
    store.write([(EVENT, WHY)])
    with pytest.raises(NoSuchEvent, match="no event 'nonsense'"):
        store.vet(["e1", "nonsense"], "confirmed", who="ada", now_s=200)
    assert store.event("e1").verdict == ""
    assert store.audit() == []


def test_an_unknown_verdict_and_nothing_to_undo_are_errors(store):
    store.write([(EVENT, WHY)])
    with pytest.raises(SettingsError, match="unknown verdict 'maybe'; use one of confirmed, dismissed, new-normal"):
        store.vet(["e1"], "maybe", who="ada", now_s=200)
    with pytest.raises(SettingsError, match="never had a verdict"):
        store.undo("e1", who="ada", now_s=200)


@pytest.mark.parametrize("statement", ["UPDATE audit SET who = 'eve'", "DELETE FROM audit"])
def test_audit_entries_cannot_be_changed_or_deleted(store, statement):
    store.append_audit("ada", "promote", "linear-x", 100)
    with sqlite3.connect(store.database.path) as another, pytest.raises(sqlite3.IntegrityError, match="only grows"):
        another.execute(statement)
    assert [entry.who for entry in store.audit()] == ["ada"]


def test_events_alike_are_those_of_the_same_view_and_channel(store):
    disk, net = WHY, replace(WHY, ratios=(Ratio("system", 0.7, 0.02, None),))
    store.write([(replace(EVENT, id=i, onset_s=at), why) for i, at, why in (("p", 10, disk), ("q", 20, net))])
    store.write([(EVENT, disk)])
    assert [case.id for case in store.alike(store.event("e1"))] == ["p"]


def test_the_nightly_cycle_gets_verdicts_and_maintenance_windows(store):
    store.write([(EVENT, WHY), (replace(EVENT, id="e2", onset_s=900, end_s=950), None)])
    store.vet(["e1"], "confirmed", who="ada", now_s=200)
    store.quiet_periods.add_maintenance(MaintenanceWindow(("c",), 0, 120), now_s=10)
    vetted = [(v.node, v.cpus, v.start_s, v.end_s, v.verdict) for v in store.between(110, 400)]
    assert vetted == [
        ("a", (0, 1), 100, 160, "confirmed"),
        ("b", (3,), 100, 160, "confirmed"),
        ("c", (), 0, 120, "maintenance"),
    ]
    assert store.between(300, 400) == []


def test_maintenance_windows_and_silences_cover_what_they_name_until_they_end(store):
    window = store.quiet_periods.add_maintenance(MaintenanceWindow(("n0*",), 0, 1000, "new disks", "ada"), now_s=10)
    assert window.covers("n01")
    assert not window.covers("m01")
    assert [vetted.covers("n01") for vetted in store.between(0, 100)] == [True]
    with pytest.raises(SettingsError, match="needs at least one node"):
        store.quiet_periods.add_maintenance(MaintenanceWindow((), 0, 1000), now_s=10)  # `*` would match all nodes
    assert store.quiet_periods.maintenance(500) == [window]
    assert store.quiet_periods.end_maintenance(window.id, "ada", 600)
    assert store.quiet_periods.maintenance(601) == []
    silence = store.quiet_periods.add_silence(Silence(1000, job="1*", reason="known", who="ada"), now_s=10)
    assert silence.covers(EVENT)
    assert not silence.covers(replace(EVENT, jobs=("27",)))
    assert store.quiet_periods.silences(1001) == []
    with pytest.raises(SettingsError, match="at least one of"):
        store.quiet_periods.add_silence(Silence(1000), now_s=10)


@pytest.mark.parametrize("name", ["[::1]:9752", "node[3]", "n?"])
def test_a_name_that_looks_like_a_pattern_matches_itself(name):
    assert MaintenanceWindow((name,), 0, 1000).covers(name)
    assert Silence(1000, node=name).covers(replace(EVENT, places=((name, (0,)),)))
    assert Silence(1000, job=name).covers(replace(EVENT, jobs=(name,)))
    assert not MaintenanceWindow((name,), 0, 1000).covers("m7")


def test_an_event_is_found_by_a_unique_prefix_of_its_id(store):
    store.write([(replace(EVENT, id=one), WHY) for one in ("ab12", "ab34", "ab", "cd_%")])
    assert [store.find(name) for name in ("ab1", "ab34", "ab", "c", "cd_")] == ["ab12", "ab34", "ab", "cd_%", "cd_%"]
    with pytest.raises(SettingsError, match="more than one event begins with 'a': ab, ab12, ab34"):
        store.find("a")
    for name in ("", "x", "%", "AB1"):
        with pytest.raises(NoSuchEvent, match="no event"):
            store.find(name)


def test_a_page_reads_while_the_loop_writes(store):
    store.write([(EVENT, WHY)])
    with store.database.transaction() as connection:
        connection.execute("UPDATE events SET score = 9.0")
        read = []
        reader = threading.Thread(target=lambda: read.append(store.event("e1").event.score))
        reader.start()
        reader.join(timeout=60)
        assert read == [EVENT.score]  # the committed value, without waiting
    assert store.event("e1").event.score == 9.0


def test_a_full_disk_is_an_error_and_the_store_works_again_when_there_is_room(store):
    store.write([(EVENT, WHY)])
    connection = store.database._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own SQLITE_FULL
    many = [(replace(EVENT, id=f"x{i}"), WHY) for i in range(2000)]
    with pytest.raises(OutputError, match="full; data written earlier is intact"):
        store.write(many)
    assert store.count() == 1
    connection.execute("PRAGMA max_page_count = 1000000")
    store.write(many)
    assert store.count() == 2001


def test_a_damaged_database_and_one_of_a_newer_release_are_refused(tmp_path):
    (tmp_path / "noise").write_bytes(b"not a database at all" * 100)
    with pytest.raises(InputError, match="not a database"):
        Store(tmp_path / "noise")
    with sqlite3.connect(tmp_path / "future") as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match=rf"with format 99; clustertwin .* supports formats up to {VERSION}"):
        Store(tmp_path / "future")


def plans_of(store, monkeypatch, *calls) -> list[str]:
    """How SQLite carries out the queries of these calls."""
    queries, rows = [], store.database.rows

    def noted(query, values=()):
        queries.append((query, values))
        return [[0]] if "COUNT" in query else []

    monkeypatch.setattr(store.database, "rows", noted)
    for call in calls:
        call()
    return [" ".join(row["detail"] for row in rows(f"EXPLAIN QUERY PLAN {query}", values)) for query, values in queries]


def test_a_database_without_indexes_gets_them_and_queries_of_pages_use_them(tmp_path, monkeypatch):
    store = Store(tmp_path / "state.sqlite")
    store.write([(replace(EVENT, id=f"e{i}", onset_s=i), WHY if i else None) for i in range(5)])
    store.close()
    with sqlite3.connect(tmp_path / "state.sqlite") as old:
        for name in ("events_alike", "events_by_jobs", "events_by_verdict", "events_by_places"):
            old.execute(f"DROP INDEX {name}")
        old.execute("UPDATE events SET why = '{damaged' WHERE id = 'e1'")
        old.execute("PRAGMA user_version = 6")
    old.close()
    store = Store(tmp_path / "state.sqlite")
    assert store.database.rows("PRAGMA user_version")[0][0] == VERSION
    assert [case.id for case in store.alike(store.event("e4"))] == ["e3", "e2"]
    assert store.alike(store.event("e0")) == []
    assert store.count(Filter(job="17")) == store.count(Filter(node="a")) == 5
    alike, job, node, week = plans_of(
        store,
        monkeypatch,
        lambda: store.alike(Case(EVENT, WHY)),
        lambda: store.count(Filter(job="17")),
        lambda: store.events(Filter(node="a")),
        lambda: store.count(Filter(verdict="", start_s=7.0)),
    )
    assert ("INDEX events_alike" in alike, "TEMP B-TREE" in alike) == (True, False)
    assert "COVERING INDEX events_by_jobs" in job
    assert "COVERING INDEX events_by_places" in node
    assert "SCAN events USING INDEX" not in node
    assert "COVERING INDEX events_by_verdict" in week
    store.close()


#: A child writes batches of events and acknowledges each; its parent kills it at a random time, a hundred times.
KILL = """
import os, random, signal, sys, time
from pathlib import Path
from dataclasses import replace
from clustertwin.service.store.event_store import Store
from tests.service.store.test_event_store import EVENT, WHY

path, chance = Path(sys.argv[1]), random.Random(7)
Store(path).close()
acknowledged = []
for life in range(100):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        store = Store(path)
        for batch in range(10_000):
            ids = [f"{life}-{batch}-{i}" for i in range(20)]
            store.write([(replace(EVENT, id=i), WHY) for i in ids])
            store.vet(ids[:1], "confirmed", who="ada", now_s=1.0)
            os.write(writer, f"{life}-{batch}\\n".encode())
    os.close(writer)
    with os.fdopen(reader) as pipe:
        acknowledged.append(pipe.readline().strip())
        time.sleep(chance.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        acknowledged += [line.strip() for line in pipe if line.endswith("\\n")]
print("\\n".join(acknowledged))
"""


@pytest.mark.slow
def test_a_hundred_kills_while_writing_lose_nothing_that_was_acknowledged(tmp_path):
    path = tmp_path / "state.sqlite"
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", KILL, path], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    acknowledged = done.stdout.split()
    assert len(acknowledged) >= 100
    store = Store(path)
    ids = [row["id"] for row in store.database.rows("SELECT id FROM events")]
    vetted = {row["id"] for row in store.database.rows("SELECT id FROM events WHERE verdict = 'confirmed'")}
    assert len(ids) == len(set(ids))
    assert len(ids) % 20 == 0  # a batch is complete or absent
    assert {f"{batch}-{i}" for batch in acknowledged for i in range(20)} <= set(ids)
    assert {f"{batch}-0" for batch in acknowledged} <= vetted
    assert len(vetted) == len(store.audit(limit=10**6))  # each verdict has its audit entry, and each entry its verdict
    assert store.database.rows("PRAGMA integrity_check")[0][0] == "ok"
