"""Read a file without the page cache, again and again: path -> a process that waits for the disk."""

from __future__ import annotations

import mmap
import os
import sys

_BLOCK_BYTES = 1 << 20


def main(path: str) -> None:
    buffer = mmap.mmap(-1, _BLOCK_BYTES)  # aligned, as O_DIRECT needs it
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    while True:
        os.lseek(descriptor, 0, os.SEEK_SET)
        while os.readv(descriptor, [buffer]):
            pass


if __name__ == "__main__":
    main(sys.argv[1])
