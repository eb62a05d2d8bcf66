"""How does the idle time of a job move? Blocks of its past -> where it was lately, and its largest move.

A load that wanders reaches new levels again and again, by moves of a size that it made before; a fault sets in at once.
And a leak changes nothing but memory: if the job began to do something else when its memory began to grow, the memory
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


class Moves(NamedTuple):
    """Idle time of every part; NaN: nothing is known."""

    lately: PerPart  # the mean of the last usual blocks
    largest: PerPart  # the largest move of the past
    before_growth: PerPart  # the mean of the blocks before memory began to grow, …
    largest_before: PerPart  # … and the largest move before that

    def take(self, rows: NDArray[np.intp]) -> Moves:
        return Moves(*(table[rows] for table in self))


def no_moves(rows: int) -> Moves:
    return Moves(*(np.full(rows, np.nan, np.float32) for _ in range(4)))


def moves_of(idle: Blocks, usual: Chosen, past: Chosen, grows: Chosen) -> Moves:
    """`usual` blocks were part of no change, and those of the `past` are long enough ago; memory grew where it `grows`.

    A block that is not of the program that runs now is NaN.
    """
    known = ~np.isnan(idle)
    usual = usual & known
    total = np.cumsum(np.pad(np.where(usual, idle, 0), ((0, 0), (1, 0))), axis=1)
    count = np.cumsum(np.pad(usual, ((0, 0), (1, 0))), axis=1)  # before each block
    at = np.arange(idle.shape[1])
    begun = np.maximum(at - _BLOCKS, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        before = (total[:, :-1] - total[:, begun]) / (count[:, :-1] - count[:, begun])
    moved = np.where(usual, np.abs(idle - before), np.nan)
    calm = known & ~grows
    last_calm = np.where(calm.any(axis=1), len(at) - np.argmax(calm[:, ::-1], axis=1), 0)[:, None]
    earlier = at < last_calm - _SEEN_LATE
    return Moves(
        _mean(idle, usual & (count[:, -1:] - count[:, :-1] <= _BLOCKS)),
        _largest(np.where(past, moved, np.nan)),
        _mean(idle, earlier & known & (at >= last_calm - _SEEN_LATE - _BLOCKS)),
        _largest(np.where(earlier, moved, np.nan)),
    )


def jumped(now: Signals, moves: Moves) -> NDArray[np.bool_]:
    """(part,) whether idle time has risen by more than it ever moved in as short a time, or nothing is known."""
    return ~np.asarray(now[:, S["idle"]] - moves.lately <= moves.largest)


def began_with_stage(now: Signals, moves: Moves) -> NDArray[np.bool_]:
    """(part,) whether the job began to do something else when its memory began to grow."""
    change = np.abs(now[:, S["idle"]] - moves.before_growth)
    return np.asarray(change > np.fmax(moves.largest_before, _OTHER_WORK))


def _largest(moved: NDArray[np.floating]) -> PerPart:
    """Few moves underestimate the largest."""
    count = (~np.isnan(moved)).sum(axis=1)
    return np.asarray(np.fmax.reduce(moved, axis=1) * (1 + 4 / np.maximum(count, 1)), np.float32)


def _mean(idle: Blocks, chosen: Chosen) -> PerPart:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(chosen, idle, 0).sum(axis=1) / chosen.sum(axis=1), np.float32)
