"""When memory runs out: the memory in use of nodes and jobs over the last minutes or hours -> forecasts, mostly none.

A forecast is made only if the growth so far lasted at least `LASTED` times as long as what remains: steady growth for
half a minute says little about the next hour. So a leak is forecast when about 38 % of the way from its begin to the
end of memory is done, whatever its rate is; a program that allocates steadily and stops earlier is never forecast.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.forecast.memory_growth import ABOVE, PARTS, Growth, GrowthWindow, steady_growth
from clustertwin.telemetry.moments.moment import Moment

#: Growth must have lasted this many times as long as the remaining time.
LASTED = 0.6
#: The interval is meant to hold the true time in nine of ten cases. `WIDTH` multiplies the spread of the rate, and
#: `FLOOR` and `FLOOR_S` are what even the steadiest growth has. Chosen on simulated and recorded leaks, with
#: `python benchmarks/memory_forecast.py`.
WIDTH, FLOOR, FLOOR_S = 3.5, 0.2, 15.0
#: The level now is the mean of this many seconds.
NOW_S = 5
#: Windows in seconds, each a sixth longer than the one before.
WINDOWS_S = (24, 28, 33, 39, 46, 54, 64, 76, 90, 107, 127, 150, 178, 211, 250, 297)


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """The memory of a job on a node, or of the whole node, runs out."""

    node: str
    job: str  # empty: the whole node
    end_s: int  # the second at which the forecast was made
    remaining_s: float
    earliest_s: float  # of the remaining time: nine of ten forecasts lie between the two
    latest_s: float
    level: float  # memory in use now, as a part of the limit
    rate: float  # growth of the level per second
    growing_s: float  # how long it has grown steadily, as far as it was looked at

    @property
    def sentence(self) -> str:
        """For people: what happens, when, and how sure that is."""
        what = f"job {self.job} on {self.node}" if self.job else f"node {self.node}"
        return (
            f"{what}: out of memory in {_duration(self.remaining_s)} "
            f"({_duration(self.earliest_s)} to {_duration(self.latest_s)})"
        )

    @property
    def short(self) -> str:
        """Without the place.

        >>> MemoryForecast("n1", "", 0, 840, 540, 1500, 0.5, 1e-3, 600).short
        'out of memory in 14 min (9–25)'
        """
        unit_s, unit = _unit(self.remaining_s)
        numbers = [max(round(value / unit_s), 0) for value in (self.remaining_s, self.earliest_s, self.latest_s)]
        return f"out of memory in {numbers[0]} {unit} ({numbers[1]}–{numbers[2]})"


def forecast(moment: Moment) -> list[MemoryForecast]:
    """The forecasts that the seconds of this moment allow, soonest first. `MemoryWatch` also looks at hours."""
    found = [
        MemoryForecast(node, job, moment.end_s, *numbers)
        for rows, levels in _levels(moment)
        for (node, job), numbers in forecasts(rows, levels, [window_of_seconds(levels, s) for s in WINDOWS_S])
    ]
    return sorted(found, key=lambda each: each.remaining_s)


Place = tuple[str, str]  # node, job
Numbers = tuple[float, float, float, float, float, float]  # the last six fields of a forecast


def window_of_seconds(
    levels: NDArray[np.float32], samples: int, earlier: NDArray[np.float32] | None = None
) -> GrowthWindow:
    none = np.empty((len(levels), 0), np.float32)
    return GrowthWindow(levels, 1.0, samples, none if earlier is None else earlier)


def memory_levels(moment: Moment) -> tuple[list[Place], NDArray[np.float32]]:
    """The memory in use of every node and job of a moment: places, and levels (place, second) with NaN as unknown."""
    parts = _levels(moment)
    places = [place for rows, _ in parts for place in rows]
    empty = np.empty((0, moment.values.shape[1]), np.float32)
    return places, np.concatenate([empty, *(levels for _, levels in parts)])


def _levels(moment: Moment) -> list[tuple[list[Place], NDArray[np.float32]]]:
    parts: list[tuple[list[Place], NDArray[np.float32]]] = []
    nodes, jobs = moment.node_channels, moment.job_channels
    if nodes is not None and "memory_used" in nodes.schema.names:
        rows = [(node, "") for node in moment.nodes]
        parts.append((rows, nodes.values[:, :, nodes.schema.index("memory_used")]))
    if jobs is not None and "job_memory" in jobs.schema.names:
        rows = [(moment.nodes[node], job) for node, job in zip(jobs.node.tolist(), jobs.jobs, strict=True)]
        parts.append((rows, jobs.values[:, :, jobs.schema.index("job_memory")]))
    return parts


def forecasts(
    rows: list[Place], levels: NDArray[np.float32], windows: Iterable[GrowthWindow]
) -> list[tuple[Place, Numbers]]:
    """The forecast of each row from the window that allows the narrowest: a long one, unless growth began in it.

    `levels` (row, second) are the newest. A window of older samples counts only if growth has not ended since.
    """
    found: dict[int, Numbers] = {}
    now = _newest(levels)
    if np.isnan(now).all():
        return []
    for window in windows:
        if window.levels.shape[1] < window.samples:
            continue
        growth = steady_growth(window)
        grown = growth.rate * growth.length_s
        lasts = now[growth.row] >= growth.level - ABOVE * grown
        for i in np.flatnonzero(lasts & (1 - now[growth.row] <= grown / LASTED)).tolist():
            row = int(growth.row[i])
            numbers = _numbers(growth, i, float(now[row]))
            if row not in found or _relative_width(numbers) < _relative_width(found[row]):
                found[row] = numbers
    return [(rows[row], numbers) for row, numbers in found.items()]


def _newest(levels: NDArray[np.float32]) -> NDArray[np.float64]:
    """(row,) the mean of the last `NOW_S` seconds; NaN, which allows no forecast, if none of them is known."""
    recent = levels[:, -NOW_S:].astype(np.float64)
    known = ~np.isnan(recent)
    with np.errstate(invalid="ignore"):
        return np.where(known, recent, 0.0).sum(axis=1) / known.sum(axis=1)


def _numbers(growth: Growth, i: int, level: float) -> Numbers:
    """Remaining, earliest and latest time, level, rate and length."""
    rate = float(growth.rate[i])
    remaining_s = (1 - level) / rate
    part_s = growth.length_s / PARTS
    # The mean rate of the past is uncertain, and so is that of the parts to come.
    spread = float(growth.spread[i]) * np.sqrt(1 / (PARTS - 1) + part_s / max(remaining_s, part_s))
    width = min(float(np.hypot(WIDTH * spread / rate, FLOOR)), 0.9)
    earliest_s, latest_s = remaining_s / (1 + width) - FLOOR_S, remaining_s / (1 - width) + FLOOR_S
    return remaining_s, max(earliest_s, 0.0), latest_s, level, rate, growth.length_s


def _relative_width(numbers: Numbers) -> float:
    remaining_s, earliest_s, latest_s, *_ = numbers
    return (latest_s - earliest_s) / max(remaining_s, 1.0)


def _unit(seconds: float) -> tuple[float, str]:
    return (1.0, "s") if seconds < 120 else (60.0, "min") if seconds < 7200 else (3600.0, "h")


def _duration(seconds: float) -> str:
    unit_s, unit = _unit(seconds)
    return f"{max(round(seconds / unit_s), 0)} {unit}"
