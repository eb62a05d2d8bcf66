"""This host's own kernel files -> a reading each time it is asked. No exporter, no server."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.exporter.collectors.cpu import cpu_lines
from clustertwin.telemetry.exporter.collectors.memory import parse_meminfo
from clustertwin.telemetry.exporter.collectors.pressure import parse_pressure
from clustertwin.telemetry.exporter.jobs.cgroup_jobs import JobsCollector
from clustertwin.telemetry.exporter.kernelfile import read_file
from clustertwin.telemetry.ingest.counters import Reading
from clustertwin.telemetry.ingest.sources.ring_blocks import Blocks


class Host:
    """A live source. `root` is where its /proc and /sys are, so that a container can watch its host."""

    def __init__(
        self, root: Path | str = "/", node: str = "", *, jobs: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self.root, self.node = str(root), node or platform.node()
        self._clock = clock
        self._jobs = JobsCollector(self.root) if jobs else None
        self._stat = os.path.join(self.root, "proc/stat")
        self._blocks = Blocks(self.node, self._stat)

    def readings(self) -> list[Reading]:
        """One reading, now."""
        time_s = self._clock()
        try:
            lines = cpu_lines(read_file(self._stat))
        except OSError as error:
            raise SourceError(f"{self._stat}: {error.strerror}") from None
        if self._jobs:
            self._jobs.read([])
        reading = self._blocks.reading(time_s, lines, self._jobs.lines if self._jobs else b"")
        if not reading.cpus:
            raise SourceError(f"{self._stat}: no line of a single thread (cpu0 …)")
        memory, stalled = _memory_used_ratio(self.root), _io_stalled_s(self.root)
        return [replace(reading, memory_used_ratio=memory, io_stalled_s=stalled)]


def _memory_used_ratio(root: str) -> float:
    """NaN where the kernel does not tell."""
    try:
        found = parse_meminfo(read_file(os.path.join(root, "proc/meminfo")), [])
    except OSError:
        return np.nan
    total, available = found.get(b"MemTotal", 0), found.get(b"MemAvailable")
    return 1 - available / total if total and available is not None else np.nan


def _io_stalled_s(root: str) -> float:
    """NaN for a kernel without PSI."""
    try:
        rows = dict(parse_pressure(read_file(os.path.join(root, "proc/pressure/io"))))
    except OSError:
        return np.nan
    return int(rows[b"some"]) / 1e6 if b"some" in rows else np.nan
