"""Past telemetry: a range of seconds, optionally some nodes -> one trace per node.

`TraceArchive` is the port. It is implemented for finished recordings, for a recording that is still being written, for
Prometheus, and for traces in memory. The nightly learning reads whole days from it; the service reads the seconds that
have left its memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from threading import BoundedSemaphore
from typing import Protocol

from clustertwin.core.errors import NoSamples, Overloaded, SettingsError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.ingest.dialects import DIALECTS
from clustertwin.telemetry.ingest.sources import traces as traces_of
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.prometheus import PIECE_S, Prometheus
from clustertwin.telemetry.ingest.sources.query_answer import Series
from clustertwin.telemetry.recording.layout import find
from clustertwin.telemetry.recording.reader import Recording

#: How far back a job is looked for in Prometheus.
_LOOK_BACK_S = 24 * 3600
#: How much of a job is read, and how much of one on more nodes than `_FEW_NODES`.
_JOB_S, _LARGE_JOB_S = 3600, 600
_FEW_NODES = 8
#: Requests that read an archive at the same time, each about an hour of one node; and how long another one waits.
_TURNS = BoundedSemaphore(2)
_WAIT_S = 2.0
#: A recording that grows is opened again after this time. What is newer is in memory anyway.
FRESH_S = 10.0


@contextmanager
def archive_turn() -> Iterator[None]:
    """A turn to read an archive for a request; `Overloaded` if none is free in time."""
    if not _TURNS.acquire(timeout=_WAIT_S):
        raise Overloaded("other requests are reading the archive; try again in a few seconds")
    try:
        yield
    finally:
        _TURNS.release()


class TraceArchive(Protocol):
    name: str  # used in messages: "the recording"
    page_s: int  # the longest time that a page reads of it

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        """The part of this range that can hold samples; (0, 0) if there is none."""
        ...

    def traces(self, start_s: int, end_s: int, nodes: Sequence[str] | None = None) -> list[Trace]:
        """At most one trace per node, none for a node without data. `nodes=None` means every node.

        Raises a `TwinError` if the archive cannot be read.
        """
        ...

    def recording_with_job(self, job: str) -> Recording | None:
        """The recording that holds the labels of this job; None if the archive keeps no such recording."""
        ...


class RecordingArchive:
    """Recordings below some directories, as they are when the archive is created."""

    page_s = 24 * 3600

    def __init__(self, roots: Sequence[Path]) -> None:
        directories = [directory for root in roots for directory in find(root)]
        if not directories:
            raise SettingsError(
                f"no recordings below {', '.join(map(str, roots))}; `twin up` and `twin record` create them"
            )
        self.name = f"recordings below {', '.join(map(str, roots))}"
        self.recordings = [Recording.open(directory) for directory in directories]

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        return _common_extent_s([(r.start_s, r.end_s) for r in self.recordings], start_s, end_s)

    def traces(self, start_s: int, end_s: int, nodes: Sequence[str] | None = None) -> list[Trace]:
        by_node: dict[str, Trace] = {}
        for recording in self.recordings:
            if recording.start_s >= end_s or recording.end_s <= start_s:
                continue
            for trace in _recorded_traces(recording, start_s, end_s, nodes):
                # Two recordings can hold the same node: use the one with more valid seconds in this range.
                if trace.node not in by_node or trace.valid.sum() > by_node[trace.node].valid.sum():
                    by_node[trace.node] = trace
        return list(by_node.values())

    def recording_with_job(self, job: str) -> Recording | None:
        return next((r for r in self.recordings if any(span.job == job for span in r.spans)), None)


class GrowingRecordingArchive:
    """One recording that may still be written to, as it was at most `FRESH_S` ago.

    It is not opened again for each piece that a page reads: the labels of a cluster can take a second to read.
    """

    name = "the recording"
    page_s = 24 * 3600  # read in pieces of an hour of one node, so the memory does not depend on the number of nodes

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.directory = directory
        self._clock = clock
        self._opened: tuple[Recording, float] | None = None

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        recording = self._recording()
        return _common_extent_s([(recording.start_s, recording.end_s)], start_s, end_s)

    def traces(self, start_s: int, end_s: int, nodes: Sequence[str] | None = None) -> list[Trace]:
        return list(_recorded_traces(self._recording(), start_s, end_s, nodes))

    def recording_with_job(self, job: str) -> Recording | None:
        recording = self._recording()
        return recording if any(span.job == job for span in recording.spans) else None

    def _recording(self) -> Recording:
        opened, now_s = self._opened, self._clock()
        if opened is None or now_s - opened[1] >= FRESH_S:
            opened = self._opened = Recording.open(self.directory), now_s
        return opened[0]


class PrometheusArchive:
    """A Prometheus or VictoriaMetrics server. If nodes are named, only their series are queried."""

    page_s = 3600  # about 40 queries for each node

    def __init__(self, endpoint: Endpoint, matchers: str = "") -> None:
        self.endpoint, self.matchers, self.name = endpoint, matchers, f"Prometheus {endpoint.url}"

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        return start_s, end_s

    def traces(self, start_s: int, end_s: int, nodes: Sequence[str] | None = None) -> list[Trace]:
        if nodes is None:
            return self._matching(self.matchers, start_s, end_s)
        by_node = []
        for node in nodes:
            matchers = [*([self.matchers] if self.matchers else []), self._instance(node, start_s, end_s)]
            # Queried alone, a node can get another name than among all nodes: two exporters on one host.
            by_node += [replace(trace, node=node) for trace in self._matching(",".join(matchers), start_s, end_s)[:1]]
        return by_node

    def recording_with_job(self, job: str) -> None:
        return None

    def job_traces(self, job: str, now_s: float, within_s: float = inf) -> Iterator[Trace]:
        """The last hour of a job that runs or ended within a day, node by node; nothing if it is unknown.

        Of a job on many nodes, only the last ten minutes. `Overloaded` if the server needs longer than `within_s`.
        """
        until_s = time.monotonic() + within_s
        dialect = next(dialect for dialect in DIALECTS.values() if dialect.job_cpu)
        server = Prometheus(self.endpoint, matchers=self.matchers)
        end_s = now_s
        series: list[Series] = []
        while not series and end_s > now_s - _LOOK_BACK_S:
            self._check_time(until_s, within_s)
            series = server.raw(dialect.job_cpu, end_s - PIECE_S, end_s, (("jobid", _quoted(job)),))
            end_s -= PIECE_S
        last_s = int(max((float(each.times_s[-1]) for each in series), default=0.0))
        places = sorted({each.labels.get("instance", "") for each in series})
        del series  # one for each thread of the job
        length_s = _JOB_S if len(places) <= _FEW_NODES else _LARGE_JOB_S
        for place in places:
            self._check_time(until_s, within_s)
            matchers = [f'instance="{_quoted(place)}"', *([self.matchers] if self.matchers else [])]
            yield from self._matching(",".join(matchers), last_s - length_s, last_s + 1)

    def _check_time(self, until_s: float, within_s: float) -> None:
        if time.monotonic() > until_s:
            raise Overloaded(f"{self.name} did not answer all queries within {within_s:g} s; try again later")

    def _matching(self, matchers: str, start_s: int, end_s: int) -> list[Trace]:
        try:
            # Left out: a node that is scraped too seldom must not keep a night from the others.
            return traces_of(Prometheus(self.endpoint, matchers=matchers), start_s, end_s, refused={})[0]
        except NoSamples:
            return []

    def _instance(self, node: str, start_s: int, end_s: int) -> str:
        """A matcher for a node's scrape address: from the info metric that names the node, otherwise from its host."""
        server = Prometheus(self.endpoint, matchers=self.matchers)
        start_s = max(start_s, end_s - int(PIECE_S))  # the address seldom changes: one query is enough
        for dialect in DIALECTS.values():
            for series in server.raw(dialect.info, start_s, end_s, ((dialect.info_label, _quoted(node)),)):
                return f'instance="{_quoted(series.labels.get("instance", ""))}"'
        return f'instance=~"{_quoted(_escaped(node))}(:[0-9]+)?"'


class MemoryArchive:
    """Traces in memory, from a simulation or a test."""

    name = "memory"
    page_s = 24 * 3600

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = traces

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        return _common_extent_s([(trace.start_s, trace.end_s) for trace in self._traces], start_s, end_s)

    def traces(self, start_s: int, end_s: int, nodes: Sequence[str] | None = None) -> list[Trace]:
        return [
            between(trace, start_s, end_s)
            for trace in self._traces
            if trace.start_s < end_s and trace.end_s > start_s and (nodes is None or trace.node in nodes)
        ]

    def recording_with_job(self, job: str) -> None:
        return None


def _common_extent_s(extents_s: Sequence[tuple[int, int]], start_s: int, end_s: int) -> tuple[int, int]:
    """The smallest range that covers these extents, limited to `start_s` … `end_s`; (0, 0) if none overlaps it."""
    overlapping = [extent for extent in extents_s if extent[0] < end_s and extent[1] > start_s]
    if not overlapping:
        return 0, 0
    return max(start_s, min(first for first, _ in overlapping)), min(end_s, max(last for _, last in overlapping))


def _recorded_traces(recording: Recording, start_s: int, end_s: int, nodes: Sequence[str] | None) -> Iterator[Trace]:
    for node in recording.nodes if nodes is None else nodes:
        if node in recording.nodes:
            yield recording.trace(node, start_s, end_s)


def between(trace: Trace, start_s: int, end_s: int) -> Trace:
    """The seconds of a trace from `start_s` to `end_s`, as far as it has them."""
    start_s, end_s = max(start_s, trace.start_s), min(end_s, trace.end_s)
    columns = slice(start_s - trace.start_s, end_s - trace.start_s)
    node, jobs = trace.node_channels, trace.job_channels
    return replace(
        trace,
        start_s=start_s,
        values=trace.values[:, columns],
        valid=trace.valid[:, columns],
        node_channels=replace(node, values=node.values[columns]) if node is not None else None,
        job_channels=replace(jobs, values=jobs.values[:, columns]) if jobs is not None else None,
    )


def _escaped(text: str) -> str:
    """A regular expression, in RE2 syntax, that matches this text only."""
    return "".join(f"\\{letter}" if letter in r"\.+*?()|[]{}^$" else letter for letter in text)


def _quoted(text: str) -> str:
    """Escape text for use inside a PromQL string."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
