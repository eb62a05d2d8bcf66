"""One retrainer at a time: a home -> a file lock and a fencing token that is larger than every earlier token.

The kernel releases a file lock when its process ends, so a killed retrainer never blocks the next one. A lock alone is
not enough: a retrainer can be suspended for hours, and some network file systems do not honour locks. Every change of
the champion therefore carries a fencing token, and `champion_store` refuses a token older than the last one it saw.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clustertwin.core import files
from clustertwin.core.errors import InputError, TwinError


class Busy(TwinError):
    """Another retrainer holds the lock. Not a failure: try again later (EX_TEMPFAIL of sysexits.h)."""

    exit_code = 75


@contextmanager
def retrainer_lock(home: Path) -> Iterator[int]:
    """Hold the retrainers' lock of this home and yield a new fencing token. Raises `Busy` if the lock is taken."""
    with file_lock(home / "learning.lock", wait=False):
        yield next_fence(home)


def next_fence(home: Path) -> int:
    """A new fencing token. A decision by hand takes one too, so it outranks a night that started earlier."""
    path = home / "fence"
    with file_lock(home / "fence.lock"):
        try:
            last = int(path.read_text()) if path.exists() else 0
        except ValueError as error:
            raise InputError(path, "not a number; write the value of `fence` in champion.json into it") from error
        files.write(path, f"{last + 1}\n")
    return last + 1


@contextmanager
def file_lock(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock on a file until the block or the process ends."""
    files.make_directory(path.parent)
    with files.reporting(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Busy(f"{path.parent}: another retrainer is running") from None
        yield
    finally:
        os.close(descriptor)
