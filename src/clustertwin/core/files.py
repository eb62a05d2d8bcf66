"""Write files so that a crash leaves the old content or the new, never half: bytes or a stream -> a durable file.

This is the only module that renames a file into place. A refusal of the operating system (a full disk, a missing
permission) becomes an `OutputError`, and the previous content stays.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from clustertwin.core.errors import OutputError


@contextlib.contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Turn an `OSError` raised in the block into an `OutputError` that names the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{path}: cannot write: {reason}; the previous content is unchanged") from error


def refuse_existing(path: Path, force: bool | None = None) -> None:
    """Raise if the target exists, before any long work is done; `force` is the value of --force where there is one."""
    if path.exists() and not force:
        hint = "" if force is None else "; use --force to overwrite it"
        raise OutputError(f"{path} already exists{hint}")


@contextlib.contextmanager
def replacing(path: Path, sync_parent: bool = True, private: bool = False) -> Iterator[BinaryIO]:
    """A binary file to write to. It becomes `path` only if the block ends without an error.

    Only its owner can read a private file.
    """
    with reporting(path):
        _refuse_device(path)
        draft = path.with_name(f".{path.name}.{secrets.token_urlsafe(6)}.new")
        # The kernel applies the umask. To ask for it means to change it, for every thread of the process.
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if private else 0o666)
        try:
            with os.fdopen(handle, "wb") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            os.replace(draft, path)
            if sync_parent:
                sync_directory(path.parent)
        finally:
            draft.unlink(missing_ok=True)


def _refuse_device(path: Path) -> None:
    """A device or a pipe is not replaced by a file: root would do that to /dev/null or /dev/stdout of every process."""
    is_device = path.exists() and not (path.is_file() or path.is_dir())
    if is_device or (path.is_symlink() and os.readlink(path).startswith("/proc/")):
        raise OSError(errno.EINVAL, "it is a device or a pipe")


def write(path: Path, data: bytes | str, sync_parent: bool = True) -> None:
    """Make `path` hold exactly `data`, on disk when this returns.

    With `sync_parent=False` a power cut can still undo the rename until the directory is synced.
    """
    with replacing(path, sync_parent) as out:
        out.write(data.encode() if isinstance(data, str) else data)


def append(path: Path, data: bytes, sync: bool = True) -> None:
    """Add `data` to the end of a file, on disk when this returns. A refused write leaves the file as it was.

    With `sync=False` it survives a kill of the process, and not a power cut until the file is synced.
    """
    with reporting(path):
        existed = path.exists()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            length = os.fstat(descriptor).st_size
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                if sync:
                    os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, length)
                raise
        finally:
            os.close(descriptor)
        if not existed and sync:
            sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Create a directory and its parents; no error if it exists."""
    with reporting(path):
        path.mkdir(parents=True, exist_ok=True)
        sync_directory(path.parent)


def publish_directory(draft: Path, path: Path) -> None:
    """Rename a finished directory into place, with all of its files on disk."""
    with reporting(path):
        for file in sorted(draft.rglob("*")):
            if file.is_file():
                _sync_file(file)
        for directory in [draft, *(file for file in draft.rglob("*") if file.is_dir())]:
            sync_directory(directory)
        os.rename(draft, path)
        sync_directory(path.parent)


def move(path: Path, target: Path) -> None:
    """Rename a file or directory to a name that is free; both directories are on disk when this returns."""
    with reporting(target):
        if target.exists() or target.is_symlink():
            raise OSError(errno.EEXIST, "the name is taken")
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(path, target)
        sync_directory(target.parent)
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Flush a directory: new and renamed names survive a power cut only after this."""
    _sync_descriptor(os.open(path, os.O_RDONLY | os.O_DIRECTORY))


def _sync_file(path: Path) -> None:
    _sync_descriptor(os.open(path, os.O_RDONLY))


def _sync_descriptor(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
