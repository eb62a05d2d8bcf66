"""What did a job do before its memory began to grow? Blocks of its past -> its idle time then, and how that had moved.

A leak changes nothing but memory. If the job began to do something else when its memory began to grow, the memory
belongs to that stage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.questions.candidate import PerPart
from clustertwin.telemetry.detection.questions.job_parts import S, Signals

Blocks = NDArray[np.float32]  # (row, block)
Chosen = NDArray[np.bool_]  # (row, block)
#: A move is the distance of a block from the mean of this many before it.
_BLOCKS = 3
#: Growth of memory is seen at most this many blocks after it began.
_SEEN_LATE = 2
_OTHER_WORK = 0.1  # of the threads' time: a process that leaks uses less


class BeforeGrowth(NamedTuple):
    """Idle time of every part before its memory began to grow; NaN: nothing is known."""

    idle: PerPart  # the mean of the last blocks
    largest_move: PerPart

    def take(self, rows: NDArray[np.intp]) -> BeforeGrowth:
        return BeforeGrowth(*(table[rows] for table in self))


def unknown_before(rows: int) -> BeforeGrowth:
    return BeforeGrowth(*(np.full(rows, np.nan, np.float32) for _ in range(2)))


def before_growth(idle: Blocks, usual: Chosen, grows: Chosen) -> BeforeGrowth:
    """`usual` blocks were part of no change; memory grew in those where it `grows`.

    A block that is not of the program that runs now is NaN.
    """
    known = ~np.isnan(idle)
    usual = usual & known
    total = np.cumsum(np.pad(np.where(usual, idle, 0), ((0, 0), (1, 0))), axis=1)
    count = np.cumsum(np.pad(usual, ((0, 0), (1, 0))), axis=1)  # before each block
    at = np.arange(idle.shape[1])
    begun = np.maximum(at - _BLOCKS, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        lately = (total[:, :-1] - total[:, begun]) / (count[:, :-1] - count[:, begun])
    calm = known & ~grows
    last_calm = np.where(calm.any(axis=1), len(at) - np.argmax(calm[:, ::-1], axis=1), 0)[:, None]
    earlier = at < last_calm - _SEEN_LATE
    last = earlier & known & (at >= last_calm - _SEEN_LATE - _BLOCKS)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(last, idle, 0).sum(axis=1) / last.sum(axis=1)
    moved = np.where(usual & earlier, np.abs(idle - lately), np.nan)
    moves = (~np.isnan(moved)).sum(axis=1)
    # Few moves underestimate the largest.
    largest = np.fmax.reduce(moved, axis=1) * (1 + 4 / np.maximum(moves, 1))
    return BeforeGrowth(np.asarray(mean, np.float32), np.asarray(largest, np.float32))


def began_with_stage(now: Signals, before: BeforeGrowth) -> NDArray[np.bool_]:
    """(part,) whether the job began to do something else when its memory began to grow."""
    change = np.abs(now[:, S["idle"]] - before.idle)
    return np.asarray(change > np.fmax(before.largest_move, _OTHER_WORK))
