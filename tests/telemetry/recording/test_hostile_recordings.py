"""Recordings from elsewhere, damaged or hostile: each is read, or refused by an error that names the file."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import orjson
import pytest
from tests.hostile_inputs import attempt, fuzzed, scratch

from clustertwin.core.channels import CPU, JOB, NODE
from clustertwin.core.errors import RecordingError, TwinError
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace
from clustertwin.telemetry.recording import Recorder, Recording, RecordingSettings, find
from clustertwin.telemetry.recording.logs import job_slots, label_log

CPUS = (0, 1)


def a_recording(directory: Path) -> Path:
    """Two threads with node channels, a job and labels: one chunk, and seconds that are in the journal only."""
    seconds = 90
    values = np.zeros((2, seconds, 4), np.float32)
    values[..., 3] = 1
    nodes = NodeChannels(NODE, np.full((seconds, len(NODE)), 0.5, np.float32))
    jobs = JobChannels(JOB, ("7",), np.full((1, seconds, len(JOB)), 0.5, np.float32))
    trace = Trace("n1", CPUS, 60, CPU, values, np.ones((2, seconds), np.bool_), (), 1, nodes, jobs)
    settings = RecordingSettings(chunk_s=60, flush_s=5)
    recorder = Recorder.create(directory, {"n1": CPUS}, node_schema=NODE, settings=settings)
    recorder.append(trace)
    recorder.label(JobSpan("7", "n1", CPUS, 60.0, 90.0, "np"))
    os.close(recorder._lock)  # as after kill -9: the journal stays
    return directory


ROOT = scratch("recordings")
GOOD = a_recording(ROOT / "good")
#: file of a recording -> the folder of its kept inputs
FILES = {
    "recording_document": "zarr.json",
    "recording_array": "n1/zarr.json",
    "recording_labels": "labels.jsonl",
    "recording_slots": "jobs.jsonl",
    "recording_chunk": "n1/c.0.0.0",
    "recording_journal": "n1/journal",
}


def with_file(name: str, content: bytes) -> Path:
    """A copy of the good recording in which one file has this content. Each file has a copy of its own."""
    copy = ROOT / name.replace("/", "-")
    if not copy.exists():
        shutil.copytree(GOOD, copy)
    (copy / name).write_bytes(content)
    return copy


def is_read_or_refused(directory: Path) -> None:
    def read() -> Recording:
        recording = Recording.open(directory)
        for node in list(recording.nodes)[:2]:
            trace = recording.trace(node)
            assert trace.values.shape[:2] == trace.valid.shape
            recording.window(node, recording.nodes[node][0], recording.start_s, recording.interval_s)
        recording.windows(recording.interval_s * 10)
        return recording

    attempt(read, RecordingError)
    find(directory)


@fuzzed("recording_document")
def test_the_document_of_a_recording(content: bytes) -> None:
    is_read_or_refused(with_file(FILES["recording_document"], content))


@fuzzed("recording_array")
def test_the_document_of_an_array(content: bytes) -> None:
    is_read_or_refused(with_file(FILES["recording_array"], content))


@fuzzed("recording_labels")
def test_the_labels_of_a_recording(content: bytes) -> None:
    is_read_or_refused(with_file(FILES["recording_labels"], content))


@fuzzed("recording_slots")
def test_the_jobs_of_a_recording(content: bytes) -> None:
    is_read_or_refused(with_file(FILES["recording_slots"], content))


@fuzzed("recording_chunk")
def test_a_chunk_of_a_recording(content: bytes) -> None:
    is_read_or_refused(with_file(FILES["recording_chunk"], content))


@fuzzed("recording_journal")
def test_the_journal_of_a_recording(content: bytes) -> None:
    is_read_or_refused(with_file(FILES["recording_journal"], content))


def edited(directory: Path, **changes: object) -> Path:
    document = orjson.loads((GOOD / "zarr.json").read_bytes())
    document["attributes"]["clustertwin"] |= changes
    shutil.copytree(GOOD, directory)
    (directory / "zarr.json").write_bytes(orjson.dumps(document))
    return directory


SETTINGS = {"interval_s": 1, "chunk_s": 60, "flush_s": 5, "level": 1, "keep_s": None, "keep_bytes": None}


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": SETTINGS | {"chunk_s": 10**15}},
        {"settings": SETTINGS | {"chunk_s": 1e9}},
        {"settings": SETTINGS | {"interval_s": "1"}},
        {"nodes": {"n1": {"cpus": ["0", None]}}},
        {"nodes": {"n1": {"cpus": [0, 0]}}},
        {"nodes": {"n1": {"cpus": []}}},
        {"nodes": {}},
        {"nodes": {"n1": {"cpus": [10**18, 1]}}},
        {"schema": []},
        {"schema": [{"name": 5, "group": {}}]},
        {"node_channels": [[1, 2]]},
        {"campaign": {"a": 1}},
    ],
)
def test_giant_shapes_and_other_types_are_refused_before_memory_is_allocated(changes, tmp_path) -> None:
    directory = edited(tmp_path / "r", **changes)
    with pytest.raises(TwinError, match=r"zarr\.json"):
        Recording.open(directory)


#: Made by the tests: pytest keeps parameters until its end.
GIANTS = {
    "threads": lambda: {"nodes": {"n1": {"cpus": list(range(2_000_000))}}},
    "channels": lambda: {"schema": [{"name": f"c{i}"} for i in range(100_000)]},
    "channels of jobs": lambda: {"job_channels": [[f"c{i}" for i in range(1_000_000)]]},
}


@pytest.mark.slow
@pytest.mark.parametrize("giant", GIANTS)
def test_giant_lists_are_refused(giant, tmp_path) -> None:
    directory = edited(tmp_path / "r", **GIANTS[giant]())
    with pytest.raises(TwinError, match=r"zarr\.json"):
        Recording.open(directory)


def test_a_second_far_in_the_future_does_not_allocate_centuries(tmp_path) -> None:
    shutil.copytree(GOOD, tmp_path / "r")
    head = struct.pack("<4sIq", b"CTJ1", 1, 10**11 - 1) + bytes(2 * 3)
    with (tmp_path / "r/n1/journal").open("ab") as journal:
        journal.write(head + struct.pack("<I", zlib.crc32(head)))
    with pytest.raises(RecordingError, match="GB; read a shorter time"):
        Recording.open(tmp_path / "r").trace("n1")
    assert Recording.open(tmp_path / "r").trace("n1", 60, 120).valid.all()


@pytest.mark.parametrize("name", [*FILES.values(), "n1!0/zarr.json", "n1!0/c.0.0.0", "n1!jobs0/journal"])
def test_a_fifo_or_a_loop_of_links_instead_of_a_file_is_refused(name, tmp_path) -> None:
    """A FIFO blocked the reader for ever."""
    for kind, make in (("fifo", os.mkfifo), ("loop", lambda path: path.symlink_to(path.name))):
        directory = tmp_path / kind
        shutil.copytree(GOOD, directory)
        (directory / name).unlink()
        make(directory / name)
        find(directory)
        with pytest.raises(RecordingError, match=r"cannot be read: (not a regular file|Too many levels)"):
            Recording.open(directory).trace("n1")


def test_labels_and_slots_of_other_types_are_refused_with_their_line() -> None:
    label = {"job": "7", "node": "n1", "cpus": [0], "start_s": 1.0, "end_s": None}
    for change in ({"start_s": "soon"}, {"job": None}, {"cpus": ["0"]}, {"end_s": [1]}):
        lines = orjson.dumps(label) + b"\n" + orjson.dumps(label | change) + b"\n"
        with pytest.raises(RecordingError, match="labels:2: not a label"):
            label_log.parse(lines)


@pytest.mark.parametrize("change", [{"slot": 8}, {"slot": -1}, {"start_s": "x"}, {"start_s": 10**12}, {"job": 7}])
def test_a_slot_that_does_not_exist_is_refused(change, tmp_path) -> None:
    slot = {"node": "n1", "slot": 0, "job": "7", "start_s": 5}
    (tmp_path / "jobs.jsonl").write_bytes(orjson.dumps(slot | change) + b"\n")
    with pytest.raises(RecordingError, match=r"jobs\.jsonl:1: not an assignment"):
        job_slots.read(tmp_path / "jobs.jsonl")
