"""Diagnose a job from the last seconds of its threads: a moment, the job's threads -> a cause, and who shows it.

The rules use only measured ratios and the job's shape. Anything that no rule describes is `UNUSUAL`. A cause that was
found before is kept while its own condition holds, so that it does not change with the age of the job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.events.causes import HUNG_RANK, IDLE, MISBOUND, STALLED_IO, STRAGGLER, UNUSUAL
from clustertwin.telemetry.detection.events.known_mean import known_mean
from clustertwin.telemetry.moments.moment import Moment

FRESH_S = 30  # seconds that a diagnosis looks at: at the first alarm, most of a window is still normal
PAST_S = 60  # seconds before them that a thread's past needs
LEAST_S = 10  # known seconds of a thread; with fewer it is left out
BUSY_BELOW = 0.1  # a thread that is busy for a smaller share of its time is idle
WAITING = 0.1  # share of iowait of a job that waits for I/O; half of it to go on waiting
POLLING = 0.1  # a waiting rank has this much more system time than the one that it waits for

Rows = NDArray[np.intp]
Means = NDArray[np.float64]  # (thread, channel); NaN is unknown
_NEEDED = ("system", "iowait", "other")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`telling` are the rows of the threads that show the cause, `others` the job's other threads."""

    cause: str
    channel: str
    telling: Rows
    others: Rows
    since_s: int  # the first second of the last run in which the telling threads showed it


def diagnose(moment: Moment, threads: Rows, before: str = "") -> Diagnosis | None:
    """The cause of a job's behaviour. `threads` are all of its rows, and `before` is the cause it had until now.

    None if no rule applies, or if fewer than `LEAST_S` of the last seconds are known.
    """
    now = _means(moment, threads, slice(-FRESH_S, None))
    known = ~np.isnan(now[:, [moment.schema.index(name) for name in _NEEDED]]).any(1)
    threads, now = threads[known], now[known]
    if not len(threads):
        return None
    cause, channel, telling = _classify(moment, threads, now, before)
    if cause == UNUSUAL:
        return None
    rows, others = threads[telling], threads[~telling]
    return Diagnosis(cause, channel, rows, others, _since_s(moment, (cause, channel), rows, others))


def classify(
    means: Means, channels: tuple[str, ...], past: Means | None = None, before: str = ""
) -> tuple[str, str, NDArray[np.bool_]]:
    """Means of a job's threads -> its cause, the channel that shows it, and which threads do. `past`: the time before.

    >>> import numpy as np
    >>> classify(np.array([[0, 0, 0, 1.0], [0, 0, 0, 1.0]]), ("user", "system", "iowait", "other"))[0]
    'idle'
    """
    system, iowait, other = (means[:, channels.index(name)] for name in _NEEDED)
    idle = other > 1 - BUSY_BELOW
    everyone = np.ones(len(means), np.bool_)
    if idle.all():
        return IDLE, "other", everyone
    waiting = iowait[~idle].mean()
    if waiting >= (WAITING / 2 if before == STALLED_IO else WAITING):
        return STALLED_IO, "iowait", ~idle
    if idle.any():
        return _partly_idle(idle, past, channels, before), "other", idle
    slow = _stragglers(system, other)
    if slow.any():
        return STRAGGLER, "system", slow
    return UNUSUAL, "", everyone


def _classify(moment: Moment, threads: Rows, now: Means, before: str) -> tuple[str, str, NDArray[np.bool_]]:
    past = _means(moment, threads, slice(None, -(FRESH_S + PAST_S)))
    return classify(now, moment.schema.names, past, before)


def _partly_idle(idle: NDArray[np.bool_], past: Means | None, channels: tuple[str, ...], before: str) -> str:
    """Idle threads that worked earlier in this job hang; if they never did, the work is bound to the other threads."""
    if before in (HUNG_RANK, MISBOUND):
        return before
    worked = past is not None and bool((past[idle][:, channels.index("other")] < 0.5).any())
    return HUNG_RANK if worked or 2 * idle.sum() < len(idle) else MISBOUND


def _stragglers(system: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The few busy threads that work while the others poll for their message, which the kernel counts as system."""
    none = np.zeros(len(system), np.bool_)
    if len(system) < 2 or other.max() > BUSY_BELOW:
        return none
    order = np.sort(system)
    polling = float(np.median(order[len(order) // 2 :]))
    works = system < min(polling - POLLING, polling / 2)
    return works if works.sum() <= max(len(system) // 4, 1) else none


def _means(moment: Moment, threads: Rows, seconds: slice) -> Means:
    """(thread, channel) over these seconds of the current job; NaN if fewer than `LEAST_S` are known."""
    length = moment.values.shape[1]
    values = moment.values[threads, seconds]
    own = np.arange(length, 0, -1)[seconds] <= moment.age_s[threads, None]
    known = moment.valid[threads, seconds] & own
    return known_mean(values, known[:, :, None], 1, LEAST_S)


def _since_s(moment: Moment, diagnosis: tuple[str, str], telling: Rows, others: Rows) -> int:
    """The first second of the last run in which the signal is at least half as strong as it is now.

    The signal is the channel of the telling threads; for a straggler, minus that of the threads that wait. At the left
    edge of the moment, or of the job, the run may have begun earlier.
    """
    cause, channel = diagnosis
    age_s = min(int(moment.age_s[telling].max()), moment.values.shape[1])
    signal = _over_time(moment, telling, channel, age_s)
    if cause == STRAGGLER:
        signal = signal - _over_time(moment, others, channel, age_s)
    now = float(np.nanmean(signal[-FRESH_S:]))
    weak = np.flatnonzero(~np.isnan(signal) & (_smoothed(signal) * np.sign(now) < abs(now) / 2))
    first = int(weak[-1]) + 1 if len(weak) else 0
    return moment.end_s - age_s + min(first, max(age_s - LEAST_S, 0))


def _over_time(moment: Moment, rows: Rows, channel: str, last_s: int) -> NDArray[np.float64]:
    """(second,) the mean of a channel over these threads; NaN where none of them is known."""
    values, known = moment.values[rows, -last_s:, moment.schema.index(channel)], moment.valid[rows, -last_s:]
    return known_mean(values, known, 0)


def _smoothed(mean: NDArray[np.float64], over_s: int = 15) -> NDArray[np.float64]:
    """The mean over `over_s` seconds around each second, without the unknown ones."""
    known = ~np.isnan(mean)
    weights = np.ones(min(over_s, len(mean)))
    count = np.convolve(known, weights, "same")
    total = np.convolve(np.where(known, mean, 0), weights, "same")
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
