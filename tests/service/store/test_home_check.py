"""`twin doctor --home`: what is wrong with a home is named, and repaired without losing what can be read."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from tests.service.web.test_api import EVENT, WHY

from clustertwin.core import files
from clustertwin.core.channels import CPU
from clustertwin.core.errors import OutputError, SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.store import database_rescue, home_check
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.home_check import ASIDE, check_home
from clustertwin.service.store.home_format import HomeFormatError, create_home
from clustertwin.service.store.tokens import Tokens
from clustertwin.telemetry.learning.champions.fencing_lock import retrainer_lock
from clustertwin.telemetry.recording import Recorder, Recording, RecordingSettings

EVENTS = 40


@pytest.fixture
def home(tmp_path):
    """A home as a service leaves it: events, a token, two chunks of a recording with a label, a night."""
    home = create_home(tmp_path / "home")
    store = Store(home / "state.sqlite")
    Tokens(store.database).add("ada", "vet", 5.0)
    for i in range(EVENTS):
        store.append_audit("ada", "vet", f"event {i}", float(i), {"comment": "x" * 200})
    store.write([(EVENT, WHY)])
    store.close()
    values = np.zeros((2, 120, 4), np.float32)
    values[..., 3] = 1
    settings = RecordingSettings(chunk_s=60)
    with Recorder.create(home / "recording", {"n1": (0, 1)}, settings=settings) as recorder:
        recorder.append(Trace("n1", (0, 1), 60, CPU, values, np.ones((2, 120), np.bool_)))
        recorder.label(JobSpan("7", "n1", (0, 1), 60.0, 90.0))
    (home / "nights/2026-01-01").mkdir(parents=True)
    (home / "nights/2026-01-01/plan.json").write_text("{}")
    return home


def damaged(home, repair=False):
    """part -> finding, of the parts that are or were not sound."""
    return {found.part: found for found in check_home(home, repair) if not found.ok or found.repaired}


def test_a_sound_home_is_sound_and_nothing_changes(home):
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()}
    assert damaged(home) == damaged(home, repair=True) == {}
    after = {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()}
    after.pop(home / "service.lock")
    assert {path: at for path, at in after.items() if path.suffix not in (".sqlite-wal", ".sqlite-shm")} == before


def test_files_of_actions_and_of_learning_are_known(home):
    for name in ("fence", "fence.lock", "act.lock"):
        (home / name).write_text("1\n")
    (home / "outbox-owners").mkdir()
    (home / "outbox-owners/a1.json").write_text("{")
    findings = {found.part: found for found in check_home(home)}
    assert "other files" not in findings
    assert not findings["outbox-owners/a1.json"].ok


def test_every_file_that_the_code_names_in_a_home_is_known():
    source = Path(home_check.__file__).parents[2]
    named = {name for path in source.rglob("*.py") for name in re.findall(r'\bhome / "([^"/]+)"', path.read_text())}
    assert {"spool", "spool.lock", "state.lock"} <= named
    assert named <= home_check.KNOWN


def hurt_page(home, name):
    path = home / "state.sqlite"
    with sqlite3.connect(path) as database:
        page_bytes = database.execute("PRAGMA page_size").fetchone()[0]
        root = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
    database.close()
    data = bytearray(path.read_bytes())
    data[(root - 1) * page_bytes : root * page_bytes] = b"\xa5" * page_bytes
    path.write_bytes(data)


def test_a_database_with_a_damaged_page_is_rescued(home):
    hurt_page(home, "audit_by_subject")
    assert "damaged" in damaged(home)["state.sqlite"].detail
    assert not (home / ASIDE).exists()  # a check repairs nothing
    repaired = damaged(home, repair=True)["state.sqlite"].repaired
    assert f"{EVENTS + 1} audit" in repaired
    store = Store(home / "state.sqlite")
    store.database.check()
    assert store.event(EVENT.id).event.owner == EVENT.owner
    assert len(store.audit(limit=1000)) == EVENTS + 1
    assert [holder.name for holder in Tokens(store.database).all()] == ["ada"]
    assert damaged(home) == {}
    store.close()


def test_a_rescued_database_whose_rows_are_not_in_its_file_is_not_taken_into_use(home, monkeypatch):
    """On a nearly full disk the rows stayed in a file beside it. The new database was empty, and said to have them."""
    hurt_page(home, "audit_by_subject")
    before = (home / "state.sqlite").read_bytes()
    rows, readers = database_rescue._rows, []

    def while_another_reads(source, table):  # SQLite then leaves the rows where they are, as without room on the disk
        if not readers:
            readers.append(sqlite3.connect(home / ".state.sqlite.new", isolation_level=None))
            readers[0].execute("BEGIN")
            readers[0].execute("SELECT * FROM access").fetchall()
        return rows(source, table)

    with monkeypatch.context() as patch:
        patch.setattr(database_rescue, "_rows", while_another_reads)
        finding = {found.part: found for found in check_home(home, repair=True)}["state.sqlite"]
    readers[0].close()
    assert "is the disk full?" in finding.detail
    assert not finding.ok
    assert (home / "state.sqlite").read_bytes() == before
    assert not list(home.glob(".state.sqlite.new*"))
    assert "41 audit" in damaged(home, repair=True)["state.sqlite"].repaired
    store = Store(home / "state.sqlite")
    assert store.event(EVENT.id).event.owner == EVENT.owner
    store.close()


def test_a_home_is_not_repaired_while_a_night_runs_in_it(home):
    """The model that the night was just writing was deleted as a write that was never finished."""
    (home / "models/.new-model.17").mkdir(parents=True)
    with retrainer_lock(home):
        assert not damaged(home)["models/.new-model.17"].ok
        with pytest.raises(SettingsError, match="a night runs in this home"):
            check_home(home, repair=True)
    assert (home / "models/.new-model.17").exists()
    assert damaged(home, repair=True)["models/.new-model.17"].repaired == "deleted"


def test_a_database_of_other_bytes_is_set_aside_and_clients_still_need_a_token(home):
    (home / "state.sqlite").write_bytes(b"\xa5" * 9000)
    assert "nothing" in damaged(home, repair=True)["state.sqlite"].repaired
    (kept,) = (home / ASIDE).glob("*/state.sqlite")
    assert kept.read_bytes() == b"\xa5" * 9000
    store = Store(home / "state.sqlite")
    assert Tokens(store.database).needed()
    store.close()


def test_damaged_chunks_and_lines_of_a_recording_are_set_aside_and_the_rest_is_read(home):
    chunk = home / "recording/n1/c.0.0.0"
    chunk.write_bytes(chunk.read_bytes()[:-3])
    labels = home / "recording/labels.jsonl"
    labels.write_bytes(b'{"job": 5}\n' + labels.read_bytes())
    (home / "recording/gone").mkdir()
    assert set(damaged(home)) == {"recording/n1/c.0.0.0", "recording/labels.jsonl", "recording/gone"}
    done = damaged(home, repair=True)
    assert "1 of 2 lines were kept" in done["recording/labels.jsonl"].repaired
    recording = Recording.open(home / "recording")
    assert recording.trace("n1", 120, 180).valid.all()
    assert [span.job for span in recording.spans] == ["7"]
    assert damaged(home) == {}


def test_other_damage(home):
    (home / "format.json").write_text("[")
    (home / "recording/zarr.json").write_text("{}")
    (home / "recording/.zarr.json.abc.new").write_text("{")
    (home / "models/.ae-1.77").mkdir(parents=True)
    (home / "nights/2026-01-01/plan.json").write_bytes(b"[" * 100_000)
    (home / "champion.json").write_bytes(b"\xff")
    (home / "state.sqlite").chmod(0o644)
    os.mkfifo(home / "source.json")
    wrong = damaged(home)
    assert len(wrong) == 8
    assert all(not found.repaired for found in wrong.values())
    assert all(found.ok and found.repaired for found in damaged(home, repair=True).values())
    assert damaged(home) == {}
    kept = {path.relative_to(home / ASIDE).parts[1] for path in (home / ASIDE).rglob("*") if path.is_file()}
    assert {"format.json", "recording", "nights", "champion.json"} <= kept


def test_a_check_goes_on_while_a_service_deletes_directories(home, monkeypatch):
    """A message that was delivered during the check ended it with a traceback."""
    (home / "outbox/box").mkdir(parents=True)
    scandir = os.scandir

    def deleting(path):
        if Path(path) == home / "outbox/box" and Path(path).exists():
            Path(path).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", deleting)
    assert damaged(home) == {}


def test_a_draft_of_a_service_that_runs_is_no_damage(home):
    draft = home / ".running-jobs.safetensors.x.new"
    draft.write_bytes(b"half")
    assert damaged(home)[draft.name].detail == "a write that was never finished"
    with (home / "service.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert damaged(home) == {}
        os.utime(draft, (1, 1))
        assert draft.name in damaged(home)


def test_a_home_has_a_database_at_every_moment_of_its_repair(home, monkeypatch):
    """Killed between two moves, it had none: the next service began an empty one, which needs no token."""
    path = home / "state.sqlite"
    path.write_bytes(b"x" * 8192)
    present = []
    sync = files.sync_directory
    monkeypatch.setattr(files, "sync_directory", lambda each: present.append(path.exists()) or sync(each))
    assert damaged(home, repair=True)[path.name].ok
    assert len(present) > 1
    assert all(present)


def test_a_home_whose_restore_was_killed_is_not_repaired(home):
    """The repair deleted the rest of the backup. The service then began a database, which needs no token."""
    (home / ".restore.x.new/home").mkdir(parents=True)
    (home / ".restore.x.new/home/state.sqlite").write_bytes((home / "state.sqlite").read_bytes())
    (home / "state.sqlite").unlink()
    with pytest.raises(SettingsError, match="a restore of this home did not end"):
        check_home(home, repair=True)
    assert (home / ".restore.x.new/home/state.sqlite").exists()


def test_a_home_of_a_newer_release_is_left_alone(home):
    (home / "format.json").write_text(json.dumps({"format": 99, "written_by": "clustertwin 9"}))
    (home / "champion.json").write_bytes(b"\xff")
    with pytest.raises(HomeFormatError, match="clustertwin 9 wrote this"):
        check_home(home, repair=True)
    assert not (home / ASIDE).exists()


def test_a_home_in_use_is_checked_and_not_repaired(home):
    lock = os.open(home / "service.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert damaged(home) == {}
    with pytest.raises(SettingsError, match="stop it before"):
        check_home(home, repair=True)
    os.close(lock)


def test_the_command_says_what_it_did(home, twin_here):
    (home / "nights/2026-01-01/plan.json").write_text("[")
    result = twin_here("doctor", "--home", home)
    assert (result.returncode, "✗ nights/2026-01-01/plan.json" in result.stdout) == (1, True)
    result = twin_here("doctor", "--home", home, "--repair", "--json")
    (plan,) = [row for row in json.loads(result.stdout) if row["part"] == "nights/2026-01-01/plan.json"]
    assert (result.returncode, plan["ok"], "moved to" in plan["repaired"]) == (0, True, True)
    assert twin_here("doctor", "--repair").returncode == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_files_that_root_made_in_the_home_of_another_user_are_named_and_none_is_added(home):
    (home / "service.lock").unlink(missing_ok=True)
    for path in (home, *home.rglob("*")):
        os.chown(path, 12345, 12345)
    check_home(home)
    assert (home / "service.lock").stat().st_uid == 12345
    os.chown(home / "format.json", 0, 0)
    (finding,) = [each for each in check_home(home) if each.part == "home"]
    assert "files belong to root, and the home to the user 12345: format.json;" in finding.detail


def test_a_database_of_another_user_is_named(tmp_path, monkeypatch):
    def refuse(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(OutputError, match=r"state\.sqlite: belongs to another user"):
        Store(tmp_path / "state.sqlite")
