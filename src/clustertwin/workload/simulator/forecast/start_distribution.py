"""When will a waiting job start? A queue, recent run times and a log of arrivals -> samples of start times.

Each future draws a run time for every running and waiting job from recent jobs like it, and submissions from the past.
The futures are scheduled with EASY backfilling by limits, as the machine would. The start times are the distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.interval_scale import IntervalScale
from clustertwin.workload.policies import find_policy
from clustertwin.workload.run_times.run_time_history import KEPT, RunTimeHistory, recent_runs
from clustertwin.workload.simulator.machine_state import JOB, Records
from clustertwin.workload.simulator.simulate_log import SchedulingRules, schedule_records

Floats = NDArray[np.float64]

#: rng -> records of jobs that are submitted from now (second 0) on
Arrivals = Callable[[np.random.Generator], Records]


@dataclass(frozen=True, slots=True)
class QueueMoment:
    """The machine at one moment: running jobs first, then waiting jobs in the order of the queue."""

    procs: int
    size: NDArray[np.int64]  # (job,) processors
    limit_s: Floats
    elapsed_s: Floats  # 0 for waiting jobs
    history_row: NDArray[np.int64]  # the job's row in the history
    running: int
    hangs: Floats | None = None  # (running,) how sure it is that each hangs; it then runs to its limit

    def __len__(self) -> int:
        return len(self.size)


@dataclass(frozen=True, slots=True)
class FutureSettings:
    """How futures are drawn. The defaults were chosen on the first halves of two logs."""

    futures: int = 100
    least: int = 5  # recent jobs that a class needs to answer
    recent: int = 64  # of them
    together: float = 0.7  # how often the jobs of one class draw the same place in their distribution


@dataclass(frozen=True, slots=True)
class StartDistribution:
    """Possible starts of a job, in seconds from now."""

    samples_s: Floats  # (future,), sorted
    by_limits_s: float  # if all jobs ran to their limits and none was submitted: what `squeue --start` assumes

    def quantile_s(self, level: float) -> float:
        return float(np.quantile(self.samples_s, level, method="inverted_cdf"))

    def interval_s(self, scale: IntervalScale) -> tuple[float, float]:
        """The 80 % interval: between the quantiles 0.1 and 0.9, widened."""
        return scale.interval_s(self.quantile_s(0.1), self.quantile_s(0.5), self.quantile_s(0.9))

    def probability(self, within_s: float) -> float:
        """Part of the futures in which the job starts within this time."""
        return float((self.samples_s <= within_s).mean())

    def likeliest_s(self) -> float:
        """The middle of the two minutes that hold the most futures."""
        ends = np.searchsorted(self.samples_s, self.samples_s + 120.0, side="right")
        counts = ends - np.arange(len(self.samples_s))
        first = int(counts.argmax())
        held = self.samples_s[first : first + int(counts[first])]
        return float(np.median(held))


def draw_run_times(
    moment: QueueMoment, history: RunTimeHistory, settings: FutureSettings, rng: np.random.Generator
) -> Floats:
    """Run times from now on, (future, job): recent run times of similar jobs that exceed what the job has run.

    A running job that hangs runs to its limit, in as many futures as telemetry is sure.
    """
    n, futures = len(moment), settings.futures
    drawn = np.empty((futures, n))
    found = np.zeros(KEPT)
    shared: dict[int, Floats] = {}
    table = tuple(history)
    for j in range(n):
        row, limit_s, elapsed_s = int(moment.history_row[j]), float(moment.limit_s[j]), float(moment.elapsed_s[j])
        count, level = recent_runs(table, row, limit_s, elapsed_s, settings.least, found)
        count = min(count, settings.recent)
        place = rng.random(futures)
        if settings.together > 0 and count:
            code = int(history.codes[row, level])
            common = shared.setdefault(code, rng.random(futures))
            place = np.where(rng.random(futures) < settings.together, common, place)
        if count:
            ordered = np.sort(found[:count])
            drawn[:, j] = ordered[(place * count).astype(np.int64)]
        else:  # nothing like it is known, or it runs longer than all: anything up to its limit
            drawn[:, j] = elapsed_s + place * max(limit_s - elapsed_s, 60.0)
    left_s = np.maximum(np.round(drawn - moment.elapsed_s), 1.0)
    if moment.hangs is not None:
        hangs = rng.random((futures, moment.running)) < moment.hangs
        to_limit_s = np.maximum(moment.limit_s - moment.elapsed_s, 1.0)[: moment.running]
        left_s[:, : moment.running] = np.where(hangs, to_limit_s, left_s[:, : moment.running])
    return left_s


def queue_records(moment: QueueMoment) -> Records:
    """The jobs of a moment as records. Running jobs are submitted a second early, so that they start first."""
    records = np.zeros(len(moment), JOB)
    ahead_s = np.where(np.arange(len(moment)) < moment.running, 1.0, 0.0)
    records["submit_s"] = -ahead_s
    left_s = np.maximum(moment.limit_s - moment.elapsed_s, 1.0)
    records["estimate_s"] = records["request_s"] = records["run_s"] = left_s + ahead_s
    records["procs"] = moment.size
    return records


def start_samples(
    moment: QueueMoment, run_s: Floats, arrivals: Arrivals | None, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The starts of the waiting jobs: (future, waiting), and those by limits (waiting,)."""
    policy, rules = find_policy("fcfs"), SchedulingRules(moment.procs, backfill="easy")
    template, n = queue_records(moment), len(moment)
    ahead_s = -template["submit_s"]

    def starts(records: Records) -> Floats:
        schedule_records(records, policy, rules)
        return np.asarray(records["start_s"][moment.running : n], np.float64)

    samples = np.empty((len(run_s), n - moment.running))
    for f, drawn_s in enumerate(run_s):
        records = template.copy()
        records["run_s"] = drawn_s + ahead_s
        records["estimate_s"] = np.maximum(records["estimate_s"], records["run_s"])
        samples[f] = starts(np.concatenate([records, arrivals(rng)]) if arrivals else records)
    return samples, starts(template.copy())


def forecast_starts(
    moment: QueueMoment,
    history: RunTimeHistory,
    arrivals: Arrivals | None,
    settings: FutureSettings,
    rng: np.random.Generator,
) -> list[StartDistribution]:
    """The distribution of the start of every waiting job."""
    samples, limits = start_samples(moment, draw_run_times(moment, history, settings, rng), arrivals, rng)
    return [StartDistribution(np.sort(samples[:, k]), float(limits[k])) for k in range(samples.shape[1])]
