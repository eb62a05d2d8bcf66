"""Simulated jobs and environment decisions per second, on one core.

    python benchmarks/simulator.py                      synthetic logs of 1,000 to 1,000,000 jobs
    CLUSTERTWIN_DATA=… python benchmarks/simulator.py   also KTH-SP2 and SDSC-SP2, from the published pyss schedules

AccaSim is measured on the same jobs if it is installed (`pip install --no-deps accasim`), as one node with all the
cores. pyss, CQSim and RLScheduler do not run on Python 3.11. Their figures were measured on another installation and
are marked as such.
"""

from __future__ import annotations

import collections
import collections.abc
import gzip
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator import SchedulingRules, simulate
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.environment.schedule_batch import ScheduleBatch
from clustertwin.workload.simulator.machine_state import Records

#: name -> (jobs/s, decisions/s) on one core, Python 2.7 and 3.7
ELSEWHERE = {"RLScheduler": ("26,000–96,000", "2,900–4,300"), "pyss": ("5,000–8,000", "–"), "CQSim": ("1,100", "–")}


def best_s(work: Callable[[], object], rounds: int = 7) -> float:
    """The shortest time of several rounds; other processes disturb the longer ones."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def synthetic(n: int, procs: int, seed: int = 0) -> Jobs:
    """A log of any length that fills a machine to 85 %."""
    rng = np.random.default_rng(seed)
    run_s = np.minimum(rng.lognormal(6, 1.8, n), 86400).round() + 1
    cpus = np.minimum(2 ** rng.geometric(0.35, n) // 2, procs)
    gap_s = (run_s * cpus).mean() / (0.85 * procs)
    submit_s = np.cumsum(rng.exponential(gap_s, n)).round()
    return Jobs.build(submit_s, run_s, request_s=run_s * rng.uniform(1, 5, n).round(1), cpus=cpus)


def step_to_end(batch: ScheduleBatch, sequence: Records) -> int:
    """Step every environment to its end, always selecting the first job. Returns the number of decisions."""
    envs, decisions = len(batch.over), 0
    batch.reset([sequence] * envs)
    while not batch.over.all():
        decisions += int((batch.results.counts > 0).sum())
        batch.step(np.zeros(envs, np.int64))
    return decisions


def read_pyss_schedule(path: Path) -> Jobs:
    table = np.loadtxt(gzip.decompress(path.read_bytes()).decode().splitlines(), comments=";")
    table = table[np.lexsort((table[:, 0], table[:, 1]))]
    return Jobs.build(table[:, 1], table[:, 3], cpus=table[:, 4], request_s=table[:, 8], user=table[:, 11])


def accasim_s(jobs: Jobs, procs: int) -> float | None:
    """The seconds that AccaSim needs for FCFS with EASY on the same jobs, if it is installed."""
    if not find_spec("accasim"):
        return None
    # Its last release (2020) imports these names from where Python 3.9 had them.
    for name in ("Mapping", "Iterable", "Sequence", "Callable"):
        setattr(collections, name, getattr(collections.abc, name))
    logging.disable(logging.INFO)
    from accasim.base.allocator_class import FirstFit
    from accasim.base.scheduler_class import EASYBackfilling
    from accasim.base.simulator_class import Simulator

    with tempfile.TemporaryDirectory() as folder:
        log, system = Path(folder, "log.swf"), Path(folder, "system.json")
        lines = [
            f"{i + 1} {jobs.submit_s[i]:.0f} -1 {jobs.run_s[i]:.0f} {jobs.cpus[i]} -1 -1 {jobs.cpus[i]} "
            f"{max(jobs.request_s[i], jobs.run_s[i]):.0f} -1 1 1 1 1 1 1 -1 -1"
            for i in range(len(jobs))
        ]
        log.write_text("\n".join(lines) + "\n")
        system.write_text(json.dumps({"groups": {"g0": {"core": procs}}, "resources": {"g0": 1}, "start_time": 0}))
        simulator = Simulator(
            str(log), str(system), EASYBackfilling(FirstFit()), RESULTS_FOLDER_NAME=folder, scheduling_output=False
        )
        begun = time.perf_counter()
        simulator.start_simulation()
        return time.perf_counter() - begun


def line(name: str, jobs: int, seconds: float, more: str = "") -> None:
    print(f"{name:<34}{jobs:>10,}{jobs / seconds:>14,.0f}{seconds / jobs * 1e9:>10,.0f}  {more}")


def main() -> None:
    simulate(synthetic(100, 128), 128, "fcfs", "easy")  # compile
    print(f"{'EASY, one core':<34}{'jobs':>10}{'jobs/s':>14}{'ns/job':>10}")
    data = Path(os.environ.get("CLUSTERTWIN_DATA", Path(__file__).parents[2] / "shared" / "data")) / "traces"
    for log, procs in (("KTH-SP2", 100), ("SDSC-SP2", 128)):
        path = data / "easy-schedules" / f"{log}.easy.swf.gz"
        if path.exists():
            jobs = read_pyss_schedule(path)
            line(
                f"{log}, FCFS", len(jobs), best_s(lambda jobs=jobs, procs=procs: simulate(jobs, procs, "fcfs", "easy"))
            )
            line(f"{log}, SJF", len(jobs), best_s(lambda jobs=jobs, procs=procs: simulate(jobs, procs, "sjf", "easy")))
            line(
                f"{log}, conservative",
                len(jobs),
                best_s(lambda jobs=jobs, procs=procs: simulate(jobs, procs, "fcfs", "conservative"), 2),
            )
        else:
            print(f"{log}: not found; set CLUSTERTWIN_DATA")
    for n in (1_000, 10_000, 100_000, 1_000_000):
        jobs = synthetic(n, 256)
        schedule = simulate(jobs, 256, "fcfs", "easy")
        seconds = best_s(lambda jobs=jobs: simulate(jobs, 256, "fcfs", "easy"), 3)
        waiting = schedule.wait_s.sum() / (schedule.jobs.submit_s[-1] - schedule.jobs.submit_s[0])
        line("synthetic, 256 processors", n, seconds, f"{waiting:,.0f} jobs wait on average")
    jobs = synthetic(2_000, 256)
    ours, theirs = best_s(lambda: simulate(jobs, 256, "fcfs", "easy")), accasim_s(jobs, 256)
    if theirs is None:
        print("AccaSim: not installed, not measured")
    else:
        line("AccaSim, synthetic", len(jobs), theirs, f"{theirs / ours:,.0f} × our time")

    print(f"\n{'environment, one core':<34}{'decisions':>10}{'decisions/s':>14}{'ns':>10}")
    sequence = admit(synthetic(1024, 256), 256).records
    for backfill, name in (("none", "no backfilling"), ("easy", "EASY")):
        batch = ScheduleBatch(SchedulingRules(256, backfill=backfill), envs=32, length=1024, max_jobs=64)
        decisions = step_to_end(batch, sequence)  # compile
        seconds = best_s(lambda batch=batch: step_to_end(batch, sequence))
        line(name, decisions, seconds, "32 environments, observations of 64 × 10")
    print("\nmeasured elsewhere, one core:      " + f"{'jobs/s':>23}{'decisions/s':>16}")
    for name, (jobs_s, decisions_s) in ELSEWHERE.items():
        print(f"{name:<34}{jobs_s:>24}{decisions_s:>16}")


if __name__ == "__main__":
    main()
