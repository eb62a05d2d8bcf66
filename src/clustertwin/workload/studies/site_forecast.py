"""Forecast a site's coming weeks: a log -> many draws of the next weeks -> intervals of load, jobs, users and waits.

Each draw is a whole job log from the `site-model` generator: with its own level of load, users who leave and users who
are new. Waits come from the simulator (FCFS with EASY backfilling), which first runs the log's last weeks so that the
machine is as full as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import WEEK_S
from clustertwin.core.errors import SettingsError
from clustertwin.workload.generators.site_model import SiteModel
from clustertwin.workload.generators.superposition import concatenate
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import Unit, counted_sizes, counted_unit, machine_size
from clustertwin.workload.simulator import simulate

Floats = NDArray[np.float64]

WARM_UP_WEEKS = 2
MEASURES = ("jobs", "load", "users", "wait_s")


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    weeks: int = 26
    draws: int = 20
    seed: int = 0
    share: float = 0.8  # of the draws that lie within an interval
    procs: int | None = None  # size of the machine; default: the size that the log states, or its largest job


@dataclass(frozen=True, slots=True)
class SiteForecast:
    """Weeks count from the last submission of the log."""

    settings: ForecastSettings
    start_s: float  # seconds since 1970 of the first coming week; since the log's time zero if it has no date
    dated: bool
    procs: int
    unit: Unit
    draws: dict[str, Floats]  # measure -> (draw, week)
    past: dict[str, Floats]  # measure -> (week,) of the log, oldest first
    settled: int  # the first of these weeks from which levels were learnt
    new_users: float  # mean number of users that are not in the log
    not_learnt: tuple[str, ...]

    def interval(self, measure: str) -> Floats:
        """(3, week) lower end, median and upper end."""
        tail = (1 - self.settings.share) / 2
        # With this method, the interval of n draws holds the next draw with the stated probability.
        return np.quantile(self.draws[measure], [tail, 0.5, 1 - tail], axis=0, method="weibull")

    def document(self) -> dict[str, Any]:
        bounds = {name: self.interval(name) for name in MEASURES}
        weeks = [
            {"week": week + 1, "start_s": self.start_s + week * WEEK_S}
            | {name: dict(zip(("low", "median", "high"), bounds[name][:, week].tolist(), strict=True))
               for name in MEASURES}
            for week in range(self.settings.weeks)
        ]  # fmt: skip
        return {"draws": self.settings.draws, "share": self.settings.share, "seed": self.settings.seed,
                "procs": self.procs, "unit": self.unit, "dated": self.dated,
                "new_users": self.new_users, "not_learnt": list(self.not_learnt), "weeks": weeks,
                "past": {name: values.tolist() for name, values in self.past.items()}}  # fmt: skip


def forecast(
    log: Jobs, settings: ForecastSettings | None = None, done: Callable[[int], None] | None = None
) -> SiteForecast:
    """Learn a site from its log and draw its coming weeks. `done` is called after each draw."""
    settings = settings or ForecastSettings()
    _check(settings)
    fitted = SiteModel().fit(log, np.random.default_rng(settings.seed))
    unit = counted_unit(log)
    procs = settings.procs or machine_size(log, unit)
    end_s = fitted.calendar.end_s
    warm_up = log.take(log.submit_s >= end_s - WARM_UP_WEEKS * WEEK_S)
    levels = fitted.levels()
    draws: dict[str, list[Floats]] = {name: [] for name in MEASURES}
    new_users = []
    for i, rng in enumerate(np.random.default_rng(settings.seed).spawn(settings.draws)):
        jobs = _after(warm_up, fitted.future(settings.weeks, rng, levels))
        measured = weekly_measures(jobs, end_s, settings.weeks, procs)
        for name in MEASURES:
            draws[name].append(np.nan_to_num(measured[name]))
        new_users.append(len(np.setdiff1d(jobs.user, fitted.calendar.user_code)))
        if done:
            done(i + 1)
    past_weeks = fitted.calendar.weeks
    past = weekly_measures(log, end_s - past_weeks * WEEK_S, past_weeks, procs)
    return SiteForecast(
        settings, log.epoch_s + end_s, bool(log.epoch_s), procs, unit,
        {name: np.array(rows) for name, rows in draws.items()},
        {name: np.nan_to_num(values) for name, values in past.items()}, fitted.calendar.settled().start,
        float(np.mean(new_users)), fitted.not_learnt(),
    )  # fmt: skip


def _after(warm_up: Jobs, jobs: Jobs) -> Jobs:
    """Drawn jobs after the jobs of the log's last weeks."""
    both = replace(concatenate([warm_up, jobs]), names={})
    return replace(both, id=np.arange(1, len(both) + 1), wait_s=np.full(len(both), -1.0))


def weekly_measures(jobs: Jobs, start_s: float, weeks: int, procs: int) -> dict[str, Floats]:
    """measure -> (week,) from `start_s` on. Earlier jobs only fill the machine. The wait of no jobs is NaN."""
    week = np.floor((jobs.submit_s - start_s) / WEEK_S).astype(np.int64)
    counted = (week >= 0) & (week < weeks)
    work = (counted_sizes(jobs) * jobs.run_s)[counted]
    load = np.bincount(week[counted], work, weeks) / (procs * WEEK_S)
    active = np.unique(np.column_stack([week[counted], jobs.user[counted]]), axis=0)[:, 0]
    schedule = simulate(jobs, procs, "fcfs", "easy", unit=counted_unit(jobs))
    scheduled = np.floor((schedule.jobs.submit_s - start_s) / WEEK_S).astype(np.int64)
    inside = (scheduled >= 0) & (scheduled < weeks)
    ran = np.bincount(scheduled[inside], minlength=weeks)
    waited_s = np.bincount(scheduled[inside], schedule.wait_s[inside], weeks)
    return {
        "jobs": np.bincount(week[counted], minlength=weeks).astype(np.float64), "load": load,
        "users": np.bincount(active, minlength=weeks).astype(np.float64),
        "wait_s": np.where(ran > 0, waited_s / np.maximum(ran, 1), np.nan),
    }  # fmt: skip


def _check(settings: ForecastSettings) -> None:
    if settings.weeks < 1:
        raise SettingsError(f"{settings.weeks} weeks cannot be forecast; ask for one or more")
    if settings.draws < 2:
        raise SettingsError(f"an interval needs two draws or more, not {settings.draws}")
    if not 0 < settings.share < 1:
        raise SettingsError(f"the share of an interval lies between 0 and 1, not {settings.share:g}")
