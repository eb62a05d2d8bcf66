"""A night on what a service of exporters has recorded: the days of two nodes, recorded as the loop gets them."""

from dataclasses import replace

import numpy as np
import pytest
from tests.telemetry.learning.conftest import small_day

from clustertwin.core.channels import NODE
from clustertwin.core.traces import NodeChannels, Trace
from clustertwin.service.live.beside.recording_thread import RecordingThread
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.telemetry.learning.champions import version_store
from clustertwin.telemetry.learning.night.day_sampling import SamplingSettings, sample_day
from clustertwin.telemetry.learning.night.nightly_cycle import run_night
from clustertwin.telemetry.recording.trace_archive import MemoryArchive, RecordingArchive

PIECE_S = 10


def pieces(trace: Trace):
    """The trace as an exporter gives it: a few seconds at a time, with the channels of the node."""
    for at in range(0, trace.values.shape[1], PIECE_S):
        here = slice(at, at + PIECE_S)
        start_s, valid = trace.start_s + at, trace.valid[:, here]
        end_s = start_s + valid.shape[1]
        spans = tuple(
            replace(span, end_s=min(span.end_s, end_s))
            for span in trace.spans
            if span.start_s < end_s and span.end_s > start_s
        )
        node = NodeChannels(NODE, np.full((valid.shape[1], len(NODE)), 0.5, np.float32))
        yield replace(
            trace, start_s=start_s, values=trace.values[:, here], valid=valid, spans=spans, node_channels=node
        )


class InTime:
    """A recorder whose clock is that of the traces, because a day is recorded in a second."""

    def __init__(self, directory) -> None:
        self.now_s = 0.0
        self.recorder = LiveRecorder(directory, keep_s=None, flush_s=50, clock=lambda: self.now_s)

    lost = property(lambda self: self.recorder.lost)
    problem = property(lambda self: self.recorder.problem)

    def add(self, trace: Trace) -> None:
        self.now_s = float(trace.end_s)
        self.recorder.add(trace)

    def flush(self) -> None:
        self.recorder.flush()

    def close(self) -> None:
        self.recorder.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The recording of a day, and its traces."""
    directory = tmp_path_factory.mktemp("home") / "recording"
    day, traces = small_day(2)
    thread = RecordingThread(InTime(directory), collected_s=0.05, ends_within_s=300)
    for turn in zip(*(pieces(trace) for trace in traces), strict=True):
        for trace in turn:
            thread.add(trace)
    thread.close()
    assert (thread.lost, thread.problem) == (0, "")
    return directory, day, traces


@pytest.mark.slow
def test_a_night_learns_from_the_recording(make_context, recorded):
    context, day = make_context(2, archive=RecordingArchive([recorded[0]]))
    night = run_night(context, day)
    assert night.outcome == "promoted", night
    lineage = version_store.find_version(context.home, night.champion).lineage
    assert sorted(lineage["census"]["seen"]) == sorted(trace.node for trace in recorded[2])


@pytest.mark.slow
def test_it_reads_a_few_minutes_at_a_time(recorded):
    directory, day, traces = recorded
    archive, read_s = RecordingArchive([directory]), []

    class Noted:
        name, page_s, extent_s = archive.name, archive.page_s, archive.extent_s

        def traces(self, start_s, end_s, nodes=None):
            read_s.append(end_s - start_s)
            return archive.traces(start_s, end_s, nodes)

    split, census = sample_day(day, Noted(), [], SamplingSettings(10, 0))
    direct, of_traces = sample_day(day, MemoryArchive(traces), [], SamplingSettings(10, 0))
    assert max(read_s) <= 300
    assert census.windows == of_traces.windows > 0
    np.testing.assert_allclose(split.train[0].values, direct.train[0].values, atol=0.016)
