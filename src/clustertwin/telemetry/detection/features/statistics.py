"""Statistics of each thread's last minutes: moment, lengths -> (thread, feature), means and their noise.

Only the seconds of the thread's current job (or of its current time without one) are counted, without the first
`START_S` seconds. Invalid seconds are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled
from clustertwin.telemetry.detection.features.sums import Sums, sums
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.moments.moment import Moment

START_S = 10  # a job's start-up differs from the rest of the job
LEVELS = np.array([0.02, 0.1, 0.3, 0.6, 0.9], np.float32)  # the time above each level is a feature
_TICK = 0.01  # one kernel tick in a second; smaller differences are rounding


@dataclass(frozen=True, slots=True)
class Statistics:
    """One row per thread. Where `seconds` is 0 the other fields have no meaning."""

    seconds: NDArray[np.int32]  # (thread,) seconds counted
    mean: NDArray[np.float32]  # (thread, channel)
    noise: NDArray[np.float32]  # (thread, channel) standard error of the mean, from the means of blocks
    features: NDArray[np.float32]  # (thread, feature)


def measure_each(moment: Moment, lengths_s: tuple[int, ...]) -> tuple[Statistics, ...]:
    """For each length, statistics of the last seconds of every thread, or of as many as its current job has run."""
    longest_s, inputs = max(lengths_s), Shape(moment.schema).inputs
    each = sums(
        moment.values[:, -longest_s:],
        moment.valid[:, -longest_s:],
        moment.age_s - np.int32(START_S),
        moment.job,
        inputs,
        LEVELS,
        lengths_s,
    )
    return tuple(_statistics(of_length, inputs) for of_length in each)


def _statistics(of: Sums, inputs: tuple[int, ...]) -> Statistics:
    threads, _, channels = of.own.shape
    mean, noise = (np.empty((threads, channels), np.float32) for _ in range(2))
    features = np.empty((threads, channels + len(inputs) * (4 + LEVELS.size)), np.float32)
    _describe(of.seconds, of.own, of.above, of.joint, np.array(inputs), mean, noise, features)
    return Statistics(of.seconds, mean, noise, features)


@compiled
def _describe(seconds, own, above, joint, inputs, mean, noise, features):  # type: ignore[no-untyped-def]
    """Fill mean, noise and features. The features are √mean of each channel; then for each input the log of the
    standard deviation, of the mean step and of the deviation of block means, √ of the time above each level, and the
    correlation with the job's other threads. One thread at a time, so that memory is read once."""
    channels, asked, levels = own.shape[2], len(inputs), above.shape[2]
    drift = np.empty(channels)
    for i in range(len(seconds)):
        n = max(seconds[i], 1)
        row = features[i]
        for c in range(channels):
            average = own[i, 0, c] / n
            mean[i, c], row[c] = average, np.sqrt(average)
            blocks = max(own[i, 5, c], 1.0)
            drift[c] = np.sqrt(max(own[i, 4, c] / blocks - (own[i, 3, c] / blocks) ** 2, 0.0))
            noise[i, c] = drift[c] / np.sqrt(blocks)
        at = channels
        for k in range(asked):
            c = inputs[k]
            spread = np.sqrt(max(own[i, 1, c] / n - (own[i, 0, c] / n) ** 2, 0.0))
            row[at + k] = np.log(spread + _TICK)
            row[at + asked + k] = np.log(max(own[i, 2, c] / n, 0.0) + _TICK)
            row[at + 2 * asked + k] = np.log(drift[c] + _TICK)
            for level in range(levels):
                row[at + 3 * asked + k * levels + level] = np.sqrt(above[i, k, level] / n)
            pairs = max(joint[i, 0, c], 1.0)
            x, o = joint[i, 1, c] / pairs, joint[i, 2, c] / pairs
            x_var, o_var = joint[i, 3, c] / pairs - x**2, joint[i, 4, c] / pairs - o**2
            # The offset keeps rounding from looking like correlation where a thread hardly changes.
            scale = np.sqrt(max(x_var * o_var, 0.0)) + 1e-3
            row[at + (3 + levels) * asked + k] = (joint[i, 5, c] / pairs - x * o) / scale
