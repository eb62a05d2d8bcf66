"""Read what the exporter's ring holds: blocks of the kernel's own lines -> readings.

t 1731700000.123
cpu0 4705 150 1120 16250 520 0 17 0 0 0
job slurm 4711 0-3,8
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled
from clustertwin.core.errors import InputError, SourceError
from clustertwin.telemetry.exporter.collectors.cpu import parse_cpu_lines
from clustertwin.telemetry.exporter.jobs.cpuset import parse_cpulist
from clustertwin.telemetry.ingest.counters import MODES, JobCpus, Reading

#: What every Linux tells user space, whatever its own tick rate is.
TICKS_PER_S = 100

_TIME = re.compile(rb"\d{1,12}(?:\.\d{1,9})?")
_ODD = -1


@compiled
def _scan(text, cpus, ticks):  # type: ignore[no-untyped-def]
    """`cpuN a b c …` lines -> cpus (line,), ticks (line, mode); 0, or _ODD where a line is of another kind.

    Takes what a kernel writes and nothing else: one blank between counts, threads in order, lines of equal width.
    Text that ends elsewhere than after a line is odd too.
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


class Blocks:
    """The blocks of one node. Threads and jobs that are those of the block before cost nothing."""

    def __init__(self, node: str, where: object) -> None:
        self.node, self.where = node, where
        self._cpus: tuple[int, ...] = ()
        self._numbers = np.zeros(0, np.int64)
        self._job_lines = b""
        self._jobs: tuple[JobCpus, ...] = ()

    def read(self, text: bytes) -> list[Reading]:
        """Every block, oldest first; SourceError for what is no ring. A last line cut short is left out."""
        if text and not text.startswith(b"t "):
            raise SourceError(f"{self.where}: not the ring of an exporter: {text[:60]!r}")
        readings = []
        at = 0
        while at < len(text):
            following = text.find(b"\nt ", at) + 1 or len(text)
            head_end = text.find(b"\n", at, following)
            head = text[at + 2 : head_end if head_end >= 0 else following]
            if _TIME.fullmatch(head) is None:
                raise SourceError(f"{self.where}: {head[:60]!r} is no time")
            jobs_at = text.find(b"\njob ", at, following) + 1 or following
            readings.append(self.reading(float(head), text[at + 3 + len(head) : jobs_at], text[jobs_at:following]))
            at = following
        return [reading for reading in readings if reading.cpus]

    def reading(self, time_s: float, cpu_lines: bytes, job_lines: bytes) -> Reading:
        """The kernel's lines of single threads, and the exporter's lines of jobs, as one reading."""
        cpus, ticks = self._ticks(cpu_lines)
        if job_lines != self._job_lines:
            self._jobs = tuple(_job(line, self.where) for line in job_lines.splitlines())
            self._job_lines = job_lines
        modes = MODES[: ticks.shape[1]]
        return Reading(self.node, time_s, cpus, ticks / TICKS_PER_S, modes, jobs=self._jobs)

    def _ticks(self, lines: bytes) -> tuple[tuple[int, ...], NDArray[np.float64]]:
        """Threads and their ticks (cpu, mode). One whose line cannot be read is left out: its second will be masked."""
        width = min(lines.count(b" ", 0, lines.find(b"\n") + 1), len(MODES))
        numbers = np.empty(lines.count(b"\n"), np.int64)
        ticks = np.empty((len(numbers), width))
        if _scan(np.frombuffer(lines, np.uint8), numbers, ticks) == _ODD:
            rows = sorted(parse_cpu_lines(lines, []).items())
            width = min((len(row) for _, row in rows), default=0)
            ticks = np.array([row[: len(MODES)] for _, row in rows], np.float64).reshape(
                len(rows), min(width, len(MODES))
            )
            return tuple(cpu for cpu, _ in rows), ticks
        if not np.array_equal(numbers, self._numbers):
            self._numbers, self._cpus = numbers, tuple(numbers.tolist())
        return self._cpus, ticks


def parse_blocks(text: bytes, node: str, where: object) -> list[Reading]:
    """All readings of a ring's text."""
    return Blocks(node, where).read(text)


def _job(line: bytes, where: object) -> JobCpus:
    words = line.decode("utf-8", "backslashreplace").split(" ")
    if len(words) != 4 or words[0] != "job":
        raise SourceError(f"{where}: not a job's line: {line[:60]!r}")
    try:
        return JobCpus(unquote(words[2]), parse_cpulist(words[3]))
    except InputError as reason:
        raise SourceError(f"{where}: {reason}") from None
