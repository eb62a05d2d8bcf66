"""Write a recording: traces and job spans -> a directory. A crash loses at most the last `flush_s` seconds."""

from __future__ import annotations

import dataclasses
import fcntl
import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from clustertwin.core import files
from clustertwin.core.channels import CPU, Channel, Schema
from clustertwin.core.errors import OutputError, RecordingError, SettingsError
from clustertwin.core.traces import JobSpan, NodeChannels, Trace
from clustertwin.telemetry.recording import layout
from clustertwin.telemetry.recording.array_writer import ArrayWriter
from clustertwin.telemetry.recording.layout import ArrayLayout, RecordingDescription, RecordingSettings
from clustertwin.telemetry.recording.logs import job_slots, label_log
from clustertwin.telemetry.recording.logs.job_slots import JobSlots
from clustertwin.telemetry.recording.retention import Retention


class Recorder:
    """The one writer of a directory; a context manager. Several threads may use it."""

    def __init__(self, directory: Path, description: RecordingDescription, lock: int) -> None:
        """Use `create` or `resume`."""
        settings = description.settings
        self.directory, self.description = directory, description
        self._lock, self._mutex = lock, threading.Lock()
        self._arrays: dict[str, ArrayWriter] = {}  # by directory, those of older segments too
        for node in description.nodes:
            self._add_arrays(node)
        self._retention = Retention(settings.keep_s, settings.keep_bytes)
        self._slots = JobSlots(directory / layout.JOB_SLOTS)
        self._cleaned_s = -math.inf  # the logs have no older lines

    @classmethod
    def create(
        cls,
        directory: Path,
        nodes: Mapping[str, tuple[int, ...]],
        schema: Schema = CPU,
        *,
        node_schema: Schema | None = None,
        campaign: str = "",
        split: str = "",
        settings: RecordingSettings = RecordingSettings(),
    ) -> Recorder:
        """Begin a recording in a directory that has none. `nodes` names every thread that traces may have."""
        if not nodes or not all(nodes.values()):
            raise SettingsError("a recording needs at least one node, and each node at least one cpu")
        description = RecordingDescription(
            nodes={node: tuple(int(cpu) for cpu in cpus) for node, cpus in nodes.items()},
            schema=schema,
            campaign=campaign,
            split=split,
            settings=settings,
            node_segments=(node_schema.names,) if node_schema else (),
        )
        files.make_directory(directory)
        lock = lock_directory(directory)
        try:
            if (directory / layout.DOCUMENT).exists():
                raise OutputError(f"{directory}: already holds a recording")
            files.write(directory / layout.DOCUMENT, layout.group_document(description))
        except BaseException:
            os.close(lock)
            raise
        return cls(directory, description, lock)

    @classmethod
    def resume(
        cls, directory: Path, node_schema: Schema | None = None, settings: RecordingSettings | None = None
    ) -> Recorder:
        """Continue a recording that was closed or interrupted by a crash.

        If `node_schema` differs from the node channels so far, a new segment of node channels begins. The limits of
        `settings` replace those of the recording; its other settings cannot change.
        """
        description = layout.read_group(directory)
        lock = lock_directory(directory)
        try:
            if settings is not None:
                changed = dataclasses.replace(
                    description.settings, keep_s=settings.keep_s, keep_bytes=settings.keep_bytes
                )
                if changed != description.settings:
                    description = dataclasses.replace(description, settings=changed)
                    files.write(directory / layout.DOCUMENT, layout.group_document(description))
            if node_schema and node_schema.names not in description.node_segments[-1:]:
                segments = (*description.node_segments, node_schema.names)
                description = dataclasses.replace(description, node_segments=segments)
                files.write(directory / layout.DOCUMENT, layout.group_document(description))
            recorder = cls(directory, description, lock)
            for writer in recorder._arrays.values():
                writer.recover()
                recorder._apply_retention(writer, list(layout.chunk_sizes(writer.directory)))
            recorder._mend_labels()
        except BaseException:
            os.close(lock)
            raise
        return recorder

    def admit(self, node: str, cpus: tuple[int, ...]) -> None:
        """Add a node that is not in the recording yet."""
        with self._mutex:
            if self._lock < 0 or node in ("", *self.description.nodes) or not cpus:
                raise RecordingError(
                    self.directory,
                    f"cannot add node {node!r}: the recording is closed or has it, or it has no name or no cpus",
                )
            self._describe(nodes={**self.description.nodes, node: tuple(cpus)})
            self._add_arrays(node)

    def append(self, trace: Trace) -> None:
        """Append any number of seconds of one node, later than all before; there may be gaps."""
        with self._mutex:
            writer = self._writer(self.description.threads(self._known(trace.node)))
            self._apply_retention(writer, writer.append(trace))
            if trace.node_channels is not None and self.description.node_segments:
                last = len(self.description.node_segments) - 1
                writer = self._writer(self.description.node_channels(trace.node, last))
                self._apply_retention(writer, writer.append(_rows_of_channels(trace, writer.array)))
                self._append_jobs(trace)

    def _append_jobs(self, trace: Trace) -> None:
        """Append the channels of the node's jobs, as far as there are slots. A recording has them from the first on."""
        if trace.job_channels is None or not trace.job_channels.jobs:
            return
        names = trace.job_channels.schema.names
        if names not in self.description.job_segments[-1:]:
            segments = (*self.description.job_segments, names)
            self._describe(job_segments=segments)
            for node in self.description.nodes:
                array = self.description.job_channels(node, len(segments) - 1)
                self._arrays[array.directory] = ArrayWriter(self.directory, array)
        array = self.description.job_channels(trace.node, len(self.description.job_segments) - 1)
        slots = self._slots.place(trace.node, trace.job_channels.jobs, trace.start_s)
        writer = self._writer(array)
        self._apply_retention(writer, writer.append(_rows_of_jobs(trace, array, slots)))

    def label(self, *spans: JobSpan) -> None:
        """Add the labels of jobs; they are on disk when this returns."""
        with self._mutex:
            for span in spans:
                self._known(span.node)
            if spans:
                label_log.append(self.directory / layout.LABELS, spans)

    def flush(self) -> None:
        """Everything appended so far is on disk when this returns."""
        with self._mutex:
            for writer in self._arrays.values():
                writer.flush()

    @property
    def newest_s(self) -> int | None:
        """The end of the newest second of all nodes; None if there is none."""
        return max((writer.next_s for writer in self._arrays.values() if writer.next_s is not None), default=None)

    @property
    def refused(self) -> int:
        """Thread-seconds that were marked valid and were not ratios; they are recorded as invalid."""
        return sum(writer.refused for writer in self._arrays.values() if not writer.array.node_channels)

    def close(self) -> None:
        """Fold the journals into chunks and release the directory."""
        with self._mutex:
            if self._lock < 0:
                return
            try:
                for writer in self._arrays.values():
                    self._apply_retention(writer, writer.close())
            finally:
                os.close(self._lock)
                self._lock = -1

    def is_lost(self) -> bool:
        """Whether somebody has deleted the directory, or a part of it, while this recorder writes to it."""
        if self._lock < 0:
            return False
        deleted = os.fstat(self._lock).st_nlink == 0 or not (self.directory / layout.DOCUMENT).exists()
        return deleted or any(writer.is_lost for writer in self._arrays.values())

    def abandon(self) -> None:
        """Release the directory and write nothing more."""
        with self._mutex:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add_arrays(self, node: str) -> None:
        for array in self.description.arrays(node):
            self._arrays[array.directory] = ArrayWriter(self.directory, array)

    def _describe(self, **changes: Any) -> None:
        """Change the description, after it is on disk: what could not be written is tried again by the next trace."""
        description = dataclasses.replace(self.description, **changes)
        files.write(self.directory / layout.DOCUMENT, layout.group_document(description))
        self.description = description

    def _writer(self, array: ArrayLayout) -> ArrayWriter:
        return self._arrays[array.directory]

    def _known(self, node: str) -> str:
        if self._lock < 0:
            raise RecordingError(self.directory, "the recording is closed")
        if node not in self.description.nodes:
            raise RecordingError(self.directory, f"no node {node!r}; the nodes are {', '.join(self.description.nodes)}")
        return node

    def _apply_retention(self, writer: ArrayWriter, numbers: list[int]) -> None:
        """Report new chunks to the retention, and delete the chunks that it returns."""
        for number in numbers:
            self._retention.add(writer.chunk(number))
        expired = self._retention.expired()
        for chunk in expired:
            self._arrays[chunk.array].delete(chunk.number)
        if expired:
            self._clean_logs()

    def _mend_labels(self) -> None:
        """Remove an incomplete last line, and let jobs without an end finish at the last second of their node."""
        path = self.directory / layout.LABELS
        label_log.shorten(path)  # an earlier release did not, and a longer file is not read
        spans = [
            dataclasses.replace(span, end_s=self._writer(self.description.threads(span.node)).next_s or span.start_s)
            if math.isinf(span.end_s)
            else span
            for span in label_log.read(path)
        ]
        if path.is_file():  # also where the first line is incomplete: the next one would follow it
            label_log.rewrite(path, spans)

    def _clean_logs(self) -> None:
        """Delete what the logs say about seconds that are gone; once in a chunk, not once for each node."""
        oldest_end_s, chunk_s = self._retention.oldest_end_s, self.description.settings.chunk_s
        if oldest_end_s is None or oldest_end_s < self._cleaned_s + chunk_s:
            return
        self._cleaned_s = oldest_end_s
        label_log.drop_before(self.directory / layout.LABELS, oldest_end_s - chunk_s)
        job_slots.prune(self.directory / layout.JOB_SLOTS, oldest_end_s - chunk_s)


def _rows_of_channels(trace: Trace, array: ArrayLayout) -> Trace:
    """The node channels of a trace, in the order of a segment, as the rows of its array."""
    assert trace.node_channels is not None
    names = trace.node_channels.schema.names
    values = np.full((len(array.rows), trace.values.shape[1], 1), np.nan, np.float32)
    for row, name in enumerate(array.node_channels):
        if name in names:
            values[row, :, 0] = trace.node_channels.values[:, names.index(name)]
    valid = ~np.isnan(values[:, :, 0])
    values[~valid] = 0
    return dataclasses.replace(
        trace,
        cpus=array.rows,
        schema=array.schema,
        values=values,
        valid=valid,
        spans=(),
        node_channels=None,
        job_channels=None,
    )


def _rows_of_jobs(trace: Trace, array: ArrayLayout, slots: Mapping[str, int]) -> Trace:
    """The channels of the jobs of a trace as the rows of their slots; the other slots are unknown."""
    assert trace.job_channels is not None
    width = len(trace.job_channels.schema)
    values = np.full((len(array.rows), trace.values.shape[1]), np.nan, np.float32)
    for job, of_job in zip(trace.job_channels.jobs, trace.job_channels.values, strict=True):
        if job in slots:
            values[slots[job] * width : (slots[job] + 1) * width] = of_job.T
    channels = NodeChannels(Schema(tuple(Channel(name) for name in array.node_channels)), values.T)
    return _rows_of_channels(dataclasses.replace(trace, node_channels=channels), array)


def lock_directory(directory: Path) -> int:
    """Lock a directory; OutputError if another process holds the lock. The kernel releases it when the process ends."""
    with files.reporting(directory / layout.LOCK):
        lock = os.open(directory / layout.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise OutputError(f"{directory}: another process is recording here") from None
    return lock
