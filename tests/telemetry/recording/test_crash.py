"""kill -9 at random times: every recording can be read, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.recording import Recorder, Recording, RecordingSettings

CPUS, START_S = (0, 1, 2, 3), 10_000
ACK = struct.Struct("<qq")  # seconds up to this one, and labels up to this number, are durable


def values_at(start_s: int, seconds: int) -> NDArray[np.float32]:
    """Every second has its own value, so that a wrong byte cannot pass for a right one."""
    user = (7 * np.arange(start_s, start_s + seconds) + 11 * np.array(CPUS)[:, None]) % 101
    values = np.zeros((len(CPUS), seconds, 4), np.float32)
    values[..., 0], values[..., 3] = user / 100, (100 - user) / 100
    return values


def record_for_ever(directory: Path, acknowledge: int, seed: int) -> None:
    """A recorder whose clock runs fast; it says what is durable as soon as it is."""
    rng = random.Random(seed)
    if (directory / "zarr.json").exists():
        recorder, known = Recorder.resume(directory), Recording.open(directory)
        at, labels = max(known.end_s, START_S), len(known.spans)
    else:
        recorder = Recorder.create(directory, {"n0": CPUS}, settings=RecordingSettings(chunk_s=120, flush_s=9))
        at, labels = START_S, 0
    while True:
        seconds = rng.choice([1, 1, 1, 2, 8, 40, 300])
        values = values_at(at, seconds)
        recorder.append(Trace("n0", CPUS, at, CPU, values, np.ones(values.shape[:2], np.bool_)))
        at += seconds
        if rng.random() < 0.3:
            recorder.label(JobSpan(f"job{labels}", "n0", (0,), at, at + 5))
            labels += 1
        if rng.random() < 0.5:
            recorder.flush()
            os.write(acknowledge, ACK.pack(at, labels))


def killed_after(directory: Path, answers: int, delay_s: float, seed: int) -> tuple[int, int]:
    """Fork a recorder, kill it some time after so many acknowledgements, and give what it acknowledged last."""
    assert threading.active_count() == 1
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            record_for_ever(directory, writer, seed)
        finally:
            os._exit(1)
    os.close(writer)
    said = b""
    while len(said) < answers * ACK.size:
        fresh = os.read(reader, ACK.size)
        assert fresh, "the recorder ended by itself"
        said += fresh
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, "the recorder ended by itself"
    with os.fdopen(reader, "rb") as pipe:
        said += pipe.read()
    whole = len(said) // ACK.size * ACK.size
    return ACK.unpack_from(said, whole - ACK.size) if whole else (0, 0)  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.forks
@pytest.mark.parametrize("recording_number", range(5))
def test_ten_kills_lose_nothing_that_was_acknowledged(tmp_path: Path, recording_number: int) -> None:
    directory, rng = tmp_path / "r", random.Random(recording_number)
    durable_s, durable_labels = 0, 0
    for kill in range(10):
        answers, delay_s = rng.choice([0, 1, 2, 5]), rng.uniform(0.0, 0.03)
        upto_s, labels = killed_after(directory, answers, delay_s, seed=100 * recording_number + kill)
        durable_s, durable_labels = max(durable_s, upto_s), max(durable_labels, labels)
        if not (directory / "zarr.json").exists():
            continue  # killed before there was a recording
        recording = Recording.open(directory)
        trace = recording.trace("n0")
        assert recording.end_s >= durable_s
        assert trace.valid.all(), "a second was lost between others"
        if trace.valid.size:
            assert trace.start_s == START_S
            assert np.allclose(trace.values, values_at(START_S, trace.valid.shape[1]), atol=1e-6)
        # A label may outlive unflushed seconds, and the clock then starts again before it: order means nothing here.
        assert {span.job for span in recording.spans} == {f"job{i}" for i in range(len(recording.spans))}
        assert len(recording.spans) >= durable_labels
    assert durable_s > START_S
    assert durable_labels > 0
