"""cgroups -> the jobs of the node: CPU set, CPU time, memory, pressure, I/O and owner of each.

cgroup v2 has no usage by thread. `twin_job_cpu_allocated` has one sample for every thread of a job, and PromQL joins
it with the counters of the node:

    twin_cpu_seconds_total * on (instance, cpu) group_left (jobid, manager) twin_job_cpu_allocated

The label is `jobid` because Prometheus adds a label `job` to every series. A job without its own CPU set (HTCondor's
shares, most pods) cannot be joined and has no such samples; its CPU time is exposed all the same.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import is_not

from clustertwin.core.errors import InputError
from clustertwin.telemetry.exporter.jobs.cgroup_files import FAMILIES, FILES, JobFile
from clustertwin.telemetry.exporter.jobs.cgroup_layouts import (
    JobDirectory,
    Place,
    find_hierarchies,
    find_places,
)
from clustertwin.telemetry.exporter.jobs.cpuset import format_cpulist, own_cpus
from clustertwin.telemetry.exporter.jobs.file_batch import FileBatch
from clustertwin.telemetry.exporter.jobs.job_owner import owner_uid
from clustertwin.telemetry.exporter.jobs.job_stats import NEEDED, JobStats, RingJob
from clustertwin.telemetry.exporter.jobs.memory_limit import memory_limit_bytes
from clustertwin.telemetry.exporter.text.kernelfile import reread
from clustertwin.telemetry.exporter.text.text_format import family, label_value

#: Between two searches for places, and between two lookups of the CPU set and owner of a known job.
SURVEY_S = 10.0
YOUNG_S = 1.0  # between two lookups of a new job whose CPU set or owner is still missing
MAX_JOBS = 512
#: Jobs whose counters are in the ring. An older reader takes 1,024 lines of jobs, of which each job has one or two.
MAX_RING_STATS = 500

#: The files that the ring needs at every sample.
_RING_FILES = tuple(file for file in FILES if not NEEDED.isdisjoint(file.families))


@dataclass(slots=True)
class CgroupJob:
    """A job on the node: its open files, and the CPU set and owner that are looked up only occasionally."""

    directories: list[JobDirectory]
    labels: bytes
    born_s: float
    next_lookup_s: float = float("-inf")  # of the CPU set and the owner
    files: dict[str, int] = field(default_factory=dict)  # name -> open descriptor
    allocated: bytes = b""
    owner: bytes = b""
    limit: bytes = b""  # of memory
    ring_line: bytes = b""
    ring_job: RingJob | None = None
    fault: str = ""  # of the last lookup

    def open(self) -> None:
        """Open the files that exist. On a hybrid host, v1 files are used only for what v2 does not have."""
        families_of_v2: set[str] = set()
        for directory in sorted(self.directories, key=lambda d: -d.hierarchy.version):
            for file in FILES:
                if file.version != directory.hierarchy.version or file.key in self.files:
                    continue
                if file.version == 1 and not families_of_v2.isdisjoint(file.families):
                    continue
                with contextlib.suppress(OSError):
                    path = os.path.join(directory.path, file.name)
                    self.files[file.key] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    if file.version == 2:
                        families_of_v2.update(file.families)

    def close(self) -> None:
        for fd in self.files.values():
            os.close(fd)
        self.files.clear()

    def look_up(self, rootfs: str, now_s: float) -> None:
        """Read the CPU set, the owner and the limit of memory."""
        # The CPU set and the processes of a new job appear shortly after its directory.
        is_young = now_s < self.born_s + SURVEY_S
        self.next_lookup_s = now_s + (YOUNG_S if is_young and not (self.allocated and self.owner) else SURVEY_S)
        first = self.directories[0]
        cpus = own_cpus(self.directories)
        line = b'twin_job_cpu_allocated{%b,cpu="%d"} 1\n'
        self.allocated = b"".join([line % (self.labels, cpu) for cpu in cpus])
        job = re.sub(r"[\s%]", lambda m: f"%{ord(m[0]):02X}", first.job).encode("utf-8", "backslashreplace")
        name = b"%b %b" % (first.manager.encode(), job)
        self.ring_line = b"job %b %b\n" % (name, format_cpulist(cpus).encode()) if cpus else b""
        self.ring_job = RingJob(self.labels, name, len(cpus)) if cpus else None
        limit = memory_limit_bytes(rootfs, self.directories)
        self.limit = b"" if limit is None else b"twin_job_memory_limit_bytes{%b} %d\n" % (self.labels, limit)
        if not self.owner and (uid := owner_uid(rootfs, self.directories)) is not None:
            self.owner = b"twin_job_owner_uid{%b} %d\n" % (self.labels, uid)


class JobsCollector:
    """The jobs of all workload managers on this node. `lines` holds their CPU sets and counters, for the ring."""

    reads = "jobs of Slurm, HTCondor, Kubernetes and systemd, from cgroups"

    def __init__(self, rootfs: str, clock: Callable[[], float] = time.monotonic, max_jobs: int = MAX_JOBS) -> None:
        self._rootfs, self._clock, self._max_jobs = rootfs, clock, max_jobs
        self._places: list[Place] = []
        self._listings: list[list[JobDirectory]] = []
        self._jobs: dict[tuple[str, str], CgroupJob] = {}
        self._batches = {file.key: FileBatch(file.write) for file in FILES}
        self._stats = JobStats()
        self._stat_lines = b""
        self._next_survey_s = float("-inf")
        self._count = 0
        self._dropped_total = 0

    @property
    def lines(self) -> bytes:
        return b"".join([job.ring_line for job in self._jobs.values()]) + self._stat_lines

    def read(self, faults: list[str]) -> None:
        """Update the list of jobs."""
        now_s = self._clock()
        survey = now_s >= self._next_survey_s
        if survey:
            self._next_survey_s = now_s + SURVEY_S
            known = {place.path: place for place in self._places}
            places = find_places(find_hierarchies(self._rootfs))
            self._places = [known.get(place.path, place) for place in places]
        listings = [self._list(place, faults) for place in self._places]
        # A place returns the same list object until something changes, so this comparison is cheap.
        if len(listings) != len(self._listings) or any(map(is_not, listings, self._listings)):
            self._listings = listings
            self._match(now_s)
        for job in self._jobs.values():
            if now_s >= job.next_lookup_s:
                try:
                    job.look_up(self._rootfs, now_s)
                    job.fault = ""
                except (OSError, InputError) as error:
                    job.fault = f"{job.directories[0].path}: {error}"
            if job.fault:
                faults.append(job.fault)

    def collect(self, faults: list[str]) -> bytes:
        self.read(faults)
        self._dropped_total += self._count - len(self._jobs)
        pieces = self._counters(FILES, faults)
        pieces["twin_job_cpu_allocated"] = [job.allocated for job in self._jobs.values()]
        pieces["twin_job_owner_uid"] = [job.owner for job in self._jobs.values()]
        self._keep_stats(pieces)
        text = [FAMILIES[name] + b"".join(lines) for name, lines in pieces.items() if any(lines)]
        return b"".join(text) + _TALLY % (self._count, self._dropped_total)

    def sample(self) -> None:
        """Update `lines`: the list of jobs, and the counters that the ring keeps."""
        self.read([])
        self._keep_stats(self._counters(_RING_FILES, []))

    def _counters(self, files: tuple[JobFile, ...], faults: list[str]) -> dict[str, list[bytes]]:
        """Read these files of every job -> the sample lines of each family."""
        pieces: dict[str, list[bytes]] = {name: [] for name in FAMILIES}
        for file in files:
            members, texts = self._read_all(file)
            if not members:
                continue
            labels = [job.labels for job in members]
            lines = self._batches[file.key].lines(texts, labels) if file.in_batches else None
            if lines is None:
                lines = _each_alone(file, members, texts, faults)
            for name, piece in zip(file.families, lines, strict=False):
                pieces[name].append(piece)
        pieces["twin_job_memory_limit_bytes"] = [job.limit for job in self._jobs.values()]
        return pieces

    def _keep_stats(self, pieces: dict[str, list[bytes]]) -> None:
        jobs = [job.ring_job for job in self._jobs.values() if job.ring_job is not None][:MAX_RING_STATS]
        needed = (text for name, lines in pieces.items() if name in NEEDED for text in lines)
        self._stat_lines = self._stats.lines(needed, jobs)

    def close(self) -> None:
        for job in self._jobs.values():
            job.close()

    def _read_all(self, file: JobFile) -> tuple[list[CgroupJob], list[bytes]]:
        """Read a file of every job that has it."""
        members, texts = [], []
        for key, job in list(self._jobs.items()):
            fd = job.files.get(file.key)
            if fd is not None:
                try:
                    texts.append(reread(fd))
                    members.append(job)
                except OSError as error:
                    if error.errno == errno.ENODEV:
                        # The job has just ended; a new job of the same name is opened at the next scrape.
                        self._forget(key)
                    else:
                        os.close(job.files.pop(file.key))  # PSI is switched off on this kernel
        return members, texts

    def _list(self, place: Place, faults: list[str]) -> list[JobDirectory]:
        try:
            return place.jobs()
        except OSError as error:
            faults.append(f"{place.path}: {error.strerror}")
            return []

    def _match(self, now_s: float) -> None:
        """Open new jobs and close ended ones. Above the limit, known jobs stay and new ones are dropped."""
        groups: dict[tuple[str, str], list[JobDirectory]] = {}
        for listing in self._listings:
            for directory in listing:
                groups.setdefault((directory.manager, directory.job), []).append(directory)
        self._count = len(groups)
        for key, job in list(self._jobs.items()):
            if groups.get(key) != job.directories:  # ended, or its directories are still being created
                self._jobs.pop(key).close()
        for key, directories in groups.items():
            if key not in self._jobs and len(self._jobs) < self._max_jobs:
                labels = f'manager="{key[0]}",jobid="{label_value(key[1])}"'.encode()
                job = self._jobs[key] = CgroupJob(directories, labels, now_s)
                job.open()

    def _forget(self, key: tuple[str, str]) -> None:
        self._jobs.pop(key).close()
        self._listings = []


def _each_alone(file: JobFile, members: list[CgroupJob], texts: list[bytes], faults: list[str]) -> list[bytes]:
    """Parse file after file, so that one bad file is one fault and the others are exposed."""
    pieces: list[list[bytes]] = [[] for _ in file.families]
    for job, text in zip(members, texts, strict=True):
        try:
            for lines, piece in zip(pieces, file.write(file.words(text), job.labels), strict=False):
                lines.append(piece)
        except (ValueError, KeyError) as error:
            where = os.path.join(job.directories[0].path, file.name)
            faults.append(f"{where}: unexpected content: {error}")
    return [b"".join(lines) for lines in pieces]


_TALLY = (
    family("twin_jobs", "gauge", "Jobs found on the node.")
    + b"twin_jobs %d\n"
    + family("twin_jobs_dropped_total", "counter", "Jobs left out of a scrape because the node has too many.")
    + b"twin_jobs_dropped_total %d\n"
)
