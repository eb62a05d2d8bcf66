"""The seconds that are not in a chunk yet: (row, stored, time) uint8 <-> checksummed records, appended and synced.

If a crash interrupted the last record, the journal ends before it.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.foreign_files import LATEST_S, read_recorded

_HEAD = struct.Struct("<4sIq")  # magic, samples, second of the first
_SUM = struct.Struct("<I")
_MAGIC = b"CTJ1"
#: An hour of 500 threads in records of ten seconds has 6 MB.
MOST_BYTES = 1 << 29


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """Consecutive samples of one array."""

    start_s: int
    ticks: NDArray[np.uint8]  # (row, stored, time)


def append(path: Path, record: JournalRecord, sync: bool = True) -> None:
    """The record is on disk when this returns; without `sync`, a power cut can still lose it."""
    payload = _HEAD.pack(_MAGIC, record.ticks.shape[2], record.start_s) + record.ticks.tobytes()
    files.append(path, payload + _SUM.pack(zlib.crc32(payload)), sync)


def read(path: Path, rows: int, stored: int) -> list[JournalRecord]:
    """The complete records of a journal; empty if there is no journal."""
    data = read_recorded(path, MOST_BYTES)
    return [] if data is None else parse(data, rows, stored)


def parse(data: bytes, rows: int, stored: int) -> list[JournalRecord]:
    """The records before the first that is incomplete or damaged."""
    records, at = [], 0
    while at + _HEAD.size <= len(data):
        magic, samples, start_s = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + rows * stored * samples
        if magic != _MAGIC or end + _SUM.size > len(data) or abs(start_s) > LATEST_S:
            break
        if zlib.crc32(data[at:end]) != _SUM.unpack_from(data, end)[0]:
            break
        ticks = np.frombuffer(data[at + _HEAD.size : end], np.uint8).reshape(rows, stored, samples)
        records.append(JournalRecord(start_s, ticks))
        at = end + _SUM.size
    return records
