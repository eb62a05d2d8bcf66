"""noisy-neighbour: another program on a job's CPU that copies and compresses files in bursts.

It mostly copies: pure computing would take time from the job without changing any CPU ratio.
"""

from __future__ import annotations

import os
import random
import sys
import time
import zlib
from collections.abc import Callable
from itertools import count
from pathlib import Path

from clustertwin.telemetry.campaign.jobs.program_options import parser
from clustertwin.telemetry.campaign.jobs.workers import run_workers

FILE_BYTES = 32 << 20
BLOCK_BYTES = 1 << 18
BUSY_S = (1.0, 6.0)
PAUSE_S = (0.5, 4.0)
COMPRESS_EVERY = 16  # blocks; the others are copied unchanged


def copy_and_compress(source: Path, target: Path, until_s: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Copy a file block by block, and compress some blocks, until `until_s`; files stay within FILE_BYTES each."""
    while clock() < until_s:
        with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
            for number in count():
                block = read.read(BLOCK_BYTES)
                if not block or clock() >= until_s:
                    break
                write.write(block if number % COMPRESS_EVERY else zlib.compress(block, level=1))
            os.fdatasync(write.fileno())


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__).parse_args(argv)

    def work(index: int, cpu: int) -> None:
        source, target, rng = options.scratch / f"in-{cpu}", options.scratch / f"out-{cpu}", random.Random(options.seed)
        source.write_bytes(rng.randbytes(FILE_BYTES))
        while True:
            copy_and_compress(source, target, time.monotonic() + rng.uniform(*BUSY_S))
            time.sleep(rng.uniform(*PAUSE_S))

    return run_workers(work, options.cpus)


if __name__ == "__main__":
    sys.exit(main())
