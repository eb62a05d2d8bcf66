"""/proc/meminfo -> the node's memory in bytes."""

from __future__ import annotations

import os

from clustertwin.core.errors import InputError
from clustertwin.telemetry.exporter.text.kernelfile import read_file
from clustertwin.telemetry.exporter.text.text_format import family

#: The kernel's word -> our metric and its help. A word that this kernel does not write is left out.
FIELDS: dict[bytes, tuple[str, str]] = {
    b"MemTotal": ("twin_memory_total_bytes", "Memory that the kernel manages."),
    b"MemFree": ("twin_memory_free_bytes", "Memory that nothing uses."),
    b"MemAvailable": ("twin_memory_available_bytes", "Memory that a new program can have without swapping."),
    b"Buffers": ("twin_memory_buffers_bytes", "Raw disk blocks in memory."),
    b"Cached": ("twin_memory_cached_bytes", "Files in memory."),
    b"Dirty": ("twin_memory_dirty_bytes", "Memory waiting to be written to disk."),
    b"Writeback": ("twin_memory_writeback_bytes", "Memory being written to disk."),
    b"Shmem": ("twin_memory_shared_bytes", "Shared memory and tmpfs."),
    b"SwapTotal": ("twin_memory_swap_total_bytes", "Swap space."),
    b"SwapFree": ("twin_memory_swap_free_bytes", "Free swap space."),
}
_LINES = {word: family(name, "gauge", text) + name.encode() + b" %d\n" for word, (name, text) in FIELDS.items()}


def parse_meminfo(text: bytes, faults: list[str]) -> dict[bytes, int]:
    """The kernel's word -> bytes, for the words of `FIELDS`."""
    sizes: dict[bytes, int] = {}
    for line in text.splitlines():
        word, colon, rest = line.partition(b":")
        if word not in FIELDS or word in sizes:
            continue
        number, _, unit = rest.strip().partition(b" ")
        if colon and number.isdigit() and unit == b"kB":
            sizes[word] = int(number) * 1024
        else:
            faults.append(f"/proc/meminfo: not a size in kB: {line[:60].decode('ascii', 'backslashreplace')!r}")
    return sizes


class MemoryCollector:
    """The node's memory."""

    reads = "memory, from /proc/meminfo"

    def __init__(self, rootfs: str) -> None:
        self._path = os.path.join(rootfs, "proc/meminfo")

    def collect(self, faults: list[str]) -> bytes:
        sizes = parse_meminfo(read_file(self._path), faults)
        if b"MemTotal" not in sizes:
            raise InputError(self._path, "it has no line MemTotal")
        return b"".join([_LINES[word] % size for word, size in sizes.items()])
