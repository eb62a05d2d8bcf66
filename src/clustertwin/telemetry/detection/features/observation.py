"""Everything that the views of a detector need to know about a moment: model, moment -> one `Observation`.

It is computed once for all views. The observations of many moments can be joined into one; a detector is calibrated on
such a joined observation, so it is calibrated on the same features that it scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.features.inference import infer
from clustertwin.telemetry.detection.features.peer_deviation import Deviation, measure_deviation
from clustertwin.telemetry.detection.features.statistics import Statistics, measure_each
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.moments.moment import LENGTH_S, WINDOW_S, Moment

#: Statistics and deviation are measured over each of these lengths.
LENGTHS_S = (WINDOW_S, LENGTH_S)
MIN_SECONDS = {WINDOW_S: 1, LENGTH_S: 200}  # valid seconds with the current job that a length needs

#: The allocation of a thread. Where a moment has no job at all, the source may not report jobs: UNKNOWN.
UNALLOCATED, ALLOCATED, UNKNOWN = 0, 1, 2
ALLOCATIONS = (UNALLOCATED, ALLOCATED, UNKNOWN)

_Rows = TypeVar("_Rows", Statistics, Deviation)


@dataclass(frozen=True, slots=True)
class WindowFeatures:
    """Features of the last `length_s` seconds, one row per thread."""

    length_s: int
    known: NDArray[np.bool_]  # (thread,) whether the thread has enough valid seconds to be scored
    statistics: Statistics
    deviation: Deviation


@dataclass(frozen=True, slots=True)
class Observation:
    """A model's measurements of the threads of one or several moments, one row per thread."""

    stored: StoredModel  # the model
    moments: tuple[Moment, ...]  # the rows are the threads of these moments, in order
    allocation: NDArray[np.int8]  # (thread,) UNALLOCATED, ALLOCATED or UNKNOWN
    error: NDArray[np.float32]  # (thread,) mean squared reconstruction error
    embedding: NDArray[np.float32]  # (thread, latent)
    windows: tuple[WindowFeatures, ...]  # one for each of LENGTHS_S

    def __len__(self) -> int:
        return len(self.allocation)

    def over(self, length_s: int) -> WindowFeatures:
        """The features of this length."""
        for window in self.windows:
            if window.length_s == length_s:
                return window
        raise SettingsError(f"no features over {length_s} s; the lengths are {', '.join(map(str, LENGTHS_S))} s")


def observe(stored: StoredModel, moment: Moment, enough: float) -> Observation:
    """Measure a moment; `enough` is the share of a window's seconds that must be valid."""
    selected = moment.select(stored.model.config.shape.schema)
    observation = _observe(stored, selected, enough)
    # Values that are not finite show up in the results. Searching five minutes of every thread costs a tenth more.
    finite = np.isfinite(observation.error).all() and all(
        np.isfinite(window.statistics.features).all() for window in observation.windows
    )
    if not finite:
        observation = _observe(stored, _mask_non_finite(selected), enough)
    return replace(observation, moments=(moment,))


def _observe(stored: StoredModel, moment: Moment, enough: float) -> Observation:
    embedding, error = infer(stored, moment)
    settled = moment.settled & (moment.windows(WINDOW_S)[1].mean(1) >= enough)
    windows = []
    for length_s, statistics in zip(LENGTHS_S, measure_each(moment, LENGTHS_S), strict=True):
        settled = settled & (statistics.seconds >= MIN_SECONDS[length_s])  # known over 300 s implies known over 100 s
        deviation = measure_deviation(statistics.mean, statistics.noise, moment.job, settled)
        windows.append(WindowFeatures(length_s, settled, statistics, deviation))
    return Observation(stored, (moment,), allocation_of(moment), error, embedding, tuple(windows))


def allocation_of(moment: Moment) -> NDArray[np.int8]:
    """(thread,) UNALLOCATED, ALLOCATED or UNKNOWN."""
    return np.where(moment.job >= 0, ALLOCATED, UNALLOCATED if moment.jobs else UNKNOWN).astype(np.int8)


def join(observations: Sequence[Observation]) -> Observation:
    """The rows of all observations, one after another."""
    firsts = np.cumsum([0, *(len(observation) for observation in observations)]).tolist()
    return Observation(
        observations[0].stored,
        tuple(moment for observation in observations for moment in observation.moments),
        np.concatenate([observation.allocation for observation in observations]),
        np.concatenate([observation.error for observation in observations]),
        np.concatenate([observation.embedding for observation in observations]),
        tuple(
            _join_windows([observation.over(length_s) for observation in observations], firsts)
            for length_s in LENGTHS_S
        ),
    )


def _join_windows(windows: Sequence[WindowFeatures], firsts: Sequence[int]) -> WindowFeatures:
    """`firsts` are the first rows of each window's threads; partners are row numbers and move by them."""
    deviations = [
        replace(w.deviation, partner=np.where(w.deviation.partner >= 0, w.deviation.partner + first, -1))
        for w, first in zip(windows, firsts, strict=False)
    ]
    return WindowFeatures(
        windows[0].length_s,
        np.concatenate([window.known for window in windows]),
        _concatenate(Statistics, [window.statistics for window in windows]),
        _concatenate(Deviation, deviations),
    )


def _concatenate(kind: type[_Rows], parts: Sequence[_Rows]) -> _Rows:
    names = [field.name for field in fields(kind)]
    return kind(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _mask_non_finite(moment: Moment) -> Moment:
    """The moment with each second that holds NaN or infinity marked as invalid."""
    affected = np.flatnonzero(~np.isfinite(moment.values.sum((1, 2))))
    if not len(affected):
        return moment
    values, valid = moment.values.copy(), moment.valid.copy()
    valid[affected] &= np.isfinite(values[affected]).all(-1)
    values[~valid] = 0
    return replace(moment, values=values, valid=valid)
