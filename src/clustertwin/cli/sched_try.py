"""Run `twin sched try`: options -> the live queue, a changed site -> when jobs start before and after the change."""

from __future__ import annotations

import time

from clustertwin.cli.output import err, interval, print_table
from clustertwin.cli.sched_notes import SIMULATING_SITE
from clustertwin.cli.sched_options import TryOptions
from clustertwin.core.errors import SettingsError
from clustertwin.core.foreign_files import read_text
from clustertwin.core.formatting import duration
from clustertwin.workload.simulator.forecast.squeue import read_squeue
from clustertwin.workload.simulator.forecast.start_distribution import FutureSettings
from clustertwin.workload.slurm.joblog.job_readers import read_log
from clustertwin.workload.slurm.live.site_change import (
    SPRIO_COMMAND,
    QueueChange,
    SiteChange,
    compare_queue,
    parse_factors,
)
from clustertwin.workload.slurm.live.site_queue import parse_site_queue, read_site_queue
from clustertwin.workload.slurm.live.site_start import SiteFuture, clock_of
from clustertwin.workload.slurm.site.quantities import expand_hosts
from clustertwin.workload.slurm.site.site_directory import read_site

MOST_JOBS = 50  # rows of the table of jobs


def run_change(options: TryOptions) -> tuple[QueueChange, float | None]:
    """The comparison, and the Unix time at which Slurm was asked (None for a file)."""
    change = parse_change(options)
    site, asked_s = read_site(options.site), time.time() if options.squeue is None else None
    queue = read_site_queue() if options.squeue is None else parse_site_queue(read_text(options.squeue))
    factors: dict[str, tuple[float, ...]] = {}
    if change.weights:
        factors = parse_factors(read_squeue(SPRIO_COMMAND) if options.sprio is None else read_text(options.sprio))
    past = read_log(options.past) if options.past else None
    now_s = clock_of(past, asked_s)
    future = SiteFuture(FutureSettings(futures=options.futures), options.hours, now_s, options.seed)
    with err.status(SIMULATING_SITE):
        return compare_queue(site, queue, past, change, factors, future), asked_s


def parse_change(options: TryOptions) -> SiteChange:
    weights = {}
    for text in options.weight:
        name, _, value = text.partition("=")
        try:
            weights[name.strip()] = float(value)
        except ValueError:
            raise SettingsError(f"--weight {text!r} is not NAME=NUMBER, such as age=1000") from None
    try:
        drain = tuple(expand_hosts(options.drain)) if options.drain else ()
    except ValueError as error:
        raise SettingsError(f"--drain: {error}") from error
    return SiteChange(weights, options.add_nodes, options.like_node, drain)


def print_change(change: QueueChange) -> None:
    """Waits of groups of waiting jobs, and the start of each job, before and after."""
    if not change.jobs:
        err.print("no job waits")
        return
    print_table(
        f"waiting jobs, time until the start (simulated, {change.futures} future{'s' if change.futures > 1 else ''})",
        ["by", "group", "jobs", "present", "changed", "changed / present in 80 %"],
        [
            [g.kind, g.name, g.jobs, duration(g.old_wait_s), duration(g.new_wait_s),
             interval(g.ratio_low, g.ratio_high)]
            for g in change.groups
        ],
    )  # fmt: skip
    print_table(
        "median start of each job, from now",
        ["job", "user", "partition", "present", "changed"],
        [
            [job.job, job.user, job.partition, duration(job.old_s), duration(job.new_s)]
            for job in change.jobs[:MOST_JOBS]
        ],
        whole=["job"],
    )
    for note in change.notes:
        err.print(note, highlight=False)
