"""Read this host's own kernel files: a reading at each call. No exporter and no server is needed."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from clustertwin.core.errors import InputError, SourceError
from clustertwin.telemetry.exporter.channel_samples import ChannelSamples
from clustertwin.telemetry.exporter.collectors import CHANNEL_COLLECTORS, collector_class
from clustertwin.telemetry.exporter.collectors.cpu import CpuCollector
from clustertwin.telemetry.exporter.jobs.cgroup_jobs import JobsCollector
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.sources.ring_blocks import RingReader


class Host:
    """A live source. `root` is where /proc and /sys are, so that a container can watch its host."""

    def __init__(
        self, root: Path | str = "/", node: str = "", *, jobs: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self.root, self.node = str(root), node or platform.node()
        self._clock = clock
        self._jobs = JobsCollector(self.root) if jobs else None
        self._collectors = [collector_class(name)(self.root) for name in CHANNEL_COLLECTORS]
        self._samples = ChannelSamples()
        self._cpu = CpuCollector(self.root)
        self._stat = os.path.join(self.root, "proc/stat")
        self._reader = RingReader(self.node, self._stat)

    def readings(self) -> list[NodeReading]:
        """One reading, now."""
        time_s = self._clock()
        try:
            lines = self._cpu.read()
        except OSError as error:
            raise SourceError(f"{self._stat}: {error.strerror}") from None
        except InputError as error:
            raise SourceError(str(error)) from None
        samples = self._cpu.samples
        for collector in self._collectors:
            with suppress(OSError, InputError):  # what this kernel does not have stays unknown
                samples += self._samples.pick(collector.collect([]))
        if self._jobs:
            self._jobs.sample()
        reading = self._reader.reading(time_s, lines, samples, self._jobs.lines if self._jobs else b"")
        if not reading.cpus:
            raise SourceError(f"{self._stat}: it has no line of a single thread (cpu0 …)")
        return [reading]
