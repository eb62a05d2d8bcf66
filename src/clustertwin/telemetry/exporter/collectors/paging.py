"""/proc/vmstat -> major page faults, swap traffic and OOM kills of the node."""

from __future__ import annotations

import os
import re

from clustertwin.core.errors import InputError
from clustertwin.telemetry.exporter.text.kernelfile import read_file
from clustertwin.telemetry.exporter.text.text_format import family

#: The kernel's word -> our sample without its value. A word that this kernel does not write is left out.
SAMPLES: dict[bytes, bytes] = {
    b"pgmajfault": b"twin_major_faults_total",
    b"pswpin": b'twin_swap_pages_total{direction="in"}',
    b"pswpout": b'twin_swap_pages_total{direction="out"}',
    b"oom_kill": b"twin_oom_kills_total",
}
_HEADS = {
    b"pgmajfault": family("twin_major_faults_total", "counter", "Page faults that had to read from a disk."),
    b"pswpin": family("twin_swap_pages_total", "counter", "Pages moved to and from swap."),
    b"oom_kill": family("twin_oom_kills_total", "counter", "Processes killed because memory ran out."),
}
_LINE = re.compile(rb"^(pgmajfault|pswpin|pswpout|oom_kill) (\d{1,20})$", re.M)


def parse_vmstat(text: bytes) -> dict[bytes, bytes]:
    """The kernel's word -> its count as the kernel writes it, for the words of `SAMPLES`."""
    return dict(_LINE.findall(text))


class PagingCollector:
    """The node's paging."""

    reads = "major page faults, swap traffic and OOM kills, from /proc/vmstat"

    def __init__(self, rootfs: str) -> None:
        self._path = os.path.join(rootfs, "proc/vmstat")

    def collect(self, faults: list[str]) -> bytes:
        counts = parse_vmstat(read_file(self._path))
        if not counts:
            raise InputError(self._path, "it has no line pgmajfault, pswpin, pswpout or oom_kill")
        return b"".join(
            [_HEADS.get(word, b"") + b"%b %b\n" % (SAMPLES[word], counts[word]) for word in SAMPLES if word in counts]
        )
