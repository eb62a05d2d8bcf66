"""Node channels in a recording: beside the threads, unknown as NaN, in segments; recordings of older versions."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from clustertwin.core.channels import CPU, NODE, Schema
from clustertwin.core.traces import NodeChannels, Trace, gather_node_channels
from clustertwin.telemetry.recording import Recorder, Recording, RecordingSettings
from clustertwin.telemetry.recording.continuation import continue_recording
from clustertwin.telemetry.recording.export import export

OLDER = Path(__file__).parent / "of_older_versions"
START_S = 1_700_000_000
TWO = Schema(NODE.channels[:2])
SETTINGS = RecordingSettings(chunk_s=60, flush_s=5)


def trace(start_s: int, seconds: int, schema: Schema = NODE, unknown: tuple[int, ...] = ()) -> Trace:
    """Two threads; every node channel counts up by a 250th each second, from its position on."""
    values = np.tile(np.array([0.25, 0.05, 0, 0.7], np.float32), (2, seconds, 1))
    node_values = (np.arange(seconds)[:, None] + start_s - START_S + np.arange(len(schema))) % 250 / np.float32(250)
    node_values[list(unknown)] = np.nan
    valid = np.ones((2, seconds), np.bool_)
    return Trace("n0", (0, 1), start_s, CPU, values, valid, node_channels=NodeChannels(schema, node_values))


def node_values(recording: Recording, start_s: int, end_s: int) -> dict[str, np.ndarray]:
    channels = recording.trace("n0", start_s, end_s).node_channels
    assert channels is not None
    return dict(zip(channels.schema.names, channels.values.T, strict=True))


def test_node_channels_read_back_and_an_unknown_second_is_nan(tmp_path: Path) -> None:
    written = trace(START_S + 30, 100, unknown=(3, 70))
    with Recorder.create(tmp_path / "r", {"n0": (0, 1)}, node_schema=NODE, settings=SETTINGS) as recorder:
        recorder.append(written)
        live = Recording.open(tmp_path / "r").trace("n0", START_S + 30, START_S + 125)
    whole = Recording.open(tmp_path / "r").trace("n0")
    assert whole.schema == CPU
    for read in (live, whole):
        assert read.node_channels is not None
        assert read.node_channels.schema == NODE
        expected = written.node_channels.values[: read.values.shape[1]]
        np.testing.assert_allclose(read.node_channels.values, expected, atol=1e-6)
        np.testing.assert_array_equal(read.valid, True)


def test_windows_have_the_channels_of_threads_only(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "r", {"n0": (0, 1)}, node_schema=NODE, settings=SETTINGS) as recorder:
        recorder.append(trace(START_S, 100))
    assert Recording.open(tmp_path / "r").windows(50).schema == CPU


def test_after_a_crash_the_journal_has_the_node_channels_too(tmp_path: Path) -> None:
    recorder = Recorder.create(tmp_path / "r", {"n0": (0, 1)}, node_schema=NODE, settings=SETTINGS)
    recorder.append(trace(START_S, 42))
    shutil.copytree(tmp_path / "r", tmp_path / "crashed")
    recorder.close()
    values = node_values(Recording.open(tmp_path / "crashed"), START_S, START_S + 40)
    assert not np.isnan(values["memory_used"]).any()
    with Recorder.resume(tmp_path / "crashed", NODE) as resumed:
        resumed.append(trace(START_S + 50, 5))
    values = node_values(Recording.open(tmp_path / "crashed"), START_S, START_S + 55)
    assert np.isnan(values["io_pressure"]).sum() == 10


def test_other_node_channels_begin_a_segment_and_readers_join_them_by_name(tmp_path: Path) -> None:
    three = Schema((NODE.channels[1], NODE.channels[3], NODE.channels[0]))
    for start_s, schema in ((START_S, TWO), (START_S + 30, TWO), (START_S + 60, three), (START_S + 100, NODE)):
        piece = trace(start_s, 30, schema)
        recorder, note = continue_recording(tmp_path / "r", piece, SETTINGS)
        with recorder:
            recorder.append(piece)
        assert not note
    recording = Recording.open(tmp_path / "r")
    assert recording.description.node_segments == (TWO.names, three.names, NODE.names)
    assert set(recording.node_schema.names) == set(NODE.names)
    values = node_values(recording, START_S, START_S + 130)
    known = {name: ~np.isnan(column) for name, column in values.items()}
    gap = (np.arange(130) >= 90) & (np.arange(130) < 100)
    np.testing.assert_array_equal(known["memory_used"], ~gap)
    np.testing.assert_array_equal(known["io_pressure"], (np.arange(130) >= 60) & ~gap)
    np.testing.assert_array_equal(known["memory_pressure"], np.arange(130) >= 100)
    assert values["memory_used"][65] == pytest.approx(67 / 250)  # the third of its segment


def test_retention_deletes_the_chunks_of_older_segments(tmp_path: Path) -> None:
    settings = RecordingSettings(chunk_s=60, keep_s=120)
    for start_s, schema in ((START_S, TWO), (START_S + 600, NODE)):
        with continue_recording(tmp_path / "r", trace(start_s, 60, schema), settings)[0] as recorder:
            recorder.append(trace(start_s, 60, schema))
    assert not list((tmp_path / "r/n0!0").glob("c.*"))
    assert list((tmp_path / "r/n0!1").glob("c.*"))


def test_a_node_that_comes_later_has_its_channels_recorded(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "r", {"n1": (0, 1)}, node_schema=NODE, settings=SETTINGS) as recorder:
        recorder.admit("n0", (0, 1))
        recorder.append(trace(START_S, 20))
    assert not np.isnan(node_values(Recording.open(tmp_path / "r"), START_S, START_S + 20)["cpu_pressure"]).any()


def test_exported_rows_have_the_node_channels(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "r", {"n0": (0, 1)}, node_schema=NODE) as recorder:
        recorder.append(trace(START_S, 20, unknown=(5,)))
    export(Recording.open(tmp_path / "r"), tmp_path / "rows.parquet")
    table = parquet.read_table(tmp_path / "rows.parquet")
    memory = dict(zip(table["time_s"].to_pylist(), table["memory_used"].to_pylist(), strict=True))
    assert memory[START_S + 7] == pytest.approx(7 / 250)
    assert np.isnan(memory[START_S + 5])


@pytest.fixture(params=["cpu_only", "memory_and_io"])
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(OLDER / request.param, tmp_path / request.param)
    return tmp_path / request.param


def test_a_recording_of_an_older_version_opens(older: Path) -> None:
    recording = Recording.open(older)
    read = gather_node_channels(recording.trace("n0", START_S, START_S + 25))
    assert read.schema == CPU
    assert read.valid.sum() == 45
    np.testing.assert_allclose(read.values[0, 0], [0.25, 0.05, 0, 0.7], atol=1e-6)
    assert [span.job for span in recording.spans] == ["7"]
    if older.name == "memory_and_io":
        assert read.node_channels is not None
        assert read.node_channels.schema.names == ("memory_used", "io_pressure")
        np.testing.assert_allclose(read.node_channels.values[0], [0.5, 0.1], atol=1e-6)
    else:
        assert read.node_channels is None


def test_a_recording_of_an_older_version_is_continued_without_losing_a_second(older: Path) -> None:
    piece = trace(START_S + 40, 30)
    recorder, note = continue_recording(older, piece, SETTINGS)
    with recorder:
        recorder.append(piece)
    recording = Recording.open(older)
    assert recording.trace("n0", START_S + 40, START_S + 70).valid.all()
    assert not np.isnan(node_values(recording, START_S + 40, START_S + 70)["cpu_pressure"]).any()
    if older.name == "cpu_only":
        assert not note
        old = recording
        assert np.isnan(node_values(recording, START_S, START_S + 25)["cpu_pressure"]).all()
    else:
        assert "memory_used, io_pressure" in note
        assert str(older.with_name("memory_and_io-1")) in note
        old = Recording.open(older.with_name("memory_and_io-1"))
    assert old.trace("n0", START_S, START_S + 25).valid.sum() == 45


def test_a_second_recording_that_is_moved_aside_takes_the_next_name(tmp_path: Path) -> None:
    for number in (1, 2):
        shutil.rmtree(tmp_path / "r", ignore_errors=True)
        shutil.copytree(OLDER / "memory_and_io", tmp_path / "r")
        recorder, _ = continue_recording(tmp_path / "r", trace(START_S + 40, 30), SETTINGS)
        recorder.close()
        assert Recording.open(tmp_path / f"r-{number}").nodes == {"n0": (0, 1)}
