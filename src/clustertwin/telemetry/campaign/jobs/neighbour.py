"""noisy-neighbour: someone else's process on a job's CPU, which packs and copies files in fits and starts."""

from __future__ import annotations

import os
import random
import sys
import time
import zlib
from pathlib import Path

from clustertwin.telemetry.campaign.jobs.options import parser
from clustertwin.telemetry.campaign.jobs.workers import run_workers

FILE_BYTES = 32 << 20
BUSY_S = (1.0, 6.0)
PAUSE_S = (0.5, 4.0)


def pack_and_copy(source: Path, target: Path, until_s: float) -> None:
    """Read, compress and write until the time has come; files stay within FILE_BYTES each."""
    while time.monotonic() < until_s:
        with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
            while time.monotonic() < until_s and (block := read.read(1 << 18)):
                write.write(zlib.compress(block, level=1))
            os.fdatasync(write.fileno())


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__).parse_args(argv)

    def work(index: int, cpu: int) -> None:
        source, target, rng = options.scratch / f"in-{cpu}", options.scratch / f"out-{cpu}", random.Random(options.seed)
        source.write_bytes(rng.randbytes(FILE_BYTES))
        while True:
            pack_and_copy(source, target, time.monotonic() + rng.uniform(*BUSY_S))
            time.sleep(rng.uniform(*PAUSE_S))

    return run_workers(work, options.cpus)


if __name__ == "__main__":
    sys.exit(main())
