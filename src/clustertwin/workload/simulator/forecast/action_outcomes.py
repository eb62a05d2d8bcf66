"""What an action on a running job changes: the live queue + what is known about the job -> savings with intervals.

Each possible future is simulated once for every action, with the same run times of the other jobs. A job that hangs
runs to its time limit. With the probability that the twin is wrong, the job ends as one of the past would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.job_health import ClusterHealth, JobHealth
from clustertwin.workload.jobs import COLUMNS, Jobs
from clustertwin.workload.simulator.forecast.squeue import LiveQueue
from clustertwin.workload.simulator.forecast.start_times import Scenario, draw_left_s, limit_fractions
from clustertwin.workload.simulator.simulate_log import simulate

Choice = Literal["leave", "cancel", "requeue", "drain"]
CHOICES: tuple[Choice, ...] = ("leave", "cancel", "requeue", "drain")
#: A drained node does not come back within this time.
DRAINED_S = 7 * 86_400.0
MOST_STARTS = 20


@dataclass(frozen=True, slots=True)
class Estimate:
    """The median and the 80 % interval over the futures."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EarlierStart:
    """A waiting job, and how much earlier it starts than if nothing is done; negative: later."""

    job: str
    earlier_s: Estimate
    start_s: Estimate  # from now, with this choice


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """What one choice does, compared with leaving the job alone."""

    choice: Choice
    saved_node_hours: Estimate  # node-hours that the job no longer occupies
    starts: tuple[EarlierStart, ...]  # waiting jobs that start at another time, the largest change first
    lost_node_hours: float  # work that is lost if the twin is wrong
    about: str


@dataclass(frozen=True, slots=True)
class ActionSettings:
    futures: int = 100
    releases_s: tuple[float, ...] = (2.0,)  # from the cancellation to the end of the job; each as likely
    overruns_s: tuple[float, ...] = (0.0,)  # how long a job runs beyond its limit; each as likely
    known: ClusterHealth = ClusterHealth()  # of the other jobs


def predict_outcomes(
    queue: LiveQueue,
    health: JobHealth,
    scenario: Scenario,
    past: Jobs | None,
    rng: np.random.Generator,
    settings: ActionSettings = ActionSettings(),
) -> tuple[ActionOutcome, ...]:
    """The outcome of each choice for one running job."""
    row = _row_of(queue, health.job)
    left_s, futures = _futures(queue, row, health, past, rng, settings)
    release_s = _spread(settings.releases_s, settings.futures, rng)
    nodes = max(int(queue.jobs.nodes[row]), 1)
    starts: dict[Choice, NDArray[np.float64]] = {
        choice: np.array(
            [_starts(queue, row, choice, jobs, scenario, end_s) for jobs, end_s in zip(futures, release_s, strict=True)]
        )
        for choice in CHOICES
    }  # each (future, waiting job)
    occupied = {"leave": left_s, "cancel": np.minimum(left_s, release_s)}
    occupied |= {"requeue": occupied["cancel"], "drain": left_s}
    lost = float(queue.elapsed_s[row]) * nodes / 3600
    about = {
        "leave": "The job keeps its nodes until it ends or reaches its time limit.",
        "cancel": "The job ends. This cannot be undone; the owner submits the job again.",
        "requeue": "The job ends and waits in the queue again with its full time limit. This cannot be undone.",
        "drain": "The job goes on. After it, no job starts on its nodes until they are resumed; assumed: 7 days.",
    }
    return tuple(
        ActionOutcome(
            choice,
            _estimate((left_s - occupied[choice]) * nodes / 3600),
            _earlier(queue, starts["leave"], starts[choice]),
            lost if choice in ("cancel", "requeue") else 0.0,
            about[choice],
        )
        for choice in CHOICES
    )


def _row_of(queue: LiveQueue, job: str) -> int:
    if job not in queue.names[: queue.running]:
        raise SettingsError(f"job {job} does not run: it is not in the output of squeue")
    return queue.names.index(job)


def _futures(
    queue: LiveQueue,
    row: int,
    health: JobHealth,
    past: Jobs | None,
    rng: np.random.Generator,
    settings: ActionSettings,
) -> tuple[NDArray[np.float64], list[Jobs]]:
    """How long the job goes on if it is left alone, (future,), and the jobs of each future."""
    # Without a past, every fraction is as likely.
    fractions = np.linspace(0.0, 1.0, 101) if past is None else limit_fractions(past)
    ahead_s = -queue.jobs.submit_s
    to_limit_s = queue.limit_s - queue.elapsed_s
    hung_s = float(to_limit_s[row]) + _spread(settings.overruns_s, settings.futures, rng)
    wrong = _spread(np.linspace(0.0, 1.0, 1000), settings.futures, rng) >= (health.sure if health.hangs else 0.0)
    left_s, futures = np.empty(settings.futures), []
    for i in range(settings.futures):
        drawn_s = draw_left_s(queue, fractions, rng)
        drawn = remaining_times(drawn_s, queue, to_limit_s, settings.known, rng) + ahead_s
        left_s[i] = float(drawn[row] - ahead_s[row]) if wrong[i] else hung_s[i]
        futures.append(replace(queue.jobs, run_s=drawn))
    return left_s, [_with(jobs, row, s + ahead_s[row]) for jobs, s in zip(futures, left_s, strict=True)]


def _spread(values: NDArray[np.float64] | Sequence[float], count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Equally likely values, each as often as it is likely, in random order: drawn at random, they would add noise."""
    places = ((np.arange(count) + 0.5) / count * len(values)).astype(int)
    return rng.permutation(np.sort(values)[places])


def remaining_times(
    drawn_s: NDArray[np.float64],
    queue: LiveQueue,
    to_limit_s: NDArray[np.float64],
    known: ClusterHealth,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """The drawn remaining times, with what telemetry knows in place of those of running jobs, as far as it is sure."""
    if not known.jobs:
        return drawn_s
    left_s = drawn_s.copy()
    for row, name in enumerate(queue.names[: queue.running]):
        health = known.jobs.get(name)
        if health is None or rng.random() >= health.sure:
            continue
        if health.hangs:
            left_s[row] = to_limit_s[row]
        elif health.left_s is not None:
            left_s[row] = min(max(health.left_s, 1.0), to_limit_s[row])
    return left_s


def _with(jobs: Jobs, row: int, run_s: float) -> Jobs:
    """The same jobs, one of them with another run time. Its limit follows, so that the simulator does not cut it."""
    runs, limits = jobs.run_s.copy(), jobs.request_s.copy()
    runs[row] = max(run_s, 1.0)
    limits[row] = max(limits[row], runs[row])
    return replace(jobs, run_s=runs, request_s=limits)


def _starts(
    queue: LiveQueue,
    row: int,
    choice: Choice,
    jobs: Jobs,
    scenario: Scenario,
    release_s: float,
) -> NDArray[np.float64]:
    """When each waiting job starts, in seconds from now; NaN for one that does not fit."""
    ahead_s = float(-jobs.submit_s[row])
    if choice in ("cancel", "requeue"):
        again = jobs
        jobs = _with(jobs, row, min(float(jobs.run_s[row]), release_s + ahead_s))
        if choice == "requeue":
            jobs = _appended(jobs, again, row, queue)
    elif choice == "drain":
        jobs = _with(jobs, row, DRAINED_S)
    schedule = simulate(jobs, scenario.procs, scenario.policy, scenario.backfill, unit="cpus", kill_at_limit=True)
    start_of = dict(zip(schedule.jobs.id.tolist(), schedule.start_s.tolist(), strict=True))
    return np.array([start_of.get(int(id), np.nan) for id in queue.jobs.id[queue.running :]])


def _appended(jobs: Jobs, original: Jobs, row: int, queue: LiveQueue) -> Jobs:
    """The jobs and the requeued one, which is submitted now with its full limit."""
    columns: dict[str, Any] = {name: np.append(getattr(jobs, name), getattr(original, name)[row]) for name in COLUMNS}
    columns["id"][-1] = int(jobs.id.max()) + 1
    columns["submit_s"][-1] = 0.0
    columns["run_s"][-1] = columns["request_s"][-1] = max(float(queue.limit_s[row]), 1.0)
    return replace(jobs, **columns)


def _earlier(queue: LiveQueue, left: NDArray[np.float64], acted: NDArray[np.float64]) -> tuple[EarlierStart, ...]:
    names = queue.names[queue.running :]
    earlier = [
        EarlierStart(name, _estimate(left[:, i] - acted[:, i]), _estimate(acted[:, i]))
        for i, name in enumerate(names)
        if not np.isnan(left[:, i] - acted[:, i]).any()
    ]
    changed = [entry for entry in earlier if entry.earlier_s.low or entry.earlier_s.high or entry.earlier_s.middle]
    return tuple(sorted(changed, key=lambda entry: -abs(entry.earlier_s.middle))[:MOST_STARTS])


def _estimate(values: NDArray[np.float64] | Sequence[float]) -> Estimate:
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return Estimate(float(middle), float(low), float(high))
