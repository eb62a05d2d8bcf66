"""The last seconds of many threads in one array: one row per second, one column per thread; any window is a view.

A second is written as one row and a window is read as one block, with threads next to each other, which suits vector
instructions. The array has room for seconds after the newest one. When that room is used up, the seconds still needed
are copied to a new array. A window that was handed out therefore keeps its content, except for seconds that arrive
late.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Trace

#: Rows beyond those of one window.
AHEAD_S = 100


class SlidingWindow:
    """The first `used` columns hold threads; the others are spare."""

    def __init__(self, channels: int, length_s: int) -> None:
        self.length_s = length_s
        self.first_s: int | None = None  # the second of row 0; None: nothing was written yet
        self.used = 0
        self._values = np.zeros((length_s + AHEAD_S, channels, 0), np.float32)  # (row, channel, column)
        self._valid = np.zeros((length_s + AHEAD_S, 0), np.bool_)  # (row, column)

    @property
    def end_s(self) -> int:
        """The second after the last row."""
        return (self.first_s or 0) + len(self._valid)

    def reaches(self, end_s: int) -> bool:
        """Whether the seconds before `end_s` have a row. Moves on if `end_s` is at most AHEAD_S beyond the last row."""
        if self.first_s is not None and self.end_s < end_s <= self.end_s + AHEAD_S:
            self.move(end_s - self.length_s - AHEAD_S // 2, np.arange(self.used))
        return self.first_s is None or end_s <= self.end_s

    def add(self, columns: int) -> slice:
        """Reserve columns for more threads."""
        first, self.used = self.used, self.used + columns
        if self.used > self._valid.shape[1]:
            width = max(self.used, 2 * self._valid.shape[1])
            # Not `np.pad`: it writes zeros to the spare columns, which takes longer than the copy.
            values, valid = (
                np.zeros((*self._values.shape[:2], width), np.float32),
                np.zeros((len(self._valid), width), bool),
            )
            values[:, :, :first], valid[:, :first] = self._values[:, :, :first], self._valid[:, :first]
            self._values, self._valid = values, valid
        return slice(first, self.used)

    def write(self, trace: Trace, columns: slice | NDArray[np.intp]) -> None:
        """Write the seconds of a trace that have a row into its threads' columns; zero where not valid."""
        if self.first_s is None:
            # Leave rows before this trace, because other nodes may be behind it.
            self.first_s = max(trace.start_s, trace.end_s - AHEAD_S // 2) - self.length_s
        for second in range(max(trace.start_s, self.first_s), min(trace.end_s, self.end_s)):
            row, k = second - self.first_s, second - trace.start_s
            valid, values = trace.valid[:, k], trace.values[:, k].T
            self._values[row][:, columns] = values if valid.all() else np.where(valid, values, np.float32(0))
            self._valid[row, columns] = valid

    def make_room(self, end_s: int, later_s: int = 0) -> None:
        """Move on with the seconds before `end_s` if few rows are left at `end_s + later_s`."""
        if end_s + later_s >= self.end_s - AHEAD_S // 2:
            self.move(end_s - self.length_s, np.arange(self.used))

    def window(self, end_s: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Views of the seconds before `end_s`: values (thread, second, channel), valid (thread, second)."""
        if self.first_s is None or end_s - self.length_s < self.first_s:
            self.move(end_s - self.length_s, np.arange(self.used))
        self.make_room(end_s)
        row = end_s - self.length_s - (self.first_s or 0)
        values = self._values[row : row + self.length_s, :, : self.used]
        return values.transpose(2, 0, 1), self._valid[row : row + self.length_s, : self.used].T

    def move(self, first_s: int, columns: NDArray[np.intp]) -> None:
        """Copy to a new array whose first row is `first_s`, with these columns in this order."""
        values = np.zeros((*self._values.shape[:2], len(columns)), np.float32)
        valid = np.zeros((len(self._valid), len(columns)), np.bool_)
        shift = first_s - (first_s if self.first_s is None else self.first_s)
        source = slice(max(shift, 0), max(min(len(valid), len(valid) + shift), 0))
        target = slice(source.start - shift, max(source.stop, source.start) - shift)
        if np.array_equal(columns, np.arange(self.used)):
            values[target], valid[target] = self._values[source, :, : self.used], self._valid[source, : self.used]
        else:  # row by row: an index on the last axis copies column by column, which takes ten times as long
            for to, row in zip(range(target.start, target.stop), range(source.start, source.stop), strict=True):
                np.take(self._values[row], columns, axis=1, out=values[to], mode="clip")
                np.take(self._valid[row], columns, out=valid[to], mode="clip")
        self._values, self._valid, self.first_s, self.used = values, valid, first_s, len(columns)
