"""Check the scratch directory: path -> the kind of its file system, and a warning if it is in memory."""

from __future__ import annotations

import os
from pathlib import Path

#: File systems in memory: writing to them never waits for a disk.
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


def scratch_warning(directory: Path) -> str:
    """A warning if the directory is in memory, where bad-io has no I/O wait; otherwise an empty string."""
    kind = file_system(directory, Path("/proc/self/mounts").read_text())
    if kind in IN_MEMORY:
        return f"{directory} is in memory ({kind}), so bad-io will not wait for a disk; choose another --scratch"
    return ""


def file_system(directory: Path, mounts: str) -> str:
    """The kind of a directory's file system, from the kernel's mount table.

    >>> file_system(Path("/dev/shm/x"), "/dev/vda / ext4 rw 0 0\\ntmpfs /dev/shm tmpfs rw 0 0")
    'tmpfs'
    """
    path = os.path.realpath(directory)
    longest, kind = "", ""
    for line in mounts.splitlines():
        _, mount, mount_kind, *_ = line.split()
        mount = mount.replace("\\040", " ")
        if (path + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= len(longest):
            longest, kind = mount, mount_kind
    return kind
