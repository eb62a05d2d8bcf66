"""Whether the memory of processes changes: pids -> signatures, without stopping a process.

MPI libraries pass messages inside a node through shared memory. While ranks wait for a message that never comes, they
only read it. The memory is read through the file of the mapping, and holes are skipped, so no page is allocated.

A loop that only waits writes nothing to its private memory and keeps its registers. A loop that computes writes its
results, or changes registers. At most `MAX_PRIVATE` are read, from the stack and from the small writable mappings
first. Only pages that the process has are read: the kernel would count any other one as a page fault of the job, and
page faults are what tells a job that works from one that stands still.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from clustertwin.telemetry.diagnosis.process_files import maps_of
from clustertwin.telemetry.diagnosis.running_threads import RunningThreads

MAX_SHARED = 48 << 20
#: With more mappings or more text about them, whether messages pass is unknown.
MOST_SHARED_MAPPINGS = 512
MOST_LINES = 100_000
_CHUNK = 1 << 20
MAX_PRIVATE = 3 << 20
MAX_OF_MAPPING = 256 << 10
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT = 1 << 63  # of an entry of /proc/PID/pagemap


@dataclass(frozen=True, slots=True)
class SharedMapping:
    """One shared mapping: a file that several processes have mapped counts once."""

    device: str
    inode: int
    path: str  # below /proc/PID/map_files


def shared_mappings(pids: list[int]) -> list[SharedMapping]:
    """The writable shared mappings of these processes that are memory, and not files on a disk or devices.

    None of them if there are too many: a part of them cannot show that no message passes.
    """
    found: dict[tuple[str, int], SharedMapping] = {}
    lines = 0
    for pid in pids:
        mappings = maps_of(pid)
        lines += len(mappings)
        if lines > MOST_LINES or len(found) > MOST_SHARED_MAPPINGS:
            return []
        for words in mappings:
            if len(words) < 6 or words[1][1:2] != b"w" or words[1][3:4] != b"s" or not _is_memory(words[5]):
                continue
            key = (words[3].decode("ascii", "replace"), int(words[4]))
            begin, _, end = words[0].decode("ascii").partition("-")
            path = f"/proc/{pid}/map_files/{begin.lstrip('0') or '0'}-{end.lstrip('0') or '0'}"
            found.setdefault(key, SharedMapping(*key, path))
    return list(found.values()) if len(found) <= MOST_SHARED_MAPPINGS else []


def shared_signature(mappings: list[SharedMapping]) -> int | None:
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
            while at < end and read < MAX_SHARED:
                begin = os.lseek(descriptor, at, os.SEEK_DATA)
                hole = os.lseek(descriptor, begin, os.SEEK_HOLE)
                for offset in range(begin, hole, _CHUNK):
                    piece = os.pread(descriptor, min(_CHUNK, hole - offset), offset)
                    checksum, read = zlib.crc32(piece, checksum), read + len(piece)
                    if read >= MAX_SHARED:
                        break
                at = hole
        except OSError:
            pass  # ENXIO: no data after this place; or the mapping has gone
        finally:
            os.close(descriptor)
    return checksum if readable else None


def _is_memory(path: bytes) -> bool:
    return path.startswith((b"/dev/shm/", b"/SYSV", b"/dev/zero", b"/memfd:", b"/tmp/")) or b"shm" in path


def private_signature(pid: int, running: RunningThreads | None) -> int | None:
    """A checksum with that of the registers; None if one of them could not be read.

    A loop over a large array, or in registers alone, may write nothing to the memory that is read here. What the kernel
    writes when it moves the process to another CPU does not count.
    """
    if running is None:
        return None
    maps = maps_of(pid)
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            pages = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(memory)
            raise
    except OSError:
        return None
    checksum, read = running.registers, 0
    try:
        for begin, end in _writable(maps):
            if read >= MAX_PRIVATE:
                break
            try:
                for first, last in present_pages(pages, begin, min(end, begin + MAX_OF_MAPPING)):
                    piece = os.pread(memory, last - first, first)
                    place = zlib.crc32(first.to_bytes(8, "little"), checksum)
                    checksum, read = zlib.crc32(_without(piece, first, running.kernel_writes), place), read + len(piece)
            except OSError:
                continue
    finally:
        os.close(memory)
        os.close(pages)
    return checksum if read else None


def present_pages(pagemap: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The addresses of this memory that its process has: stretches of pages, in order."""
    entries = array("Q")
    entries.frombytes(os.pread(pagemap, (end - begin) // _PAGE * entries.itemsize, begin // _PAGE * entries.itemsize))
    first = None
    for page, entry in enumerate((*entries, 0)):
        if entry & _PRESENT and first is None:
            first = page
        elif not entry & _PRESENT and first is not None:
            yield begin + first * _PAGE, begin + page * _PAGE
            first = None


def _without(piece: bytes, begin: int, parts: Iterable[tuple[int, int]]) -> bytes:
    """Memory that begins at an address, with parts of it zeroed.

    >>> _without(b"abcdef", 100, [(102, 104)]), _without(b"abcdef", 100, [(90, 95)])
    (b'ab\\x00\\x00ef', b'abcdef')
    """
    for part in parts:
        first, last = (min(max(at - begin, 0), len(piece)) for at in part)
        piece = piece[:first] + bytes(last - first) + piece[last:]
    return piece


def _writable(maps: list[list[bytes]]) -> list[tuple[int, int]]:
    """Private writable mappings: the end of the stack first, which is in use, then the smallest."""
    ranges: list[tuple[int, int]] = []
    stack: list[tuple[int, int]] = []
    for words in maps:
        if words[1][1:2] != b"w" or words[1][3:4] != b"p":
            continue
        begin, end = (int(part, 16) for part in words[0].split(b"-"))
        if words[5:6] == [b"[stack]"]:
            stack.append((max(begin, end - MAX_OF_MAPPING), end))
        else:
            ranges.append((begin, end))
    return stack + sorted(ranges, key=lambda pair: pair[1] - pair[0])
