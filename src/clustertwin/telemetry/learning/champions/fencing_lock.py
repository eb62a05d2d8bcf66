"""One retrainer at a time: a home -> a fencing token, larger than every token given before.

The kernel's lock keeps two retrainers of one machine apart and is let go however a process ends. The token covers what
a lock cannot: a retrainer that was stopped for hours, or a shared disk whose locks do not hold. Whoever writes the
champion shows its token, and an older one is refused (`champions.promote`).
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
    """Another retrainer is at work; not a failure, and worth another try later (EX_TEMPFAIL of sysexits.h)."""

    exit_code = 75


@contextmanager
def only_retrainer(home: Path) -> Iterator[int]:
    """Hold the lock of this home and a fresh token; `Busy` at once where another holds it."""
    with held(home / "learning.lock", wait=False):
        yield next_fence(home)


def next_fence(home: Path) -> int:
    """A token of one's own. A person who decides takes one too, and so outranks the night that is running."""
    path = home / "fence"
    with held(home / "fence.lock"):
        try:
            last = int(path.read_text()) if path.exists() else 0
        except ValueError as error:
            raise InputError(path, "not a number; write the fence of champion.json into it") from error
        files.write(path, f"{last + 1}\n".encode())
    return last + 1


@contextmanager
def held(path: Path, wait: bool = True) -> Iterator[None]:
    """The lock of a file, until the block or the process ends."""
    files.make_directory(path.parent)
    with files.reporting(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Busy(f"{path.parent}: another retrainer is at work") from None
        yield
    finally:
        os.close(descriptor)
