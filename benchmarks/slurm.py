"""A slice of a production site's week on a real slurmctld with all its nodes, against the simulator.

    python benchmarks/slurm.py SITE_DIR EVENTS --jobs 100 --factor 50 --repeats 1 --horizon 18000

Prints mean waits, utilisation, the share of starts within one bf_interval of the simulated ones and preemptions for
each repeat of the real run, waits by partition on both sides, and Slurm's own spread over the repeats. A run ends at
the horizon, in seconds of the site. A job that starts after it on one side only counts as a disagreement; means and
utilisation are those of the jobs that start before it on both sides. It needs root, the packages of
deploy/install-test-servers, and a host that is nearly idle: at factor f a delay of 0.1 s counts as f / 10 seconds.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.workload.slurm.real_site import RealJob, RunSettings, Submission, reason_to_skip, run_site

from clustertwin.workload.slurm.joblog.job_readers import read_log
from clustertwin.workload.slurm.site.site_directory import read_site
from clustertwin.workload.slurm.site_simulation import SiteSchedule, simulate_site


def submissions(log_path: Path, count: int) -> list[Submission]:
    """The event file's sbatch lines; run times are cut at a day, since a run ends with the last start."""
    import gzip

    jobs = []
    text = gzip.decompress(log_path.read_bytes()).decode() if log_path.suffix == ".gz" else log_path.read_text()
    for line in text.splitlines()[:count]:
        head, _, rest = line.partition("|")
        words = rest.split()[:-1]
        run_s = float(words[words.index("-sim-walltime") + 1])
        user = next(word.partition("=")[2] for word in words if word.startswith("--uid="))
        name = words[words.index("-J") + 1]
        kept = [w for k, w in enumerate(words)
                if w not in ("-sim-walltime", "-J") and words[k - 1] not in ("-sim-walltime", "-J")
                and not w.startswith("--uid=")]  # fmt: skip
        jobs.append(Submission(name, float(head.split()[1]), run_s, user, tuple(kept)))
    return jobs


def compare(real: list[RealJob], schedule: SiteSchedule, interval_s: float, horizon_s: float) -> dict[str, float]:
    names = _names(schedule)
    real_start_s = {job.name: job.start_s for job in real if job.start_s <= horizon_s}
    real_end_s = {job.name: min(job.end_s, horizon_s) for job in real}
    submits = {job.name: job.submit_s for job in real}
    ours = {
        name: (start_s, min(end_s, horizon_s), cpus)
        for name, start_s, end_s, cpus in zip(names, schedule.start_s, schedule.end_s, schedule.cpus, strict=True)
        if start_s <= horizon_s
    }
    both = [name for name in names if name in real_start_s and name in ours]
    differences = np.array([ours[name][0] - real_start_s[name] for name in both])
    accepted = [name for name in names if name in submits]
    agreed = sum((n in real_start_s) == (n in ours) for n in accepted) - (np.abs(differences) > interval_s).sum()
    capacity = schedule.site.cpus * horizon_s
    return {
        "jobs": len(accepted),
        "jobs started on both sides": len(both),
        "real mean wait s": float(np.mean([real_start_s[n] - submits[n] for n in both])),
        "simulated mean wait s": float(np.mean([w for n, w in zip(names, schedule.wait_s, strict=True) if n in both])),
        "real utilisation": sum(ours[n][2] * (real_end_s[n] - real_start_s[n]) for n in both) / capacity,
        "simulated utilisation": sum(ours[n][2] * (ours[n][1] - ours[n][0]) for n in both) / capacity,
        "within bf_interval": float(agreed / max(len(accepted), 1)),
        "median difference s": float(np.median(np.abs(differences))),
        "largest difference s": float(np.abs(differences).max()),
        "real preemptions": float(sum(job.restarts for job in real)),
        "simulated preemptions": float(schedule.preemptions),
    }


def print_partitions(real: list[RealJob], schedule: SiteSchedule, horizon_s: float) -> None:
    """Mean waits of the jobs that start before the horizon on both sides, by partition."""
    starts = {job.name: job for job in real if job.start_s <= horizon_s}
    rows: dict[str, list[tuple[float, float]]] = {}
    columns = zip(_names(schedule), schedule.partitions(), schedule.start_s, schedule.wait_s, strict=True)
    for name, partition, start_s, wait_s in columns:
        if name in starts and start_s <= horizon_s:
            rows.setdefault(partition, []).append((starts[name].start_s - starts[name].submit_s, wait_s))
    for partition, waits in rows.items():
        real_s, simulated_s = np.mean(waits, axis=0)
        print(f"  {partition}: {len(waits)} jobs, mean wait {real_s:.0f} s, simulated {simulated_s:.0f} s")


def _names(schedule: SiteSchedule) -> list[str]:
    return [f"jobid_{job.id:05d}" for job in schedule.log.jobs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("events", type=Path)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--factor", type=float, default=50)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--horizon", type=float, default=18_000, help="seconds of the site")
    options = parser.parse_args()
    site = read_site(options.site)
    log = read_log(options.events).first(options.jobs)
    schedule = simulate_site(site, log)  # compiles
    began = time.perf_counter()
    schedule = simulate_site(site, log)
    seconds, last_s = time.perf_counter() - began, np.nanmax(schedule.start_s)
    print(f"simulated: {options.jobs} jobs in {seconds:.2f} s; last start {last_s:.0f} s")
    if reason := reason_to_skip():
        print(reason)
        return
    conf = (options.site / "slurm.conf").read_text()
    accounts = (options.site / "sacctmgr.script").read_text()
    accounts = re.sub(r"^add cluster .*$", "", accounts, flags=re.MULTILINE)
    topology = (options.site / "topology.conf").read_text() if (options.site / "topology.conf").is_file() else ""
    jobs = submissions(options.events, options.jobs)
    waits = []
    for repeat in range(options.repeats):
        with tempfile.TemporaryDirectory(prefix="site") as directory:
            began = time.perf_counter()
            settings = RunSettings(options.factor, horizon_s=options.horizon, topology=topology)
            real = run_site(Path(directory), conf, accounts, jobs, settings)
            log_text = (Path(directory) / "log" / "run.out").read_text()
        figures = compare(real, schedule, site.scheduler.bf_interval, options.horizon)
        waits.append(figures["real mean wait s"])
        print(f"repeat {repeat + 1} at {options.factor:g} x real time, {time.perf_counter() - began:.0f} s:")
        for name, value in figures.items():
            print(f"  {name}: {value:.4g}")
        print_partitions(real, schedule, options.horizon)
        for line in log_text.splitlines()[:5]:
            print(f"  {line}")
    if len(waits) > 1:
        print(f"Slurm's own spread of the mean wait: {min(waits):.0f} to {max(waits):.0f} s")


if __name__ == "__main__":
    main()
