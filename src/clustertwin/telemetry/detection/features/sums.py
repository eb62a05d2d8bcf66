"""The sums that statistics of threads are made of, for several lengths in one pass: seconds of threads -> sums.

Threads go through in batches of whole jobs, turned so that the seconds of a thread lie side by side: each sum is a run
over neighbours, which is what vectors want, and what the job's other threads do is the job's total less the thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled, vectorised

f = np.float32
u = np.uint64  # an index that might be negative would cost a look at each
Array = NDArray[np.float32]

#: Means over blocks this long tell slow changes from fast ones.
BLOCK_S = 10
#: Numbers that memory moves at once.
LINE = 16
#: Threads at a time: their five minutes, about 0.9 MB, stay in a core's own cache.
BLOCK = 192


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
    inputs: tuple[int, ...],
    levels: Array,
    lengths_s: tuple[int, ...],
) -> list[Sums]:
    """values (thread, second, channel), of which thread i is judged by its last `wanted_s[i]` valid seconds at most.

    `lengths_s` ascend; a length that is longer than the values are counts what there is.
    """
    threads, length, channels = values.shape
    seconds, made = np.zeros((len(lengths_s), threads), np.int32), (len(lengths_s), threads)
    moments, shared = np.zeros((*made, 6, channels), np.float32), np.zeros((*made, 6, channels), np.float32)
    above = np.zeros((*made, len(inputs), len(levels)), np.float32)
    asked = np.array(inputs, np.uint64), levels, np.minimum(lengths_s, length).astype(np.uint64)
    first = (length - np.clip(wanted_s, 0, length)).astype(np.uint64)
    # A second too many, in which nobody is known: the last one has a step to it, too.
    x, known = np.zeros((BLOCK, channels, length + 1), np.float32), np.zeros((BLOCK, length + 1), np.float32)
    total, count = np.zeros_like(x), np.zeros_like(known)
    by_second, there = values.transpose(1, 2, 0), valid.T
    for rows, slot in _whole_jobs(job):
        used = int(slot.max()) + 1
        total[:used], count[:used] = 0, 0
        pieces = [slice(start, start + BLOCK) for start in range(0, len(rows), BLOCK)]
        for piece in pieces:
            _turn(by_second, there, rows[piece], x, known)
            _gather(x, known, slot[piece], total, count)
        for piece in pieces:
            if len(pieces) > 1:  # of a job with more threads than a block
                _turn(by_second, there, rows[piece], x, known)
            _add(x, known, rows[piece], slot[piece], first, total, count, *asked, seconds, moments, above, shared)
    for found in (seconds, moments, above, shared):
        for k in range(1, len(lengths_s)):
            found[k] += found[k - 1]
    return [Sums(*found) for found in zip(seconds, moments, above, shared, strict=True)]


def _whole_jobs(job: NDArray[np.int32]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int32]]]:
    """Threads in batches, and which of its batch's jobs each is of, -1: it has no company.

    A batch is a block at most, unless it is one job.
    """
    # Jobs in the order of their first threads: those of a batch then lie near each other in memory.
    own = np.arange(len(job))
    place = np.zeros(int(job.max(initial=-1)) + 2, np.intp)  # the last is for those without a job
    place[job[::-1]] = own[::-1]
    place = np.where(job < 0, own, place[job])
    order = np.argsort(place, kind="stable")
    begins = np.diff(place[order], prepend=-1) != 0
    alone = begins & np.append(begins[1:], True)
    number = np.cumsum(begins & ~alone)
    cuts = [*np.flatnonzero(begins).tolist(), len(job)]
    start = 0
    while start < len(job):
        k = bisect_right(cuts, start + BLOCK) - 1
        end = cuts[k] if cuts[k] > start else cuts[k + 1]
        first = number[start] - (not alone[start])
        slot = np.where(alone[start:end], -1, number[start:end] - first - 1)
        by_place = np.argsort(order[start:end])  # neighbours in memory are read together
        yield order[start:end][by_place].astype(np.uint64), slot[by_place].astype(np.int32)
        start = end


@vectorised
def _turn(values, valid, rows, x, known):  # type: ignore[no-untyped-def]
    """values (second, channel, thread) and valid (second, thread) of these rows -> x (row, channel, second), zero where
    not valid, and known (row, second) as numbers."""
    length = values.shape[0]
    for first in range(0, length, LINE):
        end = min(first + LINE, length)
        for c in range(values.shape[1]):
            seen = values[first:end, c]
            for i in range(rows.size):
                row, into = rows[i], x[i, c, first:end]
                for s in range(into.size):
                    into[s] = seen[s, row]
        there = valid[first:end]
        for i in range(rows.size):
            row, into = rows[i], known[i, first:end]
            for s in range(into.size):
                into[s] = f(there[s, row])
    for i in range(rows.size):
        w, count = known[i], f(0)
        for s in range(length):
            count += w[s]
        if count < f(length):
            for c in range(x.shape[1]):
                v = x[i, c]
                for s in range(length):
                    v[s] = v[s] if w[s] > f(0) else f(0)


@vectorised
def _gather(x, known, slot, total, count):  # type: ignore[no-untyped-def]
    """total (job, channel, second) and count (job, second) += what the threads with company do."""
    for i in range(slot.size):
        if slot[i] >= 0:
            into, there = count[slot[i]], known[i]
            for s in range(there.size):
                into[s] += there[s]
            for c in range(x.shape[1]):
                into, there = total[slot[i], c], x[i, c]
                for s in range(there.size):
                    into[s] += there[s]


@vectorised
def _by_oneself(v, w, start, end):  # type: ignore[no-untyped-def]
    """Σx, Σx², Σ|step| from second `start` to before `end`; a step is counted with the earlier of its seconds."""
    sx = sxx = step = f(0)
    for s in range(start, end):
        sx += v[s]
        sxx += v[s] * v[s]
        step += abs(v[s + u(1)] - v[s]) * w[s] * w[s + u(1)]
    return sx, sxx, step


@vectorised
def _in_company(v, there, part, total, start, end):  # type: ignore[no-untyped-def]
    """Σx, Σo, Σx², Σo², Σxo of the seconds that are `there`; `part` is one over the number of the others."""
    px = po = pxx = poo = pxo = f(0)
    for s in range(start, end):
        x, o = v[s] * there[s], (total[s] - v[s]) * part[s]
        px += x
        po += o
        pxx += x * x
        poo += o * o
        pxo += x * o
    return px, po, pxx, poo, pxo


@compiled
def _blocks(v, weight, first, end):  # type: ignore[no-untyped-def]
    """Σb and Σb² of blocks `first` to `end`, counted from the newest back; `weight` is one over a block's seconds."""
    sb = sbb = f(0)
    s = u(v.size - 1) - first * u(BLOCK_S)
    for k in range(first, end):
        s -= u(BLOCK_S)
        # As a tree: one after the other would wait for each.
        left = (v[s] + v[s + u(1)]) + (v[s + u(2)] + v[s + u(3)])
        right = (v[s + u(4)] + v[s + u(5)]) + (v[s + u(6)] + v[s + u(7)])
        b = ((left + right) + (v[s + u(8)] + v[s + u(9)])) * weight[k]
        sb += b
        sbb += b * b
    return sb, sbb


@vectorised
def _weigh(w, begun, weight):  # type: ignore[no-untyped-def]
    """weight (block,) <- one over the seconds known of each block, and zero where that is half of them or less."""
    start = u(w.size - 1)
    for k in range(weight.size):
        start -= u(BLOCK_S)
        known = f(0)
        for s in range(BLOCK_S):
            known += w[start + u(s)]
        # A block of which most is unknown says little about its mean.
        weight[k] = f(1) / known if known * f(2) > f(BLOCK_S) and start >= begun else f(0)


@vectorised
def _add(x, known, rows, slot, first, total, count, inputs, levels, lengths, seconds, moments, above, shared):  # type: ignore[no-untyped-def]
    """Fill the rows of one block, each length with what it has beyond the one before; x and known are used up."""
    length = u(known.shape[1] - 1)
    there, part = np.zeros(known.shape[1], np.float32), np.zeros(known.shape[1], np.float32)
    weight = np.zeros(length // u(BLOCK_S), np.float32)
    for i in range(rows.size):
        row, begun, w = rows[i], first[rows[i]], known[i]
        for s in range(begun):
            w[s] = f(0)
            for c in range(x.shape[1]):
                x[i, c, s] = f(0)
        _weigh(w, begun, weight)
        in_company = slot[i] >= 0
        if in_company:
            all_ = count[slot[i]]
            for s in range(w.size):
                others = all_[s] - f(1)
                there[s] = w[s] if others > f(0) else f(0)
                part[s] = there[s] / others if others > f(0) else f(0)
        end = length
        for k in range(lengths.size):  # each length begins where the one before it ended
            start, blocks_from, blocks_to = length - lengths[k], (length - end) // u(BLOCK_S), lengths[k] // u(BLOCK_S)
            held = pairs = blocks = f(0)
            for s in range(start, end):
                held += w[s]
            seconds[k, row] = held
            for b in range(blocks_from, blocks_to):
                blocks += f(1) if weight[b] > f(0) else f(0)
            for s in range(start, end):
                pairs += there[s]
            for c in range(x.shape[1]):
                v = x[i, c]
                sx, sxx, step = _by_oneself(v, w, start, end)
                sb, sbb = _blocks(v, weight, blocks_from, blocks_to)
                moments[k, row, 0, c], moments[k, row, 1, c], moments[k, row, 2, c] = sx, sxx, step
                moments[k, row, 3, c], moments[k, row, 4, c], moments[k, row, 5, c] = sb, sbb, blocks
                if in_company:
                    px, po, pxx, poo, pxo = _in_company(v, there, part, total[slot[i], c], start, end)
                    shared[k, row, 0, c], shared[k, row, 1, c], shared[k, row, 2, c] = pairs, px, po
                    shared[k, row, 3, c], shared[k, row, 4, c], shared[k, row, 5, c] = pxx, poo, pxo
            for c in range(inputs.size):
                v = x[i, inputs[c]]
                for j in range(levels.size):
                    over, level = f(0), levels[j]
                    for s in range(start, end):
                        over += f(1) if v[s] > level else f(0)
                    above[k, row, c, j] = over
            end = start
