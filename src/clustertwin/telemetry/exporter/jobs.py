"""cgroups -> what every job on the node has: its CPU set, CPU time, memory, pressure, I/O and owner.

There is no per-thread usage in cgroup v2. A job's threads are told by `twin_job_cpu_allocated`, one sample
a thread, which PromQL joins with the node's own counters:

    twin_cpu_seconds_total * on (instance, cpu) group_left (jobid, manager) twin_job_cpu_allocated

The label is `jobid` because Prometheus gives every series a `job` of its own. A job without a CPU set of its
own (HTCondor's shares, most pods) cannot be joined and has no such samples; its CPU time is there all the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from clustertwin.core.errors import InputError
from clustertwin.telemetry.exporter.cpuset import format_cpulist, own_cpus
from clustertwin.telemetry.exporter.exposition import family, label_value
from clustertwin.telemetry.exporter.kernelfile import reread
from clustertwin.telemetry.exporter.layouts import JobDirectory, Place, find_hierarchies, find_places
from clustertwin.telemetry.exporter.owner import owner_uid
from clustertwin.telemetry.exporter.pressure import parse_pressure

#: Between two searches for places, and between two looks at a settled job's CPU set and owner.
SURVEY_S = 10.0
YOUNG_S = 1.0  # between two looks at a new job that is not complete yet
MAX_JOBS = 512

FAMILIES: dict[str, bytes] = {
    name: family(name, kind, text)
    for name, kind, text in (
        ("twin_job_cpu_allocated", "gauge", "1 for every hardware thread in the job's own CPU set."),
        ("twin_job_owner_uid", "gauge", "The user id of the job's owner."),
        ("twin_job_cpu_seconds_total", "counter", "CPU seconds the job used, by mode."),
        ("twin_job_cpu_throttled_seconds_total", "counter", "Seconds the job was held back by its CPU quota."),
        ("twin_job_memory_bytes", "gauge", "Memory the job uses, files in memory included."),
        ("twin_job_memory_peak_bytes", "gauge", "The most memory the job ever used."),
        (
            "twin_job_pressure_seconds_total",
            "counter",
            "Seconds in which some, or all (full), tasks of the job waited.",
        ),
        ("twin_job_read_bytes_total", "counter", "Bytes the job read from block devices."),
        ("twin_job_written_bytes_total", "counter", "Bytes the job wrote to block devices."),
    )
}

#: One file's text and the job's labels -> sample lines for each of the file's families, in their order.
Writer = Callable[[bytes, bytes], tuple[bytes, ...]]

_CPU = b'twin_job_cpu_seconds_total{%b,mode="user"} %de-6\ntwin_job_cpu_seconds_total{%b,mode="system"} %de-6\n'


def cpu_stat(text: bytes, labels: bytes) -> tuple[bytes, ...]:
    words = text.split()
    usec = dict(zip(words[::2], words[1::2], strict=False))
    used = _CPU % (labels, int(usec[b"user_usec"]), labels, int(usec[b"system_usec"]))
    if b"throttled_usec" not in usec:
        return (used,)
    return used, b"twin_job_cpu_throttled_seconds_total{%b} %de-6\n" % (labels, int(usec[b"throttled_usec"]))


def io_stat(text: bytes, labels: bytes) -> tuple[bytes, ...]:
    read = sum(map(int, re.findall(rb"rbytes=(\d+)", text)))
    written = sum(map(int, re.findall(rb"wbytes=(\d+)", text)))
    return (
        b"twin_job_read_bytes_total{%b} %d\n" % (labels, read),
        b"twin_job_written_bytes_total{%b} %d\n" % (labels, written),
    )


def number(metric: str) -> Writer:
    """A file of one number of bytes."""
    line = metric.encode() + b"{%b} %d\n"
    return lambda text, labels: (line % (labels, int(text)),)


def cpuacct(mode: str) -> Writer:
    """A v1 file of one number of nanoseconds."""
    line = b'twin_job_cpu_seconds_total{%b,mode="' + mode.encode() + b'"} %de-9\n'
    return lambda text, labels: (line % (labels, int(text)),)


def pressure(resource: str) -> Writer:
    line = b'twin_job_pressure_seconds_total{%b,resource="' + resource.encode() + b'",share="%b"} %be-6\n'

    def write(text: bytes, labels: bytes) -> tuple[bytes, ...]:
        return (b"".join([line % (labels, share, total) for share, total in parse_pressure(text)]),)

    return write


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file that may be in a job's directory: managers delegate only some controllers, so all are optional."""

    version: int
    name: str
    families: tuple[str, ...]
    write: Writer


_USED = "twin_job_cpu_seconds_total"
FILES: tuple[JobFile, ...] = (
    JobFile(2, "cpu.stat", (_USED, "twin_job_cpu_throttled_seconds_total"), cpu_stat),
    JobFile(2, "memory.current", ("twin_job_memory_bytes",), number("twin_job_memory_bytes")),
    JobFile(2, "memory.peak", ("twin_job_memory_peak_bytes",), number("twin_job_memory_peak_bytes")),
    JobFile(2, "cpu.pressure", ("twin_job_pressure_seconds_total",), pressure("cpu")),
    JobFile(2, "io.pressure", ("twin_job_pressure_seconds_total",), pressure("io")),
    JobFile(2, "memory.pressure", ("twin_job_pressure_seconds_total",), pressure("memory")),
    JobFile(2, "io.stat", ("twin_job_read_bytes_total", "twin_job_written_bytes_total"), io_stat),
    JobFile(1, "cpuacct.usage_user", (_USED,), cpuacct("user")),
    JobFile(1, "cpuacct.usage_sys", (_USED,), cpuacct("system")),
    JobFile(1, "memory.usage_in_bytes", ("twin_job_memory_bytes",), number("twin_job_memory_bytes")),
    JobFile(1, "memory.max_usage_in_bytes", ("twin_job_memory_peak_bytes",), number("twin_job_memory_peak_bytes")),
)


@dataclass(slots=True)
class Job:
    """A job that was found: its open files, and what is looked up only now and then."""

    directories: list[JobDirectory]
    labels: bytes
    born_s: float
    next_look_s: float = float("-inf")  # when its CPU set and owner are looked at again
    files: list[tuple[int, JobFile]] = field(default_factory=list)  # open descriptors
    allocated: bytes = b""
    owner: bytes = b""
    ring_line: bytes = b""

    def open(self) -> None:
        """Open what is there. On a hybrid host v1 tells only what v2 does not."""
        told_by_v2: set[str] = set()
        opened: set[str] = set()
        for directory in sorted(self.directories, key=lambda d: -d.hierarchy.version):
            for file in FILES:
                if file.version != directory.hierarchy.version or file.name in opened:
                    continue
                if file.version == 1 and not told_by_v2.isdisjoint(file.families):
                    continue
                with contextlib.suppress(OSError):
                    fd = os.open(os.path.join(directory.path, file.name), os.O_RDONLY | os.O_CLOEXEC)
                    self.files.append((fd, file))
                    opened.add(file.name)
                    if file.version == 2:
                        told_by_v2.update(file.families)

    def close(self) -> None:
        for fd, _ in self.files:
            os.close(fd)
        self.files.clear()

    def look_up(self, rootfs: str, now_s: float) -> None:
        """CPU set and owner, as they are now."""
        # A new job's CPU set and processes come a moment after its directory.
        is_young = now_s < self.born_s + SURVEY_S
        self.next_look_s = now_s + (YOUNG_S if is_young and not (self.allocated and self.owner) else SURVEY_S)
        first = self.directories[0]
        cpus = own_cpus(self.directories)
        line = b'twin_job_cpu_allocated{%b,cpu="%d"} 1\n'
        self.allocated = b"".join([line % (self.labels, cpu) for cpu in cpus])
        job = re.sub(r"[\s%]", lambda m: f"%{ord(m[0]):02X}", first.job).encode("utf-8", "backslashreplace")
        self.ring_line = (
            b"job %b %b %b\n" % (first.manager.encode(), job, format_cpulist(cpus).encode()) if cpus else b""
        )
        if not self.owner and (uid := owner_uid(rootfs, self.directories)) is not None:
            self.owner = b"twin_job_owner_uid{%b} %d\n" % (self.labels, uid)


class JobsCollector:
    """The jobs of this node, whatever started them. `lines` holds their CPU sets, for the ring."""

    def __init__(self, rootfs: str, clock: Callable[[], float] = time.monotonic, max_jobs: int = MAX_JOBS) -> None:
        self._rootfs, self._clock, self._max_jobs = rootfs, clock, max_jobs
        self._places: list[Place] = []
        self._listings: list[list[JobDirectory]] = []
        self._jobs: dict[tuple[str, str], Job] = {}
        self._next_survey_s = float("-inf")
        self._found = 0
        self._dropped_total = 0

    @property
    def lines(self) -> bytes:
        return b"".join([job.ring_line for job in self._jobs.values()])

    def read(self, faults: list[str]) -> None:
        """Learn which jobs there are now."""
        now_s = self._clock()
        survey = now_s >= self._next_survey_s
        if survey:
            self._next_survey_s = now_s + SURVEY_S
            known = {place.path: place for place in self._places}
            found = find_places(find_hierarchies(self._rootfs))
            self._places = [known.get(place.path, place) for place in found]
        listings = [self._list(place, faults) for place in self._places]
        if len(listings) != len(self._listings) or any(map(_differ, listings, self._listings)):
            self._listings = listings
            self._match(now_s)
        for job in self._jobs.values():
            if now_s >= job.next_look_s:
                try:
                    job.look_up(self._rootfs, now_s)
                except (OSError, InputError) as error:
                    faults.append(f"{job.directories[0].path}: {error}")

    def collect(self, faults: list[str]) -> bytes:
        self.read(faults)
        self._dropped_total += self._found - len(self._jobs)
        pieces: dict[str, list[bytes]] = {name: [] for name in FAMILIES}
        pieces["twin_job_cpu_allocated"] = [job.allocated for job in self._jobs.values()]
        pieces["twin_job_owner_uid"] = [job.owner for job in self._jobs.values()]
        for key, job in list(self._jobs.items()):
            for fd, file in job.files:
                try:
                    for name, lines in zip(file.families, file.write(reread(fd), job.labels), strict=False):
                        pieces[name].append(lines)
                except OSError:
                    # The job ended while it was read; a new one of the same name is opened at the next scrape.
                    self._forget(key)
                    break
                except (ValueError, KeyError) as error:
                    where = os.path.join(job.directories[0].path, file.name)
                    faults.append(f"{where}: not what the kernel writes there: {error}")
        text = [FAMILIES[name] + b"".join(lines) for name, lines in pieces.items() if any(lines)]
        return b"".join(text) + _TALLY % (self._found, self._dropped_total)

    def close(self) -> None:
        for job in self._jobs.values():
            job.close()

    def _list(self, place: Place, faults: list[str]) -> list[JobDirectory]:
        try:
            return place.jobs()
        except OSError as error:
            faults.append(f"{place.path}: {error.strerror}")
            return []

    def _match(self, now_s: float) -> None:
        """Open jobs that came, close those that went; where there are too many, those already known stay."""
        groups: dict[tuple[str, str], list[JobDirectory]] = {}
        for listing in self._listings:
            for directory in listing:
                groups.setdefault((directory.manager, directory.job), []).append(directory)
        self._found = len(groups)
        for key in self._jobs.keys() - groups.keys():
            self._jobs.pop(key).close()
        for key, directories in groups.items():
            if key not in self._jobs and len(self._jobs) < self._max_jobs:
                labels = f'manager="{key[0]}",jobid="{label_value(key[1])}"'.encode()
                job = self._jobs[key] = Job(directories, labels, now_s)
                job.open()

    def _forget(self, key: tuple[str, str]) -> None:
        self._jobs.pop(key).close()
        self._listings = []


def _differ(a: list[JobDirectory], b: list[JobDirectory]) -> bool:
    # A place returns the same list object while nothing changed, so that this costs nothing.
    return a is not b


_TALLY = (
    family("twin_jobs", "gauge", "Jobs found on the node.")
    + b"twin_jobs %d\n"
    + family("twin_jobs_dropped_total", "counter", "Jobs left out of a scrape because there were too many.")
    + b"twin_jobs_dropped_total %d\n"
)
