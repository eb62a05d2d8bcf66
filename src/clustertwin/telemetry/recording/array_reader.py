"""Read one array of a recording: its chunks, overlaid with its journal -> ticks (row, stored, time)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from clustertwin.telemetry.recording import chunks, journal, layout
from clustertwin.telemetry.recording.layout import ArrayLayout
from clustertwin.telemetry.recording.ticks import INVALID


class ArrayReader:
    """The chunks of an array and the seconds of its journal after them."""

    def __init__(self, root: Path, array: ArrayLayout) -> None:
        self._directory = root / array.directory
        self._prefix = str(self._directory / layout.chunk_name(0))[:-1]
        self.rows = {number: row for row, number in enumerate(array.rows)}
        self._shape = array.shape
        self._interval_s = array.settings.interval_s
        self._decompressor = zstandard.ZstdDecompressor()
        self._origin_s = layout.read_origin(self._directory) or 0
        # The journal before the chunks: if a writer folds it in between, its seconds are in both, and none is lost.
        self._tail = [
            ((record.start_s - self._origin_s) // self._interval_s, record.ticks)
            for record in journal.read(self._directory / layout.JOURNAL, *self._shape[:2])
        ]
        self._chunks = sorted(layout.chunk_sizes(self._directory))

    def extent_s(self) -> tuple[int, int] | None:
        """From the first known second to the end of the last; None if none is known."""
        numbers = sorted({*self._chunks, *(at // self._shape[2] for at, _ in self._tail)})
        first = next(self._extents(numbers), None)
        if first is None:
            return None
        last = next(self._extents(numbers[::-1]))
        return self._origin_s + first[0] * self._interval_s, self._origin_s + (last[1] + 1) * self._interval_s

    def _extents(self, numbers: list[int]) -> Iterator[tuple[int, int]]:
        """The first and last known sample of each chunk that has any."""
        for number in numbers:
            known = np.flatnonzero((self._chunk(number)[:, 0] != INVALID).any(axis=0))
            if len(known):
                begin = number * self._shape[2]
                yield begin + int(known[0]), begin + int(known[-1])

    def pieces(self, start_s: int, samples: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """For each chunk in the range: where in the range it begins, and its ticks (row, stored, time) there."""
        begin = (start_s - self._origin_s) // self._interval_s
        numbers = {*self._chunks, *(at // self._shape[2] for at, _ in self._tail)}
        for number in sorted(numbers):
            first = number * self._shape[2]
            a, b = max(begin, first), min(begin + samples, first + self._shape[2])
            if a < b:
                yield a - begin, self._chunk(number)[:, :, a - first : b - first]

    def row(self, row: int, start_s: int, samples: int) -> NDArray[np.uint8]:
        """The ticks of one row (stored, time)."""
        begin = (start_s - self._origin_s) // self._interval_s
        number, a = divmod(begin, self._shape[2])
        if a + samples <= self._shape[2] and not self._tail:
            rows = chunks.read_row(f"{self._prefix}{number}", row, self._shape, self._decompressor)
            if rows is not None:
                return rows[:, a : a + samples]
        ticks = np.full((self._shape[1], samples), INVALID, np.uint8)
        for n in range(number, (begin + samples - 1) // self._shape[2] + 1):
            rows = chunks.read_row(f"{self._prefix}{n}", row, self._shape, self._decompressor)
            if rows is not None:
                _overlay(ticks, begin, rows, n * self._shape[2])
        for at, tail in self._tail:
            _overlay(ticks, begin, tail[row], at)
        return ticks

    def _chunk(self, number: int) -> NDArray[np.uint8]:
        """A chunk with the seconds of the journal, (row, stored, time)."""
        ticks = chunks.read(self._directory / layout.chunk_name(number), self._shape)
        if ticks is None:
            ticks = np.full(self._shape, INVALID, np.uint8)
        for at, tail in self._tail:
            _overlay(ticks, number * self._shape[2], tail, at)
        return ticks


def _overlay(ticks: NDArray[np.uint8], begin: int, over: NDArray[np.uint8], at: int) -> None:
    """Copy `over`, whose first sample is `at`, onto `ticks`, whose first sample is `begin`; time is the last axis."""
    a, b = max(begin, at), min(begin + ticks.shape[-1], at + over.shape[-1])
    if a < b:
        ticks[..., a - begin : b - begin] = over[..., a - at : b - at]
