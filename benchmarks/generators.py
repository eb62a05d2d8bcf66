"""Fit and sample every generator on one log: seconds to fit, jobs per second, peak memory of a long stream.

    python benchmarks/generators.py LOG [--generators crossover,bootstrap,…] [--jobs 200000] [--stream 5000000]
    python benchmarks/generators.py LOG --design [--of site-model] [--seeds 5]

Each generator runs in its own process, so that its memory can be measured. `--design` removes or changes one part of
`crossover`, or of another generator, at a time and simulates the result (FCFS with EASY backfilling).
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

LIGHT = "crossover,site-model,bootstrap,lublin,gaussian-copula"


def measure(log: Path, name: str, jobs: int, stream: int) -> None:
    """Measure one generator and print its row."""
    from clustertwin.workload.formats import read, write
    from clustertwin.workload.generators import make

    real = read(log, lenient=True)
    if name in ("crossover", "site-model"):  # numba compiles once per machine; the benchmark excludes it
        make(name).fit(real, np.random.default_rng(0)).sample(100, np.random.default_rng(0))
    began = perf_counter()
    fitted = make(name).fit(real, np.random.default_rng(0))
    fit_s = perf_counter() - began
    began = perf_counter()
    sampled = sum(len(block) for block in fitted.stream(jobs, np.random.default_rng(1)))
    sample_s = perf_counter() - began
    written_s = float("nan")
    if stream:
        with tempfile.TemporaryDirectory() as directory:
            began = perf_counter()
            write(fitted.stream(stream, np.random.default_rng(2)), Path(directory) / "long.swf")
            written_s = perf_counter() - began
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:16} {fit_s:9.2f} {sampled / sample_s:12,.0f} {stream / written_s:14,.0f} {peak_mb:9.0f}", flush=True)


#: generator -> name of a variant -> the settings that differ
DESIGN: dict[str, dict[str, dict[str, float]]] = {"crossover": {
    "unchanged": {},
    "no exchange, only jitter": {"sweeps": 0},
    "no limit on moved work": {"most_work_s": np.inf},
    "no limit on the ratio of lengths": {"ratio": np.inf},
    "neither limit": {"most_work_s": np.inf, "ratio": np.inf},
    "neither limit, at most two days": {"most_work_s": np.inf, "ratio": np.inf, "far_s": 2 * 86400.0},
    "twice the exchanges": {"sweeps": 8},
    "at most a month": {"far_s": 30 * 86400.0},
    "long sessions are not cut": {"longest_s": np.inf},
    "sessions end after 20 minutes": {"pause_s": 1200.0},
}, "site-model": {
    "unchanged": {},
    "a session does not choose its hour": {"caution": 0},
    "a session chooses from three starts": {"caution": 1},
    "from eight, twice": {"caution": 2},
    "from eight, three times, looking at whole jobs": {"caution": 3},
}}  # fmt: skip


def design(log: Path, generator: str, seeds: int) -> None:
    """One row per variant: the mean over the seeds, as a ratio to the value of the real log, and the range of waits."""
    from clustertwin.workload.fidelity.measures.arrivals import autocorrelations, fano
    from clustertwin.workload.fidelity.measures.marginals import ks_complement
    from clustertwin.workload.fidelity.measures.offered_load import capacity
    from clustertwin.workload.fidelity.measures.scheduling_effect import schedule_means
    from clustertwin.workload.formats import read
    from clustertwin.workload.generators.crossover import Crossover
    from clustertwin.workload.generators.site_model import SiteModel

    settings_of: dict[str, Any] = {"crossover": Crossover, "site-model": SiteModel}
    real = read(log, lenient=True)
    on = capacity(real)
    target = schedule_means(real, on, "EASY")
    print(f"{log.name:36} {'KS interval':>12} {'lag 1':>7} {'Fano 20':>8} {'wait':>6} {'slowdown':>9}  waits")
    for name, settings in DESIGN[generator].items():
        fitted = settings_of[generator](**settings).fit(real, np.random.default_rng(0))
        rows = []
        for seed in range(seeds):
            jobs = fitted.sample(len(real), np.random.default_rng(seed))
            easy = schedule_means(jobs, on, "EASY")
            rows.append((
                ks_complement(real.interval_s[1:], jobs.interval_s[1:]),
                autocorrelations(jobs.interval_s[1:])[1] - autocorrelations(real.interval_s[1:])[1],
                fano(jobs.submit_s, 20) / fano(real.submit_s, 20),
                easy.wait_s / target.wait_s, easy.bounded_slowdown / target.bounded_slowdown,
            ))  # fmt: skip
        ks, lag, bursts, wait, slowdown = np.mean(rows, axis=0)
        waits = [row[3] for row in rows]
        means = f"{ks:12.3f} {lag:+7.3f} {bursts:8.2f} {wait:6.2f} {slowdown:9.2f}"
        print(f"{name:36} {means}  {min(waits):.2f} to {max(waits):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--generators", default=LIGHT, help="generators to measure, separated by commas")
    parser.add_argument("--jobs", type=int, default=200_000, help="jobs to sample without writing them")
    parser.add_argument("--stream", type=int, default=5_000_000, help="jobs to write as SWF; 0 writes none")
    parser.add_argument("--design", action="store_true", help="measure variants of one generator instead")
    parser.add_argument("--of", choices=list(DESIGN), default="crossover", help="the generator for --design")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds for --design")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.design:
        design(options.log, options.of, options.seeds)
        return
    if options.one:
        measure(options.log, options.one, options.jobs, options.stream)
        return
    print(f"{'':16} {'fit, s':>9} {'jobs/s':>12} {'jobs/s to SWF':>14} {'peak, MB':>9}", flush=True)
    for name in options.generators.split(","):
        rest = ["--one", name, "--jobs", str(options.jobs), "--stream", str(options.stream)]
        subprocess.run([sys.executable, __file__, str(options.log), *rest], check=True)


if __name__ == "__main__":
    main()
