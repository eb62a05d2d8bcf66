"""Judge forecasts of starts on a log: at some submissions ask when the job will start, then see when it does.

The log is scheduled once with EASY backfilling; those starts are the truth. A question knows only what was known at
its moment: who runs since when, who waits, their limits, the run times of jobs that had ended, and how wrong the
forecasts of jobs that have started were.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import WEEK_S
from clustertwin.core.errors import SettingsError
from clustertwin.core.interval_scale import DEFAULT_SCALE, IntervalScale, ScaleLearner
from clustertwin.workload.crps import crps
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.run_times.run_time_history import new_history, remember
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.forecast.start_distribution import (
    Arrivals,
    FutureSettings,
    QueueMoment,
    StartDistribution,
    forecast_starts,
)
from clustertwin.workload.simulator.machine_state import Records
from clustertwin.workload.simulator.simulate_log import SchedulingRules, schedule_records

Floats = NDArray[np.float64]
AHEAD_S = 2 * 86_400.0  # for how long new jobs are submitted in a future


@dataclass(frozen=True, slots=True)
class Answer:
    """A forecast and what happened, in seconds after the submission."""

    job: int  # row of the log
    distribution: StartDistribution
    wait_s: float
    asked_s: float = 0.0  # of the log


@dataclass(frozen=True, slots=True)
class ForecastScore:
    """How good forecasts were, over the jobs that did not start at once and over all jobs."""

    jobs: int
    waited: int  # jobs that did not start at once
    within_minute: float  # part of the jobs that waited whose likeliest start was right within a minute
    within_minute_by_limits: float  # the same for the start by limits
    within_minute_all: float
    within_minute_by_limits_all: float
    coverage: float  # part of the jobs that waited that started within the 80 % interval
    coverage_of_quantiles: float  # the same between the quantiles 0.1 and 0.9, before they are widened
    width_s: float  # median width of the intervals
    crps_s: float
    crps_by_limits_s: float
    crps_climate_s: float  # of the waits of the other jobs that waited, without looking at the queue


def answer_questions(
    jobs: Jobs,
    procs: int,
    rows: NDArray[np.int64],
    settings: FutureSettings,
    seed: int = 0,
) -> Iterator[Answer]:
    """Forecast the starts of these rows (ascending) of the admitted log, each at its submission."""
    from clustertwin.workload.policies import find_policy

    records = admit(jobs, procs).records
    schedule_records(records, find_policy("fcfs"), SchedulingRules(procs, backfill="easy"))
    start_s, end_s = records["start_s"], records["start_s"] + records["run_s"]
    history = new_history(records["user"], records["request_s"], records["procs"])
    by_end, ended = np.argsort(end_s, kind="stable"), 0
    table = tuple(history)
    for row in rows:
        now_s = float(records["submit_s"][row])
        while end_s[by_end[ended]] <= now_s:
            j = by_end[ended]
            remember(table, int(j), float(records["run_s"][j]), float(records["request_s"][j]))
            ended += 1
        known = np.arange(row + 1)
        running = known[(start_s[: row + 1] < now_s) & (end_s[: row + 1] > now_s)]
        waiting = known[start_s[: row + 1] >= now_s]
        both = np.concatenate([running, waiting])
        moment = QueueMoment(
            procs, records["procs"][both].astype(np.int64), np.maximum(records["request_s"][both], 1.0),
            np.where(np.arange(len(both)) < len(running), now_s - start_s[both], 0.0), both, len(running),
        )  # fmt: skip
        rng = np.random.default_rng((seed, int(row)))
        arrivals = past_arrivals(records, now_s, AHEAD_S)
        distribution = forecast_starts(moment, history, arrivals, settings, rng)[-1]
        yield Answer(int(row), distribution, float(start_s[row] - now_s), now_s)


def judge_forecasts(
    jobs: Jobs, procs: int, asked: int, settings: FutureSettings, seed: int = 0
) -> tuple[ForecastScore, IntervalScale]:
    """Scores on the second half of a log, and how much its last interval was widened.

    Each interval is widened by what the newest forecasts of jobs that had started by then teach; the first half fills
    them.
    """
    n, rng = len(admit(jobs, procs).records), np.random.default_rng(seed)
    halves = (np.arange(n // 10, n // 2), np.arange(n // 2, n))  # the first tenth only fills the history
    if any(len(half) < 1 for half in halves):
        raise SettingsError(f"a log of {n} jobs is too short to judge forecasts on")
    first, second = (np.sort(rng.choice(half, min(asked, len(half)), replace=False)) for half in halves)
    answers = list(answer_questions(jobs, procs, np.concatenate([first, second]), settings, seed))
    scales = rolling_scales(answers)
    return score_answers(answers[len(first) :], scales[len(first) :]), scales[-1]


def rolling_scales(answers: list[Answer]) -> list[IntervalScale]:
    """For each answer, what the answers before it teach whose jobs had started when it was asked."""
    learner, scales = ScaleLearner(), []
    waiting: list[tuple[float, int]] = []  # (start, place in `answers`)
    for place, answer in enumerate(answers):
        while waiting and waiting[0][0] <= answer.asked_s:
            _learn(learner, answers[heapq.heappop(waiting)[1]])
        scales.append(learner.scale() or DEFAULT_SCALE)
        if answer.wait_s > 0:
            heapq.heappush(waiting, (answer.asked_s + answer.wait_s, place))
    return scales


def _learn(learner: ScaleLearner, answer: Answer) -> None:
    starts = answer.distribution
    learner.add(starts.quantile_s(0.1), starts.quantile_s(0.5), starts.quantile_s(0.9), answer.wait_s)


def past_arrivals(records: Records, now_s: float, length_s: float) -> Arrivals | None:
    """Submissions of the same hours of an earlier week; None if the log is too short."""
    submit_s = records["submit_s"]
    weeks = int((now_s - submit_s[0] - length_s) // WEEK_S)
    if weeks < 1:
        return None

    def arrivals(rng: np.random.Generator) -> Records:
        from_s = now_s - WEEK_S * int(rng.integers(1, min(weeks, 26) + 1))
        first, last = np.searchsorted(submit_s, [from_s, min(from_s + length_s, now_s)], side="right")
        drawn = records[first:last].copy()
        drawn["submit_s"] -= from_s
        drawn["start_s"], drawn["released"] = np.nan, 0
        return drawn

    return arrivals


def score_answers(answers: list[Answer], scales: list[IntervalScale] | None = None) -> ForecastScore:
    """The scores of forecasts, with the scale of each one's 80 % interval."""
    pairs = list(zip(answers, scales or [DEFAULT_SCALE] * len(answers), strict=True))
    waited = [answer for answer in answers if answer.wait_s > 0]
    intervals_s = [answer.distribution.interval_s(scale) for answer, scale in pairs if answer.wait_s > 0]
    waits_s = np.array([answer.wait_s for answer in waited])

    def near(group: list[Answer], by_limits: bool) -> float:
        points = [a.distribution.by_limits_s if by_limits else a.distribution.likeliest_s() for a in group]
        return float(np.mean([abs(p - a.wait_s) <= 60 for p, a in zip(points, group, strict=True)])) if group else 0.0

    inside = [low_s <= a.wait_s <= high_s for a, (low_s, high_s) in zip(waited, intervals_s, strict=True)]
    between = [a.distribution.quantile_s(0.1) <= a.wait_s <= a.distribution.quantile_s(0.9) for a in waited]
    return ForecastScore(
        len(answers), len(waited), near(waited, False), near(waited, True), near(answers, False), near(answers, True),
        float(np.mean(inside)) if waited else 0.0,
        float(np.mean(between)) if waited else 0.0,
        float(np.median([high_s - low_s for low_s, high_s in intervals_s])) if waited else 0.0,
        float(np.mean([crps(a.distribution.samples_s, a.wait_s) for a in waited])) if waited else 0.0,
        float(np.mean([abs(a.distribution.by_limits_s - a.wait_s) for a in waited])) if waited else 0.0,
        float(np.mean([crps(waits_s, wait_s) for wait_s in waits_s])) if waited else 0.0,
    )  # fmt: skip
