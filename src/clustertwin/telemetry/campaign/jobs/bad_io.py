"""bad-io: one writer per CPU that seeks and flushes after every write, so that nothing is buffered: I/O wait."""

from __future__ import annotations

import mmap
import os
import random
import sys
from pathlib import Path

from clustertwin.telemetry.campaign.jobs.program_options import parser
from clustertwin.telemetry.campaign.jobs.workers import run_workers

BLOCK_BYTES = 1 << 20
FILE_BYTES = 64 << 20  # rewritten in place: each writer needs no more disk space than this


class DirectFile:
    """A preallocated file. Every write is on disk when it returns, and bypasses the page cache if possible."""

    def __init__(self, path: Path, size_bytes: int = FILE_BYTES, block_bytes: int = BLOCK_BYTES) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_DSYNC
        try:
            self.fd = os.open(path, flags | os.O_DIRECT, 0o600)
        except OSError:  # tmpfs and some network file systems do not support O_DIRECT
            self.fd = os.open(path, flags, 0o600)
        os.posix_fallocate(self.fd, 0, size_bytes)
        self.blocks = size_bytes // block_bytes
        self.block_bytes = block_bytes
        self.buffer = mmap.mmap(-1, block_bytes)  # page-aligned, as O_DIRECT requires
        self.buffer.write(os.urandom(block_bytes))

    def write_random_block(self, rng: random.Random) -> None:
        """Write one block at a random position; it is on disk when this returns."""
        os.pwrite(self.fd, self.buffer, rng.randrange(self.blocks) * self.block_bytes)
        os.fsync(self.fd)


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__).parse_args(argv)

    def work(index: int, cpu: int) -> None:
        file, rng = DirectFile(options.scratch / f"bad-{cpu}.bin"), random.Random(options.seed + index)
        while True:
            file.write_random_block(rng)

    return run_workers(work, options.cpus)


if __name__ == "__main__":
    sys.exit(main())
