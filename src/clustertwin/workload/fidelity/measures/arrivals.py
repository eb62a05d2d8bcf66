"""Arrival process of two logs: autocorrelation of intervals, burstiness at three scales, hours and weekdays."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.fidelity.measures.correlation import ranks_of_places
from clustertwin.workload.jobs import Jobs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LAGS = (1, 2, 5, 10, 20, 50)
SCALES = (5, 20, 100)  # window length in mean intervals
CLOCK_STEP_S = 900  # clocks change at a whole quarter of an hour


@dataclass(frozen=True, slots=True)
class ArrivalComparison:
    """Fano factor: variance over mean of the number of jobs in a window; 1 for Poisson arrivals."""

    autocorrelation_real: dict[int, float]  # lag -> Spearman
    autocorrelation: dict[int, float]
    fano_real: dict[int, float]  # window in mean intervals -> Fano factor
    fano: dict[int, float]
    hour_distance: float  # total variation distance: 0 is equal, 1 is disjoint
    weekday_distance: float


def autocorrelations(values: Floats, lags: tuple[int, ...] = LAGS) -> dict[int, float]:
    """Rank correlation of each value with the value `lag` places later, for each lag; 0 if there are too few values.

    The values are sorted once for all lags.
    """
    place = np.unique(values, return_inverse=True)[1]
    return {lag: _at_lag(place, lag) for lag in lags}


def _at_lag(place: Ints, lag: int) -> float:
    """`place`: the place of each value among the distinct values."""
    if len(place) <= lag + 1:
        return 0.0
    before, after = ranks_of_places(place[:-lag]), ranks_of_places(place[lag:])
    before, after = before - before.mean(), after - after.mean()
    scale = np.sqrt((before**2).sum() * (after**2).sum())
    return float((before * after).sum() / scale) if scale > 0 else 0.0


def fano(submit_s: Floats, scale: int) -> float:
    """Fano factor of the counts in equal windows of `scale` mean intervals, from the first arrival to the last.

    NaN with fewer than two windows: their counts have no variance.
    """
    windows = len(submit_s) // scale
    span_s = submit_s[-1] - submit_s[0]
    if windows < 2 or span_s <= 0:
        return float("nan")
    window = np.minimum(((submit_s - submit_s[0]) / span_s * windows).astype(int), windows - 1)
    counts = np.bincount(window, minlength=windows)
    return float(counts.var() / counts.mean())


def local_hours(jobs: Jobs) -> Floats:
    """Hours since a Monday midnight in the log's time zone; hours since its time zero if the log has no date."""
    if not jobs.epoch_s:
        return jobs.submit_s / 3600
    stamps = jobs.epoch_s + jobs.submit_s
    quarters, index = np.unique(stamps // CLOCK_STEP_S, return_inverse=True)
    zone = ZoneInfo(jobs.timezone)
    moments = (datetime.fromtimestamp(float(quarter) * CLOCK_STEP_S, UTC).astimezone(zone) for quarter in quarters)
    offsets = np.array([(moment.utcoffset() or moment - moment).total_seconds() for moment in moments])
    thursday = 3 * 24  # 1 January 1970 was a Thursday
    return np.asarray((stamps + offsets[index]) / 3600 + thursday)


def by_hour(jobs: Jobs) -> Floats:
    """(24,) share of submissions in each hour of the day."""
    return np.bincount(local_hours(jobs).astype(int) % 24, minlength=24) / len(jobs)


def by_weekday(jobs: Jobs) -> Floats:
    """(7,) share of submissions on each weekday, Monday first."""
    return np.bincount((local_hours(jobs) // 24).astype(int) % 7, minlength=7) / len(jobs)


def arrivals(real: ComparedLog, synthetic: ComparedLog) -> ArrivalComparison:
    """Compare the arrivals of two logs."""
    interval_real, interval = real.column("interval")[1:], synthetic.column("interval")[1:]
    return ArrivalComparison(
        autocorrelations(interval_real),
        autocorrelations(interval),
        {scale: fano(real.jobs.submit_s, scale) for scale in SCALES},
        {scale: fano(synthetic.jobs.submit_s, scale) for scale in SCALES},
        float(np.abs(by_hour(real.dated()) - by_hour(synthetic.dated())).sum() / 2),
        float(np.abs(by_weekday(real.dated()) - by_weekday(synthetic.dated())).sum() / 2),
    )
