"""Write one array of a recording: quantised samples -> the chunk in memory, its journal, complete chunks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.errors import RecordingError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.recording import chunks, journal, layout
from clustertwin.telemetry.recording.layout import ArrayLayout
from clustertwin.telemetry.recording.retention import StoredChunk
from clustertwin.telemetry.recording.ticks import INVALID, Ticks

#: The length of an array on disk grows by this many chunks at a time, so that its document is rarely rewritten.
GROWTH = 24


class ArrayWriter:
    """Holds one chunk in memory; complete chunks and the seconds of the journal are on disk."""

    def __init__(self, root: Path, array: ArrayLayout) -> None:
        self.array, self.directory = array, root / array.directory
        self.next_s: int | None = None  # the earliest second that may come next
        self.refused = 0  # seconds whose values were not ratios
        self._ticks = Ticks.of(array.schema)
        self._shape = array.shape
        self._rows = {number: row for row, number in enumerate(array.rows)}
        self._interval_s = array.settings.interval_s
        self._flush = max(1, array.settings.flush_s // self._interval_s)
        self._origin_s: int | None = None
        self._length = 0  # chunks in the document of the array
        self._chunk = -1  # number of the chunk in memory; -1: none
        self._buffer: NDArray[np.uint8] = np.empty((0, 0, 0), np.uint8)
        self._flushed = self._filled = 0  # samples of the buffer in the journal, and in memory
        self._unfolded = False
        self._unsynced = False  # a power cut may still undo the rename of a chunk

    @property
    def is_lost(self) -> bool:
        """Whether its directory was deleted after it was created."""
        return self._origin_s is not None and not (self.directory / layout.DOCUMENT).exists()

    def recover(self) -> None:
        """Continue an existing array: fold its journal into chunks and continue after its last second."""
        self._origin_s = layout.read_origin(self.directory)
        if self._origin_s is None:
            return
        sizes = layout.chunk_sizes(self.directory)
        for record in journal.read(self.directory / layout.JOURNAL, *self._shape[:2]):
            self._place(record.start_s, record.ticks)
        self.fold()
        (self.directory / layout.JOURNAL).unlink(missing_ok=True)
        last = max([*sizes, self._chunk])
        if last >= 0:
            self._open_chunk(last)
            self._length = last + 1
            self.next_s = self._origin_s + (last * self._shape[2] + self._filled) * self._interval_s
            self._forget_chunk()  # of a node that is gone, it would take memory for nothing

    @property
    def is_at_rest(self) -> bool:
        """Whether it holds no chunk in memory."""
        return self._chunk < 0

    def widened(self, array: ArrayLayout) -> ArrayWriter:
        """A writer for the same array with more rows, which continues where this one rests."""
        wide = ArrayWriter(self.directory.parent, array)
        wide.next_s, wide.refused, wide._origin_s = self.next_s, self.refused, self._origin_s
        if self._origin_s is not None:
            wide._write_document(self._length, self._origin_s)
        return wide

    def rest(self) -> list[int]:
        """Fold, and free the memory of the chunk until a trace arrives; the numbers of the chunks written."""
        written = self.close()
        self._forget_chunk()
        return written

    def _forget_chunk(self) -> None:
        self._chunk, self._flushed, self._filled = -1, 0, 0
        self._buffer = np.empty((0, 0, 0), np.uint8)

    def append(self, trace: Trace) -> list[int]:
        """Append the seconds of a trace; the numbers of the chunks that are complete now."""
        self._check(trace)
        if not trace.values.shape[1]:
            return []
        if self._origin_s is None:
            chunk_s = self.array.settings.chunk_s
            origin_s = trace.start_s // chunk_s * chunk_s
            files.make_directory(self.directory)
            self._write_document(GROWTH, origin_s)
            self._origin_s = origin_s  # once it is on disk: if the disk is full, the next trace tries again
        complete, at, total = [], 0, trace.values.shape[1]
        while at < total:
            number, begin = divmod((trace.start_s - self._origin_s) // self._interval_s + at, self._shape[2])
            count = min(total - at, self._shape[2] - begin)
            if number != self._chunk:
                complete += self.fold()
                self._open_chunk(number)
            self._quantise(trace, at, begin, count)
            at += count
            self.next_s = trace.start_s + at * self._interval_s
            if self._filled == self._shape[2]:
                complete += self.fold()
            elif self._filled - self._flushed >= self._flush:
                self.flush()
        return complete

    def _quantise(self, trace: Trace, at: int, begin: int, count: int) -> None:
        """Samples of a trace from `at` on -> samples of the chunk in memory from `begin` on."""
        if self._flushed == self._filled:
            self._flushed = begin  # a gap is not written to the journal
        here = slice(at, at + count)
        target = self._buffer[:, :, begin : begin + count]
        rows = [self._rows[cpu] for cpu in trace.cpus]
        is_complete = rows == list(range(self._shape[0]))
        ticks = target if is_complete else np.empty((len(rows), *target.shape[1:]), np.uint8)
        self.refused += self._ticks.quantise(trace.values[:, here], trace.valid[:, here], ticks)
        if not is_complete:
            target[rows] = ticks
        self._filled, self._unfolded = begin + count, True

    def flush(self, sync: bool = True) -> None:
        """Append what is only in memory to the journal. With `sync`, everything is on disk when this returns."""
        if sync:
            self._sync()
        if self._filled <= self._flushed:
            return
        assert self._origin_s is not None
        start_s = self._origin_s + (self._chunk * self._shape[2] + self._flushed) * self._interval_s
        record = journal.JournalRecord(start_s, self._buffer[:, :, self._flushed : self._filled])
        journal.append(self.directory / layout.JOURNAL, record, sync)
        self._flushed = self._filled

    def fold(self) -> list[int]:
        """Write the chunk in memory as a file, even if it is incomplete, and delete its journal; its number, if any."""
        if not self._unfolded:
            return []
        self._grow(self._chunk)
        path = self.directory / layout.chunk_name(self._chunk)
        files.write(path, chunks.encode(self._buffer, self.array.settings.level), sync_parent=False)
        self._unsynced = True
        if (self.directory / layout.JOURNAL).exists():
            self._sync()  # before the journal is deleted; if a crash keeps it, it repeats what the chunk has
            (self.directory / layout.JOURNAL).unlink()
        self._flushed, self._unfolded = self._filled, False
        return [self._chunk]

    def close(self) -> list[int]:
        """Fold, and shorten the document of the array to its last chunk."""
        written = self.fold()
        self._sync()
        if self._origin_s is not None and self._chunk >= 0 and self._length != self._chunk + 1:
            self._write_document(self._chunk + 1, self._origin_s)
        return written

    def chunk(self, number: int) -> StoredChunk:
        """A chunk on disk, for retention."""
        assert self._origin_s is not None
        path = self.directory / layout.chunk_name(number)
        end_s = self._origin_s + (number + 1) * self.array.settings.chunk_s
        return StoredChunk(end_s, self.array.directory, number, path.stat().st_size)

    def delete(self, number: int) -> None:
        """Delete a chunk; its seconds then read as invalid."""
        (self.directory / layout.chunk_name(number)).unlink(missing_ok=True)

    def _check(self, trace: Trace) -> None:
        if trace.schema != self.array.schema or trace.interval_s != self._interval_s:
            raise RecordingError(self.directory, "the trace and the recording differ in schema or cadence")
        if unknown := [cpu for cpu in trace.cpus if cpu not in self._rows]:
            raise RecordingError(self.directory, f"the recording has no cpu {unknown[0]} of node {self.array.node!r}")
        if trace.start_s % self._interval_s:
            raise RecordingError(self.directory, f"second {trace.start_s} is not a multiple of the cadence")
        if self.next_s is not None and trace.start_s < self.next_s:
            raise RecordingError(self.directory, f"second {trace.start_s} came after {self.next_s - self._interval_s}")

    def _open_chunk(self, number: int) -> None:
        """Load chunk `number`, or begin it if it has no file."""
        on_disk = chunks.read(self.directory / layout.chunk_name(number), self._shape)
        if on_disk is not None:
            self._buffer = on_disk
        elif self._buffer.shape == self._shape:
            self._buffer.fill(INVALID)
        else:
            self._buffer = np.full(self._shape, INVALID, np.uint8)
        known = np.flatnonzero((self._buffer[:, 0] != INVALID).any(axis=0))
        self._chunk, self._filled = number, int(known[-1]) + 1 if len(known) else 0
        self._flushed, self._unfolded = self._filled, False

    def _place(self, start_s: int, ticks: NDArray[np.uint8]) -> None:
        """Copy a record of the journal into its chunk; a record never spans two chunks."""
        assert self._origin_s is not None
        number, begin = divmod((start_s - self._origin_s) // self._interval_s, self._shape[2])
        if number != self._chunk:
            self.fold()
            self._open_chunk(number)
        end = begin + ticks.shape[2]
        self._buffer[:, :, begin:end] = ticks
        self._filled, self._unfolded = max(self._filled, end), True

    def _sync(self) -> None:
        if self._unsynced:
            with files.reporting(self.directory):
                files.sync_directory(self.directory)
            self._unsynced = False

    def _grow(self, number: int) -> None:
        if number >= self._length:
            assert self._origin_s is not None
            self._write_document((number // GROWTH + 1) * GROWTH, self._origin_s)

    def _write_document(self, length: int, origin_s: int) -> None:
        document = layout.array_document(self.array, origin_s, length)
        files.write(self.directory / layout.DOCUMENT, document)
        self._length = length
