"""One hour of an array as one file: (row, stored, time) uint8 <-> a Zarr v3 shard with an inner chunk for each row.

A row is a thread, or a channel of the node. The file begins with an index of (offset, length) by row, so one row is
read with two small reads and one zstd frame. Every frame has its own checksum. A row without known seconds has none.
If a node has got more threads since, the file has fewer rows than the array: the others are unknown.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from clustertwin.core.errors import RecordingError
from clustertwin.core.foreign_files import open_regular, read_recorded
from clustertwin.telemetry.recording.ticks import INVALID

_ENTRY = struct.Struct("<QQ")
_ABSENT = (2**64 - 1, 2**64 - 1)


def encode(ticks: NDArray[np.uint8], level: int) -> bytes:
    """The shard of (row, stored, time)."""
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True)
    index, frames = [], []
    offset = _ENTRY.size * len(ticks)
    for rows in ticks:
        if rows.min() == INVALID:
            index.append(_ENTRY.pack(*_ABSENT))
            continue
        frame = compressor.compress(rows.tobytes())
        index.append(_ENTRY.pack(offset, len(frame)))
        frames.append(frame)
        offset += len(frame)
    return b"".join(index + frames)


def read(path: Path, shape: tuple[int, int, int]) -> NDArray[np.uint8] | None:
    """All rows of a shard, (row, stored, time); None if there is no such file."""
    data = read_recorded(path, _most_bytes(shape))
    if data is None:
        return None
    ticks = np.full(shape, INVALID, np.uint8)
    decompressor = zstandard.ZstdDecompressor()
    for row in range(min(shape[0], _rows(data))):
        offset, length = _entry(data[row * _ENTRY.size : (row + 1) * _ENTRY.size], path)
        if (offset, length) != _ABSENT:
            ticks[row] = _frame(decompressor, data[offset : offset + length], shape, path)
    return ticks


def read_row(
    path: str, row: int, shape: tuple[int, int, int], decompressor: zstandard.ZstdDecompressor
) -> NDArray[np.uint8] | None:
    """One row of a shard, (stored, time); None if there is no such file or no known second of the row."""
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordingError(path, f"cannot be read: {error.strerror}") from error
    try:
        index = os.pread(descriptor, _ENTRY.size * (row + 1), 0)
        if row >= _rows(index):
            return None
        offset, length = _entry(index[row * _ENTRY.size :], path)
        if (offset, length) == _ABSENT:
            return None
        return _frame(decompressor, os.pread(descriptor, min(length, _most_bytes(shape)), offset), shape, path)
    finally:
        os.close(descriptor)


def _rows(index: bytes) -> int:
    """The rows of a shard, from its first bytes: the first frame begins after the index. At least one."""
    for at in range(0, len(index) - _ENTRY.size + 1, _ENTRY.size):
        entry = _ENTRY.unpack_from(index, at)
        if entry != _ABSENT:
            return max(int(entry[0]) // _ENTRY.size, 1)
    return max(-(-len(index) // _ENTRY.size), 1)


def _most_bytes(shape: tuple[int, int, int]) -> int:
    """The size that no shard of this shape exceeds: zstd makes incompressible data larger by less than this."""
    return 4096 + shape[0] * (_ENTRY.size + 1024) + 2 * math.prod(shape)


def _entry(data: bytes, path: object) -> tuple[int, int]:
    if len(data) != _ENTRY.size:
        raise RecordingError(path, "the chunk is incomplete")
    offset, length = _ENTRY.unpack(data)
    if (offset, length) != _ABSENT and max(offset, length) > 2**40:
        raise RecordingError(path, "the index of the chunk is damaged")
    return offset, length


def _frame(
    decompressor: zstandard.ZstdDecompressor, frame: bytes, shape: tuple[int, int, int], path: object
) -> NDArray[np.uint8]:
    cells = shape[1] * shape[2]
    try:
        # Check the declared size before memory is allocated, so that a hostile frame is rejected.
        if zstandard.frame_content_size(frame) != cells:
            raise RecordingError(path, f"a frame does not hold {cells} bytes")
        rows = decompressor.decompress(frame)
    except zstandard.ZstdError as error:
        raise RecordingError(path, f"the chunk is damaged ({error})") from error
    return np.frombuffer(rows, np.uint8).reshape(shape[1:])
