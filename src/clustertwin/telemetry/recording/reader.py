"""Read a recording, finished, live or interrupted by a crash: a directory -> traces, windows, single windows."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.cluster_traces import ClusterTraces
from clustertwin.core.errors import RecordingError
from clustertwin.core.tables import html_table
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace, Windows
from clustertwin.core.windows import cut, describe, steps
from clustertwin.telemetry.recording import layout
from clustertwin.telemetry.recording.array_reader import ArrayReader
from clustertwin.telemetry.recording.channel_rows import ratios_of_rows
from clustertwin.telemetry.recording.layout import ArrayLayout, RecordingDescription
from clustertwin.telemetry.recording.logs import job_slots, label_log
from clustertwin.telemetry.recording.ticks import Ticks


class Recording:
    """The content of a directory when it was opened; of each node, when the node was first read."""

    def __init__(self, directory: Path, description: RecordingDescription, spans: tuple[JobSpan, ...]) -> None:
        """Use `open`."""
        self.directory, self.description, self.spans = directory, description, spans
        self._ticks = Ticks.of(description.schema)
        self._readers: dict[str, ArrayReader] = {}  # by directory; that of a cluster has thousands of arrays

    @classmethod
    def open(cls, directory: Path) -> Recording:
        description = layout.read_group(Path(directory))
        return cls(Path(directory), description, tuple(label_log.read(Path(directory) / layout.LABELS)))

    @property
    def nodes(self) -> dict[str, tuple[int, ...]]:
        return self.description.nodes

    @property
    def schema(self) -> Schema:
        """The channels of threads."""
        return self.description.schema

    @cached_property
    def node_schema(self) -> Schema:
        """The channels of nodes, of all segments; empty if there are none."""
        return _schema_of(self.description.node_segments)

    @cached_property
    def job_schema(self) -> Schema:
        """The channels of jobs, of all segments; empty if there are none."""
        return _schema_of(self.description.job_segments)

    @cached_property
    def _assignments(self) -> dict[str, list[job_slots.Assignment]]:
        """By node, in the order of their starts."""
        assignments: dict[str, list[job_slots.Assignment]] = {}
        for assignment in job_slots.read(self.directory / layout.JOB_SLOTS):
            assignments.setdefault(assignment.node, []).append(assignment)
        return assignments

    @cached_property
    def _spans_of(self) -> dict[str, tuple[JobSpan, ...]]:
        spans: dict[str, list[JobSpan]] = {}
        for span in self.spans:
            spans.setdefault(span.node, []).append(span)
        return {node: tuple(of_node) for node, of_node in spans.items()}

    @property
    def campaign(self) -> str:
        return self.description.campaign

    @property
    def split(self) -> str:
        return self.description.split

    @property
    def interval_s(self) -> int:
        return self.description.settings.interval_s

    @cached_property
    def _extent_s(self) -> tuple[int, int]:
        readers = [self._reader(self.description.threads(node)) for node in self.nodes]
        extents = [extent for reader in readers if (extent := reader.extent_s())]
        if not extents:
            return 0, 0
        return min(start for start, _ in extents), max(end for _, end in extents)

    @property
    def start_s(self) -> int:
        """The first known second of any thread."""
        return self._extent_s[0]

    @property
    def end_s(self) -> int:
        """The second after the last known second of any thread."""
        return self._extent_s[1]

    def trace(self, node: str, start_s: int | None = None, end_s: int | None = None) -> Trace:
        """The trace of one node with its spans; by default the whole recording, the same seconds for every node."""
        start_s = self.start_s if start_s is None else start_s
        end_s = max(start_s, self.end_s if end_s is None else end_s)
        if start_s % self.interval_s or end_s % self.interval_s:
            raise RecordingError(self.directory, f"seconds {start_s} to {end_s} are not multiples of the cadence")
        shape = len(self.nodes[self._known(node)]), (end_s - start_s) // self.interval_s
        others = len(self.node_schema) + 2 * job_slots.SLOTS * len(self.job_schema)  # values beside those of threads
        values, valid = self._room(shape, 4 * others)
        self._fill(node, start_s, values, valid)
        trace = _in_order(self._trace(node, start_s, values, valid))
        if not self.description.node_segments:
            return trace
        return replace(
            trace,
            node_channels=NodeChannels(self.node_schema, self._node_values(node, start_s, shape[1])),
            job_channels=self._job_channels(node, start_s, shape[1]),
        )

    def traces(self, start_s: int | None = None, end_s: int | None = None) -> ClusterTraces:
        """The traces of all nodes; by default the whole recording."""
        return ClusterTraces.of(self.trace(node, start_s, end_s) for node in self.nodes)

    def _repr_html_(self) -> str:
        rows = {
            "node": list(self.nodes),
            "threads": [len(cpus) for cpus in self.nodes.values()],
            "jobs": [len({span.job for span in self.spans if span.node == node}) for node in self.nodes],
        }
        return html_table(f"{self.directory.name}: {self.end_s - self.start_s:,} s of {len(self.nodes)} nodes", rows)

    def windows(self, length_s: int = 100, stride_s: int | None = None) -> Windows:
        """The windows of all nodes; their starts are the same on every node."""
        length, stride = steps(length_s, stride_s, self.interval_s)
        if stride != length:
            nodes = [cut(self.trace(node), length_s, stride_s, self.campaign, self.split) for node in self.nodes]
            return Windows.concat(nodes)
        # Without overlap a trace is its windows: unpack each node directly into its place among all windows.
        count = (self.end_s - self.start_s) // length_s
        rows = [len(cpus) * count for cpus in self.nodes.values()]
        values, valid = self._room((sum(rows), length))
        parts, at = [], 0
        for node, size in zip(self.nodes, rows, strict=True):
            here = slice(at, at + size)
            shape = len(self.nodes[node]), count * length
            trace_values, trace_valid = values[here].reshape(*shape, len(self.schema)), valid[here].reshape(shape)
            self._fill(node, self.start_s, trace_values, trace_valid)
            trace = self._trace(node, self.start_s, trace_values, trace_valid)
            parts.append(describe(trace, values[here], valid[here], length_s, length_s, self.campaign, self.split))
            at += size
        return _joined(parts, values, valid)

    def window(
        self, node: str, cpu: int, start_s: int, length_s: int = 100
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The values (length, channel) and mask of one thread, without unpacking the other threads."""
        reader = self._reader(self.description.threads(self._known(node)))
        if cpu not in reader.rows:
            raise RecordingError(self.directory, f"node {node!r} has no cpu {cpu}")
        length, _ = steps(length_s, None, self.interval_s)
        ticks = reader.row(reader.rows[cpu], start_s, length)
        values, valid = np.empty((1, length, self._ticks.channels), np.float32), np.empty((1, length), np.bool_)
        self._ticks.dequantise(ticks[None], values, valid)
        return values[0], valid[0]

    @property
    def size_bytes(self) -> int:
        """The size of all files of the recording."""
        total = 0
        for directory, _, names in os.walk(self.directory):  # a writer may delete some of them meanwhile
            for name in names:
                with suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(directory, name)).st_size
        return total

    def _known(self, node: str) -> str:
        if node not in self.nodes:
            raise RecordingError(self.directory, f"no node {node!r}; the nodes are {', '.join(self.nodes)}")
        return node

    def _reader(self, array: ArrayLayout) -> ArrayReader:
        if array.directory not in self._readers:
            self._readers[array.directory] = ArrayReader(self.directory, array)
        return self._readers[array.directory]

    def _room(self, shape: tuple[int, int], beside_bytes: int = 0) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Values and mask for (row, sample), if they fit into half of this machine's memory.

        A damaged second can make a recording seem centuries long.
        """
        size_bytes = math.prod(shape) * (4 * len(self.schema) + 1) + shape[1] * beside_bytes
        most_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        if size_bytes > most_bytes:
            raise RecordingError(
                self.directory,
                f"{shape[0]} rows of {shape[1]} samples need {size_bytes / 1e9:.1f} GB, and this machine can give "
                f"{most_bytes / 1e9:.1f} GB; read a shorter time",
            )
        return np.empty((*shape, len(self.schema)), np.float32), np.empty(shape, np.bool_)

    def _fill(self, node: str, start_s: int, values: NDArray[np.float32], valid: NDArray[np.bool_]) -> None:
        """Unpack chunk after chunk into (cpu, time, channel) and (cpu, time)."""
        values.fill(0)
        valid.fill(False)
        for at, ticks in self._reader(self.description.threads(node)).pieces(start_s, valid.shape[1]):
            here = slice(at, at + ticks.shape[2])
            self._ticks.dequantise(ticks, values[:, here], valid[:, here])

    def _node_values(self, node: str, start_s: int, samples: int) -> NDArray[np.float32]:
        """The node channels of all segments (time, channel); NaN where unknown."""
        node_values = np.full((samples, len(self.node_schema)), np.nan, np.float32)
        for segment, names in enumerate(self.description.node_segments):
            columns = [self.node_schema.index(name) for name in names]
            reader = self._reader(self.description.node_channels(node, segment))
            for at, values in ratios_of_rows(reader, start_s, samples):
                target = node_values[at : at + values.shape[1]]
                target[:, columns] = np.where(np.isnan(values), target[:, columns].T, values).T
        return node_values

    def _job_channels(self, node: str, start_s: int, samples: int) -> JobChannels | None:
        """The channels of the jobs that have a known second in this range; None if the recording has no such channels.

        In each slot, an assignment counts from its second on until the next one.
        """
        if not self.description.job_segments:
            return None
        width = len(self.job_schema)
        slots = np.full((job_slots.SLOTS, samples, width), np.nan, np.float32)
        for segment, names in enumerate(self.description.job_segments):
            columns = [self.job_schema.index(name) for name in names]
            reader = self._reader(self.description.job_channels(node, segment))
            for at, values in ratios_of_rows(reader, start_s, samples):
                values = values.reshape(job_slots.SLOTS, len(names), -1).transpose(0, 2, 1)  # (slot, time, channel)
                target = slots[:, at : at + values.shape[1]]
                target[..., columns] = np.where(np.isnan(values), target[..., columns], values)
        jobs: dict[str, NDArray[np.float32]] = {}
        for assignment, end_s in job_slots.with_ends(self._assignments.get(node, [])):
            begin = max((assignment.start_s - start_s) // self.interval_s, 0)
            end = samples if end_s is None else min((end_s - start_s) // self.interval_s, samples)
            if end <= begin:
                continue
            values = slots[assignment.slot, begin:end]
            if not np.isnan(values).all():
                of_job = jobs.setdefault(assignment.job, np.full((samples, width), np.nan, np.float32))
                of_job[begin:end] = values
        stacked = np.array(list(jobs.values()), np.float32).reshape(len(jobs), samples, width)
        return JobChannels(self.job_schema, tuple(jobs), stacked)

    def _trace(self, node: str, start_s: int, values: NDArray[np.float32], valid: NDArray[np.bool_]) -> Trace:
        spans = self._spans_of.get(node, ())
        return Trace(node, self.nodes[node], start_s, self.schema, values, valid, spans, self.interval_s)


def _schema_of(segments: tuple[tuple[str, ...], ...]) -> Schema:
    names = dict.fromkeys(name for segment in segments for name in segment)
    return Schema.from_json([{"name": name} for name in names])


def _joined(parts: list[Windows], values: NDArray[np.float32], valid: NDArray[np.bool_]) -> Windows:
    """The windows of all nodes; their values are already side by side unless some were dropped."""
    if sum(map(len, parts)) < len(values):
        return Windows.concat(parts)
    slim = [replace(part, values=part.values[:0], valid=part.valid[:0]) for part in parts]
    return replace(Windows.concat(slim), values=values, valid=valid)


def _in_order(trace: Trace) -> Trace:
    """The trace with its threads in order: those that a node got later are stored last."""
    order = np.argsort(trace.cpus)
    if np.array_equal(order, np.arange(len(order))):
        return trace
    cpus = tuple(trace.cpus[row] for row in order)
    return replace(trace, cpus=cpus, values=trace.values[order], valid=trace.valid[order])
