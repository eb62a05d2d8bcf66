"""One node's seconds from disk: its chunks, overlaid with its journal -> ticks (cpu, stored, time)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from clustertwin.telemetry.recording import chunks, journal, layout
from clustertwin.telemetry.recording.layout import Description
from clustertwin.telemetry.recording.ticks import INVALID


class NodeReader:
    """One node's chunks and the journalled seconds after them."""

    def __init__(self, root: Path, about: Description, node: str) -> None:
        self._directory = root / layout.directory_name(node)
        self._prefix = str(self._directory / layout.chunk_name(0))[:-1]
        self.rows = {cpu: row for row, cpu in enumerate(about.nodes[node])}
        self._shape = about.chunk_shape(node)
        self._interval_s = about.settings.interval_s
        self._decompressor = zstandard.ZstdDecompressor()
        self._origin_s = layout.read_origin(self._directory) or 0
        # The journal before the chunks: a writer that folds in between leaves the seconds in both, not in neither.
        self._tail = [
            ((record.start_s - self._origin_s) // self._interval_s, record.ticks)
            for record in journal.read(self._directory / layout.JOURNAL, *self._shape[:2])
        ]
        self._chunks = sorted(layout.chunk_sizes(self._directory))

    def extent_s(self) -> tuple[int, int] | None:
        """From the first second seen to after the last; None if there is none."""
        numbers = sorted({*self._chunks, *(at // self._shape[2] for at, _ in self._tail)})
        first = next(self._seen(numbers), None)
        if first is None:
            return None
        last = next(self._seen(numbers[::-1]))
        return self._origin_s + first[0] * self._interval_s, self._origin_s + (last[1] + 1) * self._interval_s

    def _seen(self, numbers: list[int]) -> Iterator[tuple[int, int]]:
        """First and last sample seen, of each chunk that has any."""
        for number in numbers:
            seen = np.flatnonzero((self._chunk(number)[:, 0] != INVALID).any(axis=0))
            if len(seen):
                begin = number * self._shape[2]
                yield begin + int(seen[0]), begin + int(seen[-1])

    def pieces(self, start_s: int, samples: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Chunk by chunk, where in the wanted range it begins and its ticks (cpu, stored, time) there."""
        begin = (start_s - self._origin_s) // self._interval_s
        known = {*self._chunks, *(at // self._shape[2] for at, _ in self._tail)}
        for number in sorted(known):
            first = number * self._shape[2]
            a, b = max(begin, first), min(begin + samples, first + self._shape[2])
            if a < b:
                yield a - begin, self._chunk(number)[:, :, a - first : b - first]

    def thread(self, row: int, start_s: int, samples: int) -> NDArray[np.uint8]:
        """One thread's ticks (stored, time)."""
        begin = (start_s - self._origin_s) // self._interval_s
        number, a = divmod(begin, self._shape[2])
        if a + samples <= self._shape[2] and not self._tail:
            rows = chunks.read_thread(f"{self._prefix}{number}", row, self._shape, self._decompressor)
            if rows is not None:
                return rows[:, a : a + samples]
        ticks = np.full((self._shape[1], samples), INVALID, np.uint8)
        for n in range(number, (begin + samples - 1) // self._shape[2] + 1):
            rows = chunks.read_thread(f"{self._prefix}{n}", row, self._shape, self._decompressor)
            if rows is not None:
                _overlay(ticks, begin, rows, n * self._shape[2])
        for at, tail in self._tail:
            _overlay(ticks, begin, tail[row], at)
        return ticks

    def _chunk(self, number: int) -> NDArray[np.uint8]:
        """A chunk with its journalled seconds, (cpu, stored, time)."""
        ticks = chunks.read(self._directory / layout.chunk_name(number), self._shape)
        if ticks is None:
            ticks = np.full(self._shape, INVALID, np.uint8)
        for at, tail in self._tail:
            _overlay(ticks, number * self._shape[2], tail, at)
        return ticks


def _overlay(ticks: NDArray[np.uint8], begin: int, over: NDArray[np.uint8], at: int) -> None:
    """Put `over`, whose first sample is `at`, onto `ticks`, whose first sample is `begin`; time is the last axis."""
    a, b = max(begin, at), min(begin + ticks.shape[-1], at + over.shape[-1])
    if a < b:
        ticks[..., a - begin : b - begin] = over[..., a - at : b - at]
