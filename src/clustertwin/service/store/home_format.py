"""The format of a home directory: HOME/format.json -> a home that this release can use, migrated if it is older.

A home holds state.sqlite, recording/, models/, champion.json, learning.json, programs.json, running-jobs.safetensors,
nights/, rehearsal/, mlflow/ and outbox/. Releases up to 0.1.0 wrote no format.json: such a home has format 0. Files
with a version of their own (the schema of state.sqlite, a recording, a model, programs.json) keep it. The format covers
where files are and what their names mean.

To change the format, add one function to `MIGRATIONS`. It must be idempotent: after a crash it runs again.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clustertwin import __version__
from clustertwin.core import files
from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.foreign_files import parse_json, read_regular

DEFAULT_HOME = "~/.local/share/clustertwin"
FILE = "format.json"
RESTORING = ".restore."  # begins the name of the directory of a restore that has not ended
OF_DISK = "lost+found"  # a home that is the root of a disk has it; only root can look into it
ASIDE = "set-aside"  # where files of a home go that cannot be used
MOST_BYTES = 1 << 16  # the file has one line
#: Every home without format.json has one of these files. Another directory is a mistake in --home, and stays as it is.
PARTS = ("state.sqlite", "champion.json", "learning.json")


class HomeFormatError(InputError, SettingsError):
    """A home, or a file in it, that a newer release wrote."""


def _stamp(home: Path) -> None:
    """Format 0 -> 1: format.json is new, and everything else stays."""


def _name_rehearsal(home: Path) -> None:
    """Format 1 -> 2: the days of the rehearsal memory leave replay/, which is for the database of a replay."""
    for day in sorted({path.parent for path in (home / "replay").glob("*/*.safetensors")}):
        if not (home / "rehearsal" / day.name).exists():
            files.move(day, home / "rehearsal" / day.name)


#: The migration at index n turns format n into format n + 1.
MIGRATIONS: tuple[Callable[[Path], None], ...] = (_stamp, _name_rehearsal)


def open_home(home: Path, migrations: tuple[Callable[[Path], None], ...] = MIGRATIONS) -> Path:
    """Check the format of an existing home and migrate it if it is older. What is no home stays as it is."""
    current = len(migrations)
    if not home.is_dir() or _read(home, current) in (None, current):
        return home
    with _locked(home):
        version = _read(home, current)
        assert version is not None
        for step in range(version, current):
            migrations[step](home)
            _write(home, step + 1)
    return home


def create_home(home: Path) -> Path:
    """Create a home that only its owner can read, or open the existing one."""
    with files.reporting(home):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        everyone_writes = home.stat().st_mode & stat.S_IWOTH
    refuse_half(home)
    if everyone_writes:
        raise SettingsError(
            f"{home}: every user of this machine can write to it, and so replace the model and the events; "
            f"run chmod o-w {home}, or choose another --home"
        )
    if not is_home(home):  # a new home needs no migration
        _write(home, len(MIGRATIONS))
    return open_home(home)


def refuse_half(home: Path) -> None:
    """Raise if a restore was killed: a home without a part of its backup may have no tokens, and be open to all."""
    with files.reporting(home):
        is_half = any(home.glob(f"{RESTORING}*"))
    if is_half:
        raise SettingsError(f"{home}: a restore of this home did not end; empty the directory, and restore it again")


def is_home(path: Path) -> bool:
    """Whether a directory is a home. HomeFormatError if a newer release wrote it."""
    return path.is_dir() and _read(path, len(MIGRATIONS)) is not None


def refuse_newer(where: Path, version: int, supported: int, written_by: str = "a newer release") -> None:
    """Raise if a file has a version that this release does not know."""
    if version > supported:
        raise HomeFormatError(
            where,
            f"{written_by} wrote this with format {version}; clustertwin {__version__} supports formats up to "
            f"{supported}. Upgrade clustertwin, or choose another home",
        )


def _read(home: Path, current: int) -> int | None:
    """The format of a home; None for a directory that is none."""
    path = home / FILE
    try:
        content = parse_json(read_regular(path, MOST_BYTES))
        version, written_by = int(content["format"]), str(content.get("written_by", "a newer release"))
    except FileNotFoundError:
        return 0 if any((home / name).exists() for name in PARTS) else None
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(
            path, "does not contain a format; delete it, and the next command checks the home again"
        ) from error
    refuse_newer(path, version, current, written_by)
    return version


def _write(home: Path, version: int) -> None:
    files.write(home / FILE, json.dumps({"format": version, "written_by": f"clustertwin {__version__}"}) + "\n")


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """One migration at a time: a second process waits, and then reads the new format."""
    lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
