"""Intervals that hold: how far starts lay from their forecasts -> how much wider the next 80 % interval must be.

This is normalised split conformal prediction over the newest forecasts. The distance of a start from the forecast's
median is measured in half-widths of the forecast's own interval, on each side. The 90 % quantile of these distances is
the factor for the half-width of the next forecast. Early and late starts have factors of their own: forecasts leave out
what delays a job more often than what brings it forward.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

#: Forecasts that the factors are learned from. Older ones belong to another load.
RECENT = 200
#: With fewer, one odd start decides.
LEAST = 20
#: Seconds that are added to each half-width: futures that agree to the second are not that sure.
FLOOR_S = 60.0
#: Part of the starts that may lie outside on each side.
TAIL = 0.1


@dataclass(frozen=True, slots=True)
class IntervalScale:
    """Factors for the two halves of an interval."""

    early: float
    late: float

    def interval_s(self, p10_s: float, p50_s: float, p90_s: float) -> tuple[float, float]:
        """The widened interval; no job starts before now, which is second 0.

        >>> IntervalScale(1.0, 2.0).interval_s(340.0, 400.0, 440.0)
        (280.0, 600.0)
        """
        early_s, late_s = _half_widths_s(p10_s, p50_s, p90_s)
        return max(p50_s - self.early * early_s, 0.0), max(p50_s + self.late * late_s, 0.0)


#: Before anything was learned: from the first halves of two logs, KTH-SP2 and SDSC-SP2.
DEFAULT_SCALE = IntervalScale(0.98, 1.9)


class ScaleLearner:
    """Keeps the newest distances of starts from their forecasts."""

    def __init__(self) -> None:
        self._distances: deque[tuple[float, float]] = deque(maxlen=RECENT)

    def add(self, p10_s: float, p50_s: float, p90_s: float, start_s: float) -> None:
        """A forecast, before it was widened, and when the job started."""
        early_s, late_s = _half_widths_s(p10_s, p50_s, p90_s)
        self._distances.append(((p50_s - start_s) / early_s, (start_s - p50_s) / late_s))

    def scale(self) -> IntervalScale | None:
        """The factors for the next forecast; None while too few starts are known."""
        if len(self._distances) < LEAST:
            return None
        early, late = zip(*self._distances, strict=True)
        return IntervalScale(_conformal_quantile(early), _conformal_quantile(late))


def _half_widths_s(p10_s: float, p50_s: float, p90_s: float) -> tuple[float, float]:
    return max(p50_s - p10_s, 0.0) + FLOOR_S, max(p90_s - p50_s, 0.0) + FLOOR_S


def _conformal_quantile(distances: tuple[float, ...]) -> float:
    """The smallest distance that the next one exceeds with probability at most `TAIL`, if they are exchangeable."""
    rank = math.ceil((len(distances) + 1) * (1 - TAIL))
    return sorted(distances)[min(rank, len(distances)) - 1]
