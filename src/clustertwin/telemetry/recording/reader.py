"""Read a recording, finished, live or left behind by a crash: a directory -> traces, windows, single windows."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import RecordingError
from clustertwin.core.traces import JobSpan, Trace, Windows
from clustertwin.core.windows import cut, describe, steps
from clustertwin.telemetry.recording import label_log, layout
from clustertwin.telemetry.recording.layout import Description
from clustertwin.telemetry.recording.node_reader import NodeReader
from clustertwin.telemetry.recording.ticks import Ticks


class Recording:
    """What a directory held when it was opened."""

    def __init__(self, directory: Path, about: Description, spans: tuple[JobSpan, ...]) -> None:
        """Use `open`."""
        self.directory, self.about, self.spans = directory, about, spans
        self._ticks = Ticks.of(about.schema)
        self._nodes = {node: NodeReader(directory, about, node) for node in about.nodes}

    @classmethod
    def open(cls, directory: Path) -> Recording:
        about = layout.read_group(Path(directory))
        return cls(Path(directory), about, tuple(label_log.read(Path(directory) / layout.LABELS)))

    @property
    def nodes(self) -> dict[str, tuple[int, ...]]:
        return self.about.nodes

    @property
    def schema(self) -> Schema:
        return self.about.schema

    @property
    def campaign(self) -> str:
        return self.about.campaign

    @property
    def split(self) -> str:
        return self.about.split

    @property
    def interval_s(self) -> int:
        return self.about.settings.interval_s

    @cached_property
    def _extent_s(self) -> tuple[int, int]:
        extents = [extent for node in self._nodes.values() if (extent := node.extent_s())]
        if not extents:
            return 0, 0
        return min(start for start, _ in extents), max(end for _, end in extents)

    @property
    def start_s(self) -> int:
        """The first second that any thread was seen."""
        return self._extent_s[0]

    @property
    def end_s(self) -> int:
        """The second after the last that any thread was seen."""
        return self._extent_s[1]

    def trace(self, node: str, start_s: int | None = None, end_s: int | None = None) -> Trace:
        """One node's threads and spans; by default the whole recording, the same seconds for every node."""
        start_s = self.start_s if start_s is None else start_s
        end_s = max(start_s, self.end_s if end_s is None else end_s)
        if start_s % self.interval_s or end_s % self.interval_s:
            raise RecordingError(self.directory, f"seconds {start_s} to {end_s} are no multiples of the cadence")
        shape = len(self.nodes[self._known(node)]), (end_s - start_s) // self.interval_s
        values, valid = np.empty((*shape, len(self.schema)), np.float32), np.empty(shape, np.bool_)
        self._fill(node, start_s, values, valid)
        return self._traced(node, start_s, values, valid)

    def windows(self, length_s: int = 100, stride_s: int | None = None) -> Windows:
        """The windows of all nodes; their starts are the same on every node."""
        length, stride = steps(length_s, stride_s, self.interval_s)
        if stride != length:
            nodes = [cut(self.trace(node), length_s, stride_s, self.campaign, self.split) for node in self.nodes]
            return Windows.concat(nodes)
        # Side by side, a trace is its windows: each node is unpacked straight into its place among all of them.
        count = (self.end_s - self.start_s) // length_s
        rows = [len(cpus) * count for cpus in self.nodes.values()]
        values = np.empty((sum(rows), length, len(self.schema)), np.float32)
        valid = np.empty((sum(rows), length), np.bool_)
        parts, at = [], 0
        for node, size in zip(self.nodes, rows, strict=True):
            mine = slice(at, at + size)
            shape = len(self.nodes[node]), count * length
            trace_values, trace_valid = values[mine].reshape(*shape, len(self.schema)), valid[mine].reshape(shape)
            self._fill(node, self.start_s, trace_values, trace_valid)
            trace = self._traced(node, self.start_s, trace_values, trace_valid)
            parts.append(describe(trace, values[mine], valid[mine], length_s, length_s, self.campaign, self.split))
            at += size
        return _joined(parts, values, valid)

    def window(
        self, node: str, cpu: int, start_s: int, length_s: int = 100
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """One thread's values (length, channel) and their mask, without unpacking its neighbours."""
        reader = self._nodes[self._known(node)]
        if cpu not in reader.rows:
            raise RecordingError(self.directory, f"node {node!r} has no cpu {cpu}")
        length, _ = steps(length_s, None, self.interval_s)
        ticks = reader.thread(reader.rows[cpu], start_s, length)
        values, valid = np.empty((1, length, self._ticks.channels), np.float32), np.empty((1, length), np.bool_)
        self._ticks.dequantise(ticks[None], values, valid)
        return values[0], valid[0]

    @property
    def size_bytes(self) -> int:
        """All files of the recording."""
        return sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())

    def _known(self, node: str) -> str:
        if node not in self._nodes:
            raise RecordingError(self.directory, f"no node {node!r}; there are {', '.join(self.nodes)}")
        return node

    def _fill(self, node: str, start_s: int, values: NDArray[np.float32], valid: NDArray[np.bool_]) -> None:
        """Unpack chunk after chunk into (cpu, time, channel) and (cpu, time)."""
        values.fill(0)
        valid.fill(False)
        for at, ticks in self._nodes[node].pieces(start_s, valid.shape[1]):
            here = slice(at, at + ticks.shape[2])
            self._ticks.dequantise(ticks, values[:, here], valid[:, here])

    def _traced(self, node: str, start_s: int, values: NDArray[np.float32], valid: NDArray[np.bool_]) -> Trace:
        spans = tuple(span for span in self.spans if span.node == node)
        return Trace(node, self.nodes[node], start_s, self.schema, values, valid, spans, self.interval_s)


def _joined(parts: list[Windows], values: NDArray[np.float32], valid: NDArray[np.bool_]) -> Windows:
    """The windows of all nodes; their values are already side by side unless some were dropped."""
    if sum(map(len, parts)) < len(values):
        return Windows.concat(parts)
    slim = [replace(part, values=part.values[:0], valid=part.valid[:0]) for part in parts]
    return replace(Windows.concat(slim), values=values, valid=valid)
