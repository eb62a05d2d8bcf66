"""The seconds not yet in a chunk: (cpu, stored, time) uint8 -> checksummed records, appended and synced -> the same.

A record that was torn by a crash ends the journal; what stands before it is whole.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core import files

_HEAD = struct.Struct("<4sIq")  # magic, samples, second of the first
_SUM = struct.Struct("<I")
_MAGIC = b"CTJ1"


@dataclass(frozen=True, slots=True)
class Record:
    """Some consecutive samples of one node."""

    start_s: int
    ticks: NDArray[np.uint8]  # (cpu, stored, time)


def append(path: Path, record: Record) -> None:
    """The record is on disk when this returns."""
    payload = _HEAD.pack(_MAGIC, record.ticks.shape[2], record.start_s) + record.ticks.tobytes()
    files.append(path, payload + _SUM.pack(zlib.crc32(payload)))


def read(path: Path, cpus: int, stored: int) -> list[Record]:
    """The whole records of a journal; none where there is no journal."""
    try:
        return parse(path.read_bytes(), cpus, stored)
    except FileNotFoundError:
        return []


def parse(data: bytes, cpus: int, stored: int) -> list[Record]:
    """The records before the first that is torn or damaged."""
    records, at = [], 0
    while at + _HEAD.size <= len(data):
        magic, samples, start_s = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + cpus * stored * samples
        if magic != _MAGIC or end + _SUM.size > len(data):
            break
        if zlib.crc32(data[at:end]) != _SUM.unpack_from(data, end)[0]:
            break
        ticks = np.frombuffer(data[at + _HEAD.size : end], np.uint8).reshape(cpus, stored, samples)
        records.append(Record(start_s, ticks))
        at = end + _SUM.size
    return records
