"""Bytes -> disk so that a crash leaves the old or the new, never half; a full disk is an `OutputError`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from clustertwin.core.errors import OutputError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path}: cannot write: {error.strerror or error}; what was written before is whole"
        ) from error


def replace(path: Path, data: bytes) -> None:
    """The file holds exactly `data`, on disk, when this returns; until then it holds what it held before."""
    put(path, data)
    with writing(path):
        sync_directory(path.parent)


def put(path: Path, data: bytes) -> None:
    """As `replace`, but a power cut may still undo it until the directory is synced."""
    fresh = path.with_name(f".{path.name}.new")
    with writing(path):
        try:
            with open(fresh, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise


def append(path: Path, data: bytes) -> None:
    """`data` follows what the file held, on disk, when this returns; a refused write leaves the file as it was."""
    with writing(path):
        existed = path.exists()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            length = os.fstat(descriptor).st_size
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, length)
                raise
        finally:
            os.close(descriptor)
        if not existed:
            sync_directory(path.parent)


def make_directory(path: Path) -> None:
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """New and renamed names survive a power cut only when their directory is synced too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
