"""Whether start times are predicted better if the simulator hears from telemetry which running jobs hang (simulated).

    python benchmarks/listening.py KTH-SP2.easy.swf.gz 100 --moments 60

Run times are learned from the first half of a real log. At moments of the second half at which jobs wait, running jobs
are made to hang at random: these run to their limits. Telemetry names nine of ten of them, and with a rate of `--false`
a healthy job. The start of each waiting job is then predicted by the limits alone, as `squeue --start` does, by run
times of the past, and by these together with `ClusterHealth`. The truth is the schedule (EASY) with the real run times
and the hangs. Later submissions are in neither.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.job_health import ClusterHealth, JobHealth
from clustertwin.workload.formats import read
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.forecast.action_outcomes import remaining_times
from clustertwin.workload.simulator.forecast.squeue import LiveQueue, parse_squeue
from clustertwin.workload.simulator.forecast.start_times import Scenario, draw_futures, predict_start_times
from clustertwin.workload.simulator.simulate_log import Schedule, simulate

METHODS = ("limits", "past", "past and health")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("procs", type=int)
    parser.add_argument("--moments", type=int, default=60)
    parser.add_argument("--hangs", type=float, default=0.05, help="share of the running jobs that hang")
    parser.add_argument("--false", type=float, default=0.005, dest="accused", help="share of healthy jobs accused")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    jobs = read(options.log, lenient=True)
    half = len(jobs) // 2
    past = jobs.take(slice(0, half))
    schedule = simulate(jobs, options.procs, "fcfs", "easy")
    scenario = Scenario("now", "fcfs", "easy", options.procs)
    errors: dict[str, list[float]] = {name: [] for name in METHODS}
    moments = 0
    for at_s in rng.permutation(schedule.jobs.submit_s[half:]):
        queue, left_s = moment(schedule, float(at_s))
        if len(queue.names) - queue.running < 3 or not queue.running:
            continue
        hung = rng.random(queue.running) < options.hangs
        if options.hangs and not hung.any():
            continue
        named = np.where(hung, rng.random(len(hung)) < 0.9, rng.random(len(hung)) < options.accused)
        known = ClusterHealth({queue.names[i]: JobHealth(queue.names[i], True, 0.97) for i in np.flatnonzero(named)})
        truth_s = starts(queue, scenario, left_s, hung)
        futures = draw_futures(queue, past, None, 50, rng)
        listening = [heard(queue, future, known, rng) for future in futures]
        for name, drawn in zip(METHODS, ([queue.jobs], futures, listening), strict=True):
            predicted = predict_start_times(queue, scenario, drawn).start_s
            errors[name] += np.abs(predicted - truth_s)[np.isfinite(truth_s)].tolist()
        moments += 1
        if moments == options.moments:
            break
    print(f"{options.log.name}, second half, {moments} moments, {len(errors['past'])} waiting jobs (simulated)")
    for name, seconds in errors.items():
        print(f"{name:<18} error of the start: median {np.median(seconds):7.0f} s, mean {np.mean(seconds):7.0f} s")


def moment(schedule: Schedule, at_s: float) -> tuple[LiveQueue, NDArray[np.float64]]:
    """The queue at a time, as squeue would print it, and how long each job really still runs."""
    jobs, start_s = schedule.jobs, schedule.start_s
    end_s = start_s + jobs.run_s
    running = np.flatnonzero((start_s <= at_s) & (end_s > at_s))
    waiting = np.flatnonzero((jobs.submit_s <= at_s) & (start_s > at_s))
    waiting = waiting[np.argsort(jobs.submit_s[waiting], kind="stable")]
    lines = []
    for i in (*running, *waiting):
        state, elapsed_s = ("RUNNING", at_s - start_s[i]) if start_s[i] <= at_s else ("PENDING", 0.0)
        limit_s = max(jobs.request_s[i], jobs.run_s[i])
        lines.append(f"{jobs.id[i]}|u|{state}|{schedule.size[i]}|1|{clock(limit_s)}|{clock(elapsed_s)}|None")
    left_s = np.concatenate([end_s[running] - at_s, jobs.run_s[waiting]])
    return parse_squeue("\n".join(lines)), left_s


def clock(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86_400)
    return f"{days}-{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def starts(
    queue: LiveQueue, scenario: Scenario, left_s: NDArray[np.float64], hung: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The true starts of the waiting jobs."""
    ahead_s = -queue.jobs.submit_s
    run_s = left_s + ahead_s
    run_s[: queue.running][hung] = queue.jobs.request_s[: queue.running][hung]
    return predict_start_times(queue, scenario, [replace(queue.jobs, run_s=np.maximum(run_s, 1.0))]).start_s


def heard(queue: LiveQueue, future: Jobs, known: ClusterHealth, rng: np.random.Generator) -> Jobs:
    ahead_s = -queue.jobs.submit_s
    to_limit_s = queue.jobs.request_s - ahead_s
    return replace(future, run_s=remaining_times(future.run_s - ahead_s, queue, to_limit_s, known, rng) + ahead_s)


if __name__ == "__main__":
    main()
