"""noisy-neighbour: someone else's process on a job's CPU, which copies and packs files in fits and starts.

Mostly copies: a neighbour that only computed would take time from the job, but no CPU ratio would tell.
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

from clustertwin.telemetry.campaign.jobs.options import parser
from clustertwin.telemetry.campaign.jobs.workers import run_workers

FILE_BYTES = 32 << 20
BLOCK_BYTES = 1 << 18
BUSY_S = (1.0, 6.0)
PAUSE_S = (0.5, 4.0)
PACK_EVERY = 16  # blocks; the others are copied as they are


def copy_and_pack(source: Path, target: Path, until_s: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Read, now and then compress, and write until the time has come; files stay within FILE_BYTES each."""
    while clock() < until_s:
        with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
            for number in count():
                block = read.read(BLOCK_BYTES)
                if not block or clock() >= until_s:
                    break
                write.write(block if number % PACK_EVERY else zlib.compress(block, level=1))
            os.fdatasync(write.fileno())


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__).parse_args(argv)

    def work(index: int, cpu: int) -> None:
        source, target, rng = options.scratch / f"in-{cpu}", options.scratch / f"out-{cpu}", random.Random(options.seed)
        source.write_bytes(rng.randbytes(FILE_BYTES))
        while True:
            copy_and_pack(source, target, time.monotonic() + rng.uniform(*BUSY_S))
            time.sleep(rng.uniform(*PAUSE_S))

    return run_workers(work, options.cpus)


if __name__ == "__main__":
    sys.exit(main())
