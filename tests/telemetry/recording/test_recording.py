"""Recordings read back: round trips, gaps, resuming, labels, retention, refusals."""

from __future__ import annotations

import math
import os
import resource
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clustertwin.core.channels import CPU, NODE, Schema
from clustertwin.core.errors import OutputError, RecordingError, SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.core.windows import cut
from clustertwin.telemetry.recording import Recorder, Recording, RecordingSettings, find, layout

CPUS = (0, 1, 5)
SMALL = RecordingSettings(chunk_s=60, flush_s=7)


def whole_ticks(cpus: int, seconds: int, seed: int = 0) -> NDArray[np.float32]:
    """Ratios of whole hundredths, which a recording keeps exactly."""
    user = np.random.default_rng(seed).integers(0, 101, size=(cpus, seconds))
    values = np.zeros((cpus, seconds, 4), np.float32)
    values[..., 0], values[..., 3] = user / 100, (100 - user) / 100
    return values


def a_trace(start_s: int, seconds: int, node: str = "n0", cpus: tuple[int, ...] = CPUS, seed: int = 0) -> Trace:
    values = whole_ticks(len(cpus), seconds, seed)
    return Trace(node, cpus, start_s, CPU, values, np.ones(values.shape[:2], np.bool_))


def same(read: Trace, written: Trace) -> bool:
    mine = slice(written.start_s - read.start_s, written.end_s - read.start_s)
    return bool(
        np.array_equal(read.valid[:, mine], written.valid)
        and np.allclose(read.values[:, mine][written.valid], written.values[written.valid], atol=1e-6)
    )


@pytest.mark.parametrize("seconds", [1, 59, 60, 61, 200])
def test_a_trace_reads_back(tmp_path: Path, seconds: int) -> None:
    trace = a_trace(1030, seconds)
    with Recorder.create(tmp_path / "r", {"n0": CPUS}, settings=SMALL) as recorder:
        recorder.append(trace)
    recording = Recording.open(tmp_path / "r")
    assert (recording.start_s, recording.end_s) == (1030, 1030 + seconds)
    assert same(recording.trace("n0"), trace)
    assert not (tmp_path / "r" / "n0" / "journal").exists()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.tuples(st.integers(0, 150), st.integers(1, 130), st.booleans()), min_size=1, max_size=6),
    closed=st.booleans(),
)
def test_any_appends_with_gaps_and_restarts_read_back(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, int, bool]], closed: bool
) -> None:
    directory = tmp_path_factory.mktemp("gaps") / "r"
    recorder = Recorder.create(directory, {"n0": CPUS}, settings=SMALL)
    at, written = 5000, []
    for number, (gap_s, seconds, restart) in enumerate(pieces):
        trace = a_trace(at + gap_s, seconds, seed=number)
        recorder.append(trace)
        written.append(trace)
        at = trace.end_s
        if restart:
            recorder.close()
            recorder = Recorder.resume(directory)
    recorder.flush()
    if closed:
        recorder.close()
    recording = Recording.open(directory)
    read = recording.trace("n0")
    assert (read.start_s, read.end_s) == (written[0].start_s, at)
    assert all(same(read, trace) for trace in written)
    assert read.valid.sum() == sum(trace.valid.sum() for trace in written)
    recorder.close()


def test_every_cpu_has_its_own_gaps(tmp_path: Path) -> None:
    both = a_trace(1000, 130)
    both.valid[1, 20:90] = False
    both.values[1, 20:90] = np.nan
    with Recorder.create(tmp_path / "r", {"n0": CPUS}, settings=SMALL) as recorder:
        recorder.append(both)
        recorder.append(a_trace(1130, 40, cpus=(5,)))
    read = Recording.open(tmp_path / "r").trace("n0")
    assert same(read, both)
    assert read.valid[:, 130:].sum(axis=1).tolist() == [0, 0, 40]
    assert recorder.refused == 0


def test_windows_are_those_cut_from_the_traces(tmp_path: Path) -> None:
    span = JobSpan("1", "n1", (0, 1), 1100, 1350.5, "np", anomaly="hung", onset_s=1250)
    with Recorder.create(tmp_path / "r", {"n0": CPUS, "n1": (0, 1)}, campaign="c", split="test") as recorder:
        recorder.append(a_trace(1000, 750))
        recorder.append(a_trace(1000, 760, "n1", (0, 1), seed=1))
        recorder.label(span)
    recording = Recording.open(tmp_path / "r")
    for stride_s in (100, 30):
        windows = recording.windows(100, stride_s)
        parts = [cut(recording.trace(node), 100, stride_s, "c", "test") for node in ("n0", "n1")]
        assert len(windows) == sum(map(len, parts)) > 30
        assert np.array_equal(windows.values, np.concatenate([part.values for part in parts]))
        for column in ("start_s", "node", "cpu", "job", "job_type", "anomaly", "campaign", "split"):
            assert getattr(windows, column).tolist() == [x for part in parts for x in getattr(part, column).tolist()]
    assert recording.windows().anomaly.tolist().count("hung") == 2


def test_windows_without_known_seconds_are_dropped(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "r", {"n0": (0,), "n1": (0,)}, settings=SMALL) as recorder:
        recorder.append(a_trace(1000, 100, cpus=(0,)))
        recorder.append(a_trace(1200, 100, "n1", (0,)))
    windows = Recording.open(tmp_path / "r").windows(50)
    assert list(zip(windows.node.tolist(), windows.start_s.tolist(), strict=True)) == [
        ("n0", 1000),
        ("n0", 1050),
        ("n1", 1200),
        ("n1", 1250),
    ]


def test_a_single_window_agrees_with_the_trace_at_any_position(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "r", {"n0": CPUS}, settings=SMALL) as recorder:
        recorder.append(a_trace(1030, 200))
        live = Recording.open(tmp_path / "r")  # the last seconds are in the journal
        for recording in (live, None):
            if recording is None:
                recorder.close()
                recording = Recording.open(tmp_path / "r")
            trace = recording.trace("n0", 1000, 1300)
            for start_s in range(1000, 1200, 7):
                values, valid = recording.window("n0", 5, start_s, 70)
                here = slice(start_s - 1000, start_s - 930)
                assert np.array_equal(values, trace.values[2, here])
                assert np.array_equal(valid, trace.valid[2, here])


def test_further_channels_are_recorded_too(tmp_path: Path) -> None:
    values = np.concatenate([whole_ticks(1, 30), np.full((1, 30, 1), 0.504), np.full((1, 30, 1), 0.1)], axis=2)
    wide = CPU + Schema(NODE.channels[:2])
    trace = Trace("n0", (0,), 1000, wide, values.astype(np.float32), np.ones((1, 30), np.bool_))
    with Recorder.create(tmp_path / "r", {"n0": (0,)}, wide) as recorder:
        recorder.append(trace)
    recording = Recording.open(tmp_path / "r")
    assert recording.schema == wide
    assert recording.trace("n0").values == pytest.approx(trace.values, abs=1e-6)


def test_the_cadence_is_a_setting(tmp_path: Path) -> None:
    trace = Trace("n0", (0,), 1000, CPU, whole_ticks(1, 50), np.ones((1, 50), np.bool_), interval_s=5)
    with Recorder.create(
        tmp_path / "r", {"n0": (0,)}, settings=RecordingSettings(interval_s=5, chunk_s=60)
    ) as recorder:
        recorder.append(trace)
    recording = Recording.open(tmp_path / "r")
    assert recording.end_s == 1250
    assert same(recording.trace("n0", 1000, 1250), trace)
    assert recording.windows(100).values.shape == (2, 20, 4)


def test_a_label_is_readable_at_once_and_a_later_one_replaces_it(tmp_path: Path) -> None:
    running = JobSpan("7", "n0", (0, 1), 1000, math.inf, "np")
    ended = JobSpan("7", "n0", (0, 1), 1000, 1200.5, "np", "ann", "hung", 1100)
    with Recorder.create(tmp_path / "r", {"n0": CPUS}) as recorder:
        recorder.label(running)
        assert Recording.open(tmp_path / "r").spans == (running,)
        recorder.label(ended)
        assert Recording.open(tmp_path / "r").spans == (ended,)


def test_an_incomplete_label_is_ignored_and_removed_on_resume(tmp_path: Path) -> None:
    first, second = JobSpan("1", "n0", (0,), 0, 1), JobSpan("2", "n0", (0,), 1, 2)
    with Recorder.create(tmp_path / "r", {"n0": CPUS}) as recorder:
        recorder.label(first)
    with (tmp_path / "r" / "labels.jsonl").open("ab") as file:
        file.write(b'{"job":"9","no')
    assert Recording.open(tmp_path / "r").spans == (first,)
    with Recorder.resume(tmp_path / "r") as recorder:
        recorder.label(second)
    assert Recording.open(tmp_path / "r").spans == (first, second)


def test_chunks_above_the_age_limit_are_deleted_with_their_labels(tmp_path: Path) -> None:
    keep = RecordingSettings(chunk_s=60, keep_s=120)
    with Recorder.create(tmp_path / "r", {"n0": CPUS}, settings=keep) as recorder:
        for minute in range(20, 30):
            recorder.label(JobSpan(str(minute), "n0", (0,), minute * 60, minute * 60 + 60))
            recorder.append(a_trace(minute * 60, 60, seed=minute))
    recording = Recording.open(tmp_path / "r")
    assert (recording.start_s, recording.end_s) == (28 * 60, 30 * 60)
    assert same(recording.trace("n0"), a_trace(28 * 60, 60, seed=28))
    assert [span.job for span in recording.spans] == ["28", "29"]


def test_above_the_size_limit_the_oldest_chunks_are_deleted(tmp_path: Path) -> None:
    keep = RecordingSettings(chunk_s=60, keep_bytes=900)
    with Recorder.create(tmp_path / "r", {"n0": CPUS}, settings=keep) as recorder:
        for minute in range(20, 30):
            recorder.append(a_trace(minute * 60, 60, seed=minute))
    left = sorted((tmp_path / "r" / "n0").glob("c.*"))
    assert 0 < sum(path.stat().st_size for path in left) <= 900
    assert Recording.open(tmp_path / "r").end_s == 30 * 60


def test_only_one_writer_at_a_time(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "r", {"n0": CPUS}), pytest.raises(OutputError, match="another process"):
        Recorder.resume(tmp_path / "r")
    Recorder.resume(tmp_path / "r").close()


def test_traces_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "r", {"n0": CPUS}) as recorder:
        recorder.append(a_trace(1000, 10))
        with pytest.raises(RecordingError, match="second 1009 came after 1009"):
            recorder.append(a_trace(1009, 10))
        with pytest.raises(RecordingError, match="no node 'n7'; the nodes are n0"):
            recorder.append(a_trace(2000, 10, node="n7"))
        with pytest.raises(RecordingError, match="no cpu 3"):
            recorder.append(a_trace(2000, 10, cpus=(0, 3)))
        with pytest.raises(RecordingError, match="differ in schema"):
            recorder.append(Trace("n0", (0,), 2000, NODE, np.zeros((1, 1, 2), np.float32), np.ones((1, 1), np.bool_)))
    with pytest.raises(OutputError, match="already holds"):
        Recorder.create(tmp_path / "r", {"n0": CPUS})
    with pytest.raises(SettingsError, match="at least one"):
        Recorder.create(tmp_path / "q", {})
    with pytest.raises(RecordingError, match="not a recording"):
        Recording.open(tmp_path)


def test_a_full_disk_is_an_error_and_what_was_written_stays_readable(tmp_path: Path) -> None:
    """A limit on file size stands for the disk: the kernel cuts the write short, then refuses it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    first, second = a_trace(1020, 30), a_trace(1050, 20, seed=1)
    recorder = Recorder.create(tmp_path / "r", {"n0": CPUS}, settings=RecordingSettings(chunk_s=60, flush_s=60))
    recorder.append(first)
    recorder.flush()
    recorder.append(second)
    journal = tmp_path / "r" / "n0" / "journal"
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + 40, before[1]))
        with pytest.raises(OutputError, match="cannot write: File too large"):
            recorder.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert same(Recording.open(tmp_path / "r").trace("n0"), first)
    recorder.close()  # there is room again: nothing was lost
    assert same(Recording.open(tmp_path / "r").trace("n0"), first)
    assert same(Recording.open(tmp_path / "r").trace("n0"), second)


def test_the_error_for_a_damaged_chunk_names_its_file(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "r", {"n0": CPUS}, settings=SMALL) as recorder:
        recorder.append(a_trace(1020, 60))
    chunk = tmp_path / "r" / "n0" / "c.0.0.0"
    data = bytearray(chunk.read_bytes())
    data[-20] ^= 0xFF
    chunk.write_bytes(data)
    with pytest.raises(RecordingError, match=r"c\.0\.0\.0: the chunk is damaged"):
        Recording.open(tmp_path / "r").trace("n0", 1020, 1080)
    chunk.write_bytes(data[:10])
    with pytest.raises(RecordingError, match="the chunk is incomplete"):
        Recording.open(tmp_path / "r").trace("n0", 1020, 1080)


def test_an_empty_recording_reads(tmp_path: Path) -> None:
    Recorder.create(tmp_path / "r", {"n0": CPUS}).close()
    recording = Recording.open(tmp_path / "r")
    assert recording.trace("n0").values.shape == (3, 0, 4)
    assert len(recording.windows()) == 0


@pytest.mark.parametrize(
    "node", ["gpu/1", "..", "host:9100", "ñ ode", "zarr.json", "é" * 255, "." + "/" * 254, "W" * 255]
)
def test_any_node_name_is_a_directory_inside(tmp_path: Path, node: str) -> None:
    with Recorder.create(tmp_path / "r", {node: CPUS}) as recorder:
        recorder.append(a_trace(1000, 10, node=node))
    assert same(Recording.open(tmp_path / "r").trace(node), a_trace(1000, 10, node=node))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r"]


def test_two_long_names_have_two_directories(tmp_path: Path) -> None:
    nodes = {f"{'é' * 254}{end}": CPUS for end in "ab"}
    with Recorder.create(tmp_path / "r", nodes) as recorder:
        for node in nodes:
            recorder.append(a_trace(1000, 10 if node[-1] == "a" else 7, node=node))
    assert [int(Recording.open(tmp_path / "r").trace(node).valid[0].sum()) for node in nodes] == [10, 7]


def test_a_node_without_a_name_is_refused_and_the_recording_stays_readable(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "r", {"n0": CPUS}) as recorder, pytest.raises(RecordingError, match="no name"):
        recorder.admit("", CPUS)
    assert list(Recording.open(tmp_path / "r").nodes) == ["n0"]


def test_recordings_are_found_below_a_directory(tmp_path: Path) -> None:
    for name in ("b/train", "a"):
        Recorder.create(tmp_path / name, {"n0": CPUS}).close()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "zarr.json").write_text("{}")
    assert find(tmp_path) == [tmp_path / "a", tmp_path / "b" / "train"]
    assert find(tmp_path / "a") == [tmp_path / "a"]


def test_a_resumed_recording_takes_new_limits_and_keeps_its_other_settings(tmp_path):
    with Recorder.create(tmp_path / "r", {"n0": CPUS}, settings=SMALL) as recorder:
        recorder.append(a_trace(0, 300))
    with Recorder.resume(tmp_path / "r", settings=RecordingSettings(keep_s=60)) as recorder:
        recorder.append(a_trace(300, 60))
    recording = Recording.open(tmp_path / "r")
    assert (recording.description.settings.keep_s, recording.description.settings.chunk_s) == (60, 60)
    assert recording.start_s >= 240


def test_a_resumed_recording_is_flushed_as_the_new_settings_say(tmp_path):
    Recorder.create(tmp_path / "r", {"n0": CPUS}, settings=RecordingSettings(flush_s=1)).close()
    with Recorder.resume(tmp_path / "r", settings=RecordingSettings(flush_s=50)) as recorder:
        recorder.append(a_trace(1000, 20))
        assert not (tmp_path / "r/n0/journal").exists()
        recorder.append(a_trace(1020, 40))
        assert (tmp_path / "r/n0/journal").exists()


def test_a_node_at_rest_takes_no_memory_and_is_readable_and_continues(tmp_path):
    with Recorder.create(tmp_path / "r", {"n0": CPUS, "n1": CPUS}, settings=SMALL) as recorder:
        recorder.append(a_trace(1000, 10))
        recorder.append(a_trace(1000, 10, "n1"))
        recorder.rest("n0")
        recorder.rest("n0")
        assert [recorder._arrays[node].is_at_rest for node in ("n0", "n1")] == [True, False]
        assert same(Recording.open(tmp_path / "r").trace("n0"), a_trace(1000, 10))
        later = a_trace(1015, 100, seed=1)
        recorder.append(later)
    trace = Recording.open(tmp_path / "r").trace("n0")
    assert same(trace, a_trace(1000, 10))
    assert same(trace, later)
    assert not trace.valid[:, 10:15].any()


def test_a_resumed_recording_has_no_chunk_in_memory_until_a_trace_arrives(tmp_path):
    with Recorder.create(tmp_path / "r", {"n0": CPUS}, settings=SMALL) as recorder:
        recorder.append(a_trace(1000, 10))
    with Recorder.resume(tmp_path / "r") as recorder:
        assert recorder._arrays["n0"].is_at_rest
        assert recorder.newest_s == 1010
        with pytest.raises(RecordingError, match="second 1009 came after 1009"):
            recorder.append(a_trace(1009, 10))


def test_an_error_of_one_node_does_not_keep_the_others_from_being_closed(tmp_path):
    recorder = Recorder.create(tmp_path / "r", {"n0": CPUS, "n1": CPUS}, settings=SMALL)
    for node in ("n0", "n1"):
        recorder.append(a_trace(1000, 5, node))
    (tmp_path / "r/n0").rename(tmp_path / "gone")
    with pytest.raises(OutputError):
        recorder.close()
    assert same(Recording.open(tmp_path / "r").trace("n1"), a_trace(1000, 5, "n1"))
    Recorder.resume(tmp_path / "r").close()


def test_a_label_of_a_node_that_was_removed_does_not_stop_the_next_start(tmp_path):
    with Recorder.create(tmp_path / "r", {"n0": CPUS, "n1": CPUS}, settings=SMALL) as recorder:
        recorder.label(JobSpan("7", "n1", (0,), 1000, math.inf))
        recorder.append(a_trace(1000, 5))
        recorder.drop_empty()
        assert list(recorder.description.nodes) == ["n0"]
    with Recorder.resume(tmp_path / "r") as recorder:
        assert [span.end_s for span in Recording.open(tmp_path / "r").spans] == [1000]


def test_a_chunk_that_expires_while_the_chunks_are_listed_hides_no_other(tmp_path, monkeypatch):
    """The whole array seemed to be empty: a page or a night took its hours as unknown."""
    for number in (7, 8, 9):
        (tmp_path / layout.chunk_name(number)).write_bytes(b"chunk")
    scandir = os.scandir

    def expiring(path):
        entries = list(scandir(path))
        (tmp_path / layout.chunk_name(7)).unlink()
        return nullcontext(entries)

    monkeypatch.setattr(os, "scandir", expiring)
    assert list(layout.chunk_sizes(tmp_path)) == [8, 9]
