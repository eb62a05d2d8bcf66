"""np: partial-wave fits from random starts, one worker per CPU; each fit reads its events from disk. All user time.

With `--hang-after-s` every worker stops in the middle of its work.
"""

from __future__ import annotations

import signal
import sys
import time

import numpy as np

from clustertwin.telemetry.campaign.jobs import partial_waves as pwa
from clustertwin.telemetry.campaign.jobs.program_options import parser
from clustertwin.telemetry.campaign.jobs.workers import run_workers


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--events", type=int, default=40_000)
    options.add_argument("--hang-after-s", type=float)
    chosen = options.parse_args(argv)
    start_s, rng = time.monotonic(), np.random.default_rng(chosen.seed)
    events, flat = chosen.scratch / "events.npy", chosen.scratch / "phase-space.npy"
    np.save(events, pwa.draw_events(chosen.events, rng))
    np.save(flat, pwa.draw_phase_space(chosen.events, rng))

    def work(index: int, cpu: int) -> None:
        if chosen.hang_after_s is not None:
            signal.signal(signal.SIGALRM, lambda *_: signal.pause())
            signal.setitimer(signal.ITIMER_REAL, max(0.01, start_s + chosen.hang_after_s - time.monotonic()))
        starts = np.random.default_rng((chosen.seed, index))
        while True:
            data, phase_space = (pwa.prepare(np.load(path)) for path in (events, flat))
            pwa.fit(pwa.random_start(starts), data, phase_space)

    return run_workers(work, chosen.cpus)


if __name__ == "__main__":
    sys.exit(main())
