"""One node's exporter without HTTP: collectors -> the /metrics page, and the ring of the last minutes beside it.

Every scrape adds its sample to the ring. A request for the ring takes a sample first, unless a scrape has just taken
one. A timer takes one only if a second passes without either. So Prometheus and the ring hold the same counters, and
the newest sample is always fresh.
"""

from __future__ import annotations

import contextlib
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock

from clustertwin import __version__
from clustertwin.telemetry.exporter.channel_samples import ChannelSamples
from clustertwin.telemetry.exporter.collectors import CHANNEL_COLLECTORS, COLLECTORS, Collector, collector_class
from clustertwin.telemetry.exporter.collectors.cpu import CpuCollector
from clustertwin.telemetry.exporter.jobs.cgroup_jobs import JobsCollector
from clustertwin.telemetry.exporter.sample_ring import SampleRing
from clustertwin.telemetry.exporter.text.text_format import family, label_value

#: A regular scraper is sometimes a little late: the timer waits this long before it takes a sample instead.
GRACE_S = 1.25
#: A request for the ring takes a new sample if the last one is older. A scraper that comes every second stays ahead.
FRESH_S = 0.9
#: If the clock moves by more than this between two ticks, or backwards, it was set.
CLOCK_SET_S = 5.0


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """`rootfs` is where the node's /proc and /sys are. With `ring_seconds` 0 no ring is kept."""

    node: str
    rootfs: str = "/"
    collectors: tuple[str, ...] = tuple(COLLECTORS)
    ring_seconds: float = 600.0


class Agent:
    """The collectors of one node and its ring. Threads that scrape at the same time wait for each other."""

    def __init__(
        self,
        settings: AgentSettings,
        log: Callable[[str, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log, self._clock = log, clock
        self._collectors: dict[str, Collector] = {
            name: collector_class(name)(settings.rootfs) for name in settings.collectors
        }
        cpu, jobs = self._collectors.get("cpu"), self._collectors.get("jobs")
        self._cpu = cpu if isinstance(cpu, CpuCollector) else None
        self._jobs = jobs if isinstance(jobs, JobsCollector) else None
        self._ring = SampleRing(settings.ring_seconds) if settings.ring_seconds and self._cpu else None
        self._samples = ChannelSamples()
        self._faults: dict[str, str] = dict.fromkeys(settings.collectors, "")
        self._beat_s = self._due_s = float("-inf")
        self._lock = Lock()
        self._self_text = _self_text(settings)
        # In each sample of the ring too: behind an address of several nodes, another one can answer each request.
        self._node_sample = _node_sample(settings.node)

    def scrape(self) -> bytes:
        """The whole /metrics page, read now."""
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes]:
        """The page in pieces: a server can send them without joining 150 kB first."""
        with self._lock:
            begun = time.perf_counter()
            time_s = self._clock()
            pieces, success, duration, samples = [], [_SUCCESS], [_DURATION], []
            before = begun
            for name, collector in self._collectors.items():
                text, is_complete = self._collect(name, collector)
                pieces.append(text)
                if name in CHANNEL_COLLECTORS:
                    samples.append(self._samples.pick(text))
                after = time.perf_counter()
                success.append(b'twin_exporter_collector_success{collector="%b"} %d\n' % (name.encode(), is_complete))
                duration.append(
                    b'twin_exporter_collector_duration_seconds{collector="%b"} %.6f\n' % (name.encode(), after - before)
                )
                before = after
            self._add_to_ring(time_s, b"".join(samples))
            self._beat_s, self._due_s = time_s, time_s + GRACE_S
            pieces += success + duration
            pieces.append(self._self_text)
            if self._ring:
                pieces.append(_RING % (self._ring.begin_s or time_s, self._ring.size_bytes))
            pieces.append(_SCRAPE % (time.perf_counter() - begun))
            return pieces

    def tick(self) -> float:
        """Add a sample to the ring if none was taken for a second; the seconds until the next may be due."""
        if self._ring is None or self._cpu is None:
            return 1.0
        with self._lock:
            time_s = self._clock()
            if not -CLOCK_SET_S < time_s - self._beat_s < CLOCK_SET_S:
                self._beat_s = self._due_s = time_s  # the first tick, or the clock was set
            if time_s >= self._due_s:
                # On the beat of the last scrape, or of the first tick: one late tick must not delay all later ones.
                self._beat_s += math.floor(time_s - self._beat_s + 0.5)
                self._due_s = self._beat_s + 1.0
                self._sample(time_s)
            return max(0.0, self._due_s - self._clock())

    def ring_since(self, since_s: float) -> Iterator[bytes] | None:
        """The ring's text from a time until now; None if no ring is kept."""
        if self._ring is None:
            return None
        with self._lock:
            time_s = self._clock()
            if not 0 <= time_s - (self._ring.last_s or 0.0) < FRESH_S:
                self._sample(time_s)
                self._beat_s, self._due_s = time_s, time_s + GRACE_S
        return self._ring.since(since_s)

    def _sample(self, time_s: float) -> None:
        """Read only what the ring keeps. What fails is missing from the sample; the next scrape reports it."""
        samples = []
        for name in CHANNEL_COLLECTORS:
            with contextlib.suppress(Exception):
                if name in self._collectors:
                    samples.append(self._samples.pick(self._collectors[name].collect([])))
        with contextlib.suppress(Exception):
            if self._cpu:
                self._cpu.read()
            if self._jobs:
                self._jobs.sample()
            self._add_to_ring(time_s, b"".join(samples))

    def _collect(self, name: str, collector: Collector) -> tuple[bytes, bool]:
        """A collector's text, and whether it is complete. A failure is logged when it begins and when it ends."""
        faults: list[str] = []
        try:
            text = collector.collect(faults)
        except Exception as error:
            text = b""
            faults.append(str(error) or type(error).__name__)
        before, now = self._faults[name], faults[0] if faults else ""
        self._faults[name] = now
        if now and not before:
            self._log("warning", f"collector {name}: {now}" + (f" and {len(faults) - 1} more" if faults[1:] else ""))
        elif before and not now:
            self._log("info", f"collector {name}: works again")
        return text, not faults

    def _add_to_ring(self, time_s: float, samples: bytes) -> None:
        if self._ring and self._cpu and self._cpu.lines:
            lines = self._jobs.lines if self._jobs else b""
            self._ring.add(time_s, self._cpu.lines + self._node_sample + self._cpu.samples + samples + lines)


def _node_sample(node: str) -> bytes:
    return f'twin_node_info{{node="{label_value(node)}"}} 1\n'.encode()


def _self_text(settings: AgentSettings) -> bytes:
    build = f'version="{__version__}",python="{platform.python_version()}"'
    return (
        family("twin_exporter_build_info", "gauge", "The version of the exporter and of Python.")
        + f"twin_exporter_build_info{{{build}}} 1\n".encode()
        + family("twin_node_info", "gauge", "The name of the node.")
        + _node_sample(settings.node)
    )


_SUCCESS = family("twin_exporter_collector_success", "gauge", "1 if a collector could read everything it should.")
_DURATION = family("twin_exporter_collector_duration_seconds", "gauge", "How long a collector took.")
_SCRAPE = (
    family("twin_exporter_scrape_duration_seconds", "gauge", "How long this scrape took.")
    + b"twin_exporter_scrape_duration_seconds %.6f\n"
)
_RING = (
    family("twin_exporter_ring_begin_timestamp_seconds", "gauge", "When the oldest sample of the ring was taken.")
    + b"twin_exporter_ring_begin_timestamp_seconds %.3f\n"
    + family("twin_exporter_ring_bytes", "gauge", "Memory that the samples of the ring use.")
    + b"twin_exporter_ring_bytes %d\n"
)
