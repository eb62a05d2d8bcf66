"""The last minutes of the channels of jobs: live and recorded moments agree, jobs come and go, limits."""

from __future__ import annotations

import time

import numpy as np

from clustertwin.core.channels import CPU, JOB, Schema
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace
from clustertwin.telemetry.moments import job_channel_buffer
from clustertwin.telemetry.moments.job_channel_buffer import JobChannelBuffer
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer

NAN = float("nan")


def trace(node: str, start_s: int, jobs: dict[str, list[float]], schema: Schema = JOB) -> Trace:
    """One thread; all channels of a job have the same values."""
    seconds = max((len(values) for values in jobs.values()), default=1)
    values = np.array([np.repeat(np.array(each, np.float32)[:, None], len(schema), 1) for each in jobs.values()])
    threads = np.zeros((1, seconds, len(CPU)), np.float32)
    threads[..., 3] = 1
    spans = tuple(JobSpan(job, node, (0,), start_s, start_s + seconds) for job in jobs)
    channels = JobChannels(schema, tuple(jobs), values) if jobs else None
    return Trace(node, (0,), start_s, CPU, threads, np.ones((1, seconds), np.bool_), spans, job_channels=channels)


def memory(buffer: JobChannelBuffer, nodes: tuple[str, ...], end_s: int) -> dict[tuple[str, str], list[float]]:
    window = buffer.window(nodes, end_s)
    assert window is not None
    column = window.schema.index("job_memory")
    rows = zip(window.jobs, window.node.tolist(), window.values[..., column].astype(np.float64), strict=True)
    return {(job, nodes[node]): values.round(3).tolist() for job, node, values in rows}


def test_a_row_is_a_job_on_a_node_and_a_second_without_news_is_unknown() -> None:
    buffer = JobChannelBuffer(4)
    buffer.push(trace("n1", 10, {"a": [0.1], "b": [0.2]}))
    buffer.push(trace("n2", 10, {"a": [0.3]}))
    buffer.push(trace("n1", 12, {"a": [0.4]}))
    values = memory(buffer, ("n1", "n2"), 13)
    np.testing.assert_equal(
        values,
        {("a", "n1"): [NAN, 0.1, NAN, 0.4], ("b", "n1"): [NAN, 0.2, NAN, NAN], ("a", "n2"): [NAN, 0.3, NAN, NAN]},
    )


def test_a_job_that_ended_leaves_after_the_length_of_the_buffer_and_its_row_is_used_again() -> None:
    buffer = JobChannelBuffer(3)
    for second in range(200):
        buffer.push(trace("n1", second, {f"job{second // 5}": [0.5]}))
        assert ("job" + str(second // 5), "n1") in memory(buffer, ("n1",), second + 1)
    assert set(memory(buffer, ("n1",), 200)) == {("job39", "n1")}
    assert len(buffer._rings) <= 8


def test_the_jobs_of_a_node_that_is_gone_are_forgotten() -> None:
    buffer = JobChannelBuffer(3)
    buffer.push(trace("n1", 1, {"a": [0.5]}))
    assert memory(buffer, ("n2",), 2) == {}
    assert memory(buffer, ("n1", "n2"), 2) == {}


def test_a_node_that_invents_jobs_does_not_fill_the_memory(monkeypatch) -> None:
    monkeypatch.setattr(job_channel_buffer, "MOST_JOBS", 8)
    buffer = JobChannelBuffer(300)
    for second in range(50):
        buffer.push(trace("n1", second, {f"{second}-{i}": [0.5] for i in range(20)}))
    assert len(buffer._rings) <= 32


def test_a_thousand_new_jobs_a_second_do_not_stop_the_loop() -> None:
    buffer = JobChannelBuffer(300)
    traces = [trace("n1", second, {f"{second}-{i}": [0.5] for i in range(1000)}) for second in range(5)]
    begun_s = time.thread_time()
    for each in traces:
        buffer.push(each)
    assert time.thread_time() - begun_s < 0.6


def test_channels_of_another_version_are_matched_by_name() -> None:
    buffer = JobChannelBuffer(2)
    buffer.push(trace("n1", 1, {"a": [0.5]}))
    buffer.push(trace("n1", 2, {"a": [0.7]}, Schema(JOB.channels[6:7])))
    window = buffer.window(("n1",), 3)
    assert window is not None
    np.testing.assert_allclose(window.values[0, :, JOB.index("job_memory")], [0.5, 0.7])
    assert np.isnan(window.values[0, 1, JOB.index("job_cpu")])


def test_a_recorded_moment_has_the_channels_of_a_live_one() -> None:
    whole = [
        trace("n1", 100, {"a": [0.1] * 12, "b": [NAN] * 10 + [0.2] * 2}),
        trace("n2", 100, {"a": [0.3] * 12}),
    ]
    node_channels = NodeChannels(Schema(JOB.channels[:1]), np.full((12, 1), 0.5, np.float32))
    whole = [
        Trace(t.node, t.cpus, t.start_s, t.schema, t.values, t.valid, t.spans, 1, node_channels, t.job_channels)
        for t in whole
    ]
    buffer = TraceBuffer(CPU, 15)
    for one in whole:
        buffer.push(one)
    live = buffer.moment(112)
    recorded = next(moment for moment, _ in moments(whole, 1, 15, 112))
    for moment in (live, recorded):
        assert moment.job_channels is not None
        assert moment.node_channels is not None
        assert moment.job_channels.rows_of("a") == [0, 2]
    np.testing.assert_array_equal(live.job_channels.values, recorded.job_channels.values)
    np.testing.assert_array_equal(live.job_channels.node, recorded.job_channels.node)
    np.testing.assert_array_equal(live.node_channels.values, recorded.node_channels.values)
    assert live.job_channels.jobs == recorded.job_channels.jobs
