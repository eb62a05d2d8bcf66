"""Channels of jobs in a recording: in slots, used one after the other; recordings without them open unchanged."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from clustertwin.core import files
from clustertwin.core.channels import CPU, JOB, NODE
from clustertwin.core.errors import OutputError
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace
from clustertwin.telemetry.recording import Recorder, Recording, RecordingSettings
from clustertwin.telemetry.recording.logs import job_slots
from clustertwin.telemetry.recording.logs.job_slots import HELD_S, SLOTS, JobSlots, read

START_S = 1_700_000_000
SETTINGS = RecordingSettings(chunk_s=60, flush_s=5)


def trace(second: int, jobs: dict[str, float], node: str = "n0") -> Trace:
    """One second of a node with two threads; all channels of a job have the same value."""
    threads = np.tile(np.array([0.25, 0.05, 0, 0.7], np.float32), (2, 1, 1))
    node_values = np.full((1, len(NODE)), 0.5, np.float32)
    job_values = np.array([np.full((1, len(JOB)), value, np.float32) for value in jobs.values()])
    return Trace(
        node,
        (0, 1),
        START_S + second,
        CPU,
        threads,
        np.ones((2, 1), np.bool_),
        node_channels=NodeChannels(NODE, node_values),
        job_channels=JobChannels(JOB, tuple(jobs), job_values) if jobs else None,
    )


def recorder_in(directory: Path) -> Recorder:
    return Recorder.create(directory, {"n0": (0, 1), "n1": (0, 1)}, node_schema=NODE, settings=SETTINGS)


def memory(recording: Recording, node: str = "n0") -> dict[str, list[float]]:
    channels = recording.trace(node).job_channels
    assert channels is not None
    assert channels.schema == JOB
    values = channels.values[:, :, JOB.index("job_memory")]
    return dict(zip(channels.jobs, np.round(values.astype(np.float64), 2).tolist(), strict=True))


def test_jobs_read_back_over_chunks_and_a_gap_is_nan(tmp_path: Path) -> None:
    with recorder_in(tmp_path / "r") as recorder:
        for second in range(90):
            recorder.append(trace(second, {"a": 0.2, "b": 0.4} if second != 5 else {"b": 0.4}))
    values = memory(Recording.open(tmp_path / "r"))
    assert values["b"] == pytest.approx([0.4] * 90)
    np.testing.assert_equal(values["a"], [0.2] * 5 + [np.nan] + [0.2] * 84)


def test_a_slot_is_used_again_and_each_job_keeps_its_own_seconds(tmp_path: Path) -> None:
    with recorder_in(tmp_path / "r") as recorder:
        for second in range(SLOTS * 10):
            recorder.append(trace(second, {f"job{second // 5}": 0.1}))
    values = memory(Recording.open(tmp_path / "r"))
    assert len(values) == SLOTS * 2
    for number in range(SLOTS * 2):
        seconds = list(range(5 * number, 5 * number + 5))
        assert np.flatnonzero(~np.isnan(values[f"job{number}"])).tolist() == seconds


def test_a_node_whose_jobs_change_every_second_does_not_fill_the_disk(tmp_path: Path) -> None:
    slots = JobSlots(tmp_path / "jobs.jsonl")
    for second in range(300):
        slots.place("n0", [f"{second}-{i}" for i in range(20)], second)
    assert len(read(tmp_path / "jobs.jsonl")) == SLOTS * 300 // HELD_S


def test_jobs_beyond_the_slots_are_left_out_and_running_ones_keep_theirs(tmp_path: Path) -> None:
    first = {f"old{i}": 0.1 for i in range(SLOTS)}
    with recorder_in(tmp_path / "r") as recorder:
        recorder.append(trace(0, first))
        recorder.append(trace(1, first | {"new": 0.9}))
    assert set(memory(Recording.open(tmp_path / "r"))) == set(first)


def test_after_a_crash_the_jobs_continue_in_their_slots(tmp_path: Path) -> None:
    recorder = recorder_in(tmp_path / "r")
    for second in range(20):
        recorder.append(trace(second, {"a": 0.2}, "n1"))
        recorder.append(trace(second, {"b": 0.6}))
    shutil.copytree(tmp_path / "r", tmp_path / "crashed")
    recorder.close()
    with (tmp_path / "crashed/jobs.jsonl").open("ab") as log:
        log.write(b'{"node":"n0","sl')  # the crash was inside a line
    with Recorder.resume(tmp_path / "crashed", NODE) as resumed:
        resumed.append(trace(30, {"c": 0.8, "b": 0.6}))
    values = memory(Recording.open(tmp_path / "crashed"))
    assert set(values) == {"b", "c"}
    assert values["b"][15] == values["b"][30] == 0.6
    assert np.isnan(values["c"][:30]).all()
    assert set(memory(Recording.open(tmp_path / "crashed"), "n1")) == {"a"}


def test_nodes_and_jobs_that_come_while_the_disk_is_full_are_recorded_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were lost until the next start: the recorder knew them, and had no files for them."""

    def full(path: Path, *rest: object, **options: object) -> None:
        raise OutputError(f"{path}: cannot write: No space left on device")

    with recorder_in(tmp_path / "r") as recorder:
        recorder.append(trace(0, {}))
        with monkeypatch.context() as patch:
            patch.setattr(files, "write", full)
            with pytest.raises(OutputError):
                recorder.append(trace(1, {"a": 0.2}))
            with pytest.raises(OutputError):
                recorder.append(trace(1, {"a": 0.2}, "n1"))
            with pytest.raises(OutputError):
                recorder.admit("n2", (0, 1))
        recorder.admit("n2", (0, 1))
        for second in range(2, 20):
            for node in ("n0", "n1", "n2"):
                recorder.append(trace(second, {"a": 0.2}, node))
        recorder.flush()
        shutil.copytree(tmp_path / "r", tmp_path / "crashed")
    with Recorder.resume(tmp_path / "crashed", NODE) as resumed:
        resumed.append(trace(30, {"a": 0.2}, "n1"))
    for node in ("n0", "n1", "n2"):
        recording = Recording.open(tmp_path / "crashed")
        assert recording.trace(node).valid[:, 2:20].all()
        assert memory(recording, node)["a"][2:20] == [0.2] * 18


def test_a_recording_without_channels_of_jobs_has_none(tmp_path: Path) -> None:
    with recorder_in(tmp_path / "r") as recorder:
        recorder.append(trace(0, {}))
    assert Recording.open(tmp_path / "r").trace("n0").job_channels is None


@pytest.mark.parametrize("name", ["labels.jsonl", "jobs.jsonl"])
def test_a_first_line_that_a_crash_has_cut_does_not_spoil_the_next_one(tmp_path: Path, name: str) -> None:
    """A later line of the same file was mended; after the first one, no more seconds were recorded."""
    with recorder_in(tmp_path / "r") as recorder:
        recorder.append(trace(0, {}))
    (tmp_path / "r" / name).write_bytes(b'{"node":"n0","sl')
    for second in (1, 2):
        with Recorder.resume(tmp_path / "r", NODE) as resumed:
            resumed.append(trace(second, {"a": 0.2}))
            resumed.label(JobSpan("a", "n0", (0, 1), START_S + 1.0, START_S + 3.0))
    recording = Recording.open(tmp_path / "r")
    assert [span.job for span in recording.spans] == ["a"]
    assert set(memory(recording)) == {"a"}


@pytest.mark.medium
def test_old_assignments_are_removed_with_their_seconds(tmp_path: Path) -> None:
    settings = RecordingSettings(chunk_s=60, flush_s=5, keep_s=120)
    with Recorder.create(tmp_path / "r", {"n0": (0, 1)}, node_schema=NODE, settings=settings) as recorder:
        for second in range(600):
            recorder.append(trace(second, {f"job{second // 10}": 0.1}))
    kept = (tmp_path / "r/jobs.jsonl").read_text()
    assert '"job59"' in kept
    assert '"job1"' not in kept
    assert "job59" in memory(Recording.open(tmp_path / "r"))


def test_a_long_file_of_assignments_loses_its_older_half_but_not_what_a_slot_holds(tmp_path: Path, monkeypatch) -> None:
    """A file over the limit of a reader would end the recording."""
    monkeypatch.setattr(job_slots, "MOST_KEPT_BYTES", 1500)
    slots = JobSlots(tmp_path / "jobs.jsonl")
    for minute in range(200):
        held = slots.place("n0", ["long", f"job{minute}"], START_S + 60 * minute)
    assert (tmp_path / "jobs.jsonl").stat().st_size <= 1500
    kept = {assignment.job: assignment for assignment in read(tmp_path / "jobs.jsonl")}
    assert "job1" not in kept
    assert (kept["long"].slot, kept["long"].start_s) == (held["long"], START_S)
    assert kept["job199"].slot == held["job199"]
