"""How each thread spent its last minutes, in few numbers: moment, length -> (thread, feature), means and their noise.

Only the seconds that belong to what the thread does now are counted: those with its present job, or without one, less
the first few in which a job starts. A masked second is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.compiled import vectorised
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
    values, valid = moment.values[:, -length_s:], moment.valid[:, -length_s:]
    together, count = _together(values, valid, moment.job, len(moment.jobs))
    seconds, moments_, above, shared = _sums(
        values,
        valid,
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


@vectorised
def _together(values, valid, job, jobs):  # type: ignore[no-untyped-def]
    """What the threads of each job do together: sums (job, channel, second) and how many threads they are of."""
    total = np.zeros((jobs, values.shape[2], values.shape[1]), np.float32)
    count = np.zeros((jobs, values.shape[1]), np.int32)
    for i in range(len(values)):
        if job[i] >= 0:
            for t in range(values.shape[1]):
                count[job[i], t] += valid[i, t]
            for c in range(values.shape[2]):
                for t in range(values.shape[1]):
                    total[job[i], c, t] += values[i, t, c] * valid[i, t]
    return total, count


@vectorised
def _sums(values, valid, wanted, job, together, count, inputs, levels):  # type: ignore[no-untyped-def]
    """Sums over the last `wanted` seconds of each thread.

    seconds (thread,); moments (thread, 6, channel): Σx, Σx², Σ|step|, Σb, Σb², blocks; above (thread, input, level);
    shared (thread, 6, channel): seconds in company, Σx, Σo, Σx², Σo², Σxo, where o is the mean of the job's others.
    A channel at a time, each sum a loop of its own: plain loops over short rows are what the machine does fastest.
    """
    threads, length, channels = values.shape
    seconds = np.zeros(threads, np.int32)
    moments = np.zeros((threads, 6, channels), np.float32)
    above = np.zeros((threads, len(inputs), len(levels)), np.float32)
    shared = np.zeros((threads, 6, channels), np.float32)
    x, o = np.empty(length, np.float32), np.empty(length, np.float32)
    known, both, company = np.empty(length, np.float32), np.empty(length, np.float32), np.empty(length, np.float32)
    for i in range(threads):
        n = max(min(wanted[i], length), 0)
        first, j = length - n, job[i]
        for t in range(n):
            known[t] = valid[i, first + t]
            company[t] = known[t] if j >= 0 and count[j, first + t] > 1 else 0
        for t in range(n - 1):
            both[t] = known[t] * known[t + 1]
        for t in range(n):
            seconds[i] += np.int32(known[t])
        for c in range(channels):
            total = square = step = np.float32(0)
            for t in range(n):
                x[t] = values[i, first + t, c] * known[t]
            for t in range(n):
                total += x[t]
                square += x[t] * x[t]
            for t in range(n - 1):
                step += abs(x[t + 1] - x[t]) * both[t]
            moments[i, 0, c], moments[i, 1, c], moments[i, 2, c] = total, square, step
            for end in range(n, BLOCK_S - 1, -BLOCK_S):
                block = in_block = np.float32(0)
                for t in range(end - BLOCK_S, end):
                    block += x[t]
                    in_block += known[t]
                # A block of which most is unknown says little about its mean.
                if in_block * 2 > BLOCK_S:
                    moments[i, 3, c] += block / in_block
                    moments[i, 4, c] += (block / in_block) ** 2
                    moments[i, 5, c] += 1
            for k in range(len(inputs)):
                if inputs[k] == c:
                    for level in range(len(levels)):
                        over = np.float32(0)
                        for t in range(n):
                            over += np.float32(x[t] > levels[level])
                        above[i, k, level] = over
            if j >= 0:
                for t in range(n):
                    o[t] = company[t] * (together[j, c, first + t] - x[t]) / max(count[j, first + t] - 1, 1)
                own = others = own2 = others2 = product = there = np.float32(0)
                for t in range(n):
                    there += company[t]
                    own += x[t] * company[t]
                    others += o[t]
                    own2 += x[t] * x[t] * company[t]
                    others2 += o[t] * o[t]
                    product += x[t] * o[t]
                shared[i, 0, c], shared[i, 1, c], shared[i, 2, c] = there, own, others
                shared[i, 3, c], shared[i, 4, c], shared[i, 5, c] = own2, others2, product
    return seconds, moments, above, shared
