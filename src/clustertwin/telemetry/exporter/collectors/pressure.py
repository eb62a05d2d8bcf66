"""/proc/pressure -> seconds in which tasks waited for CPU, memory or I/O (pressure stall information, PSI).

A kernel without PSI, or with PSI switched off, gives no samples. That is not a fault.
"""

from __future__ import annotations

import errno
import os
import re

from clustertwin.telemetry.exporter.text.kernelfile import read_file
from clustertwin.telemetry.exporter.text.text_format import family

RESOURCES = ("cpu", "io", "memory")

_LINE = re.compile(rb"^(some|full) avg10=[\d.]+ avg60=[\d.]+ avg300=[\d.]+ total=(\d+)$", re.M)
_HEAD = family(
    "twin_pressure_seconds_total",
    "counter",
    "Seconds in which some or all (full) tasks of the node waited for a resource.",
)


def parse_pressure(text: bytes) -> list[tuple[bytes, bytes]]:
    """`some` and `full`, each with its microseconds as the kernel writes them; empty if there are none."""
    return _LINE.findall(text)


class PressureCollector:
    """The node's pressure stall information."""

    reads = "pressure stall information, from /proc/pressure"

    def __init__(self, rootfs: str) -> None:
        self._paths = {name.encode(): os.path.join(rootfs, "proc/pressure", name) for name in RESOURCES}

    def collect(self, faults: list[str]) -> bytes:
        pieces = []
        for resource, path in self._paths.items():
            try:
                rows = parse_pressure(read_file(path))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EOPNOTSUPP):
                    faults.append(f"{path}: {error.strerror}")
                continue
            if not rows:
                faults.append(f"{path}: it has no line like 'some avg10=… total=…'")
            pieces += [
                b'twin_pressure_seconds_total{resource="%b",share="%b"} %be-6\n' % (resource, share, total)
                for share, total in rows
            ]
        return _HEAD + b"".join(pieces) if pieces else b""
