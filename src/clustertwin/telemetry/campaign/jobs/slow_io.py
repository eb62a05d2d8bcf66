"""slow-io: one worker per CPU that computes and writes; its share of I/O wait grows through the job."""

from __future__ import annotations

import random
import sys
import time

import numpy as np

from clustertwin.telemetry.campaign.jobs.bad_io import DirectFile
from clustertwin.telemetry.campaign.jobs.compute import compute, new_block
from clustertwin.telemetry.campaign.jobs.program_options import parser
from clustertwin.telemetry.campaign.jobs.workers import run_workers

CYCLE_S = 0.25


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=120.0, help="time until the share of writing reaches --most")
    options.add_argument("--most", type=float, default=0.9)
    chosen = options.parse_args(argv)

    def work(index: int, cpu: int) -> None:
        rng, start_s = random.Random(chosen.seed + index), time.monotonic()
        file, block = DirectFile(chosen.scratch / f"slow-{cpu}.bin"), new_block(np.random.default_rng(index))
        while True:
            now_s = time.monotonic()
            share = chosen.most * min(1.0, (now_s - start_s) / chosen.seconds)
            compute(CYCLE_S * (1 - share), block)
            while time.monotonic() < now_s + CYCLE_S:
                file.write_random_block(rng)

    return run_workers(work, chosen.cpus)


if __name__ == "__main__":
    sys.exit(main())
