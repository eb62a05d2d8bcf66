"""How each thread spent its last minutes, in few numbers: moment, length -> (thread, feature), means and their noise.

Only the seconds that belong to what the thread does now are counted: those with its present job, or without one, less
the first few in which a job starts. A masked second is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.compiled import compiled
from clustertwin.telemetry.detection.moment import Moment
from clustertwin.telemetry.models.contract import Shape

START_S = 10  # a job's first seconds are like no others and say nothing
BLOCK_S = 10  # means over blocks this long tell slow changes from fast ones
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
    inputs = np.array(Shape(moment.schema).inputs, np.int64)
    together, count = _together(moment.values, moment.valid, moment.job, len(moment.jobs))
    seconds, moments_, above, shared = _sums(
        moment.values,
        moment.valid,
        np.minimum(moment.age_s - START_S, length_s).astype(np.int64),
        moment.job.astype(np.int64),
        together,
        count,
        inputs,
        LEVELS,
    )
    n = np.maximum(seconds, 1)[:, None]
    mean = moments_[:, 0] / n  # (thread, channel)
    deviation = np.sqrt(np.maximum(moments_[:, 1] / n - mean**2, 0))
    rough = moments_[:, 2] / n
    blocks = np.maximum(moments_[:, 5], 1)
    block_mean = moments_[:, 3] / blocks
    drift = np.sqrt(np.maximum(moments_[:, 4] / blocks - block_mean**2, 0))
    pairs = np.maximum(shared[:, 0], 1)
    own, others = shared[:, 1] / pairs, shared[:, 2] / pairs
    own_var, others_var = shared[:, 3] / pairs - own**2, shared[:, 4] / pairs - others**2
    # A thread that hardly moves moves with nobody: the floor keeps rounding from looking like company.
    company = (shared[:, 5] / pairs - own * others) / (np.sqrt(np.maximum(own_var * others_var, 0)) + 1e-3)
    parts = [
        np.sqrt(mean),
        *(np.log(np.maximum(part, 0) + _LEAST)[:, inputs] for part in (deviation, rough, drift)),
        np.sqrt(above / n[:, :, None]).reshape(len(n), inputs.size * LEVELS.size),
        company[:, inputs],
    ]
    features = np.concatenate(parts, axis=1, dtype=np.float32, casting="same_kind")
    return Statistics(seconds, mean.astype(np.float32), (drift / np.sqrt(blocks)).astype(np.float32), features)


@compiled
def _together(values, valid, job, jobs):  # type: ignore[no-untyped-def]
    """What the threads of each job do together: sums (job, second, channel) and how many threads they are of."""
    total = np.zeros((jobs, values.shape[1], values.shape[2]), np.float32)
    count = np.zeros((jobs, values.shape[1]), np.int32)
    for i in range(len(values)):
        if job[i] >= 0:
            for t in range(values.shape[1]):
                if valid[i, t]:
                    count[job[i], t] += 1
                    for c in range(values.shape[2]):
                        total[job[i], t, c] += values[i, t, c]
    return total, count


@compiled
def _sums(values, valid, wanted, job, together, count, inputs, levels):  # type: ignore[no-untyped-def]
    """Sums over the last `wanted` seconds of each thread.

    seconds (thread,); moments (thread, 6, channel): Σx, Σx², Σ|step|, Σb, Σb², blocks; above (thread, input, level);
    shared (thread, 6, channel): seconds in company, Σx, Σo, Σx², Σo², Σxo, where o is the mean of the job's others.
    """
    threads, length, channels = values.shape
    seconds = np.zeros(threads, np.int32)
    moments = np.zeros((threads, 6, channels))
    above = np.zeros((threads, len(inputs), len(levels)))
    shared = np.zeros((threads, 6, channels))
    for i in range(threads):
        block, in_block = np.zeros(channels), 0
        for back in range(max(min(wanted[i], length), 0)):
            t = length - 1 - back
            if valid[i, t]:
                seconds[i] += 1
                in_block += 1
                follows = back > 0 and valid[i, t + 1]
                company = job[i] >= 0 and count[job[i], t] > 1
                for c in range(channels):
                    x = values[i, t, c]
                    moments[i, 0, c] += x
                    moments[i, 1, c] += x * x
                    block[c] += x
                    if follows:
                        moments[i, 2, c] += abs(values[i, t + 1, c] - x)
                    if company:
                        o = (together[job[i], t, c] - x) / (count[job[i], t] - 1)
                        shared[i, 0, c] += 1
                        shared[i, 1, c] += x
                        shared[i, 2, c] += o
                        shared[i, 3, c] += x * x
                        shared[i, 4, c] += o * o
                        shared[i, 5, c] += x * o
                for k in range(len(inputs)):
                    x = values[i, t, inputs[k]]
                    for j in range(len(levels)):
                        if x > levels[j]:
                            above[i, k, j] += 1
            if back % BLOCK_S == BLOCK_S - 1:
                # A block of which most is unknown says little about its mean.
                if in_block * 2 > BLOCK_S:
                    for c in range(channels):
                        moments[i, 3, c] += block[c] / in_block
                        moments[i, 4, c] += (block[c] / in_block) ** 2
                        moments[i, 5, c] += 1
                block[:] = 0
                in_block = 0
    return seconds, moments, above, shared
