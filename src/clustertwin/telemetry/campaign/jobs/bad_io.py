"""bad-io: a writer per CPU that writes, seeks and flushes, so that nothing can be buffered; it lives in I/O wait."""

from __future__ import annotations

import mmap
import os
import random
import sys
from pathlib import Path

from clustertwin.telemetry.campaign.jobs.options import parser
from clustertwin.telemetry.campaign.jobs.workers import run_workers

BLOCK_BYTES = 1 << 20
FILE_BYTES = 64 << 20  # rewritten in place: the disk holds no more than this per writer


class DirectFile:
    """A preallocated file whose every write is on the disk when it returns, past the page cache where it can be."""

    def __init__(self, path: Path, size_bytes: int = FILE_BYTES, block_bytes: int = BLOCK_BYTES) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_DSYNC
        try:
            self.fd = os.open(path, flags | os.O_DIRECT, 0o600)
        except OSError:  # tmpfs and some network file systems know no O_DIRECT
            self.fd = os.open(path, flags, 0o600)
        os.posix_fallocate(self.fd, 0, size_bytes)
        self.blocks = size_bytes // block_bytes
        self.block_bytes = block_bytes
        self.buffer = mmap.mmap(-1, block_bytes)  # page-aligned, as O_DIRECT demands
        self.buffer.write(os.urandom(block_bytes))

    def write_somewhere(self, rng: random.Random) -> None:
        """One block at a random place, durable on return."""
        os.pwrite(self.fd, self.buffer, rng.randrange(self.blocks) * self.block_bytes)
        os.fsync(self.fd)


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__).parse_args(argv)

    def work(index: int, cpu: int) -> None:
        file, rng = DirectFile(options.scratch / f"bad-{cpu}.bin"), random.Random(options.seed + index)
        while True:
            file.write_somewhere(rng)

    return run_workers(work, options.cpus)


if __name__ == "__main__":
    sys.exit(main())
