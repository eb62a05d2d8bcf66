"""Run `twin sched whatif`: options -> the live queue, futures drawn from a log, start times for each scenario."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from clustertwin.cli.output import print_table
from clustertwin.cli.sched_options import WhatifOptions
from clustertwin.core.errors import SettingsError
from clustertwin.workload.formats import read
from clustertwin.workload.generators.future_submissions import future_submissions
from clustertwin.workload.simulator import Backfill
from clustertwin.workload.simulator.forecast.squeue import LiveQueue, live_queue, read_size
from clustertwin.workload.simulator.forecast.start_times import (
    Scenario,
    StartTimes,
    draw_futures,
    predict_start_times,
)

MOST_JOBS = 50  # rows of the table of jobs


@dataclass(frozen=True, slots=True)
class Forecasts:
    start_times: list[StartTimes]  # one for each scenario
    queue: LiveQueue
    asked_s: float | None  # Unix time at which Slurm was asked, from which starts are counted; None for a file


def run_forecasts(options: WhatifOptions) -> Forecasts:
    """The start times under every policy, backfilling and machine size, in the same futures."""
    if options.from_slurm == (options.squeue is not None):
        raise SettingsError("set either --from-slurm or --squeue FILE")
    asked_s = time.time() if options.squeue is None else None
    queue = live_queue(options.squeue)
    sizes = options.procs or ([read_size(options.unit)] if options.from_slurm else [])
    if not sizes:
        raise SettingsError("a file does not contain the size of the machine; set --procs")
    rng = np.random.default_rng(options.seed)
    log = read(options.past) if options.past else None
    submissions = None
    if log is not None and options.load > 0:
        submissions = future_submissions(log, options.load, options.hours, rng)
    futures = draw_futures(queue, log, submissions, options.futures, rng)
    scenarios = [
        Scenario(f"{policy}, {backfill}, {procs}", policy, cast(Backfill, backfill), procs)
        for procs in sizes
        for policy in options.policy
        for backfill in options.backfill
    ]
    start_times = [predict_start_times(queue, scenario, futures, options.unit) for scenario in scenarios]
    return Forecasts(start_times, queue, asked_s)


def as_document(forecasts: Forecasts) -> dict[str, Any]:
    """The JSON document of `whatif`."""
    counts = {"asked_s": forecasts.asked_s, "running": forecasts.queue.running, "held": forecasts.queue.held}
    return {**counts, "scenarios": [asdict(entry) for entry in forecasts.start_times]}


def print_forecasts(forecasts: Forecasts) -> None:
    """The waits of each scenario, and the start of each waiting job, as tables."""
    queue = forecasts.queue
    print_table(
        f"{len(queue.jobs) - queue.running} waiting jobs, {queue.running} running, {queue.held} held",
        ["policy", "backfilling", "size", "mean wait s", "80 % of futures", "last start s"],
        [
            [
                entry.scenario.policy,
                entry.scenario.backfill,
                entry.scenario.procs,
                entry.mean_wait_s,
                f"{entry.mean_wait_low_s:.4g} – {entry.mean_wait_high_s:.4g}",
                float(entry.start_s.max(initial=0.0)),
            ]
            for entry in forecasts.start_times
        ],
    )
    _print_jobs(forecasts)


def _print_jobs(forecasts: Forecasts) -> None:
    """The predicted start of each waiting job in each scenario, in the order of the first scenario."""
    if not forecasts.start_times or not forecasts.start_times[0].jobs:
        return
    first = forecasts.start_times[0]
    order = np.argsort(first.start_s, kind="stable")[:MOST_JOBS]
    jobs, running = forecasts.queue.jobs, forecasts.queue.running
    users = [jobs.names["user"][code] for code in jobs.user[running:]]
    left_out = len(first.jobs) - len(order)
    print_table(
        "start of each job, seconds from now" + (f" ({left_out} later jobs: use --json)" if left_out else ""),
        ["job", "user", *(entry.scenario.name for entry in forecasts.start_times)],
        [[first.jobs[i], users[i], *(_start(entry, int(i)) for entry in forecasts.start_times)] for i in order],
        whole=["job"],
    )


def _start(entry: StartTimes, job: int) -> str:
    """The median, with the interval that contains 80 % of the futures where they differ."""
    median, early, late = entry.start_s[job], entry.early_s[job], entry.late_s[job]
    return f"{median:.0f}" if early == late else f"{median:.0f} ({early:.0f} – {late:.0f})"
