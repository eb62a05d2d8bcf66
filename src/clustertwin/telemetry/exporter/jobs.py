"""cgroups -> what every job on the node has: its CPU set, CPU time, memory, pressure, I/O and owner.

There is no per-thread usage in cgroup v2. A job's threads are told by `twin_job_cpu_allocated`, one sample
a thread, which PromQL joins with the node's own counters:

    twin_cpu_seconds_total * on (instance, cpu) group_left (jobid, manager) twin_job_cpu_allocated

The label is `jobid` because Prometheus gives every series a `job` of its own. A job without a CPU set of its
own (HTCondor's shares, most pods) cannot be joined and has no such samples; its CPU time is there all the same.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
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

#: One file's text and the job's labels -> (family, sample lines).
Samples = Iterable[tuple[str, bytes]]


def cpu_stat(text: bytes, labels: bytes) -> Samples:
    words = text.split()
    usec = dict(zip(words[::2], words[1::2], strict=False))
    for mode in (b"user", b"system"):
        line = b'twin_job_cpu_seconds_total{%b,mode="%b"} %de-6\n' % (labels, mode, int(usec[mode + b"_usec"]))
        yield "twin_job_cpu_seconds_total", line
    if throttled := usec.get(b"throttled_usec"):
        line = b"twin_job_cpu_throttled_seconds_total{%b} %de-6\n" % (labels, int(throttled))
        yield "twin_job_cpu_throttled_seconds_total", line


def io_stat(text: bytes, labels: bytes) -> Samples:
    for name, key in (("read", rb"rbytes=(\d+)"), ("written", rb"wbytes=(\d+)")):
        total = sum(map(int, re.findall(key, text)))
        yield f"twin_job_{name}_bytes_total", b"twin_job_%b_bytes_total{%b} %d\n" % (name.encode(), labels, total)


def number(metric: str) -> Callable[[bytes, bytes], Samples]:
    """A file of one number of bytes."""
    return lambda text, labels: ((metric, b"%b{%b} %d\n" % (metric.encode(), labels, int(text))),)


def cpuacct(mode: str) -> Callable[[bytes, bytes], Samples]:
    """A v1 file of one number of nanoseconds."""
    name, line = "twin_job_cpu_seconds_total", b'twin_job_cpu_seconds_total{%b,mode="%b"} %de-9\n'
    return lambda text, labels: ((name, line % (labels, mode.encode(), int(text))),)


def pressure(resource: str) -> Callable[[bytes, bytes], Samples]:
    name = "twin_job_pressure_seconds_total"
    line = b'twin_job_pressure_seconds_total{%b,resource="%b",share="%b"} %be-6\n'
    return lambda text, labels: (
        (name, line % (labels, resource.encode(), share, total)) for share, total in parse_pressure(text)
    )


#: cgroup version, file, what it tells. All are optional: managers delegate only some controllers.
FILES: tuple[tuple[int, str, Callable[[bytes, bytes], Samples]], ...] = (
    (2, "cpu.stat", cpu_stat),
    (2, "memory.current", number("twin_job_memory_bytes")),
    (2, "memory.peak", number("twin_job_memory_peak_bytes")),
    (2, "cpu.pressure", pressure("cpu")),
    (2, "io.pressure", pressure("io")),
    (2, "memory.pressure", pressure("memory")),
    (2, "io.stat", io_stat),
    (1, "cpuacct.usage_user", cpuacct("user")),
    (1, "cpuacct.usage_sys", cpuacct("system")),
    (1, "memory.usage_in_bytes", number("twin_job_memory_bytes")),
    (1, "memory.max_usage_in_bytes", number("twin_job_memory_peak_bytes")),
)


@dataclass(slots=True)
class Job:
    """A job that was found: its open files, and what is looked up only now and then."""

    directories: list[JobDirectory]
    labels: bytes
    settled_s: float  # from then on its CPU set and owner are looked at in surveys only
    files: list[tuple[str, int, Callable[[bytes, bytes], Samples]]] = field(default_factory=list)
    allocated: bytes = b""
    owner: bytes = b""
    ring_line: bytes = b""

    def open(self) -> None:
        """Open what is there. On a hybrid host v1 tells only what v2 does not."""
        told: set[Callable[[bytes, bytes], Samples]] = set()
        has_v2_cpu = False
        for directory in sorted(self.directories, key=lambda d: -d.hierarchy.version):
            for version, name, samples in FILES:
                path = os.path.join(directory.path, name)
                if version != directory.hierarchy.version or samples in told:
                    continue
                if version == 1 and has_v2_cpu and name.startswith("cpuacct"):
                    continue
                try:
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    continue
                self.files.append((path, fd, samples))
                told.add(samples)
                has_v2_cpu |= name == "cpu.stat"

    def close(self) -> None:
        for _, fd, _ in self.files:
            os.close(fd)
        self.files.clear()

    def look_up(self, rootfs: str) -> None:
        """CPU set and owner, as they are now."""
        first = self.directories[0]
        cpus = own_cpus(self.directories)
        line = b'twin_job_cpu_allocated{%b,cpu="%d"} 1\n'
        self.allocated = b"".join([line % (self.labels, cpu) for cpu in cpus])
        job = re.sub(r"[\s%]", lambda m: f"%{ord(m[0]):02X}", first.job).encode("utf-8", "backslashreplace")
        self.ring_line = (
            b"job %b %b %b\n" % (first.manager.encode(), job, format_cpulist(cpus).encode()) if cpus else b""
        )
        uid = owner_uid(rootfs, self.directories)
        self.owner = b"twin_job_owner_uid{%b} %d\n" % (self.labels, uid) if uid is not None else b""


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
            if survey or now_s < job.settled_s:
                try:
                    job.look_up(self._rootfs)
                except (OSError, InputError) as error:
                    faults.append(f"{job.directories[0].path}: {error}")

    def collect(self, faults: list[str]) -> bytes:
        self.read(faults)
        self._dropped_total += self._found - len(self._jobs)
        pieces: dict[str, list[bytes]] = {name: [] for name in FAMILIES}
        pieces["twin_job_cpu_allocated"] = [job.allocated for job in self._jobs.values()]
        pieces["twin_job_owner_uid"] = [job.owner for job in self._jobs.values()]
        for key, job in list(self._jobs.items()):
            for path, fd, samples in job.files:
                try:
                    for name, line in samples(reread(fd), job.labels):
                        pieces[name].append(line)
                except OSError:
                    # The job ended while it was read; a new one of the same name is opened at the next scrape.
                    self._forget(key)
                    break
                except (ValueError, KeyError) as error:
                    faults.append(f"{path}: not what the kernel writes there: {error}")
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
                job = self._jobs[key] = Job(directories, labels, settled_s=now_s + SURVEY_S)
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
