"""Judge forecasts: a log, cut in two -> coverage and CRPS on the second half, beside what you could do instead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import WEEK_S
from clustertwin.core.errors import TraceError
from clustertwin.workload.crps import crps
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_unit, machine_size
from clustertwin.workload.studies.site_forecast import (
    MEASURES,
    ForecastSettings,
    SiteForecast,
    forecast,
    weekly_measures,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ForecastSkill:
    """One measure of one log. The rivals: the first half's weeks in order, again; its last week again and again;
    all its weeks as if drawn at random."""

    measure: str
    weeks: int
    coverage: float  # share of weeks in which the truth lies within the interval
    crps: float
    first_half_again: float
    last_week_again: float
    first_half_shuffled: float


def halves(log: Jobs) -> tuple[Jobs, float]:
    """The first half of the jobs, and the time at which the second begins."""
    middle = len(log) // 2
    return log.take(slice(0, middle)), float(log.submit_s[middle - 1]) + 1.0


def forecast_skill(log: Jobs, settings: ForecastSettings) -> tuple[list[ForecastSkill], SiteForecast]:
    """Forecast the whole weeks of the second half from the first; `settings.weeks` is replaced by their number."""
    first, start_s = halves(log)
    weeks = int((float(log.submit_s[-1]) - start_s) // WEEK_S)
    if weeks < 1:
        raise TraceError("the log", "its second half is shorter than a week, so no forecast can be judged")
    procs = settings.procs or machine_size(log, counted_unit(log))
    made = forecast(first, ForecastSettings(weeks, settings.draws, settings.seed, settings.share, procs))
    truth = weekly_measures(log, start_s, weeks, procs)
    return [_skill(made, name, truth[name]) for name in MEASURES], made


def _skill(made: SiteForecast, name: str, truth: Floats) -> ForecastSkill:
    known = np.flatnonzero(np.isfinite(truth))
    low, _, high = made.interval(name)
    past = made.past[name][made.settled :]  # the rivals, too, start when the site does
    replay = np.resize(past, len(truth))
    inside = (truth[known] >= low[known]) & (truth[known] <= high[known])
    return ForecastSkill(
        name, len(known), float(inside.mean()), float(np.mean([crps(made.draws[name][:, k], truth[k]) for k in known])),
        float(np.abs(replay - truth)[known].mean()), float(np.abs(past[-1] - truth)[known].mean()),
        float(np.mean([crps(past, truth[k]) for k in known])),
    )  # fmt: skip
