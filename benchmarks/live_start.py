"""When will my job start? `twin sched start` and `squeue --start`, asked at the same moments of a real Slurm.

    python benchmarks/live_start.py LOG.swf --first 18000 --jobs 200

The jobs are a stretch of a log with real limits, with all times divided by `--shrink`; they run as `sleep` on a real
slurmctld with nodes of four CPUs, in accelerated time. The past that forecasts learn from are the jobs before the
stretch. Each job is asked about once, at the first look at which it waits. As in the service, intervals are widened
by the errors of forecasts of this run whose jobs have started. It needs root, the packages of
deploy/install-test-servers, and a CPU that is otherwise idle.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.workload.slurm.real_site import Look, RunSettings, Submission, read_looks, reason_to_skip, run_site

from clustertwin.core.interval_scale import ScaleLearner
from clustertwin.core.start_forecast import StartAnswer
from clustertwin.workload.formats import read
from clustertwin.workload.generators.future_submissions import future_submissions
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import stated_machine_size
from clustertwin.workload.simulator.forecast.live_start import (
    LivePast,
    StartQuestion,
    forecast_queue,
)
from clustertwin.workload.simulator.forecast.squeue import COMMAND, parse_squeue
from clustertwin.workload.simulator.forecast.start_distribution import FutureSettings

NODE_CPUS = 4
CONF = """\
ClusterName=live
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=30,bf_continue
PriorityType=priority/basic
NodeName=n[1-{nodes}] CPUs={cpus} RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
"""
#: `%S` is the expected start; a job that Slurm has no estimate for has N/A. The clock comes with it.
START = ("sh", "-c", "date +%s; TZ=UTC squeue --start --noheader --format='%i|%S'")


def shrunk(jobs: Jobs, factor: float) -> Jobs:
    """The same jobs in less time; limits are whole minutes and not below the run time, as Slurm has them."""
    run_s = np.maximum(jobs.run_s / factor, 1.0).round()
    limit_s = np.maximum(np.ceil(np.maximum(jobs.request_s / factor, run_s + 1) / 60) * 60, 60.0)
    users = tuple(f"u{name}" for name in jobs.names.get("user", ())) or tuple(
        f"u{k}" for k in range(jobs.user.max() + 1)
    )
    submit_s = (jobs.submit_s - jobs.submit_s[0]) / factor
    names = {**jobs.names, "user": users}
    return replace(jobs, submit_s=submit_s, run_s=run_s, request_s=limit_s, wait_s=jobs.wait_s / factor, names=names)


def submission(jobs: Jobs, row: int, first_s: float) -> Submission:
    options = ("-n", str(int(jobs.cpus[row])), "-t", str(round(jobs.request_s[row] / 60)))
    user = jobs.names["user"][int(jobs.user[row])]
    return Submission(f"job{row}", float(jobs.submit_s[row]) - first_s, float(jobs.run_s[row]), user, options)


def slurm_starts(text: str) -> dict[int, float]:
    """Seconds from now that `squeue --start` expects, by job id."""
    clock, *lines = text.splitlines()
    expected = {}
    for line in lines:
        job, _, when = line.strip().partition("|")
        if when[:1].isdigit():
            expected[int(job)] = datetime.fromisoformat(when).replace(tzinfo=UTC).timestamp() - float(clock)
    return expected


def crps_s(answer: StartAnswer, truth_s: float) -> float:
    """From the three quantiles: the mean pinball loss, doubled."""
    levels = ((0.1, answer.p10_s), (0.5, answer.p50_s), (0.9, answer.p90_s))
    return float(np.mean([2 * max(q * (truth_s - x), (q - 1) * (truth_s - x)) for q, x in levels]))


def judge(
    looks: list[Look], names: dict[int, str], starts_s: dict[str, float], past: LivePast, procs: int
) -> list[dict[str, float]]:
    """A row for each job: what was forecast at the first look at which it waited, and what happened."""
    rows: list[dict[str, float]] = []
    asked: set[str] = set()
    learner, waiting = ScaleLearner(), []
    for look in looks:
        for at_s, answer, truth_s in [each for each in waiting if each[0] + each[2] <= look.at_s]:
            waiting.remove((at_s, answer, truth_s))
            learner.add(answer.p10_s, answer.p50_s, answer.p90_s, truth_s)
        queue = parse_squeue(look.outputs[0])
        new = [name for name in queue.names[queue.running :] if name not in asked]
        if not new:
            continue
        slurm = slurm_starts(look.outputs[1])
        answers = forecast_queue(queue, past, procs, StartQuestion(), settings=FutureSettings())
        for answer in answers:
            truth_s = starts_s.get(names.get(int(answer.job), ""), math.nan) - look.at_s
            if answer.job not in new or not math.isfinite(truth_s):
                continue
            asked.add(answer.job)
            waiting.append((look.at_s, answer, truth_s))
            scale = learner.scale()
            wide = (answer.p10_s, answer.p90_s)
            if scale is not None:
                wide = scale.interval_s(answer.p10_s, answer.p50_s, answer.p90_s)
            rows.append({
                "low_s": wide[0], "high_s": wide[1],
                "truth_s": truth_s, "likeliest_s": answer.likeliest_s, "by_limits_s": answer.by_limits_s,
                "slurm_s": slurm.get(int(answer.job), math.nan), "p10_s": answer.p10_s, "p90_s": answer.p90_s,
                "crps_s": crps_s(answer, truth_s),
            })  # fmt: skip
    return rows


def summary(rows: list[dict[str, float]]) -> dict[str, float]:
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    truth_s = column["truth_s"]

    known = np.isfinite(column["slurm_s"])

    def within_minute(name: str, rows: object = slice(None)) -> float:
        return float((np.abs(column[name] - truth_s)[rows] <= 60).mean())  # without an estimate: missed

    return {
        "jobs asked about": len(rows),
        "median wait left s": float(np.median(truth_s)),
        "within a minute, ours": within_minute("likeliest_s"),
        "within a minute, squeue --start": within_minute("slurm_s"),
        "within a minute, by limits": within_minute("by_limits_s"),
        "80 % interval holds": float(((column["low_s"] <= truth_s) & (truth_s <= column["high_s"])).mean()),
        "80 % interval before it learns holds": float(
            ((column["p10_s"] <= truth_s) & (truth_s <= column["p90_s"])).mean()
        ),
        "jobs with an estimate of squeue --start": int(known.sum()),
        "within a minute of those, ours": within_minute("likeliest_s", known),
        "within a minute of those, squeue --start": within_minute("slurm_s", known),
        "CRPS of those s, ours (three quantiles)": float(column["crps_s"][known].mean()),
        "mean absolute error of those s, squeue --start": float(np.abs(column["slurm_s"] - truth_s)[known].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--first", type=int, default=18_000, help="the first job of the stretch")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--past", type=int, default=5_000, help="jobs before the stretch to learn from")
    parser.add_argument("--shrink", type=float, default=10.0)
    parser.add_argument("--factor", type=float, default=20.0, help="times as fast as the host's clock")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if reason := reason_to_skip():
        sys.exit(reason)
    log = read(options.log, lenient=True)
    procs = stated_machine_size(log, "cpus")
    used = log.take(slice(max(options.first - options.past, 0), options.first + options.jobs))
    jobs = shrunk(used, options.shrink)
    before = len(jobs) - options.jobs
    past = jobs.take(slice(0, before))
    rng = np.random.default_rng(0)
    known = LivePast(past, future_submissions(past, 1.0, 3.0, rng))
    first_s = float(jobs.submit_s[before])
    planned = [submission(jobs, row, first_s) for row in range(before, len(jobs))]
    conf = CONF.format(nodes=procs // NODE_CPUS, cpus=NODE_CPUS)
    horizon_s = planned[-1].submit_s + 4 * 3600.0
    settings = RunSettings(options.factor, horizon_s=horizon_s, watch=(COMMAND, START), watch_every_s=60.0)
    with tempfile.TemporaryDirectory(prefix="live") as directory:
        real = run_site(Path(directory), conf, "", planned, settings)
        looks, names = read_looks(Path(directory))
    starts_s = {job.name: job.start_s for job in real}
    rows = judge(looks, names, starts_s, known, procs)
    figures = {"jobs on the real Slurm": len(real), "looks": len(looks), **(summary(rows) if rows else {})}
    if options.json:
        print(json.dumps({**figures, "rows": rows}))
        return
    for name, value in figures.items():
        print(f"{name}: {value:.3g}")


if __name__ == "__main__":
    main()
