"""How each thread spent its last minutes, in few numbers: moment, length -> (thread, feature), means and their noise.

Only the seconds that belong to what the thread does now are counted: those with its present job, or without one, less
the first few in which a job starts. A masked second is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.moment import Moment
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.scoring.sums import Sums, sums

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
    n = np.maximum(found.seconds, 1)[:, None]
    mean = found.moments[:, 0] / n  # (thread, channel)
    deviation = np.sqrt(np.maximum(found.moments[:, 1] / n - mean**2, 0))
    rough = found.moments[:, 2] / n
    blocks = np.maximum(found.moments[:, 5], 1)
    block_mean = found.moments[:, 3] / blocks
    drift = np.sqrt(np.maximum(found.moments[:, 4] / blocks - block_mean**2, 0))
    pairs = np.maximum(found.shared[:, 0], 1)
    own, others = found.shared[:, 1] / pairs, found.shared[:, 2] / pairs
    own_var, others_var = found.shared[:, 3] / pairs - own**2, found.shared[:, 4] / pairs - others**2
    # A thread that hardly moves moves with nobody: the floor keeps rounding from looking like company.
    company = (found.shared[:, 5] / pairs - own * others) / (np.sqrt(np.maximum(own_var * others_var, 0)) + 1e-3)
    parts = [
        np.sqrt(mean),
        *(np.log(np.maximum(part, 0) + _LEAST)[:, list(inputs)] for part in (deviation, rough, drift)),
        np.sqrt(found.above / n[:, :, None]).reshape(len(n), len(inputs) * LEVELS.size),
        company[:, list(inputs)],
    ]
    features = np.concatenate(parts, axis=1, dtype=np.float32, casting="same_kind")
    return Statistics(found.seconds, mean.astype(np.float32), (drift / np.sqrt(blocks)).astype(np.float32), features)
