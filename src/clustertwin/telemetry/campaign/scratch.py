"""Where jobs write: a directory -> whether it is on a disk, so that waiting for it means anything."""

from __future__ import annotations

import os
from pathlib import Path

#: Kinds of file system that live in memory: writing there never waits.
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


def warn_of(directory: Path) -> str:
    """A sentence of warning where bad-io could not show what it should, or nothing."""
    kind = file_system(directory, Path("/proc/self/mounts").read_text())
    if kind in IN_MEMORY:
        return f"{directory} is in memory ({kind}): bad-io will not wait for a disk; choose another --scratch"
    return ""


def file_system(directory: Path, mounts: str) -> str:
    """The kind of file system of a directory, by the kernel's table of mounts.

    >>> file_system(Path("/dev/shm/x"), "/dev/vda / ext4 rw 0 0\\ntmpfs /dev/shm tmpfs rw 0 0")
    'tmpfs'
    """
    path = os.path.realpath(directory)
    best, kind = "", ""
    for line in mounts.splitlines():
        _, where, found, *_ = line.split()
        where = where.replace("\\040", " ")
        if (path + "/").startswith(where.rstrip("/") + "/") and len(where) >= len(best):
            best, kind = where, found
    return kind
