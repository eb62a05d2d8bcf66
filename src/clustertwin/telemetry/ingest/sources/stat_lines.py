"""The counters of jobs in the ring of our exporter: a heading and a line for each job -> operands (job, channel, 2)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import JOB, parse_selector
from clustertwin.core.errors import SettingsError
from clustertwin.core.formatting import visible
from clustertwin.telemetry.ingest.counters import NAME_CHARS, JobCpus
from clustertwin.telemetry.ingest.node_channels import OperandSlots

#: Series in a heading; an exporter writes about 13.
MOST_COLUMNS = 256
#: Characters of a value; the kernel's counts have at most 20 digits, and the exporter adds an exponent.
VALUE_CHARS = 32


def split_stats(lines: bytes) -> tuple[bytes, bytes]:
    """The lines of jobs in a block -> those of their CPU sets, and those of their counters with the heading."""
    at = 0 if lines.startswith(b"stats ") else lines.find(b"\nstats ") + 1
    if not at and not lines.startswith(b"stats "):
        return lines, b""
    return lines[:at], lines[at:]


class StatLines:
    """One node's lines. A heading and jobs that are the same as before cost nothing."""

    def __init__(self, most_jobs: int) -> None:
        self._most_jobs = most_jobs
        self._heading = b""
        self._slots: OperandSlots | None = None
        self._columns = 0
        self._rows: tuple[tuple[JobCpus, ...], list[bytes], NDArray[np.intp]] = ((), [], np.zeros(0, np.intp))

    def operands(self, lines: bytes, jobs: tuple[JobCpus, ...]) -> NDArray[np.float64] | None:
        """(job, channel of JOB, 2) in the order of `jobs`; None if there are none, or the lines cannot be read."""
        if not lines or not jobs or lines.count(b"\n") > self._most_jobs + 1:
            return None
        heading, _, body = lines.partition(b"\n")
        if heading != self._heading:
            self._read_heading(heading)
        words = body[: body.rfind(b"\n") + 1].split()
        width = self._columns + 3  # stat, manager, id
        if self._slots is None or not words or len(words) % width or set(words[::width]) != {b"stat"}:
            return None
        cells = [words[begin : begin + self._columns] for begin in range(3, len(words), width)]
        if max(len(word) for row in cells for word in row) > VALUE_CHARS:
            return None  # an array of bytes takes the longest word for each of its cells
        try:
            values = np.array(cells).astype(np.float64)
        except ValueError:
            return None
        # One more row for a job without a line, and one more column for a series that is missing: both NaN.
        known = np.full((len(values) + 1, self._columns + 1), np.nan)
        known[:-1, :-1] = values
        return self._slots.read(known[self._places(words[2::width], jobs)])

    def _read_heading(self, heading: bytes) -> None:
        self._heading, self._slots = heading, None
        texts = heading.decode("utf-8", "replace").split()[1:]
        if len(texts) > MOST_COLUMNS:
            return
        series: list[tuple[str, Mapping[str, str]]] = []
        for text in texts:
            try:
                selector = parse_selector(text)
                series.append((selector.metric, selector.equal))
            except SettingsError:
                series.append(("", {}))  # of a newer exporter
        self._slots, self._columns = OperandSlots(series, "twin", JOB), len(texts)

    def _places(self, names: list[bytes], jobs: tuple[JobCpus, ...]) -> NDArray[np.intp]:
        """The line of each job; the row after the last for a job without one."""
        if self._rows[0] is not jobs or self._rows[1] != names:
            line = {
                visible(unquote(name.decode("utf-8", "backslashreplace"))): i
                for i, name in enumerate(names)
                if len(name) <= 4 * NAME_CHARS
            }
            self._rows = jobs, names, np.array([line.get(job.job, len(names)) for job in jobs], np.intp)
        return self._rows[2]
