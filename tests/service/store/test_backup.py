"""A backup of a home in use is complete and consistent; a changed, cut or hostile one restores nothing."""

from __future__ import annotations

import errno
import io
import json
import os
import sqlite3
import stat
import tarfile
import threading
import time
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from tests.service.conftest import campaign
from typer.testing import CliRunner

from clustertwin.cli.backup import backup_app, restore_app
from clustertwin.core import files
from clustertwin.core.errors import InputError, OutputError, SettingsError
from clustertwin.service.serving import _exclusive
from clustertwin.service.store import backup
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.home_format import HomeFormatError, create_home
from clustertwin.service.store.tokens import Tokens
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.recording.recorder import Recorder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with state, a champion, a recording and a night's log."""
    home = create_home(tmp_path / "home")
    Tokens(Store(home / "state.sqlite").database).add("alice", "vet", time.time(), lasts_s=None, who="root")
    (home / "models" / "a").mkdir(parents=True)
    (home / "models" / "a" / "weights.safetensors").write_bytes(b"w" * 3_000_000)
    (home / "champion.json").write_text('{"version": "a"}')
    (home / "outbox").mkdir()
    return home


def contents(home: Path) -> dict[str, bytes]:
    return {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file() and p.suffix != ".sqlite"}


def edit(source: Path, target: Path, change) -> Path:
    """A copy of a backup with each (name, bytes) changed; None leaves a member out."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for info in old:
            data = change(info.name, old.extractfile(info).read())
            if data is not None:
                info.size = len(data)
                new.addfile(info, io.BytesIO(data))
    return target


def test_a_restored_home_is_equal(home, tmp_path):
    before = contents(home)
    summary = backup.back_up(home, tmp_path / "b.tar")
    assert summary.files == 4
    assert summary.left_out == ()
    assert stat.S_IMODE((tmp_path / "b.tar").stat().st_mode) == 0o600
    backup.restore(tmp_path / "b.tar", tmp_path / "other")
    restored = contents(tmp_path / "other")
    assert {name: data for name, data in before.items() if not name.endswith(("-wal", "-shm"))} == restored
    tokens = Tokens(Store(tmp_path / "other" / "state.sqlite").database).all()
    assert [token.name for token in tokens] == ["alice"]
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["a?mode=memory", "a#b", "a%41", "a b"])
def test_a_home_of_any_name_is_backed_up(home, tmp_path, name):
    """The name was part of an address, in which `?`, `#` and `%` have a meaning."""
    odd = home.rename(tmp_path / name)
    backup.back_up(odd, tmp_path / "b.tar")
    backup.restore(tmp_path / "b.tar", tmp_path / "other")
    assert [token.name for token in Tokens(Store(tmp_path / "other" / "state.sqlite").database).all()] == ["alice"]


def test_what_was_acknowledged_before_a_backup_of_a_busy_home_is_in_it(home, tmp_path):
    store = Store(home / "state.sqlite")
    trace = campaign(1, 0.3)[0]
    recorder = Recorder.create(home / "recording", {trace.node: trace.cpus})
    acknowledged, stop = [], threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            Tokens(store.database).add(f"user-{number}", "read", time.time(), lasts_s=None, who="root")
            acknowledged.append(f"user-{number}")
            (home / "outbox" / f"{number}.json").write_text("{}")
            (home / "outbox" / f"{number - 3}.json").unlink(missing_ok=True)
            number += 1

    with recorder:
        recorder.append(trace)
        recorder.flush()
        writer = threading.Thread(target=write)
        writer.start()
        try:
            while len(acknowledged) < 5:
                time.sleep(0.01)
            for number in range(3):
                known = list(acknowledged)
                backup.back_up(home, tmp_path / f"{number}.tar")
                backup.restore(tmp_path / f"{number}.tar", tmp_path / f"home-{number}")
                path = tmp_path / f"home-{number}" / "state.sqlite"
                assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
                assert set(known) <= {token.name for token in Tokens(Store(path).database).all()}
                restored = Recording.open(tmp_path / f"home-{number}" / "recording").trace(trace.node)
                assert restored.values.shape[1] >= trace.values.shape[1]
        finally:
            stop.set()
            writer.join()


def test_without_the_recording_it_is_left_out(home, tmp_path):
    for name in ("recording", "recording-1"):  # the second was moved aside by the service
        (home / name).mkdir()
        (home / name / "large").write_bytes(b"x")
    assert backup.back_up(home, tmp_path / "b.tar", recording=False).files == 4
    assert backup.back_up(home, tmp_path / "c.tar").files == 6


@pytest.mark.parametrize("name", ["champion.json", "state.sqlite", "models/a/weights.safetensors"])
@pytest.mark.parametrize("change", ["altered", "missing"])
def test_a_changed_member_restores_nothing(home, tmp_path, name, change):
    backup.back_up(home, tmp_path / "b.tar")
    spoilt = edit(
        tmp_path / "b.tar", tmp_path / "spoilt.tar",
        lambda n, data: data if n != name else (data[:-1] + b"?" if change == "altered" else None),
    )  # fmt: skip
    with pytest.raises(InputError, match="missing or was changed"):
        backup.restore(spoilt, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar", "home", "spoilt.tar"]


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
def test_a_cut_backup_restores_nothing(home, tmp_path, part):
    backup.back_up(home, tmp_path / "b.tar")
    data = (tmp_path / "b.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(data[: int(part * (len(data) - 12_000))])
    with pytest.raises(InputError, match="not a complete backup"):
        backup.restore(tmp_path / "cut.tar", tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside-of-home", "a/../../outside"])
def test_a_member_cannot_leave_the_home(home, tmp_path, name):
    with tarfile.open(tmp_path / "hostile.tar", "w") as archive:
        for member, data in ((name, b"x"), (backup.MANIFEST, b'{"made_s": 1, "members": {}}')):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    with pytest.raises(InputError, match="not a name"):
        backup.restore(tmp_path / "hostile.tar", tmp_path / "deep" / "other")
    assert not list(tmp_path.rglob("outside*"))


def test_a_link_is_refused(tmp_path):
    with tarfile.open(tmp_path / "hostile.tar", "w") as archive:
        info = tarfile.TarInfo("state.sqlite")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(InputError, match="not a name"):
        backup.restore(tmp_path / "hostile.tar", tmp_path / "other")


def test_a_sparse_file_is_refused_before_it_fills_the_disk(tmp_path):
    """Two kilobytes of an archive became as many zeros as their header says."""
    info = tarfile.TarInfo("recording/x")
    words = {"major": "1", "minor": "0", "name": "recording/x", "realsize": str(1 << 24)}
    info.pax_headers = {f"GNU.sparse.{key}": word for key, word in words.items()}
    info.size = 512
    with tarfile.open(tmp_path / "b.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b"0\n".ljust(512, b"\0")))
    with pytest.raises(InputError, match="is not a name that a backup has"):
        backup.restore(tmp_path / "b.tar", tmp_path / "restored")


@pytest.mark.parametrize(
    "manifest", [b"{", b"[]", b"[" * 100_000, b"\xff", b'{"members": {}}', b'{"members": {"a": 1}}']
)
def test_a_bad_manifest_is_named(tmp_path, manifest):
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        info = tarfile.TarInfo(backup.MANIFEST)
        info.size = len(manifest)
        archive.addfile(info, io.BytesIO(manifest))
    with pytest.raises(InputError, match=r"MANIFEST|missing"):
        backup.restore(tmp_path / "b.tar", tmp_path / "other")


def test_a_backup_of_a_newer_release_is_refused(home, tmp_path):
    def newer(name: str, data: bytes) -> bytes:
        if name == "format.json":
            return b'{"format": 99, "written_by": "clustertwin 9.0"}'
        if name == backup.MANIFEST:
            import hashlib

            manifest = json.loads(data)
            text = b'{"format": 99, "written_by": "clustertwin 9.0"}'
            manifest["members"]["format.json"] = [len(text), hashlib.sha256(text).hexdigest()]
            return json.dumps(manifest).encode()
        return data

    backup.back_up(home, tmp_path / "b.tar")
    with pytest.raises(HomeFormatError, match=r"clustertwin 9\.0"):
        backup.restore(edit(tmp_path / "b.tar", tmp_path / "newer.tar", newer), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_nothing_is_overwritten(home, tmp_path):
    backup.back_up(home, tmp_path / "b.tar")
    with pytest.raises(OutputError, match="already exists"):
        backup.back_up(home, tmp_path / "b.tar")
    with pytest.raises(OutputError, match="not empty"):
        backup.restore(tmp_path / "b.tar", home)
    with pytest.raises(SettingsError, match="outside of the home"):
        backup.back_up(home, home / "b.tar")
    with pytest.raises(SettingsError, match="no home"):
        backup.back_up(tmp_path / "none", tmp_path / "c.tar")


def test_the_commands(home, tmp_path):
    runner = CliRunner()
    target = str(tmp_path / "b.tar")
    made = runner.invoke(backup_app, [target, "--home", str(home), "--json"])
    assert made.exit_code == 0
    assert json.loads(made.stdout)["files"] == 4
    checked = runner.invoke(restore_app, [target, "--check"])
    assert checked.exit_code == 0
    assert "is complete: 4 files" in checked.stdout
    assert not (tmp_path / "other").exists()
    restored = runner.invoke(restore_app, [target, str(tmp_path / "other"), "--json"])
    assert restored.exit_code == 0
    assert json.loads(restored.stdout)["files"] == 4
    assert (tmp_path / "other" / "champion.json").read_text() == '{"version": "a"}'


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_of_hundreds_of_megabytes_is_refused_before_it_is_read(tmp_path: Path, kind: bytes):
    """It costs nothing to make: the file is sparse. Python's tarfile reads such a header as a whole."""
    size = 300 << 20
    bomb = tmp_path / "bomb.tar"
    info = tarfile.TarInfo("header")
    info.type, info.size = kind, size
    with bomb.open("wb") as out:
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        out.truncate(size + 10_240)
    tracemalloc.start()
    with pytest.raises(InputError, match="is not a complete backup"):
        backup.check(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [-512, -(1 << 70)])
def test_a_header_of_a_negative_size_is_refused(tmp_path: Path, kind: bytes, size: int):
    info = tarfile.TarInfo("header")
    info.type, info.size = kind, size
    (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))
    with pytest.raises(InputError, match=f"is not a complete backup: a header of {size} bytes"):
        backup.check(tmp_path / "x.tar")


@pytest.mark.parametrize("made_s", ["1e308", "-1e308", "NaN", "1e400", "true", "1" + "0" * 400])
def test_a_backup_from_no_time_is_refused(home: Path, tmp_path: Path, made_s: str):
    def at_no_time(name: str, data: bytes) -> bytes:
        if name != backup.MANIFEST:
            return data
        document = json.loads(data)
        document["made_s"] = "@"
        return json.dumps(document).replace('"@"', made_s).encode()

    backup.back_up(home, tmp_path / "good.tar", recording=True)
    bad = edit(tmp_path / "good.tar", tmp_path / "bad.tar", at_no_time)
    done = CliRunner().invoke(restore_app, [str(bad), "--check"])
    assert isinstance(done.exception, InputError)
    assert "does not say when it was made" in str(done.exception)


def test_what_a_link_points_to_is_in_the_backup(home: Path, tmp_path: Path):
    """A recording on another disk was left out, and nothing said so."""
    (tmp_path / "disk" / "day").mkdir(parents=True)
    (tmp_path / "disk" / "day" / "chunk").write_bytes(b"seconds")
    (tmp_path / "disk" / "again").symlink_to(tmp_path / "disk")
    (home / "recording").symlink_to(tmp_path / "disk")
    summary = backup.back_up(home, tmp_path / "b.tar")
    assert summary.left_out == ("recording/again",)
    backup.restore(tmp_path / "b.tar", tmp_path / "other")
    assert (tmp_path / "other" / "recording" / "day" / "chunk").read_bytes() == b"seconds"


def test_a_link_that_leads_nowhere_or_home_is_named(home: Path, tmp_path: Path):
    (home / "recording").symlink_to(tmp_path / "not mounted")
    (home / "here").symlink_to(home)
    done = CliRunner().invoke(backup_app, [str(tmp_path / "b.tar"), "--home", str(home)])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["here", "recording"]


def test_a_file_that_may_not_be_read_is_named(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(backup, "_add", refuse)
    with pytest.raises(InputError, match=r"format\.json: cannot be backed up: Permission denied"):
        backup.back_up(home, tmp_path / "b.tar")


def test_a_full_disk_is_named_and_not_the_backup(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The backup "cannot be read: No space left on device", as if it were damaged."""

    def full(*_: object):
        raise OSError(errno.ENOSPC, "No space left on device")

    backup.back_up(home, tmp_path / "backup.tar")
    monkeypatch.setattr(backup, "_write_member", full)
    with pytest.raises(OutputError, match="other: cannot write: No space left on device"):
        backup.restore(tmp_path / "backup.tar", tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar", "home"]


def test_a_home_may_be_a_link_to_an_empty_directory(home: Path, tmp_path: Path):
    backup.back_up(home, tmp_path / "b.tar")
    (tmp_path / "disk").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "disk")
    backup.restore(tmp_path / "b.tar", tmp_path / "linked")
    assert (tmp_path / "disk" / "champion.json").is_file()


def test_a_directory_that_cannot_be_listed_is_named(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A model that root had made was left out in silence, and the backup had no champion."""
    (home / "models" / "of-root").mkdir()
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if str(path).endswith(("of-root", "lost+found")):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    (home / "models" / "of-root").rename(home / "lost+found")
    assert backup.back_up(home, tmp_path / "disk.tar").left_out == ()  # the root of a disk, which nobody else lists
    (home / "lost+found").rename(home / "models" / "of-root")
    with pytest.raises(InputError, match="of-root: cannot be backed up: Permission denied"):
        backup.back_up(home, tmp_path / "b.tar")
    assert not (tmp_path / "b.tar").exists()


def test_a_home_on_a_disk_that_became_read_only_is_backed_up(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """SQLite opens no database there: it cannot make its lock file."""
    for name in ("state.sqlite", "state.sqlite-wal"):  # as a killed service leaves them
        (tmp_path / name).write_bytes((home / name).read_bytes())
    disk = create_home(tmp_path / "disk")
    for name in ("state.sqlite", "state.sqlite-wal"):
        (tmp_path / name).rename(disk / name)
    opened = sqlite3.connect

    def refusing(path: str, **options: Any) -> sqlite3.Connection:
        if str(disk) in str(path):
            raise sqlite3.OperationalError("unable to open database file")
        return opened(path, **options)

    monkeypatch.setattr(sqlite3, "connect", refusing)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    backup.back_up(disk, tmp_path / "b.tar")
    backup.restore(tmp_path / "b.tar", tmp_path / "other")
    assert [holder.name for holder in Tokens(Store(tmp_path / "other/state.sqlite").database).all()] == ["alice"]


def test_an_empty_directory_is_filled_and_stays_the_same(home: Path, tmp_path: Path):
    """It may be a mounted disk, such as the volume of a container, which cannot be replaced."""
    backup.back_up(home, tmp_path / "b.tar")
    volume = tmp_path / "volume"
    (volume / "lost+found").mkdir(parents=True)
    inode = volume.stat().st_ino
    backup.restore(tmp_path / "b.tar", volume)
    assert volume.stat().st_ino == inode
    restored = {path.name for path in volume.iterdir()}
    assert restored == {"lost+found", "service.lock", "format.json", "champion.json", "models", "state.sqlite"}


def test_a_restore_that_was_killed_can_be_repeated(home: Path, tmp_path: Path):
    backup.back_up(home, tmp_path / "b.tar")
    (tmp_path / "volume" / ".restore.x.new" / "draft").mkdir(parents=True)
    backup.restore(tmp_path / "b.tar", tmp_path / "volume")
    assert (tmp_path / "volume" / "champion.json").is_file()
    assert not list((tmp_path / "volume").glob(".restore*"))


@pytest.mark.forks
def test_a_home_whose_restore_was_killed_is_not_used(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It would have no tokens, and so be open to all local users."""
    backup.back_up(home, tmp_path / "b.tar")
    (tmp_path / "volume").mkdir()

    def killed(path: Path, target: Path) -> None:
        if target.name == "state.sqlite":
            os._exit(9)
        move(path, target)

    move = files.move
    monkeypatch.setattr(files, "move", killed)
    child = os.fork()
    if child == 0:
        backup.restore(tmp_path / "b.tar", tmp_path / "volume")
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "volume" / "models").is_dir()
    assert not (tmp_path / "volume" / "state.sqlite").exists()
    with pytest.raises(SettingsError, match="a restore of this home did not end"):
        create_home(tmp_path / "volume")


def test_a_directory_of_a_service_that_starts_is_not_filled(home: Path, tmp_path: Path):
    backup.back_up(home, tmp_path / "b.tar")
    (tmp_path / "volume").mkdir()
    with _exclusive(tmp_path / "volume"), pytest.raises(OutputError, match="a service or another restore"):
        backup.restore(tmp_path / "b.tar", tmp_path / "volume")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_root_restores_a_home_for_the_owner_of_the_directory(home: Path, tmp_path: Path):
    """The service could not open files of root."""
    backup.back_up(home, tmp_path / "b.tar")
    with TemporaryDirectory(dir="/var/tmp") as open_to_all:
        volume = Path(open_to_all) / "volume"
        volume.mkdir()
        Path(open_to_all).chmod(0o711)
        os.chown(volume, 65534, 65534)
        backup.restore(tmp_path / "b.tar", volume)
        assert {path.lstat().st_uid for path in volume.rglob("*")} == {65534}
    assert os.geteuid() == 0


def test_a_format_that_is_no_number_restores_nothing(home: Path, tmp_path: Path):
    (home / "format.json").write_text('{"format": 1e999}')
    with pytest.raises(InputError, match="does not contain a format"):
        backup.back_up(home, tmp_path / "b.tar")


@pytest.mark.medium
def test_members_that_repeat_ten_thousand_headers_take_little_memory(tmp_path: Path):
    """tarfile keeps the headers of every member that it has read."""
    headers = {f"COMMENT.{number}": "x" for number in range(10_000)}
    with tarfile.open(tmp_path / "bomb.tar", "w", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
        for number in range(300):
            info = tarfile.TarInfo(f"{number}")
            info.pax_headers = {"comment": "y"}
            archive.addfile(info)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"no MANIFEST\.json"):
        backup.check(tmp_path / "bomb.tar")
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 20_000_000
