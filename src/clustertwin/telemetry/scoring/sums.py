"""The sums that statistics of threads are made of, for several lengths in one pass: seconds of threads -> sums.

Threads go through in blocks with a thread to a column, from the newest second back; what a shorter length needs is
written down on the way. A job's threads are summed second by second before, so that each can be compared with the
mean of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.loops import vectorised

f = np.float32
Array = NDArray[np.float32]

#: Threads at a time.
BLOCK = 128


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the last seconds of each thread; o is the mean of the job's other threads."""

    seconds: NDArray[np.int32]  # (thread,)
    moments: Array  # (thread, 6, channel) Σx, Σx², Σ|step|, Σb, Σb², blocks, where b are means of blocks of seconds
    above: Array  # (thread, input, level) seconds above it
    shared: Array  # (thread, 6, channel) seconds in company, Σx, Σo, Σx², Σo², Σxo


def sums(
    values: Array,
    valid: NDArray[np.bool_],
    wanted_s: NDArray[np.int32],
    job: NDArray[np.int32],
    jobs: int,
    inputs: tuple[int, ...],
    levels: Array,
    block_s: int,
    lengths_s: tuple[int, ...],
) -> list[Sums]:
    """values (thread, second, channel), of which thread i is judged by its last `wanted_s[i]` valid seconds at most."""
    threads, length, channels = values.shape
    free = tuple(c in inputs for c in range(channels))
    moments = np.zeros((len(lengths_s), 6, channels, threads), np.float32)
    above = np.zeros((len(lengths_s), channels, len(levels), threads), np.float32)
    shared = np.zeros((len(lengths_s), 6, channels, threads), np.float32)
    seconds = np.zeros((len(lengths_s), threads), np.float32)
    total, count = np.zeros((channels, length, jobs + 1), np.float32), np.zeros((length, jobs + 1), np.float32)
    slot = np.where(job >= 0, job, jobs).astype(np.uint32)  # a negative index would cost a look at each
    for rows, x, known in _blocks(values, valid):
        _gather_jobs(x, known, slot[rows], total, count)
    for rows, x, known in _blocks(values, valid):
        _add(
            x,
            known,
            (length - np.clip(wanted_s[rows], 0, length)).astype(np.int32),
            slot[rows],
            total,
            count,
            np.array(free),
            levels,
            block_s,
            np.array(lengths_s),
            seconds[:, rows],
            moments[..., rows],
            above[..., rows],
            shared[..., rows],
        )
    return [
        Sums(
            seconds[k].astype(np.int32),
            moments[k].transpose(2, 0, 1),
            above[k][list(inputs)].transpose(2, 0, 1),
            shared[k].transpose(2, 0, 1),
        )
        for k in range(len(lengths_s))
    ]


def _blocks(values: Array, valid: NDArray[np.bool_]) -> Iterator[tuple[slice, Array, Array]]:
    """Rows, their x (channel, second, n), zero where not valid, and known (second, n) as numbers."""
    threads, length, channels = values.shape
    for start in range(0, threads, BLOCK):
        rows = slice(start, min(start + BLOCK, threads))
        x = np.empty((channels, length, rows.stop - start), np.float32)
        known = np.empty(x.shape[1:], np.float32)
        known[:] = valid[rows].T
        for c in range(channels):
            x[c] = values[rows, :, c].T
        if not known.all():
            np.copyto(x, f(0), where=known == 0)
        yield rows, x, known


@vectorised
def _gather_jobs(x, known, job, total, count):  # type: ignore[no-untyped-def]
    """total (channel, second, job) and count (second, job) += what the block's threads do; the last job is none."""
    for s in range(known.shape[0]):
        row, there = count[s], known[s]
        for j in range(job.size):
            row[job[j]] += there[j]
        for c in range(x.shape[0]):
            into, seen = total[c, s], x[c, s]
            for j in range(job.size):
                into[job[j]] += seen[j]


@vectorised
def _add(x, known, first, job, total, count, free, levels, block_s, lengths, seconds, moments, above, shared):  # type: ignore[no-untyped-def]
    """Fill the columns of one block; x and known are used up."""
    channels, length, n = x.shape
    nobody = count.shape[1] - 1
    company, share = np.empty((length, n), np.float32), np.empty((length, n), np.float32)
    in_blocks = np.zeros((length // block_s + 1, n), np.float32)
    held = np.zeros(n, np.float32)
    for s in range(length - 1, -1, -1):
        w, there, part = known[s], company[s], share[s]
        in_block = in_blocks[(length - 1 - s) // block_s]
        for j in range(n):
            w[j] = w[j] if s >= first[j] else f(0)
            in_block[j] += w[j]
            held[j] += w[j]
        all_ = count[s]
        for j in range(n):
            part[j] = all_[job[j]] - f(1) if job[j] < nobody else f(0)
        for j in range(n):
            there[j] = w[j] if part[j] > f(0) else f(0)
        for j in range(n):
            part[j] = there[j] / part[j] if part[j] > f(0) else f(0)
        for k in range(lengths.size):
            if length - s == lengths[k]:
                for j in range(n):
                    seconds[k, j] = held[j]
    keep = np.zeros((12, n), np.float32)
    over = np.zeros((levels.size, n), np.float32)
    sx, sxx, step, sb, sbb, blocks = keep[0], keep[1], keep[2], keep[3], keep[4], keep[5]
    pairs, px, po, pxx, poo, pxo = keep[6], keep[7], keep[8], keep[9], keep[10], keep[11]
    block, o = np.zeros(n, np.float32), np.empty(n, np.float32)
    for c in range(channels):
        keep[:] = f(0)
        over[:] = f(0)
        block[:] = f(0)
        for s in range(length - 1, -1, -1):
            v, w, there, part = x[c, s], known[s], company[s], share[s]
            # Loops of few arrays each: only of these can a compiler see that they do not overlap.
            for j in range(n):
                v[j] *= w[j]
            for j in range(n):
                sx[j] += v[j]
                sxx[j] += v[j] * v[j]
            for j in range(n):
                block[j] += v[j]
            if s + 1 < length:
                later, w_later = x[c, s + 1], known[s + 1]
                for j in range(n):
                    o[j] = w[j] * w_later[j]
                for j in range(n):
                    step[j] += abs(later[j] - v[j]) * o[j]
            all_ = total[c, s]
            for j in range(n):
                o[j] = all_[job[j]]
            for j in range(n):
                o[j] = (o[j] - v[j]) * part[j]
            for j in range(n):
                po[j] += o[j]
                poo[j] += o[j] * o[j]
            for j in range(n):
                pxo[j] += v[j] * o[j]
            for j in range(n):
                o[j] = v[j] * there[j]
            for j in range(n):
                px[j] += o[j]
                pxx[j] += o[j] * v[j]
            for j in range(n):
                pairs[j] += there[j]
            if free[c]:
                for i in range(levels.size):
                    row, level = over[i], levels[i]
                    for j in range(n):
                        row[j] += f(1) if v[j] > level else f(0)
            if (length - s) % block_s == 0:
                in_block = in_blocks[(length - 1 - s) // block_s]
                for j in range(n):
                    # A block of which most is unknown says little about its mean.
                    full = in_block[j] * f(2) > f(block_s) and s >= first[j]
                    mean = block[j] / in_block[j] if full else f(0)
                    sb[j] += mean
                    sbb[j] += mean * mean
                    blocks[j] += f(1) if full else f(0)
                    block[j] = f(0)
            for k in range(lengths.size):
                if length - s == lengths[k]:
                    for r in range(6):
                        for j in range(n):
                            moments[k, r, c, j] = keep[r, j]
                            shared[k, r, c, j] = keep[6 + r, j]
                    for i in range(levels.size):
                        for j in range(n):
                            above[k, c, i, j] = over[i, j]
