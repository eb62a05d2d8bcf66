"""How each thread spent its last minutes, in few numbers: moment, length -> (thread, feature), means and their noise.

Only the seconds that belong to what the thread does now are counted: those with its present job, or without one, less
the first few in which a job starts. A masked second is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled
from clustertwin.telemetry.detection.features.sums import Sums, sums
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.moments.moment import Moment

START_S = 10  # a job's first seconds are like no others and say nothing
LEVELS = np.array([0.02, 0.1, 0.3, 0.6, 0.9], np.float32)  # a channel's time above each is a feature
_LEAST = 0.01  # of a second, one kernel tick: less is rounding, not activity


@dataclass(frozen=True, slots=True)
class Statistics:
    """One row a thread. Where `seconds` is 0 the rest means nothing."""

    seconds: NDArray[np.int32]  # (thread,) how many were counted
    mean: NDArray[np.float32]  # (thread, channel)
    noise: NDArray[np.float32]  # (thread, channel) standard error of the mean, from the blocks
    features: NDArray[np.float32]  # (thread, feature)


def measure(moment: Moment, length_s: int) -> Statistics:
    """Statistics of the last `length_s` seconds of every thread, or of as many as it has been doing this."""
    return measure_each(moment, (length_s,))[0]


def measure_each(moment: Moment, lengths_s: tuple[int, ...]) -> tuple[Statistics, ...]:
    """The same for several lengths at once."""
    longest_s, inputs = max(lengths_s), Shape(moment.schema).inputs
    found = sums(
        moment.values[:, -longest_s:],
        moment.valid[:, -longest_s:],
        moment.age_s - np.int32(START_S),
        moment.job,
        inputs,
        LEVELS,
        lengths_s,
    )
    return tuple(_statistics(one, inputs) for one in found)


def _statistics(found: Sums, inputs: tuple[int, ...]) -> Statistics:
    threads, _, channels = found.moments.shape
    mean, noise = (np.empty((threads, channels), np.float32) for _ in range(2))
    features = np.empty((threads, channels + len(inputs) * (4 + LEVELS.size)), np.float32)
    _describe(found.seconds, found.moments, found.above, found.shared, np.array(inputs), mean, noise, features)
    return Statistics(found.seconds, mean, noise, features)


@compiled
def _describe(seconds, moments, above, shared, inputs, mean, noise, features):  # type: ignore[no-untyped-def]
    """Fill mean, noise and features: √mean by channel; then by input log deviation, log roughness, log drift, √ of the
    time above each level, and company. A thread at a time, so that memory is gone through once."""
    channels, asked, levels = moments.shape[2], len(inputs), above.shape[2]
    drift = np.empty(channels)
    for i in range(len(seconds)):
        n = max(seconds[i], 1)
        row = features[i]
        for c in range(channels):
            average = moments[i, 0, c] / n
            mean[i, c], row[c] = average, np.sqrt(average)
            blocks = max(moments[i, 5, c], 1.0)
            drift[c] = np.sqrt(max(moments[i, 4, c] / blocks - (moments[i, 3, c] / blocks) ** 2, 0.0))
            noise[i, c] = drift[c] / np.sqrt(blocks)
        at = channels
        for k in range(asked):
            c = inputs[k]
            spread = np.sqrt(max(moments[i, 1, c] / n - (moments[i, 0, c] / n) ** 2, 0.0))
            row[at + k] = np.log(spread + _LEAST)
            row[at + asked + k] = np.log(max(moments[i, 2, c] / n, 0.0) + _LEAST)
            row[at + 2 * asked + k] = np.log(drift[c] + _LEAST)
            for level in range(levels):
                row[at + 3 * asked + k * levels + level] = np.sqrt(above[i, k, level] / n)
            pairs = max(shared[i, 0, c], 1.0)
            own, others = shared[i, 1, c] / pairs, shared[i, 2, c] / pairs
            own_var, others_var = shared[i, 3, c] / pairs - own**2, shared[i, 4, c] / pairs - others**2
            # A thread that hardly moves moves with nobody: the floor keeps rounding from looking like company.
            moved = np.sqrt(max(own_var * others_var, 0.0)) + 1e-3
            row[at + (3 + levels) * asked + k] = (shared[i, 5, c] / pairs - own * others) / moved
