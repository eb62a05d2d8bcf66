"""The level of a site: a weekly series -> many plausible continuations, with the uncertainty of regime and drift.

The logarithm of a weekly total is a mean, a slowly changing level and noise:

    y[t] = m + x[t] + e[t],    x[t + 1] = phi x[t] + w[t]

Nobody knows `phi` (does the level return?) and how large `w` is beside `e`, least of all from ten weeks. So a grid of
both is weighted by its likelihood, and each draw takes one point of the grid, one variance, one state and one future.
Weeks of an outage are not part of the level; they occur in the draws as often as in the log.

The width of the intervals is checked inside the series: earlier weeks forecast the later ones from several origins. If
the intervals hold fewer of them than they should, all draws are spread by the factor that would have held them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PERSISTENCE = (0.5, 0.8, 0.9, 0.95, 1.0)  # phi; 1 is a random walk
RATIOS = (0.03, 0.1, 0.2, 0.4, 0.8)  # standard deviation of w over that of e
DIFFUSE = 25.0  # variance of the mean before the first week, in units of the noise's
#: What is known about the noise of weekly totals before a log is read: as if from this many weeks.
PRIOR_WEEKS, PRIOR_SPREAD = 3.0, 0.3
OUTLIER_MADS, LEAST_DROP = 4.0, 0.7  # an outage: this far below the median, and below half of it
#: Calibration: share of later weeks within an interval, number of origins and of draws, most and least.
SHARE, ORIGINS, CALIBRATION_DRAWS, WIDEST, LEAST_CALIBRATED = 0.8, 8, 60, 2.0, 6
MOST_GROWTH = 3.0  # times the busiest week of the series
PRIOR_CALM_WEEKS = 20.0  # weeks without an outage, seen before a log is read


class _GridPoint(NamedTuple):
    log_weight: float
    squares: float  # of the standardised prediction errors
    state: Floats  # (2,) mean and level after the last week
    spread: Floats  # (2, 2) its covariance over the variance of the noise


@dataclass(frozen=True, slots=True)
class LevelForecast:
    """A fitted series. `draw` continues it."""

    persistence: Floats  # (point,)
    ratio: Floats
    weight: Floats  # posterior probability of each point of the grid
    squares: Floats
    state: Floats  # (point, 2)
    spread: Floats  # (point, 2, 2)
    weeks: int
    outage: float  # probability of a week with an outage
    drops: Floats  # log of what is left of such a week
    most: float = np.inf  # no week has a larger total
    widening: float = 1.0  # factor for the distance of a draw from the median of draws, on the log scale

    @classmethod
    def of(cls, totals: Floats) -> LevelForecast:
        """Fit to the totals of consecutive weeks, oldest first."""
        y, drops = without_outages(totals)
        grid = [(phi, ratio) for phi in PERSISTENCE for ratio in RATIOS]
        points = [_filter(y, phi, ratio) for phi, ratio in grid]
        log_weight = np.array([point.log_weight for point in points])
        weight = np.exp(log_weight - log_weight.max())
        return cls(
            np.array([phi for phi, _ in grid]), np.array([ratio for _, ratio in grid]), weight / weight.sum(),
            np.array([point.squares for point in points]), np.array([point.state for point in points]),
            np.array([point.spread for point in points]), len(y),
            len(drops) / (len(totals) + PRIOR_CALM_WEEKS), drops,
            MOST_GROWTH * float(totals.max()),
        )  # fmt: skip

    @classmethod
    def calibrated(cls, totals: Floats) -> LevelForecast:
        """The same, with the width that earlier weeks of the series would have needed."""
        fitted = cls.of(totals)
        return replace(fitted, widening=_widening(without_outages(totals)[0]))

    def draw(self, shocks: Floats, noise: Floats, rng: np.random.Generator) -> Floats:
        """(week,) totals after the last one. `shocks` and `noise` (week,) are standard normal: of level and week."""
        point = int(rng.choice(len(self.weight), p=self.weight))
        shape = (PRIOR_WEEKS + self.weeks) / 2
        rate = (PRIOR_WEEKS * PRIOR_SPREAD**2 + self.squares[point]) / 2
        sigma = float(np.sqrt(rate / rng.gamma(shape)))
        mean, level = rng.multivariate_normal(self.state[point], sigma**2 * self.spread[point], method="cholesky")
        y = np.empty(len(shocks))
        for week in range(len(y)):
            level = self.persistence[point] * level + sigma * self.ratio[point] * shocks[week]
            y[week] = mean + level + sigma * noise[week]
        middle = self.state[point, 0] + self.state[point, 1] * self.persistence[point] ** np.arange(1, len(y) + 1)
        y = middle + self.widening * (y - middle)
        if len(self.drops):
            lost = rng.random(len(y)) < self.outage
            y += np.where(lost, rng.choice(self.drops, len(y)), 0.0)
        return np.minimum(np.exp(np.minimum(y, 700.0)), self.most)


def _widening(y: Floats) -> float:
    """The factor, at least 1, by which intervals from several origins hold `SHARE` of the later weeks."""
    if len(y) < LEAST_CALIBRATED:
        return 1.0
    distances: list[float] = []
    for origin in np.unique(np.linspace(len(y) // 3, len(y) - 2, ORIGINS).astype(int)):
        fitted, rng = LevelForecast.of(np.exp(y[:origin])), np.random.default_rng(int(origin))
        ahead = len(y) - origin
        normal = rng.standard_normal((CALIBRATION_DRAWS, 2, ahead))
        made = np.log([fitted.draw(shocks, noise, rng) for shocks, noise in normal])
        low, middle, high = np.quantile(made, [(1 - SHARE) / 2, 0.5, (1 + SHARE) / 2], axis=0)
        error = y[origin:] - middle
        distances += list(np.where(error > 0, error / (high - middle), error / (low - middle)))
    return float(np.clip(np.quantile(distances, SHARE), 1.0, WIDEST))


def without_outages(totals: Floats) -> tuple[Floats, Floats]:
    """Logarithms of the totals with the weeks of an outage at the median, and the logarithms of those drops."""
    positive = totals[totals > 0]
    if not len(positive):
        return np.zeros(len(totals)), np.empty(0)
    floor = float(np.median(positive)) / 100
    y = np.log(np.maximum(totals, floor))
    middle = float(np.median(y))
    reach = max(LEAST_DROP, OUTLIER_MADS * 1.4826 * float(np.median(np.abs(y - middle))))
    lost = y < middle - reach
    return np.where(lost, middle, y), (y - middle)[lost]


def _filter(y: Floats, phi: float, ratio: float) -> _GridPoint:
    """The Kalman filter of mean and level; the variance of the noise is integrated out."""
    stationary = ratio**2 / (1 - phi**2) if phi < 1 else 0.0
    state = np.array([y[0], 0.0])
    spread = np.diag([DIFFUSE, stationary])
    squares = log_det = 0.0
    step = np.array([[1.0, 0.0], [0.0, phi]])
    for week, value in enumerate(y):
        if week:
            state = step @ state
            spread = step @ spread @ step + np.diag([0.0, ratio**2])
        error = float(value - state.sum())
        variance = float(spread.sum()) + 1.0
        gain = spread.sum(axis=1) / variance
        state = state + gain * error
        spread = spread - np.outer(gain, gain) * variance
        squares += error**2 / variance
        log_det += np.log(variance)
    shape = (PRIOR_WEEKS + len(y)) / 2
    log_weight = -0.5 * log_det - shape * np.log(PRIOR_WEEKS * PRIOR_SPREAD**2 + squares)
    return _GridPoint(float(log_weight), squares, state, spread + 1e-12 * np.eye(2))
