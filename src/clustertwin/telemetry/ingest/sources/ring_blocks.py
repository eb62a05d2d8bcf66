"""Read the ring of our exporter: blocks of text -> readings.

    t 1731700000.123
    cpu0 4705 150 1120 16250 520 0 17 0 0 0
    twin_node_info{node="n1"} 1
    twin_memory_available_bytes 8589934592
    job slurm 4711 0-3,8
    stats twin_job_cpu_allocated twin_job_cpu_seconds_total{mode="user"} …
    stat slurm 4711 5 71200000e-6 …

A block has the kernel's lines of single threads, sample lines with the name of the node and of the series behind the
node channels, a line for each job with its own CPU set, and the counters of these jobs. An older exporter writes no
sample lines, no name or no counters: the channels that need them are unknown. Lines of other kinds are skipped, so that
a newer exporter can add some.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled
from clustertwin.core.errors import ExpositionError, InputError, SourceError
from clustertwin.telemetry.exporter.collectors.cpu import parse_cpu_lines
from clustertwin.telemetry.exporter.jobs.cpuset import parse_cpulist
from clustertwin.telemetry.ingest.counters import (
    MODES,
    NAME_CHARS,
    NODE_THREADS,
    UNKNOWN_OPERANDS,
    JobCpus,
    NodeReading,
    short_name,
)
from clustertwin.telemetry.ingest.exposition_parser import ExpositionLimits, MetricSample, parse
from clustertwin.telemetry.ingest.incremental_parser import IncrementalParser
from clustertwin.telemetry.ingest.node_channels import OperandSlots
from clustertwin.telemetry.ingest.sources.stat_lines import StatLines, split_stats

#: USER_HZ: the unit of the counts on every Linux, whatever its own tick rate is.
TICKS_PER_S = 100

_TIME = re.compile(rb"\d{1,12}(?:\.\d{1,9})?")
#: The kernel's counts have 64 bits, which is at most 20 digits. A longer one overflows a float or stops int().
_LONG_COUNT = re.compile(rb"\d{21}")
_ODD = -1
_NODE = "twin_node_info"

#: Limits: the text comes from the network, and each limit is checked before the work it bounds.
MOST_BYTES = 64 << 20  # ten minutes of 1,000 threads; each line has about 80 bytes
MOST_BLOCKS = 4096  # an exporter keeps 600, one for each second
MOST_JOBS = 1024  # in a block; an exporter reads at most 512
MOST_JOB_THREADS = 1 << 17  # of all jobs of a block together; jobs may share threads
SAMPLE_LIMITS = ExpositionLimits(text_bytes=1 << 20, samples=10_000)  # of a block; an exporter writes about 20
MOST_SINGLE_LINES = 2000  # samples of all blocks that are parsed one by one, because another in their block is bad


@compiled
def _scan(text, cpus, ticks):  # type: ignore[no-untyped-def]
    """`cpuN a b c …` lines -> cpus (line,), ticks (line, mode). Returns 0, or _ODD if a line has another form.

    Accepts only what a kernel writes: one blank between counts, threads in order, lines of equal width, and a newline
    at the end.
    """
    at = line = width = 0
    end = len(text)
    if end and text[end - 1] != 10:
        return _ODD
    while at < end:
        if line == len(cpus) or end - at < 5 or text[at] != 99 or text[at + 1] != 112 or text[at + 2] != 117:
            return _ODD
        at += 3
        number = count = -1
        while text[at] != 10:  # the text ends with one
            if count >= 0:
                if text[at] != 32:
                    return _ODD
                at += 1
            first, value = at, 0
            while 48 <= text[at] <= 57:
                value = value * 10 + (text[at] - 48)
                at += 1
            digits = at - first
            if digits == 0 or digits > 18:
                return _ODD
            if count < 0:
                if digits > 6 or (digits > 1 and text[first] == 48):
                    return _ODD
                number = value
            elif count < ticks.shape[1]:
                ticks[line, count] = value
            count += 1
        at += 1
        width = count if line == 0 else width
        if count != width or count < 4 or (line > 0 and number <= cpus[line - 1]):
            return _ODD
        cpus[line] = number
        line += 1
    return 0


class RingReader:
    """The blocks of one node. Threads and jobs that are the same as in the block before cost nothing."""

    def __init__(self, node: str, where: object) -> None:
        self.node, self.where = node, where
        self._cpus: tuple[int, ...] = ()
        self._numbers = np.zeros(0, np.int64)
        self._samples = _SampleLines()
        self._most_cpus = 0
        self._job_lines = b""
        self._jobs: tuple[JobCpus, ...] = ()
        self._stats = StatLines(MOST_JOBS)
        self.exporter_node = ""  # the name that the exporter gave; empty: none

    def read(self, text: bytes) -> list[NodeReading]:
        """Every block, oldest first; SourceError if the text is not a ring. A last line that is cut off is ignored."""
        if text and not text.startswith(b"t "):
            raise SourceError(f"{self.where}: not the ring of an exporter: {text[:60]!r}")
        self._check(len(text), MOST_BYTES, "bytes")
        self._check(text.count(b"\nt ") + 1, MOST_BLOCKS, "blocks")
        readings = []
        at = 0
        self._samples.begin()
        while at < len(text):
            following = text.find(b"\nt ", at) + 1 or len(text)
            head_end = text.find(b"\n", at, following)
            head = text[at + 2 : head_end if head_end >= 0 else following]
            if _TIME.fullmatch(head) is None:
                raise SourceError(f"{self.where}: {head[:60]!r} is not a time")
            readings.append(self._reading(float(head), *_parts(text, at + 3 + len(head), following)))
            at = following
        return [reading for reading in readings if reading.cpus]

    def reading(self, time_s: float, cpu_lines: bytes, sample_lines: bytes, job_lines: bytes) -> NodeReading:
        """The three parts of a block as one reading."""
        self._samples.begin()
        return self._reading(time_s, cpu_lines, sample_lines, job_lines)

    def _reading(self, time_s: float, cpu_lines: bytes, sample_lines: bytes, job_lines: bytes) -> NodeReading:
        cpus, ticks = self._ticks(cpu_lines)
        job_lines, stat_lines = split_stats(job_lines)
        if job_lines != self._job_lines:
            # A thread may have been unplugged since the job started, so the highest thread so far counts.
            self._most_cpus = max(self._most_cpus, cpus[-1] + 1 if cpus else 0)
            self._jobs = self._parse_jobs(job_lines, self._most_cpus)
            self._job_lines = job_lines
        operands = self._samples.operands(sample_lines)
        self._check_node(self._samples.node)
        return NodeReading(
            node=self.node,
            time_s=time_s,
            cpus=cpus,
            seconds=ticks / TICKS_PER_S,
            modes=MODES[: ticks.shape[1]],
            operands=operands,
            jobs=self._jobs,
            job_operands=self._stats.operands(stat_lines, self._jobs),
        )

    def _check_node(self, name: str) -> None:
        """SourceError if another node answers than before: its counters must not follow those of the other."""
        try:
            name = short_name(name, "node")
        except ValueError as reason:
            raise SourceError(f"{self.where}: {reason}") from None
        self.exporter_node = self.exporter_node or name
        if name not in ("", self.exporter_node):
            raise SourceError(f"{self.where}: it says that it is {name}, and it was {self.exporter_node} before")

    def _ticks(self, lines: bytes) -> tuple[tuple[int, ...], NDArray[np.float64]]:
        """Threads and their ticks (cpu, mode). A thread whose line cannot be read is left out: its second is masked."""
        self._check(lines.count(b"\n"), NODE_THREADS, "lines of threads in a block")
        width = min(lines.count(b" ", 0, lines.find(b"\n") + 1), len(MODES))
        numbers = np.empty(lines.count(b"\n"), np.int64)
        ticks = np.empty((len(numbers), width))
        if _scan(np.frombuffer(lines, np.uint8), numbers, ticks) == _ODD:
            if _LONG_COUNT.search(lines):
                raise SourceError(f"{self.where}: a counter has more than 20 digits, which is the limit")
            rows = sorted(parse_cpu_lines(lines, []).items())
            width = min((len(row) for _, row in rows), default=0)
            ticks = np.array([row[: len(MODES)] for _, row in rows], np.float64).reshape(
                len(rows), min(width, len(MODES))
            )
            return tuple(cpu for cpu, _ in rows), ticks
        if not np.array_equal(numbers, self._numbers):
            self._numbers, self._cpus = numbers, tuple(numbers.tolist())
        return self._cpus, ticks

    def _parse_jobs(self, text: bytes, most_cpus: int) -> tuple[JobCpus, ...]:
        """The jobs of a block, whose node has threads below `most_cpus`."""
        self._check(text.count(b"\n") + 1, MOST_JOBS, "lines of jobs in a block")
        jobs, threads = [], 0
        for line in text.splitlines():
            if line.startswith(b"job "):
                job = _job(line, self.where, most_cpus)
                threads += len(job.cpus)
                self._check(threads, MOST_JOB_THREADS, "threads of all jobs in a block")
                jobs.append(job)
        return tuple(jobs)

    def _check(self, count: int, most: int, what: str) -> None:
        if count > most:
            raise SourceError(f"{self.where}: {count} {what}; the limit is {most}")


class _SampleLines:
    """The sample lines of one node's blocks -> the operands of its node channels."""

    def __init__(self) -> None:
        self._single_lines = MOST_SINGLE_LINES
        self._parser = IncrementalParser("ring", SAMPLE_LIMITS)
        self._series: tuple[MetricSample, ...] = ()
        self._slots: OperandSlots | None = None
        self._name = ""  # of the node, among the series
        self.node = ""  # the name in the last block; empty: none

    def begin(self) -> None:
        """Begin a text: its limit of lines that are parsed one by one, which takes 10 µs or more each, is unused."""
        self._single_lines = MOST_SINGLE_LINES

    def operands(self, lines: bytes) -> NDArray[np.float64]:
        self.node = ""
        if not lines:
            return UNKNOWN_OPERANDS
        try:
            values = self._parser.read(lines)
        except ExpositionError:
            self._single_lines -= lines.count(b"\n")
            if len(lines) > SAMPLE_LIMITS.text_bytes or self._single_lines < 0:
                return UNKNOWN_OPERANDS
            try:
                values = self._parser.read(b"".join([line for line in lines.splitlines(True) if _is_sample(line)]))
            except ExpositionError:  # a series has two samples: which of them is right is unknown
                return UNKNOWN_OPERANDS
        if self._slots is None or self._parser.series is not self._series:
            self._series = self._parser.series
            self._slots = OperandSlots([(sample.name, sample.labels) for sample in self._series], "twin")
            names = [sample.labels.get("node", "") for sample in self._series if sample.name == _NODE]
            self._name = names[-1] if names else ""
        self.node = self._name
        return self._slots.read(np.append(values, np.nan))


def _is_sample(line: bytes) -> bool:
    try:
        return bool(parse(line).samples)
    except ExpositionError:
        return False


def _parts(text: bytes, begin: int, end: int) -> tuple[bytes, bytes, bytes]:
    """A block without its time -> lines of threads, whole lines of samples, lines of jobs."""
    last_cpu = text.rfind(b"\ncpu", begin - 1, end)
    cpus_end = begin if last_cpu < 0 else text.find(b"\n", last_cpu + 1, end) + 1 or end
    samples_end = text.find(b"\njob ", cpus_end - 1, end) + 1 or end
    samples = text[cpus_end:samples_end]
    return text[begin:cpus_end], samples[: samples.rfind(b"\n") + 1], text[samples_end:end]


def _job(line: bytes, where: object, most_cpus: int) -> JobCpus:
    if len(line) > 4 * NAME_CHARS + 16 * most_cpus:  # a name, each of its characters escaped, and a list of all threads
        raise SourceError(f"{where}: the line of a job has {len(line)} bytes, more than a list of {most_cpus} threads")
    words = line.decode("utf-8", "backslashreplace").split(" ")
    if len(words) != 4:
        raise SourceError(f"{where}: not the line of a job: {line[:60]!r}")
    try:
        return JobCpus(short_name(unquote(words[2]), "job"), parse_cpulist(words[3], most_cpus))
    except (InputError, ValueError) as reason:
        raise SourceError(f"{where}: {reason}") from None
