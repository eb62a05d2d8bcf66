"""What the ring keeps of the jobs: their sample lines -> a heading with the names of series, and a line of each job.

    stats twin_job_cpu_allocated twin_job_cpu_seconds_total{mode="user"} …
    stat slurm 4711 4 71200000e-6 …

A job's line has the values of the heading's series, without the labels that name the job, and `nan` for a series that
the job does not have. That is a sixth of the text of the samples themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clustertwin.core.channels import JOB, parse_selector
from clustertwin.telemetry.exporter.text.text_format import parse_series

#: The number of a job's hardware threads. On the page it is the sum of a series for each thread.
ALLOCATED = b"twin_job_cpu_allocated"

_SELECTORS = [
    parse_selector(text)
    for channel in JOB.channels
    if channel.derivation is not None
    for operand in channel.derivation.series["twin"]
    for text in operand
]
#: A series of a job: its metric, the labels that name the job, and the others.
_SERIES = re.compile(rb'(\w+)\{(manager="[^"]*",jobid="(?:[^"\\]|\\.)*"),?(.*)\}')
#: The families that the channels of jobs need.
NEEDED = frozenset(selector.metric for selector in _SELECTORS)


class RingJob(NamedTuple):
    """A job with its own CPU set."""

    labels: bytes  # as in its sample lines
    name: bytes  # `slurm 4711`, as in its line `job …`
    threads: int


class JobStats:
    """The place of each series is looked up once, and again when the jobs change."""

    def __init__(self) -> None:
        self._jobs: tuple[RingJob, ...] = ()
        self._number: dict[bytes, int] = {}  # the labels of a job -> its number
        self._columns: list[bytes] = []
        self._place: dict[bytes, tuple[int, int]] = {}  # series -> job, column; (-1, -1): not needed

    def lines(self, families: Iterable[bytes], jobs: Sequence[RingJob]) -> bytes:
        """The heading and a line for each of these jobs; empty if there are none."""
        if not jobs:
            return b""
        if tuple(jobs) != self._jobs:
            self._jobs, self._columns, self._place = tuple(jobs), [ALLOCATED], {}
            self._number = {job.labels: number for number, job in enumerate(jobs)}
        values: list[tuple[int, int, bytes]] = []
        for text in families:
            for line in text.split(b"\n"):
                series, _, value = line.rpartition(b" ")
                job, column = self._place.get(series) or self._find(series)
                if job >= 0:
                    values.append((job, column, value))
        rows = [[b"%d" % job.threads, *[b"nan"] * (len(self._columns) - 1)] for job in self._jobs]
        for job, column, value in values:
            rows[job][column] = value
        body = [b"stat %b %b\n" % (job.name, b" ".join(row)) for job, row in zip(self._jobs, rows, strict=True)]
        return b"stats %b\n%b" % (b" ".join(self._columns), b"".join(body))

    def _find(self, series: bytes) -> tuple[int, int]:
        place = -1, -1
        match = _SERIES.fullmatch(series)
        if match and match[2] in self._number and match[1] != ALLOCATED:
            column = match[1] + (b"{%b}" % match[3] if match[3] else b"")
            name, labels = parse_series(column.decode())
            if any(selector.selects(name, labels) for selector in _SELECTORS):
                if column not in self._columns:
                    self._columns.append(column)
                place = self._number[match[2]], self._columns.index(column)
        self._place[series] = place
        return place
