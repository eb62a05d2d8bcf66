"""Read the kernel's small text files: a path, or a descriptor kept open -> bytes."""

from __future__ import annotations

import os

#: Larger than /proc/stat of a thousand threads, so that one read returns one consistent state.
SIZE = 1 << 18


def read_file(path: str) -> bytes:
    """The whole file. The loop is needed: the kernel may return less than requested before the end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, SIZE)
        while more := os.read(fd, SIZE):
            data += more
        return data
    finally:
        os.close(fd)


def reread(fd: int, size: int = 1 << 12) -> bytes:
    """The file behind a descriptor, from its beginning. This costs a third of opening it again."""
    data = os.pread(fd, size, 0)
    return data if len(data) < size else reread(fd, size * 4)
