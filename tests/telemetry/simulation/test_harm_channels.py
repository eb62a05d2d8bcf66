from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.core.traces import Trace
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.harm_channels import JOB_CHANNELS, NODE_CHANNELS, with_harm_channels
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


def cluster(anomaly: str, job_types: tuple[str, ...], seed: int = 3) -> list[Trace]:
    settings = ClusterSettings(
        2, 8, 0.5, job_types, (anomaly,) if anomaly else (), anomaly_ratio=1.0, job_s=(500.0, 1000.0)
    )
    return with_harm_channels(simulate(settings, read_signatures(), seed), seed)


def channel(trace: Trace, job: str, name: str) -> np.ndarray:
    channels = trace.job_channels
    assert channels is not None
    values = channels.values[channels.jobs.index(job), :, JOB_CHANNELS.index(name)]
    return np.asarray(values[~np.isnan(values)])


def test_channels_are_added_and_the_threads_stay() -> None:
    settings = ClusterSettings(2, 4, 0.2, ("np",))
    bare = simulate(settings, read_signatures(), 1)
    for trace, plain in zip(with_harm_channels(bare, 1), bare, strict=True):
        assert replace(trace, node_channels=None, job_channels=None).values is plain.values
        assert trace.node_channels is not None
        assert trace.node_channels.values.shape == (720, len(NODE_CHANNELS))
        assert ((trace.node_channels.values >= 0) & (trace.node_channels.values <= 1)).all()


def test_a_job_has_channels_while_it_runs_and_its_cpu_time_is_that_of_its_threads() -> None:
    trace = cluster("", ("np",))[0]
    span = trace.spans[0]
    begin, end = int(span.start_s) - trace.start_s, int(span.end_s) - trace.start_s
    assert len(channel(trace, span.job, "job_cpu")) == end - begin
    busy = trace.values[list(span.cpus), begin:end, :2].sum(2).mean(0)
    assert channel(trace, span.job, "job_cpu") == pytest.approx(busy, abs=1e-6)


def test_a_leak_fills_the_memory_of_its_job_at_its_end() -> None:
    traces = cluster("memory-leak", ("np",))
    leaks = [(trace, span) for trace in traces for span in trace.spans if span.anomaly == "memory-leak"]
    assert leaks
    for trace, span in leaks:
        level = channel(trace, span.job, "job_memory")
        assert level[-1] == pytest.approx(1, abs=0.01)
        assert level[len(level) // 2] < 0.98


@pytest.mark.parametrize(
    ("anomaly", "job_types", "name", "least"),
    [
        ("noisy-neighbour", ("np",), "job_cpu_pressure", 0.3),
        ("throttled", ("np",), "job_cpu_pressure", 0.1),
        ("misbound", ("mpi-4",), "job_cpu_pressure", 0.8),
        ("swap-bursts", ("np",), "job_memory_pressure", 0.02),
        ("slow-io", ("np",), "job_io_pressure", 0.2),
    ],
)
def test_a_fault_shows_in_the_channel_that_the_kernel_would_count_it_in(
    anomaly: str, job_types: tuple[str, ...], name: str, least: float
) -> None:
    found = [
        channel(trace, span.job, name)[int((span.onset_s or span.start_s) - span.start_s) :].mean()
        for trace in cluster(anomaly, job_types)
        for span in trace.spans
        if span.anomaly == anomaly and len(span.cpus) * (anomaly == "misbound") != 1
    ]
    assert found
    assert max(found) > least
    healthy = [channel(t, span.job, name).mean() for t in cluster("", job_types) for span in t.spans]
    assert max(healthy) < least / 2
