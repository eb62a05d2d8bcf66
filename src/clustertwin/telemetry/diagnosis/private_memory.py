"""Whether a process works on its memory: a pid -> a signature of its data and stack, without stopping it.

A loop that only waits writes nothing. A loop that computes writes its results. At most `MAX_BYTES_READ` are read, from
the stack and from the small writable mappings first.
"""

from __future__ import annotations

import os
import zlib

from clustertwin.telemetry.exporter.text.kernelfile import read_file

MAX_BYTES_READ = 3 << 20
MAX_OF_MAPPING = 256 << 10


def signature(pid: int) -> int | None:
    """A checksum; None if the memory may not be read."""
    try:
        maps = read_file(f"/proc/{pid}/maps")
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    checksum, read = 0, 0
    try:
        for begin, end in _writable(maps):
            if read >= MAX_BYTES_READ:
                break
            try:
                piece = os.pread(memory, min(end - begin, MAX_OF_MAPPING), begin)
            except OSError:
                continue
            checksum, read = zlib.crc32(piece, checksum), read + len(piece)
    finally:
        os.close(memory)
    return checksum if read else None


def _writable(maps: bytes) -> list[tuple[int, int]]:
    """Private writable mappings: the end of the stack first, which is in use, then the smallest."""
    ranges: list[tuple[int, int]] = []
    stack: list[tuple[int, int]] = []
    for line in maps.splitlines():
        words = line.split(None, 5)
        if len(words) < 5 or words[1][1:2] != b"w" or words[1][3:4] != b"p":
            continue
        begin, end = (int(part, 16) for part in words[0].split(b"-"))
        if words[5:6] == [b"[stack]"]:
            stack.append((max(begin, end - MAX_OF_MAPPING), end))
        else:
            ranges.append((begin, end))
    return stack + sorted(ranges, key=lambda pair: pair[1] - pair[0])
