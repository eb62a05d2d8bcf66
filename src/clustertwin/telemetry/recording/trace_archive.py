"""Past telemetry: a range of seconds, optionally some nodes -> one trace per node.

`TraceArchive` is the port. It is implemented for finished recordings, for a recording that is still being written, for
Prometheus, and for traces in memory. The nightly learning reads whole days from it; the service reads the seconds that
have left its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from clustertwin.core.errors import NoSamples, SettingsError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.ingest.dialects import DIALECTS
from clustertwin.telemetry.ingest.sources import traces as traces_of
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
from clustertwin.telemetry.recording.layout import find
from clustertwin.telemetry.recording.reader import Recording

#: How far back a job is looked for in Prometheus, in steps, and how much of it is read.
_LOOK_BACK_S = (3600, 6 * 3600, 24 * 3600)
_JOB_S = 3600


class TraceArchive(Protocol):
    name: str  # used in messages: "the recording"

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
    """One recording that may still be written to: it is opened again for every call."""

    name = "the recording"

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        recording = Recording.open(self.directory)
        return _common_extent_s([(recording.start_s, recording.end_s)], start_s, end_s)

    def traces(self, start_s: int, end_s: int, nodes: Sequence[str] | None = None) -> list[Trace]:
        return list(_recorded_traces(Recording.open(self.directory), start_s, end_s, nodes))

    def recording_with_job(self, job: str) -> Recording | None:
        recording = Recording.open(self.directory)
        return recording if any(span.job == job for span in recording.spans) else None


class PrometheusArchive:
    """A Prometheus or VictoriaMetrics server. If nodes are named, only their series are queried."""

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

    def job_traces(self, job: str, now_s: float) -> list[Trace]:
        """The last hour of a job that runs or ended within a day, on each of its nodes; empty if it is unknown."""
        dialect = next(dialect for dialect in DIALECTS.values() if dialect.job_cpu)
        server = Prometheus(self.endpoint, matchers=self.matchers)
        end_s = now_s
        for back_s in _LOOK_BACK_S:
            series = server.raw(dialect.job_cpu, now_s - back_s, end_s, (("jobid", _quoted(job)),))
            if series:
                last_s = max(float(each.times_s[-1]) for each in series)
                first_s = max(min(float(each.times_s[0]) for each in series), last_s - _JOB_S)
                places = sorted({_escaped(each.labels.get("instance", "")) for each in series})
                matchers = [f'instance=~"{_quoted("|".join(places))}"', *([self.matchers] if self.matchers else [])]
                return self._matching(",".join(matchers), int(first_s), int(last_s) + 1)
            end_s = now_s - back_s
        return []

    def _matching(self, matchers: str, start_s: int, end_s: int) -> list[Trace]:
        try:
            return traces_of(Prometheus(self.endpoint, matchers=matchers), start_s, end_s)[0]
        except NoSamples:
            return []

    def _instance(self, node: str, start_s: int, end_s: int) -> str:
        """A matcher for a node's scrape address: from the info metric that names the node, otherwise from its host."""
        server = Prometheus(self.endpoint, matchers=self.matchers)
        for dialect in DIALECTS.values():
            for series in server.raw(dialect.info, start_s, end_s, ((dialect.info_label, _quoted(node)),)):
                return f'instance="{_quoted(series.labels.get("instance", ""))}"'
        return f'instance=~"{_quoted(_escaped(node))}(:[0-9]+)?"'


class MemoryArchive:
    """Traces in memory, from a simulation or a test."""

    name = "memory"

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = traces

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        return _common_extent_s([(trace.start_s, trace.end_s) for trace in self._traces], start_s, end_s)

    def traces(self, start_s: int, end_s: int, nodes: Sequence[str] | None = None) -> list[Trace]:
        return [
            _between(trace, start_s, end_s)
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


def _between(trace: Trace, start_s: int, end_s: int) -> Trace:
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
