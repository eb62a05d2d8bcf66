"""swap-bursts: one process per CPU that releases its memory and faults it in again, in bursts of system time.

On a swapping node, the kernel spends system time on pages. This program causes such work without a swap device.
"""

from __future__ import annotations

import mmap
import random
import sys
import time

from clustertwin.telemetry.campaign.jobs.program_options import parser
from clustertwin.telemetry.campaign.jobs.workers import run_workers

REGION_BYTES = 32 << 20
BURST_S = (0.5, 2.5)
PAUSE_S = (2.0, 8.0)


def fault(region: mmap.mmap, seconds: float) -> None:
    """Drop all pages and touch each of them again, repeatedly for `seconds`."""
    touch = b"\x01" * (REGION_BYTES // mmap.PAGESIZE)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        region.madvise(mmap.MADV_DONTNEED)
        region[:: mmap.PAGESIZE] = touch


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__).parse_args(argv)

    def work(index: int, cpu: int) -> None:
        # A whole node swaps at once: all CPUs use the same seed, and so the same times of bursts.
        region, rng = (
            mmap.mmap(-1, REGION_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
            random.Random(options.seed),
        )
        region.madvise(mmap.MADV_NOHUGEPAGE)
        while True:
            time.sleep(rng.uniform(*PAUSE_S))
            fault(region, rng.uniform(*BURST_S))

    return run_workers(work, options.cpus)


if __name__ == "__main__":
    sys.exit(main())
