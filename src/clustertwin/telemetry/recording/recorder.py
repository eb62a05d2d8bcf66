"""Write a recording: traces and job spans -> a directory, so that a crash costs at most the last `flush_s` seconds."""

from __future__ import annotations

import dataclasses
import fcntl
import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from clustertwin.core import files
from clustertwin.core.channels import CPU, Schema
from clustertwin.core.errors import OutputError, RecordingError, SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.recording import label_log, layout
from clustertwin.telemetry.recording.layout import Description, RecordingSettings
from clustertwin.telemetry.recording.node_writer import NodeWriter
from clustertwin.telemetry.recording.retention import Retention


class Recorder:
    """The one writer of a directory; a context manager. Threads may share it."""

    def __init__(self, directory: Path, about: Description, lock: int) -> None:
        """Use `create` or `resume`."""
        settings = about.settings
        self.directory, self.about = directory, about
        self._lock, self._mutex = lock, threading.Lock()
        self._nodes = {node: NodeWriter(directory, about, node) for node in about.nodes}
        self._retention = Retention(settings.keep_s, settings.keep_bytes)

    @classmethod
    def create(
        cls,
        directory: Path,
        nodes: Mapping[str, tuple[int, ...]],
        schema: Schema = CPU,
        *,
        campaign: str = "",
        split: str = "",
        settings: RecordingSettings = RecordingSettings(),
    ) -> Recorder:
        """Begin a recording in a directory that holds none; `nodes` names every thread that may come."""
        if not nodes or not all(nodes.values()):
            raise SettingsError("a recording needs at least one node, and each node at least one cpu")
        about = Description(
            {node: tuple(int(cpu) for cpu in cpus) for node, cpus in nodes.items()}, schema, campaign, split, settings
        )
        files.make_directory(directory)
        lock = _take(directory)
        try:
            if (directory / layout.DOCUMENT).exists():
                raise OutputError(f"{directory}: already holds a recording")
            files.write(directory / layout.DOCUMENT, layout.group_document(about))
        except BaseException:
            os.close(lock)
            raise
        return cls(directory, about, lock)

    @classmethod
    def resume(cls, directory: Path) -> Recorder:
        """Go on with a recording that was closed, or left behind by a crash."""
        about = layout.read_group(directory)
        lock = _take(directory)
        try:
            recorder = cls(directory, about, lock)
            for writer in recorder._nodes.values():
                writer.recover()
                recorder._written(writer, list(layout.chunk_sizes(writer.directory)))
            recorder._mend_labels()
        except BaseException:
            os.close(lock)
            raise
        return recorder

    def admit(self, node: str, cpus: tuple[int, ...]) -> None:
        """Let a node in that was not there at the start."""
        with self._mutex:
            if self._lock < 0 or node in self._nodes or not cpus:
                raise RecordingError(self.directory, f"cannot let node {node!r} in: closed, known, or without cpus")
            self.about = dataclasses.replace(self.about, nodes={**self.about.nodes, node: tuple(cpus)})
            files.write(self.directory / layout.DOCUMENT, layout.group_document(self.about))
            self._nodes[node] = NodeWriter(self.directory, self.about, node)

    def append(self, trace: Trace) -> None:
        """Take in any number of seconds of one node, later than all before; gaps are welcome."""
        with self._mutex:
            writer = self._writer(trace.node)
            self._written(writer, writer.append(trace))

    def label(self, span: JobSpan) -> None:
        """Say what ran where; durable when this returns."""
        with self._mutex:
            self._writer(span.node)
            label_log.append(self.directory / layout.LABELS, span)

    def flush(self) -> None:
        """Everything appended so far is durable when this returns."""
        with self._mutex:
            for writer in self._nodes.values():
                writer.flush()

    @property
    def refused(self) -> int:
        """Thread-seconds that claimed to be valid and were no ratios; they are recorded as invalid."""
        return sum(writer.refused for writer in self._nodes.values())

    def close(self) -> None:
        """Fold the journals into chunks and let the directory go."""
        with self._mutex:
            if self._lock < 0:
                return
            try:
                for writer in self._nodes.values():
                    self._written(writer, writer.close())
            finally:
                os.close(self._lock)
                self._lock = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _writer(self, node: str) -> NodeWriter:
        if self._lock < 0:
            raise RecordingError(self.directory, "the recording is closed")
        if node not in self._nodes:
            raise RecordingError(self.directory, f"no node {node!r}; there are {', '.join(self._nodes)}")
        return self._nodes[node]

    def _written(self, writer: NodeWriter, numbers: list[int]) -> None:
        """Enter new chunks with the retention, and delete what it lets go."""
        for number in numbers:
            self._retention.add(writer.chunk(number))
        gone = self._retention.expired()
        for chunk in gone:
            self._nodes[chunk.node].delete(chunk.number)
        if gone:
            self._forget_labels()

    def _mend_labels(self) -> None:
        """Without a torn last line; what ran when the last writer died was last seen with its node's last second."""
        path = self.directory / layout.LABELS
        spans = [
            dataclasses.replace(span, end_s=self._nodes[span.node].next_s or span.start_s)
            if math.isinf(span.end_s)
            else span
            for span in label_log.read(path)
        ]
        if spans:
            label_log.rewrite(path, spans)

    def _forget_labels(self) -> None:
        oldest_end_s = self._retention.oldest_end_s
        path = self.directory / layout.LABELS
        spans = label_log.read(path)
        kept = [s for s in spans if oldest_end_s is None or s.end_s > oldest_end_s - self.about.settings.chunk_s]
        if len(kept) < len(spans):
            label_log.rewrite(path, kept)


def _take(directory: Path) -> int:
    """The directory's lock; the kernel gives it back however the process ends."""
    with files.reporting(directory / layout.LOCK):
        lock = os.open(directory / layout.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise OutputError(f"{directory}: another process is recording here") from None
    return lock
