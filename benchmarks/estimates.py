"""EASY backfilling by limits, by the user's last two jobs and by predictions, on halves of real logs.

    python benchmarks/estimates.py KTH-SP2.easy.swf.gz 100 SDSC-SP2.easy.swf.gz 128

Prints the mean bounded slowdown and how much later than under limits jobs start. The settings of the predictions were
chosen on the first halves of both logs. "Own settings" are chosen on the first half of the same log: scale and patience
with the lowest mean slowdown over copies of it in which every submission is up to ten minutes later (input shaking), as
the slowdown of a single copy depends on chance.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from clustertwin.workload.formats import read
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.simulate_estimates import EstimateSettings, simulate_estimates

KINDS = {
    "requested": EstimateSettings("requested", shortest_first=False),
    "requested, shortest first": EstimateSettings("requested"),
    "last two": EstimateSettings("last-two", patience_s=np.inf),
    "predicted": EstimateSettings(),
    "predicted, no patience": EstimateSettings(patience_s=np.inf),
}


def shaken(jobs: Jobs, seed: int) -> Jobs:
    """The same jobs, each submitted up to ten minutes later; seed 0: unchanged."""
    if seed == 0:
        return jobs
    later_s = np.random.default_rng(seed).uniform(0.0, 600.0, len(jobs)).round()
    moved = replace(jobs, submit_s=jobs.submit_s + later_s)
    return moved.take(np.argsort(moved.submit_s, kind="stable"))


def own_settings(jobs: Jobs, procs: int) -> EstimateSettings:
    """The settings of a grid that suit these jobs best."""
    copies = [shaken(jobs, seed) for seed in range(8)]
    grid = [EstimateSettings(scale=s, patience_s=h * 3600.0) for h in (3, 6, 12) for s in (0.3, 0.5, 0.7, 1.0)]

    def slowdown(settings: EstimateSettings) -> float:
        return float(np.mean([simulate_estimates(c, procs, settings).bounded_slowdown().mean() for c in copies]))

    return min(grid, key=slowdown)


def main() -> None:
    print("log, part, estimates, slowdown, change %, mean wait s, longest wait h, worst delay h, 99 % delay h")
    for path, procs in zip(sys.argv[1::2], map(int, sys.argv[2::2]), strict=True):
        jobs = read(Path(path), lenient=True)
        half = len(jobs) // 2
        parts = {"first half": slice(0, half), "second half": slice(half, len(jobs)), "whole": slice(0, len(jobs))}
        own = own_settings(jobs.take(parts["first half"]), procs)
        kinds = KINDS | {f"own settings, scale {own.scale:g}, patience {own.patience_s / 3600:g} h": own}
        for part, which in parts.items():
            schedules = {name: simulate_estimates(jobs.take(which), procs, s) for name, s in kinds.items()}
            base = schedules["requested"]
            for name, schedule in schedules.items():
                slowdown, later_s = schedule.bounded_slowdown().mean(), schedule.wait_s - base.wait_s
                change = 100 * (slowdown / base.bounded_slowdown().mean() - 1)
                hours = [schedule.wait_s.max(), later_s.max(), np.quantile(later_s, 0.99)]
                numbers = [slowdown, change, schedule.wait_s.mean(), *(value / 3600 for value in hours)]
                print(Path(path).name, part, name, *(f"{number:.1f}" for number in numbers), sep=", ", flush=True)


if __name__ == "__main__":
    main()
