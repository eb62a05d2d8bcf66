"""memory-leak: one worker per CPU that computes and allocates more memory until a cap at the end of the job."""

from __future__ import annotations

import mmap
import sys
import time

import numpy as np

from clustertwin.telemetry.campaign.jobs.compute import compute, new_block
from clustertwin.telemetry.campaign.jobs.program_options import parser
from clustertwin.telemetry.campaign.jobs.workers import run_workers

CYCLE_S = 0.5


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=120.0, help="time until the cap is reached")
    options.add_argument("--cap-mb", type=int, default=512, help="for all workers together")
    chosen = options.parse_args(argv)
    cap_bytes = (chosen.cap_mb << 20) // len(chosen.cpus)

    def work(index: int, cpu: int) -> None:
        memory, block, start_s = mmap.mmap(-1, cap_bytes), new_block(np.random.default_rng(index)), time.monotonic()
        touched = 0
        while True:
            compute(CYCLE_S, block)
            share = min(1.0, (time.monotonic() - start_s) / chosen.seconds)
            # Memory is allocated only when it is written to.
            while touched + mmap.PAGESIZE <= share * cap_bytes:
                memory[touched] = 1
                touched += mmap.PAGESIZE

    return run_workers(work, chosen.cpus)


if __name__ == "__main__":
    sys.exit(main())
