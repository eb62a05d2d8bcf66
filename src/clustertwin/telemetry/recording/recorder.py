"""Write a recording: traces and job spans -> a directory. A crash loses at most the last `flush_s` seconds."""

from __future__ import annotations

import dataclasses
import fcntl
import math
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from clustertwin.core import files
from clustertwin.core.channels import CPU, Schema
from clustertwin.core.errors import OutputError, RecordingError, SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.recording import layout
from clustertwin.telemetry.recording.array_writer import ArrayWriter
from clustertwin.telemetry.recording.channel_rows import rows_of_jobs, rows_of_node
from clustertwin.telemetry.recording.layout import ArrayLayout, RecordingDescription, RecordingSettings
from clustertwin.telemetry.recording.logs import job_slots, label_log
from clustertwin.telemetry.recording.logs.job_slots import JobSlots
from clustertwin.telemetry.recording.retention import Retention

#: Nodes are admitted until the document is about as long as this, which is 4,600 nodes of 128 threads. It is written
#: again with each node, and a source that invents names must not fill the memory.
MOST_ADMITTED_BYTES = 1 << 24


class Recorder:
    """The one writer of a directory; a context manager. Several threads may use it."""

    def __init__(self, directory: Path, description: RecordingDescription, lock: int) -> None:
        """Use `create` or `resume`."""
        settings = description.settings
        self.directory, self.description = directory, description
        self._lock, self._mutex = lock, threading.Lock()
        self._arrays: dict[str, ArrayWriter] = {}  # by directory, those of older segments too
        self._cost = _cost(description)
        for node in description.nodes:
            self._add_arrays(node)
        self._retention = Retention(settings.keep_s, settings.keep_bytes)
        self._slots = JobSlots(directory / layout.JOB_SLOTS)
        self._cleaned_s = -math.inf  # the logs have no older lines
        self._newest_s: int | None = None

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
        try:
            for node in nodes:
                layout.check_node(description, node)
        except ValueError as error:
            raise SettingsError(f"{directory}: {error}") from error
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

        If `node_schema` differs from the node channels so far, a new segment of node channels begins. `flush_s` and the
        limits of `settings` replace those of the recording; its other settings cannot change.
        """
        description = layout.read_group(directory)
        lock = lock_directory(directory)
        try:
            if settings is not None:
                changed = dataclasses.replace(
                    description.settings,
                    flush_s=settings.flush_s,
                    keep_s=settings.keep_s,
                    keep_bytes=settings.keep_bytes,
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
                recorder._note_newest(writer)
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
            self._describe(self._with_node(node, cpus))
            self._add_arrays(node)

    def widen(self, node: str, cpus: tuple[int, ...]) -> None:
        """Add threads to a node of the recording; they are unknown until now. Those that it has are left as they are.

        The new threads are the last rows of the array, so the chunks so far stay as they are.
        """
        with self._mutex:
            known = self.description.nodes[self._known(node)]
            new = tuple(sorted(set(cpus) - set(known)))
            if not new:
                return
            narrow = self._writer(self.description.threads(node))
            self._apply_retention(narrow, narrow.rest())  # a journal has no number of rows
            description = self._with_node(node, (*known, *new))
            wide = narrow.widened(description.threads(node))
            self._describe(description)
            self._arrays[wide.array.directory] = wide

    def _with_node(self, node: str, cpus: tuple[int, ...]) -> RecordingDescription:
        """The description with these threads of a node; an error if they cannot be recorded."""
        nodes = {**self.description.nodes, node: tuple(int(cpu) for cpu in cpus)}
        before = self.description.nodes.get(node)
        added = _document_bytes(node, cpus) - (_document_bytes(node, before) if before else 0)
        if self._cost + added > MOST_ADMITTED_BYTES:
            reason = f"there is no room for {node[:80]!r} beside the {len(nodes) - 1} nodes of the recording"
            raise RecordingError(self.directory, reason)
        description = dataclasses.replace(self.description, nodes=nodes)
        try:
            layout.check_node(description, node)
        except ValueError as error:
            raise RecordingError(self.directory, str(error)) from error
        return description

    def _describe(self, description: RecordingDescription) -> None:
        """Change the document, and then the description: a full disk must not leave a node without its arrays."""
        files.write(self.directory / layout.DOCUMENT, layout.group_document(description))
        self.description = description
        self._cost = _cost(description)

    def rest(self, node: str) -> None:
        """Fold what a silent node has in memory, and free its memory until it is back."""
        with self._mutex:
            if self._lock >= 0 and node in self.description.nodes:
                for array in self.description.arrays(node):
                    writer = self._writer(array)
                    self._apply_retention(writer, writer.rest())

    def drop_empty(self) -> None:
        """Remove the nodes at rest that have no seconds any more: their chunks were over the limits."""
        with self._mutex:
            stored = self._retention.arrays
            arrays = {
                node: [array.directory for array in self.description.arrays(node)] for node in self.description.nodes
            }
            kept = {
                node: self.description.nodes[node]
                for node, directories in arrays.items()
                if any(each in stored or not self._arrays[each].is_at_rest for each in directories)
            }
            if self._lock < 0 or not kept or len(kept) == len(arrays):  # a recording has at least one node
                return
            self._describe(dataclasses.replace(self.description, nodes=kept))
            for directory in (each for node in arrays.keys() - kept.keys() for each in arrays[node]):
                del self._arrays[directory]
                shutil.rmtree(self.directory / directory, ignore_errors=True)

    def append(self, trace: Trace) -> None:
        """Append any number of seconds of one node, later than all before; there may be gaps."""
        with self._mutex:
            writer = self._writer(self.description.threads(self._known(trace.node)))
            self._append_to(writer, trace)
            if trace.node_channels is not None and self.description.node_segments:
                last = len(self.description.node_segments) - 1
                writer = self._writer(self.description.node_channels(trace.node, last))
                self._append_to(writer, rows_of_node(trace, writer.array))
                self._append_jobs(trace)

    def _append_to(self, writer: ArrayWriter, trace: Trace) -> None:
        self._apply_retention(writer, writer.append(trace))
        self._note_newest(writer)

    def _append_jobs(self, trace: Trace) -> None:
        """Append the channels of the node's jobs, as far as there are slots. A recording has them from the first on."""
        if trace.job_channels is None or not trace.job_channels.jobs:
            return
        names = trace.job_channels.schema.names
        if names not in self.description.job_segments[-1:]:
            segments = (*self.description.job_segments, names)
            self._describe(dataclasses.replace(self.description, job_segments=segments))
            for node in self.description.nodes:
                array = self.description.job_channels(node, len(segments) - 1)
                self._arrays[array.directory] = ArrayWriter(self.directory, array)
        array = self.description.job_channels(trace.node, len(self.description.job_segments) - 1)
        slots = self._slots.place(trace.node, trace.job_channels.jobs, trace.start_s)
        self._append_to(self._writer(array), rows_of_jobs(trace, array, slots))

    def label(self, *spans: JobSpan) -> None:
        """Add the labels of jobs; they are on disk when this returns."""
        with self._mutex:
            for span in spans:
                self._known(span.node)
            if spans:
                label_log.append(self.directory / layout.LABELS, spans)

    def flush(self, sync: bool = True) -> None:
        """Everything appended so far is on disk when this returns; without `sync`, a power cut can still lose it."""
        with self._mutex:
            self._for_each(lambda writer: writer.flush(sync))

    def next_s(self, node: str) -> int | None:
        """The earliest second of a node that may come next; None if any may."""
        return self._writer(self.description.threads(node)).next_s if node in self.description.nodes else None

    @property
    def newest_s(self) -> int | None:
        """The end of the newest second of all nodes; None if there is none."""
        return self._newest_s

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
                self._for_each(lambda writer: self._apply_retention(writer, writer.close()))
            finally:
                os.close(self._lock)
                self._lock = -1

    def _for_each(self, work: Callable[[ArrayWriter], object]) -> None:
        """Do some work for every array, also if it fails for one; then raise the first error."""
        errors: list[Exception] = []
        for writer in self._arrays.values():
            try:
                work(writer)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def is_lost(self, node: str) -> bool:
        """Whether somebody has deleted the directory, or that of a node, while this recorder writes to it."""
        if self._lock < 0:
            return False
        if os.fstat(self._lock).st_nlink == 0 or not (self.directory / layout.DOCUMENT).exists():
            return True
        arrays = self.description.arrays(node) if node in self.description.nodes else []
        return any(self._writer(array).is_lost for array in arrays)

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

    def _note_newest(self, writer: ArrayWriter) -> None:
        if writer.next_s is not None:
            self._newest_s = writer.next_s if self._newest_s is None else max(self._newest_s, writer.next_s)

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
        expired = self._retention.expired() if numbers else []  # adding up the sizes of a cluster takes a millisecond
        for chunk in expired:
            self._arrays[chunk.array].delete(chunk.number)
        if expired:
            self._clean_logs()

    def _mend_labels(self) -> None:
        """Remove an incomplete last line, and let jobs without an end finish at the last second of their node."""
        path = self.directory / layout.LABELS
        label_log.shorten(path)  # an earlier release did not, and a longer file is not read
        spans = [
            dataclasses.replace(span, end_s=self.next_s(span.node) or span.start_s) if math.isinf(span.end_s) else span
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


def _document_bytes(node: str, cpus: tuple[int, ...]) -> int:
    """About what a node adds to the document of a recording, and never less."""
    return 512 + 6 * len(node) + 24 * len(cpus)


def _cost(description: RecordingDescription) -> int:
    """About the bytes of the document."""
    return sum(_document_bytes(node, cpus) for node, cpus in description.nodes.items())
