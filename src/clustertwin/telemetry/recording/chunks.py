"""One node's hour as one file: (cpu, stored, time) uint8 <-> a Zarr v3 shard, whose inner chunks are one thread each.

The file begins with an index of (offset, length) per thread, so one thread is read with two small reads and one
zstd frame. Every frame carries its own checksum. A thread that was never seen takes no room.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from clustertwin.core.errors import RecordingError
from clustertwin.telemetry.recording.ticks import INVALID

_ENTRY = struct.Struct("<QQ")
_ABSENT = (2**64 - 1, 2**64 - 1)


def encode(ticks: NDArray[np.uint8], level: int) -> bytes:
    """The shard of (cpu, stored, time)."""
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
    """All threads of a shard, (cpu, stored, time); None where there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    ticks = np.full(shape, INVALID, np.uint8)
    decompressor = zstandard.ZstdDecompressor()
    for cpu in range(shape[0]):
        offset, length = _entry(data[cpu * _ENTRY.size : (cpu + 1) * _ENTRY.size], path)
        if (offset, length) != _ABSENT:
            ticks[cpu] = _rows(decompressor, data[offset : offset + length], shape, path)
    return ticks


def read_thread(
    path: str, cpu: int, shape: tuple[int, int, int], decompressor: zstandard.ZstdDecompressor
) -> NDArray[np.uint8] | None:
    """One thread of a shard, (stored, time); None where there is no such file or the thread was never seen."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        offset, length = _entry(os.pread(descriptor, _ENTRY.size, cpu * _ENTRY.size), path)
        if (offset, length) == _ABSENT:
            return None
        return _rows(decompressor, os.pread(descriptor, min(length, 2**31), offset), shape, path)
    finally:
        os.close(descriptor)


def _entry(data: bytes, path: object) -> tuple[int, int]:
    if len(data) != _ENTRY.size:
        raise RecordingError(path, "the chunk is cut short")
    offset, length = _ENTRY.unpack(data)
    if (offset, length) != _ABSENT and max(offset, length) > 2**40:
        raise RecordingError(path, "the chunk's index is broken")
    return offset, length


def _rows(
    decompressor: zstandard.ZstdDecompressor, frame: bytes, shape: tuple[int, int, int], path: object
) -> NDArray[np.uint8]:
    cells = shape[1] * shape[2]
    try:
        # The frame says its size before anything is allocated; a hostile one is refused, not unpacked.
        if zstandard.frame_content_size(frame) != cells:
            raise RecordingError(path, f"a thread's frame does not hold {cells} bytes")
        rows = decompressor.decompress(frame)
    except zstandard.ZstdError as error:
        raise RecordingError(path, f"the chunk is damaged ({error})") from error
    return np.frombuffer(rows, np.uint8).reshape(shape[1:])
