"""Draw the pictures of the concept pages, from simulated data: docs/img/concepts/*.png.

python docs/made/pictures.py    half a minute
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import clustertwin as ct

OUT = Path(__file__).parents[1] / "img" / "concepts"


def save(figure: Any, name: str) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / name, dpi=90)
    print(OUT / name)


def detection() -> None:
    cluster = ct.simulate_cluster(minutes=20, fault="hung-rank")
    save(ct.plot(cluster), "threads.png")
    save(ct.plot(ct.load_detector().score(cluster, every_s=20)), "scores.png")


def backfilling() -> None:
    """Four jobs on four processors, without and with backfilling."""
    jobs = ct.Jobs.build([0, 1, 2, 3], [8, 5, 6, 3], request_s=[8, 5, 6, 3], cpus=[2, 4, 2, 1])
    figure = Figure(figsize=(11, 3), layout="constrained")
    for axes, backfill in zip(figure.subplots(1, 2, sharey=True, sharex=True), ("none", "easy"), strict=True):
        schedule = ct.simulate(jobs, backfill=backfill, procs=4)
        rows = _rows(schedule)
        for job in range(len(schedule)):
            size, row = int(schedule.size[job]), rows[job]
            axes.broken_barh(
                [(schedule.start_s[job], schedule.run_s[job])], (row, size), color=f"C{job}", edgecolor="w"
            )
            axes.text(schedule.start_s[job] + 0.2, row + size / 2, f"job {job + 1}", va="center", color="white")
        axes.set(title=f"backfilling: {backfill}", xlabel="seconds", ylim=(0, 4), yticks=range(5))
    figure.axes[0].set_ylabel("processors")
    save(figure, "backfilling.png")


def _rows(schedule: Any) -> list[int]:
    """The lowest processor at which each job fits beside the others."""
    rows: list[int] = []
    for job in range(len(schedule)):
        taken = {
            rows[other] + k
            for other in range(job)
            if schedule.start_s[other] < schedule.end_s[job] and schedule.start_s[job] < schedule.end_s[other]
            for k in range(int(schedule.size[other]))
        }
        fits = (row for row in range(4) if not taken & set(range(row, row + int(schedule.size[job]))))
        rows.append(next(fits, 0))
    return rows


def generated() -> None:
    """Run times and waits of the example log and of its synthetic twin."""
    log = ct.example_log(3000)
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, jobs in (("log", log), ("synthetic", ct.generate(log, seed=1))):
        waits = ct.simulate(jobs, backfill="easy").wait_s
        for axes, values in ((left, jobs.run_s), (right, waits + 1)):
            axes.plot(np.sort(values), np.linspace(0, 1, len(values)), label=name)
    left.set(xscale="log", xlabel="run time, s", ylabel="share of the jobs")
    right.set(xscale="log", xlabel="wait under EASY, s")
    left.legend()
    save(figure, "generated.png")


if __name__ == "__main__":
    backfilling()
    generated()
    detection()
