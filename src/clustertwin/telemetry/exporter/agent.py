"""What the exporter tells about its node: a visible table of collectors -> one /metrics text, and the ring beside it.

A scrape takes a sample and puts it into the ring. Who asks for the ring gets one taken now, unless a scrape was just
there; a timer takes one only where nobody came. So what Prometheus stored and what the ring holds are the same
counters, and a second's sample is as fresh as can be.
"""

from __future__ import annotations

import contextlib
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from clustertwin import __version__
from clustertwin.telemetry.exporter.collectors.cpu import CpuCollector
from clustertwin.telemetry.exporter.collectors.disk import DiskCollector
from clustertwin.telemetry.exporter.collectors.memory import MemoryCollector
from clustertwin.telemetry.exporter.collectors.pressure import PressureCollector
from clustertwin.telemetry.exporter.jobs.cgroup_jobs import JobsCollector
from clustertwin.telemetry.exporter.sample_ring import Ring
from clustertwin.telemetry.exporter.text_format import family, label_value


class Collector(Protocol):
    """One kernel subject -> the text of its families. What could not be read goes to `faults`, the rest is returned."""

    def collect(self, faults: list[str]) -> bytes: ...


#: name -> (how to make it for a file-system root, what it reads); each has flags --collector.NAME, --no-collector.NAME
COLLECTORS: dict[str, tuple[Callable[[str], Collector], str]] = {
    "cpu": (CpuCollector, "CPU time of every hardware thread, from /proc/stat"),
    "memory": (MemoryCollector, "memory, from /proc/meminfo"),
    "pressure": (PressureCollector, "pressure stall information, from /proc/pressure"),
    "disk": (DiskCollector, "block devices, from /proc/diskstats"),
    "jobs": (JobsCollector, "jobs of Slurm, HTCondor, Kubernetes and systemd, from cgroups"),
}

#: A regular scraper comes a little late now and then: only after this long does the timer step in for it.
GRACE_S = 1.25
#: Whoever asks for the ring gets a sample no older than this; a scraper that is there every second stays in charge.
FRESH_S = 0.9
#: More than this between two looks at the clock, or backwards: it was set.
GAP_S = 5.0


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Which node, where its files are, what of them to read, and how long to remember (0: not at all)."""

    node: str
    rootfs: str = "/"
    collectors: tuple[str, ...] = tuple(COLLECTORS)
    ring_seconds: float = 600.0


class Agent:
    """The collectors of one node and its ring. Several threads may scrape; they take turns."""

    def __init__(
        self,
        settings: AgentSettings,
        log: Callable[[str, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log, self._clock = log, clock
        self._collectors = {name: COLLECTORS[name][0](settings.rootfs) for name in settings.collectors}
        cpu, jobs = self._collectors.get("cpu"), self._collectors.get("jobs")
        self._cpu = cpu if isinstance(cpu, CpuCollector) else None
        self._jobs = jobs if isinstance(jobs, JobsCollector) else None
        self._ring = Ring(settings.ring_seconds) if settings.ring_seconds and self._cpu else None
        self._faults: dict[str, str] = dict.fromkeys(settings.collectors, "")
        self._beat_s = self._due_s = float("-inf")
        self._lock = Lock()
        self._self_text = _self_text(settings)

    def scrape(self) -> bytes:
        """The whole /metrics text, now."""
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes]:
        """The same in pieces, for who sends them on: joining 150 kB costs a part of a scrape."""
        with self._lock:
            begun = time.perf_counter()
            t_s = self._clock()
            pieces, success, duration = [], [_SUCCESS], [_DURATION]
            before = begun
            for name, collector in self._collectors.items():
                text, fine = self._collect(name, collector)
                after = time.perf_counter()
                pieces.append(text)
                success.append(b'twin_exporter_collector_success{collector="%b"} %d\n' % (name.encode(), fine))
                duration.append(
                    b'twin_exporter_collector_duration_seconds{collector="%b"} %.6f\n' % (name.encode(), after - before)
                )
                before = after
            self._keep(t_s)
            self._beat_s, self._due_s = t_s, t_s + GRACE_S
            pieces += success + duration
            pieces.append(self._self_text)
            if self._ring:
                pieces.append(_RING % (self._ring.begin_s or t_s, self._ring.size_bytes))
            pieces.append(_SCRAPE % (time.perf_counter() - begun))
            return pieces

    def tick(self) -> float:
        """Put a sample into the ring if none was taken for a second; the seconds until the next may be due."""
        if self._ring is None or self._cpu is None:
            return 1.0
        with self._lock:
            t_s = self._clock()
            if not -GAP_S < t_s - self._beat_s < GAP_S:
                self._beat_s = self._due_s = t_s  # the first, or the clock was set
            if t_s >= self._due_s:
                # On the beat of the last scrape, or of the first tick: a late tick must not make all others late.
                self._beat_s += math.floor(t_s - self._beat_s + 0.5)
                self._due_s = self._beat_s + 1.0
                self._sample(t_s)
            return max(0.0, self._due_s - self._clock())

    def ring_since(self, since_s: float) -> Iterator[bytes] | None:
        """The ring's text from a moment on, up to now; None where no ring is kept."""
        if self._ring is None:
            return None
        with self._lock:
            t_s = self._clock()
            if not 0 <= t_s - (self._ring.last_s or 0.0) < FRESH_S:
                self._sample(t_s)
                self._beat_s, self._due_s = t_s, t_s + GRACE_S
        return self._ring.since(since_s)

    def _sample(self, t_s: float) -> None:
        """Into the ring only."""
        with contextlib.suppress(Exception):  # the next scrape will say what is wrong
            if self._cpu:
                self._cpu.read()
            if self._jobs:
                self._jobs.read([])
            self._keep(t_s)

    def _collect(self, name: str, collector: Collector) -> tuple[bytes, bool]:
        """One subject's text; whatever breaks in it stays in it, and is logged when it begins and when it ends."""
        faults: list[str] = []
        try:
            text = collector.collect(faults)
        except Exception as error:
            text = b""
            faults.append(str(error) or type(error).__name__)
        was, now = self._faults[name], faults[0] if faults else ""
        self._faults[name] = now
        if now and not was:
            self._log("warning", f"collector {name}: {now}" + (f" and {len(faults) - 1} more" if faults[1:] else ""))
        elif was and not now:
            self._log("info", f"collector {name}: works again")
        return text, not faults

    def _keep(self, t_s: float) -> None:
        if self._ring and self._cpu and self._cpu.lines:
            self._ring.add(t_s, self._cpu.lines + (self._jobs.lines if self._jobs else b""))


def _self_text(settings: AgentSettings) -> bytes:
    build = f'version="{__version__}",python="{platform.python_version()}"'
    return (
        family("twin_exporter_build_info", "gauge", "Which exporter this is.")
        + f"twin_exporter_build_info{{{build}}} 1\n".encode()
        + family("twin_node_info", "gauge", "The name under which this node is known.")
        + f'twin_node_info{{node="{label_value(settings.node)}"}} 1\n'.encode()
    )


_SUCCESS = family("twin_exporter_collector_success", "gauge", "1 where a collector could read all it should.")
_DURATION = family("twin_exporter_collector_duration_seconds", "gauge", "How long a collector took.")
_SCRAPE = (
    family("twin_exporter_scrape_duration_seconds", "gauge", "How long this scrape took.")
    + b"twin_exporter_scrape_duration_seconds %.6f\n"
)
_RING = (
    family("twin_exporter_ring_begin_timestamp_seconds", "gauge", "When the oldest sample of the ring was taken.")
    + b"twin_exporter_ring_begin_timestamp_seconds %.3f\n"
    + family("twin_exporter_ring_bytes", "gauge", "Memory that the ring's samples take.")
    + b"twin_exporter_ring_bytes %d\n"
)
