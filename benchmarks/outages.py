"""Outages that `twin sched validate` infers, planted in a week of a production site, and on the same week without one.

    python benchmarks/outages.py /etc/slurm week.events.gz --jobs 6000

The recorded log is a simulation in which a maintenance takes a share of the nodes from hour 30 to 36. With `--foreign`
the site that made it also differs from the one that `validate` knows: age counts twice and size half, backfilling runs
half as often, and every start is up to a minute late. Prints the outages that are found.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from clustertwin.workload.slurm.joblog.job_readers import read_log
from clustertwin.workload.slurm.joblog.job_table import SlurmLog
from clustertwin.workload.slurm.site.site_directory import read_site
from clustertwin.workload.slurm.site.slurm_site import AdvanceReservation, SlurmSite
from clustertwin.workload.slurm.site_simulation import SiteSchedule, simulate_site
from clustertwin.workload.slurm.wait_causes import explain_waits

FROM_S, TO_S = 30 * 3600.0, 36 * 3600.0


def with_outage(site: SlurmSite, share: float, seed: int) -> SlurmSite:
    """The site with a maintenance of a share of its nodes, taken as neighbours."""
    names = site.node_names
    count = round(share * len(names))
    first = int(np.random.default_rng(seed).integers(0, len(names) - count + 1))
    nodes = tuple(names[first : first + count])
    down = AdvanceReservation("down", nodes, FROM_S, TO_S, maintenance=True)
    return replace(site, reservations=(down,)) if nodes else site


def foreign(site: SlurmSite) -> SlurmSite:
    """A site that backfills less often and weighs age and size otherwise than its slurm.conf says."""
    weights = replace(site.priority, age=site.priority.age * 2, job_size=site.priority.job_size / 2)
    rarer = replace(site.scheduler, bf_interval=2 * site.scheduler.bf_interval)
    return replace(site, priority=weights, scheduler=rarer)


def recorded(log: SlurmLog, schedule: SiteSchedule, late_s: float, nodes: bool, rng: np.random.Generator) -> SlurmLog:
    """The log with the starts, ends and nodes of a schedule."""
    delays_s = rng.uniform(0.0, late_s, len(log))
    jobs = [
        replace(job, start_s=schedule.start_s[k] + delays_s[k], end_s=schedule.end_s[k] + delays_s[k],
                nodes=schedule.nodes[k] if nodes else ())
        for k, job in enumerate(log.jobs)
    ]  # fmt: skip
    return SlurmLog(tuple(jobs), log.epoch_s, log.report)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--first", type=int, default=0, help="jobs of the log to skip")
    parser.add_argument("--jobs", type=int, default=6000)
    parser.add_argument("--no-nodes", action="store_true", help="a log without the column NodeList")
    parser.add_argument("--foreign", action="store_true", help="the recorded site differs from the known one")
    parser.add_argument("--shares", type=float, nargs="+", default=[1.0, 0.5, 0.25, 0.125, 0.0])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    site, log = read_site(options.site), read_log(options.log)
    part = log.jobs[options.first : options.first + options.jobs]
    zero_s = part[0].submit_s
    jobs = [replace(job, submit_s=job.submit_s - zero_s, limit_s=max(job.run_s, 60.0)) for job in part]
    log = SlurmLog(tuple(jobs), log.epoch_s + zero_s, log.report)
    known = simulate_site(site, log)
    real_site = foreign(site) if options.foreign else site
    rng = np.random.default_rng(options.seed)
    for share in options.shares:
        real = simulate_site(with_outage(real_site, share, options.seed), log)
        late_s = 60.0 if options.foreign else 0.0
        seen = replace(known, log=recorded(log, real, late_s, not options.no_nodes, rng))
        causes = explain_waits(seen)
        print(f"share {share:g} of the nodes, hours {FROM_S / 3600:g} to {TO_S / 3600:g}; jobs {causes.jobs}")
        for outage in causes.outages:
            hours = f"{outage.start_s / 3600:.1f} to {outage.end_s / 3600:.1f} h"
            print(
                f"  {outage.partition}: {hours}, {outage.used_ratio:.0%} in use, {outage.waiting} jobs waited",
                flush=True,
            )


if __name__ == "__main__":
    main()
