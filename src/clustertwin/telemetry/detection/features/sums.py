"""The sums behind the statistics of threads, for several lengths in one pass: seconds of threads -> sums.

Threads are processed in batches of whole jobs. A batch is transposed so that the seconds of a thread are contiguous,
which suits vector instructions. The sums over a job's other threads are the job's total minus the thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled, vectorised

f = np.float32
u = np.uint64  # an unsigned index needs no check for negative values
Array = NDArray[np.float32]

#: Means over blocks of this length separate slow changes from fast ones.
BLOCK_S = 10
#: Numbers in a cache line.
LINE = 16
#: Threads per batch: five minutes of them, about 0.9 MB, fit in a core's own cache.
BLOCK = 192


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the last seconds of each thread. o is the mean of the job's other threads, b the mean of a block."""

    seconds: NDArray[np.int32]  # (thread,)
    own: Array  # (thread, 6, channel) Σx, Σx², Σ|step|, Σb, Σb², number of blocks
    above: Array  # (thread, input, level) seconds above the level
    joint: Array  # (thread, 6, channel) seconds in which a peer is valid too; over those Σx, Σo, Σx², Σo², Σxo


class _Batch(NamedTuple):
    """Threads of whole jobs, transposed; with the total of each of their jobs."""

    x: Array  # (row, channel, second)
    known: Array  # (row, second) 1 where valid, else 0
    rows: NDArray[np.uint64]  # (row,) which threads they are
    slot: NDArray[np.int32]  # (row,) the index of its job in `total`, -1: no peers
    total: Array  # (slot, channel, second)
    threads: Array  # (slot, second) how many are valid


class _Extent(NamedTuple):
    """What to sum."""

    first: NDArray[np.uint64]  # (thread,) the first second that counts
    inputs: NDArray[np.uint64]
    levels: Array
    lengths: NDArray[np.uint64]  # ascending


class _Results(NamedTuple):
    """`Sums` for all lengths: the arrays have one axis more, the length, in front."""

    seconds: NDArray[np.int32]
    own: Array
    above: Array
    joint: Array


def sums(
    values: Array,
    valid: NDArray[np.bool_],
    wanted_s: NDArray[np.int32],
    job: NDArray[np.int32],
    inputs: tuple[int, ...],
    levels: Array,
    lengths_s: tuple[int, ...],
) -> list[Sums]:
    """Sum values (thread, second, channel); of thread i, at most the last `wanted_s[i]` seconds count.

    `lengths_s` ascend. A length beyond the number of seconds counts all of them.
    """
    threads, length, channels = values.shape
    shape = (len(lengths_s), threads)
    results = _Results(
        np.zeros(shape, np.int32),
        np.zeros((*shape, 6, channels), np.float32),
        np.zeros((*shape, len(inputs), len(levels)), np.float32),
        np.zeros((*shape, 6, channels), np.float32),
    )
    extent = _Extent(
        (length - np.clip(wanted_s, 0, length)).astype(np.uint64),
        np.array(inputs, np.uint64),
        levels,
        np.minimum(lengths_s, length).astype(np.uint64),
    )
    # One extra second that is never known, so that the last second has a step to it as well.
    x, known = np.zeros((BLOCK, channels, length + 1), np.float32), np.zeros((BLOCK, length + 1), np.float32)
    total, count = np.zeros_like(x), np.zeros_like(known)
    by_second, valid_by_second = values.transpose(1, 2, 0), valid.T
    for rows, slot in _whole_jobs(job):
        used = int(slot.max()) + 1
        total[:used], count[:used] = 0, 0
        pieces = [slice(start, start + BLOCK) for start in range(0, len(rows), BLOCK)]
        for piece in pieces:
            _transpose(by_second, valid_by_second, rows[piece], x, known)
            _add_to_jobs(x, known, slot[piece], total, count)
        for piece in pieces:
            if len(pieces) > 1:  # of a job with more threads than a batch
                _transpose(by_second, valid_by_second, rows[piece], x, known)
            _sum_batch(_Batch(x, known, rows[piece], slot[piece], total, count), extent, results)
    for array in results:
        for k in range(1, len(lengths_s)):
            array[k] += array[k - 1]
    return [Sums(*of_length) for of_length in zip(*results, strict=True)]


def _whole_jobs(job: NDArray[np.int32]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int32]]]:
    """Batches of threads, with the index of each thread's job in its batch, -1: no peers.

    A batch has at most BLOCK threads, unless it is one job.
    """
    # Jobs in the order of their first threads, so that the threads of a batch are close in memory.
    own = np.arange(len(job))
    place = np.zeros(int(job.max(initial=-1)) + 2, np.intp)  # the last entry is for threads without a job
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
def _transpose(values, valid, rows, x, known):  # type: ignore[no-untyped-def]
    """values (second, channel, thread) and valid (second, thread) of these rows -> x (row, channel, second), zero where
    not valid, and known (row, second) as numbers."""
    length = values.shape[0]
    for first in range(0, length, LINE):
        end = min(first + LINE, length)
        for c in range(values.shape[1]):
            source = values[first:end, c]
            for i in range(rows.size):
                row, into = rows[i], x[i, c, first:end]
                for s in range(into.size):
                    into[s] = source[s, row]
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
def _add_to_jobs(x, known, slot, total, count):  # type: ignore[no-untyped-def]
    """Add the threads that have peers to total (job, channel, second) and count (job, second)."""
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
def _own_sums(v, w, start, end):  # type: ignore[no-untyped-def]
    """Σx, Σx², Σ|step| of the seconds in [start, end); a step counts with the earlier of its two seconds."""
    sx = sxx = step = f(0)
    for s in range(start, end):
        sx += v[s]
        sxx += v[s] * v[s]
        step += abs(v[s + u(1)] - v[s]) * w[s] * w[s + u(1)]
    return sx, sxx, step


@vectorised
def _joint_sums(v, there, weight, total, start, end):  # type: ignore[no-untyped-def]
    """Σx, Σo, Σx², Σo², Σxo of the seconds that are `there`; `weight` is one over the number of peers."""
    px = po = pxx = poo = pxo = f(0)
    for s in range(start, end):
        x, o = v[s] * there[s], (total[s] - v[s]) * weight[s]
        px += x
        po += o
        pxx += x * x
        poo += o * o
        pxo += x * o
    return px, po, pxx, poo, pxo


@compiled
def _block_sums(v, weight, first, end):  # type: ignore[no-untyped-def]
    """Σb and Σb² of blocks `first` to `end`, counted from the newest back; `weight` is one over a block's seconds."""
    sb = sbb = f(0)
    s = u(v.size - 1) - first * u(BLOCK_S)
    for k in range(first, end):
        s -= u(BLOCK_S)
        # Added as a tree: in a chain each addition would wait for the one before.
        left = (v[s] + v[s + u(1)]) + (v[s + u(2)] + v[s + u(3)])
        right = (v[s + u(4)] + v[s + u(5)]) + (v[s + u(6)] + v[s + u(7)])
        b = ((left + right) + (v[s + u(8)] + v[s + u(9)])) * weight[k]
        sb += b
        sbb += b * b
    return sb, sbb


@vectorised
def _block_weights(w, begun, weight):  # type: ignore[no-untyped-def]
    """weight (block,) <- one over the known seconds of each block, or zero where at most half of them are known."""
    start = u(w.size - 1)
    for k in range(weight.size):
        start -= u(BLOCK_S)
        known = f(0)
        for s in range(BLOCK_S):
            known += w[start + u(s)]
        weight[k] = f(1) / known if known * f(2) > f(BLOCK_S) and start >= begun else f(0)


@vectorised
def _sum_batch(batch, extent, results):  # type: ignore[no-untyped-def]
    """Fill the results of one batch, each length with what it has beyond the one before; overwrites x and known."""
    x, known, rows, slot, total, threads = batch
    first, inputs, levels, lengths = extent
    seconds, own, above, joint = results
    length = u(known.shape[1] - 1)
    there, part = np.zeros(known.shape[1], np.float32), np.zeros(known.shape[1], np.float32)
    weight = np.zeros(length // u(BLOCK_S), np.float32)
    for i in range(rows.size):
        row, begun, w = rows[i], first[rows[i]], known[i]
        for s in range(begun):
            w[s] = f(0)
            for c in range(x.shape[1]):
                x[i, c, s] = f(0)
        _block_weights(w, begun, weight)
        has_peers = slot[i] >= 0
        if has_peers:
            of_job = threads[slot[i]]
            for s in range(w.size):
                others = of_job[s] - f(1)
                there[s] = w[s] if others > f(0) else f(0)
                part[s] = there[s] / others if others > f(0) else f(0)
        end = length
        for k in range(lengths.size):  # each length begins where the one before it ended
            start, blocks_from, blocks_to = length - lengths[k], (length - end) // u(BLOCK_S), lengths[k] // u(BLOCK_S)
            counted = pairs = blocks = f(0)
            for s in range(start, end):
                counted += w[s]
            seconds[k, row] = counted
            for b in range(blocks_from, blocks_to):
                blocks += f(1) if weight[b] > f(0) else f(0)
            for s in range(start, end):
                pairs += there[s]
            for c in range(x.shape[1]):
                v = x[i, c]
                sx, sxx, step = _own_sums(v, w, start, end)
                sb, sbb = _block_sums(v, weight, blocks_from, blocks_to)
                own[k, row, 0, c], own[k, row, 1, c], own[k, row, 2, c] = sx, sxx, step
                own[k, row, 3, c], own[k, row, 4, c], own[k, row, 5, c] = sb, sbb, blocks
                if has_peers:
                    px, po, pxx, poo, pxo = _joint_sums(v, there, part, total[slot[i], c], start, end)
                    joint[k, row, 0, c], joint[k, row, 1, c], joint[k, row, 2, c] = pairs, px, po
                    joint[k, row, 3, c], joint[k, row, 4, c], joint[k, row, 5, c] = pxx, poo, pxo
            for c in range(inputs.size):
                v = x[i, inputs[c]]
                for j in range(levels.size):
                    over, level = f(0), levels[j]
                    for s in range(start, end):
                        over += f(1) if v[s] > level else f(0)
                    above[k, row, c, j] = over
            end = start
