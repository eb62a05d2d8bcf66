"""Back up a home while the service runs, and restore it: HOME <-> one tar file with the SHA-256 of every member.

SQLite files are copied by SQLite's own backup, so that they are consistent. Every other file is either replaced whole
or only appended to. The order of the copies does the rest: champion.json and learning.json come before the models that
they name, and the journal of a recording comes before its chunks, because a writer moves seconds from the one to the
other. A file that disappears during the copy (a delivered message, an expired chunk) is left out. What a symbolic link
points to is copied, such as a recording on another disk; a link that leads nowhere or to its own home is left out.

The last member, MANIFEST.json, lists all others. `restore` checks every member against it before the new home appears.
A new directory appears in one rename. An empty directory that exists may be a mounted disk, or one of another user, and
stays: the parts of the home are moved into it, and belong to its owner.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, cast
from urllib.parse import quote

from clustertwin import __version__
from clustertwin.core import files
from clustertwin.core.errors import InputError, OutputError, SettingsError
from clustertwin.service.store.home_format import OF_DISK, RESTORING, open_home

MANIFEST = "MANIFEST.json"
RECORDING = "recording"
_FIRST = ("format.json", "champion.json", "learning.json")
_JOURNAL = "journal"
#: What an empty home may hold, beside the rest of a killed restore.
_EMPTY = ("service.lock", OF_DISK)
#: These parts make a directory a home, so they are moved last.
_LAST = ("learning.json", "champion.json", "state.sqlite", "format.json")
_SQLITE_MAGIC = b"SQLite format 3\0"
_SQLITE_COMPANIONS = ("-wal", "-shm", "-journal")
_PIECE = 1 << 20
_LAST_S = 1e11  # the year 5138
_MANIFEST_BYTES = 64_000_000  # of a home with half a million files


class Member(NamedTuple):
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """What a backup holds."""

    path: str
    files: int
    bytes: int
    made_s: float
    written_by: str
    left_out: tuple[str, ...] = ()  # files that disappeared while the backup was made, and links that lead nowhere


def back_up(home: Path, target: Path, *, recording: bool = True) -> BackupSummary:
    """Write a backup of a home to a new file that only its owner can read."""
    if not home.is_dir():
        raise SettingsError(f"{home}: there is no home to back up; set --home")
    files.refuse_existing(target)
    if target.resolve().is_relative_to(home.resolve()):
        raise SettingsError(f"{target}: a backup must lie outside of the home")
    open_home(home)
    members: dict[str, Member] = {}
    left_out: list[str] = []
    made_s = time.time()
    with (
        files.replacing(target, private=True) as out,
        tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in _in_order(home, recording):
            name = path.relative_to(home).as_posix()
            try:
                members[name] = _add(archive, name, path)
            except (FileNotFoundError, IsADirectoryError):
                left_out.append(name)
            except PermissionError as error:
                raise InputError(path, f"cannot be backed up: {error.strerror}") from error
        manifest = {"made_s": made_s, "written_by": f"clustertwin {__version__}", "members": members}
        _add_bytes(archive, MANIFEST, json.dumps(manifest).encode())
    size = sum(member.size for member in members.values())
    return BackupSummary(str(target), len(members), size, made_s, f"clustertwin {__version__}", tuple(left_out))


def restore(source: Path, home: Path) -> BackupSummary:
    """Make a home from a backup. Nothing appears at `home` unless every file is complete and unchanged."""
    home = home.resolve()  # it may be a link to an empty directory on another disk
    if home.exists():
        return _fill(source, home)
    with files.reporting(home):
        home.parent.mkdir(parents=True, exist_ok=True)
        scratch_directory = tempfile.TemporaryDirectory(prefix=f".{home.name}.", dir=home.parent)
    with _opened(source) as file, scratch_directory as scratch:
        summary = _draft(source, file, Path(scratch) / "home", home)
        files.publish_directory(Path(scratch) / "home", home)
    return summary


def _fill(source: Path, home: Path) -> BackupSummary:
    """Restore into a directory that exists."""
    with _opened(source) as file, _as_owner(home), _reserved(home):
        _refuse_contents(home)
        with files.reporting(home):
            for left in home.glob(f"{RESTORING}*"):  # of a restore that was killed
                shutil.rmtree(left)
            scratch_directory = tempfile.TemporaryDirectory(prefix=RESTORING, suffix=".new", dir=home)
        with scratch_directory as scratch:
            summary = _draft(source, file, Path(scratch) / "draft", home)
            _refuse_contents(home)
            _move_into(home, Path(scratch) / "draft", Path(scratch) / "home")
    return summary


def _draft(source: Path, file: BinaryIO, draft: Path, home: Path) -> BackupSummary:
    with files.reporting(home):
        draft.mkdir(mode=0o700)
        summary = _extract(source, file, draft)
    open_home(draft)  # refuses a home of a newer release, migrates one of an older release
    return summary


@contextmanager
def _reserved(home: Path) -> Iterator[None]:
    """No service starts in this directory inside the block."""
    if not home.is_dir():
        raise OutputError(f"{home} already exists and is not a directory; restore to another home")
    _refuse_contents(home)  # before there is a lock in it
    with files.reporting(home):
        lock = os.open(home / "service.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(f"{home}: a service or another restore uses this directory") from None
        yield
    finally:
        os.close(lock)


def _refuse_contents(home: Path) -> None:
    with files.reporting(home):
        names = [path.name for path in home.iterdir() if path.name not in _EMPTY]
    if any(not name.startswith(RESTORING) for name in names):
        raise OutputError(f"{home} already exists and is not empty; restore to another home, or move this one away")


def _move_into(home: Path, draft: Path, complete: Path) -> None:
    """Move the parts of a draft into the home, after all of them are on disk."""
    with suppress(PermissionError):  # the directory belongs to another user, who lets us write to it
        home.chmod(0o700)
    files.publish_directory(draft, complete)
    names = {path.name for path in complete.iterdir()}
    for name in (*sorted(names.difference(_LAST)), *(name for name in _LAST if name in names)):
        files.move(complete / name, home / name)


@contextmanager
def _as_owner(home: Path) -> Iterator[None]:
    """As root, act as the owner of the home, who must be able to use it. No link of theirs leads root elsewhere."""
    owner, group = home.stat(), os.getegid()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


def check(source: Path) -> BackupSummary:
    """Read a whole backup and check it, without writing a home."""
    with _opened(source) as file:
        return _extract(source, file, None)


def _in_order(home: Path, recording: bool) -> Iterator[Path]:
    """The files of a home, in the order in which they may be copied, and the links that cannot be followed."""
    for name in _FIRST:
        if (home / name).is_file():
            yield home / name
    trees = [home.resolve()]
    for directory, folders, names in os.walk(home, onerror=_unlisted, followlinks=True):
        place = Path(directory)
        if place == home:
            names = [name for name in names if name not in _FIRST]
            folders[:] = [name for name in folders if name != OF_DISK and (recording or not _is_recording(name))]
        for name in sorted(folders):
            if (place / name).is_symlink() and not _is_new_tree((place / name).resolve(), trees):
                folders.remove(name)
                yield place / name
        folders.sort()
        for name in sorted(names, key=lambda name: (name != _JOURNAL, name)):
            path = place / name
            if _is_left_out(path) or (path.exists() and not path.is_file()):
                continue
            yield path


def _is_recording(name: str) -> bool:
    """Whether a directory of a home is its recording, or one that the service has moved aside, as recording-1."""
    return name == RECORDING or name.startswith(f"{RECORDING}-")


def _unlisted(error: OSError) -> None:
    """A directory that cannot be listed would be left out in silence. One that has disappeared is an expired one."""
    if not isinstance(error, FileNotFoundError):
        raise InputError(error.filename, f"cannot be backed up: {error.strerror}") from error


def _is_new_tree(target: Path, trees: list[Path]) -> bool:
    """Whether a directory has nothing in common with those that are copied; if so, it is one of them now."""
    if any(target.is_relative_to(tree) or tree.is_relative_to(target) for tree in trees):
        return False
    trees.append(target)
    return True


def _is_left_out(path: Path) -> bool:
    """Locks, unfinished drafts, and the files that SQLite keeps beside a database."""
    if path.suffix == ".lock" or path.name == "lock" or (path.name.startswith(".") and path.suffix == ".new"):
        return True
    return path.name.endswith(_SQLITE_COMPANIONS) and Path(str(path).rpartition("-")[0]).is_file()


def _add(archive: tarfile.TarFile, name: str, path: Path) -> Member:
    with path.open("rb") as content:
        if content.read(len(_SQLITE_MAGIC)) != _SQLITE_MAGIC:
            content.seek(0)
            return _add_stream(archive, name, content, path.stat().st_mode)
    with tempfile.TemporaryDirectory(prefix="twin-backup-") as scratch:
        copy = Path(scratch) / "copy.sqlite"
        if os.statvfs(path).f_flag & os.ST_RDONLY:  # SQLite cannot open it there, and nobody writes to it
            path = _with_log(path, Path(scratch))
        _copy_database(path, copy)
        with copy.open("rb") as content:
            return _add_stream(archive, name, content, 0o600)


def _with_log(path: Path, scratch: Path) -> Path:
    """A copy of a database with the log that has its last transactions."""
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{path}{suffix}", scratch / f"source.sqlite{suffix}")
    return scratch / "source.sqlite"


def _copy_database(path: Path, copy: Path) -> None:
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=30)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise InputError(path, f"cannot be backed up: {error}") from error


def _add_stream(archive: tarfile.TarFile, name: str, content: BinaryIO, mode: int) -> Member:
    """Add what the file holds now. A file that grows meanwhile is cut at this length."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = os.fstat(content.fileno()).st_size, mode & 0o777, int(time.time())
    reader = _Hashing(content, info.size)
    archive.addfile(info, reader)  # type: ignore[arg-type]  # it only reads
    return Member(info.size, reader.digest.hexdigest())


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
    archive.addfile(info, io.BytesIO(data))


class _Hashing:
    """A stream of at most `size` bytes that computes their SHA-256 on the way."""

    def __init__(self, content: BinaryIO, size: int) -> None:
        self.digest = hashlib.sha256()
        self._content, self._left = content, size

    def read(self, count: int) -> bytes:
        data = self._content.read(min(count, self._left))
        self._left -= len(data)
        self.digest.update(data)
        return data


class _InPieces:
    """A file that is not read in one large piece: tarfile reads a header of any length at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.seek, self.tell, self.close = file, file.seek, file.tell, file.close

    def read(self, count: int) -> bytes:
        if not 0 <= count <= _MANIFEST_BYTES:
            raise tarfile.ReadError(f"a header of {count} bytes")
        return self._file.read(count)


@contextmanager
def _opened(source: Path) -> Iterator[BinaryIO]:
    try:
        file = source.open("rb")
    except OSError as error:
        raise InputError(source, f"cannot be read: {error.strerror or error}") from error
    with file:
        yield file


def _extract(source: Path, file: BinaryIO, draft: Path | None) -> BackupSummary:
    """Check every member and, with a draft, write it there."""
    seen: dict[str, Member] = {}
    manifest: dict[str, object] | None = None
    try:
        with tarfile.open(fileobj=cast(BinaryIO, _InPieces(file)), mode="r:") as archive:
            for info in archive:
                archive.members.clear()  # type: ignore[attr-defined]  # it keeps the headers of all members
                if manifest is not None:
                    raise InputError(source, f"{info.name!r} follows {MANIFEST}, which must be last")
                # A sparse file is a few bytes in the archive and any number of zeros on the disk.
                if not info.isfile() or info.issparse() or not _is_plain(info.name) or info.name in seen:
                    raise InputError(source, f"{info.name!r} is not a name that a backup has")
                content = archive.extractfile(info)
                assert content is not None
                if info.name == MANIFEST:
                    if info.size > _MANIFEST_BYTES:
                        raise InputError(
                            source, f"{MANIFEST} has {info.size} bytes; at most {_MANIFEST_BYTES} are read"
                        )
                    manifest = json.loads(content.read())
                    continue
                seen[info.name] = _write_member(content, draft / info.name if draft else None, info.mode)  # type: ignore[arg-type]
    except (tarfile.TarError, EOFError, OverflowError) as error:
        raise InputError(source, f"is not a complete backup: {error}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # the disk of the draft is full: the backup itself is sound
        raise InputError(source, f"cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(source, f"its {MANIFEST} cannot be read: {error}") from error
    if not isinstance(manifest, dict) or not isinstance(members := manifest.get("members"), dict):
        raise InputError(source, f"is not a complete backup: it has no {MANIFEST}")
    expected = {name: tuple(member) if isinstance(member, list) else member for name, member in members.items()}
    for name in sorted({*expected, *seen}):
        if expected.get(name) != tuple(seen.get(name, ())):
            raise InputError(source, f"{name!r} is missing or was changed since the backup was made")
    made_s, written_by = manifest.get("made_s"), manifest.get("written_by")
    if not isinstance(made_s, int | float) or isinstance(made_s, bool) or not 0 <= made_s < _LAST_S:
        raise InputError(source, f"its {MANIFEST} does not say when it was made")
    size = sum(member.size for member in seen.values())
    return BackupSummary(str(source), len(seen), size, float(made_s), str(written_by))


def _is_plain(name: str) -> bool:
    """Whether a name stays inside of the home."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _write_member(content: BinaryIO, path: Path | None, mode: int) -> Member:
    digest, size = hashlib.sha256(), 0
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.devnull if path is None else path, "wb") as out:
        while piece := content.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            out.write(piece)
    if path is not None:
        path.chmod((mode & 0o700) | 0o600)
    return Member(size, digest.hexdigest())
