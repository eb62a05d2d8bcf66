"""Fit and sample every generator on one log: seconds to fit, jobs a second, peak memory of a long stream.

    python benchmarks/generators.py LOG [--generators crossover,bootstrap,…] [--jobs 200000] [--stream 5000000]
    python benchmarks/generators.py LOG --design [--seeds 5]

Each runs in a process of its own, so that its memory is its own. `--design` leaves out one part of `crossover` after
another, and shows what a scheduler (FCFS with EASY backfilling) then sees.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

LIGHT = "crossover,bootstrap,lublin,gaussian-copula"


def one(log: Path, name: str, jobs: int, stream: int) -> None:
    """Measure one generator; prints a row."""
    from clustertwin.workload.formats import read, write
    from clustertwin.workload.generators import make

    real = read(log, lenient=True)
    if name == "crossover":  # compiled once a machine, by numba; not what is measured
        make(name).fit(real, np.random.default_rng(0)).sample(100, np.random.default_rng(0))
    began = perf_counter()
    fitted = make(name).fit(real, np.random.default_rng(0))
    fit_s = perf_counter() - began
    began = perf_counter()
    made = sum(len(block) for block in fitted.stream(jobs, np.random.default_rng(1)))
    sample_s = perf_counter() - began
    written_s = float("nan")
    if stream:
        with tempfile.TemporaryDirectory() as directory:
            began = perf_counter()
            write(fitted.stream(stream, np.random.default_rng(2)), Path(directory) / "long.swf")
            written_s = perf_counter() - began
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:16} {fit_s:9.2f} {made / sample_s:12,.0f} {stream / written_s:14,.0f} {peak_mb:9.0f}", flush=True)


#: What is left out -> settings
DESIGN: dict[str, dict[str, float]] = {
    "as it is": {},
    "no exchange: sessions jittered only": {"sweeps": 0},
    "any amount of work may move": {"most_work_s": np.inf},
    "tails of any length": {"ratio": np.inf},
    "neither limit": {"most_work_s": np.inf, "ratio": np.inf},
    "neither limit, two days at most": {"most_work_s": np.inf, "ratio": np.inf, "far_s": 2 * 86400.0},
    "twice the exchanges": {"sweeps": 8},
    "as it is, a month at most": {"far_s": 30 * 86400.0},
    "long sessions are not cut": {"longest_s": np.inf},
    "sessions end after 20 minutes": {"pause_s": 1200.0},
}


def design(log: Path, seeds: int) -> None:
    """One row a variant: mean over the seeds, as a ratio to the real log's value."""
    from clustertwin.workload.fidelity.measures.arrivals import autocorrelation, fano
    from clustertwin.workload.fidelity.measures.marginals import ks_complement
    from clustertwin.workload.fidelity.measures.offered_load import capacity
    from clustertwin.workload.fidelity.measures.schedule_metrics import seen
    from clustertwin.workload.formats import read
    from clustertwin.workload.generators.crossover import Crossover

    real = read(log, lenient=True)
    on = capacity(real)
    target = seen(real, on, "EASY")
    print(f"{log.name:36} {'KS interval':>12} {'lag 1':>7} {'Fano 20':>8} {'wait':>6} {'slowdown':>9}")
    for name, settings in DESIGN.items():
        fitted = Crossover(**settings).fit(real, np.random.default_rng(0))  # type: ignore[arg-type]
        rows = []
        for seed in range(seeds):
            jobs = fitted.sample(len(real), np.random.default_rng(seed))
            easy = seen(jobs, on, "EASY")
            rows.append((
                ks_complement(real.interval_s[1:], jobs.interval_s[1:]),
                autocorrelation(jobs.interval_s[1:], 1) - autocorrelation(real.interval_s[1:], 1),
                fano(jobs.submit_s, 20) / fano(real.submit_s, 20),
                easy.wait_s / target.wait_s, easy.bounded_slowdown / target.bounded_slowdown,
            ))  # fmt: skip
        ks, lag, bursts, wait, slowdown = np.mean(rows, axis=0)
        print(f"{name:36} {ks:12.3f} {lag:+7.3f} {bursts:8.2f} {wait:6.2f} {slowdown:9.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--generators", default=LIGHT)
    parser.add_argument("--jobs", type=int, default=200_000, help="sampled to nowhere")
    parser.add_argument("--stream", type=int, default=5_000_000, help="written to SWF; 0: none")
    parser.add_argument("--design", action="store_true", help="what each part of crossover is good for")
    parser.add_argument("--seeds", type=int, default=5, help="of --design")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.design:
        design(asked.log, asked.seeds)
        return
    if asked.one:
        one(asked.log, asked.one, asked.jobs, asked.stream)
        return
    print(f"{'':16} {'fit, s':>9} {'jobs/s':>12} {'jobs/s to SWF':>14} {'peak, MB':>9}", flush=True)
    for name in asked.generators.split(","):
        rest = ["--one", name, "--jobs", str(asked.jobs), "--stream", str(asked.stream)]
        subprocess.run([sys.executable, __file__, str(asked.log), *rest], check=True)


if __name__ == "__main__":
    main()
