"""Whether messages pass between the ranks of a node: their shared mappings -> a signature that changes if one does.

MPI libraries pass messages inside a node through shared memory. While ranks wait for a message that never comes, they
only read it. The memory is read through the file of the mapping, so no process is stopped, and holes are skipped, so
no page is allocated.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass

from clustertwin.telemetry.exporter.text.kernelfile import read_file

MAX_BYTES_READ = 48 << 20
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class SharedMapping:
    """One shared mapping: a file that several processes have mapped counts once."""

    device: str
    inode: int
    path: str  # below /proc/PID/map_files


def shared_mappings(pids: list[int]) -> list[SharedMapping]:
    """The writable shared mappings of these processes that are memory, and not files on a disk or devices."""
    found: dict[tuple[str, int], SharedMapping] = {}
    for pid in pids:
        try:
            text = read_file(f"/proc/{pid}/maps")
        except OSError:
            continue
        for line in text.splitlines():
            words = line.split(None, 5)
            if len(words) < 6 or words[1][1:2] != b"w" or words[1][3:4] != b"s" or not _is_memory(words[5]):
                continue
            key = (words[3].decode("ascii", "replace"), int(words[4]))
            begin, _, end = words[0].decode("ascii").partition("-")
            path = f"/proc/{pid}/map_files/{begin.lstrip('0') or '0'}-{end.lstrip('0') or '0'}"
            found.setdefault(key, SharedMapping(*key, path))
    return list(found.values())


def signature(mappings: list[SharedMapping]) -> int | None:
    """A checksum of the mappings; None if none of them can be read."""
    checksum, read, readable = 0, 0, False
    for mapping in mappings:
        try:
            descriptor = os.open(mapping.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            readable = True
            end, at = os.fstat(descriptor).st_size, 0
            while at < end and read < MAX_BYTES_READ:
                begin = os.lseek(descriptor, at, os.SEEK_DATA)
                hole = os.lseek(descriptor, begin, os.SEEK_HOLE)
                for offset in range(begin, hole, _CHUNK):
                    piece = os.pread(descriptor, min(_CHUNK, hole - offset), offset)
                    checksum, read = zlib.crc32(piece, checksum), read + len(piece)
                    if read >= MAX_BYTES_READ:
                        break
                at = hole
        except OSError:
            pass  # ENXIO: no data after this place; or the mapping has gone
        finally:
            os.close(descriptor)
    return checksum if readable else None


def _is_memory(path: bytes) -> bool:
    return path.startswith((b"/dev/shm/", b"/SYSV", b"/dev/zero", b"/memfd:", b"/tmp/")) or b"shm" in path
