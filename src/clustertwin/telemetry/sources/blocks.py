"""Read what the exporter's ring holds: blocks of the kernel's own lines -> readings.

t 1731700000.123
cpu0 4705 150 1120 16250 520 0 17 0 0 0
job slurm 4711 0-3,8
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import numpy as np

from clustertwin.core.errors import InputError, SourceError
from clustertwin.telemetry.counters import MODES, JobCpus, Reading
from clustertwin.telemetry.exporter.cpu import parse_cpu_lines
from clustertwin.telemetry.exporter.cpuset import parse_cpulist

#: What every Linux tells user space, whatever its own tick rate is.
TICKS_PER_S = 100

_TIME = re.compile(rb"\d{1,12}(?:\.\d{1,9})?")


def parse_blocks(text: bytes, node: str, where: object) -> list[Reading]:
    """Every block, oldest first; SourceError for what is no ring. A last block cut short is left out."""
    if text and not text.startswith(b"t "):
        raise SourceError(f"{where}: not the ring of an exporter: {text[:60]!r}")
    readings = []
    blocks = re.split(rb"(?m)^t ", text)[1:]
    for block in blocks:
        head, _, body = block.partition(b"\n")
        if _TIME.fullmatch(head) is None:
            raise SourceError(f"{where}: {head[:60]!r} is no time")
        start = re.search(rb"(?m)^job ", body)
        cut = start.start() if start else len(body)
        readings.append(reading_of(node, float(head), body[:cut], body[cut:], where))
    return [reading for reading in readings if reading.cpus]


def reading_of(node: str, time_s: float, cpu_lines: bytes, job_lines: bytes, where: object) -> Reading:
    """The kernel's lines of single threads, and the exporter's lines of jobs, as one reading.

    A thread whose line cannot be read is left out: its second will be masked and counted.
    """
    ticks = parse_cpu_lines(cpu_lines, [])
    rows = sorted(ticks.items())
    modes = MODES[: min((len(row) for _, row in rows), default=0)]
    seconds = np.array([row[: len(modes)] for _, row in rows], dtype=np.float64).reshape(len(rows), len(modes))
    return Reading(
        node=node,
        time_s=time_s,
        cpus=tuple(cpu for cpu, _ in rows),
        seconds=seconds / TICKS_PER_S,
        modes=modes,
        jobs=tuple(_job(line, where) for line in job_lines.splitlines()),
    )


def _job(line: bytes, where: object) -> JobCpus:
    words = line.decode("utf-8", "backslashreplace").split(" ")
    if len(words) != 4 or words[0] != "job":
        raise SourceError(f"{where}: not a job's line: {line[:60]!r}")
    try:
        return JobCpus(unquote(words[2]), parse_cpulist(words[3]))
    except InputError as reason:
        raise SourceError(f"{where}: {reason}") from None
