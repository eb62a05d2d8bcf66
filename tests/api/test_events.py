"""`detector.events(...)`: the events that the service opens from the same seconds, as a table."""

from __future__ import annotations

import numpy as np
import pytest
from tests.service.conftest import bad_io, detector, watched  # noqa: F401  (fixtures)

import clustertwin as ct
from clustertwin.api.thread_telemetry import TraceDetector
from clustertwin.core.traces import Trace
from clustertwin.service.live.loop import Loop
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.recording import Recording

pytestmark = pytest.mark.slow


def test_python_finds_the_events_that_the_service_opens(watched: Loop, bad_io: Recording, detector: Detector):  # noqa: F811
    found = TraceDetector(detector).events(bad_io, every_s=20)
    stored = sorted((case.event for case in watched.state.store.events()), key=lambda event: event.id)
    assert len(stored) > 10
    mine = sorted(found.events, key=lambda event: event.id)
    assert [(e.id, e.jobs, e.places, e.cause, e.question, e.onset_s, e.end_s, e.title) for e in mine] == [
        (e.id, e.jobs, e.places, e.cause, e.question, e.onset_s, e.end_s, e.title) for e in stored
    ]


def test_healthy_work_that_is_above_the_threshold_opens_no_event(detector: Detector):  # noqa: F811
    """Threads that no job of the detector's training did: their scores are high, and nothing is wrong."""
    rng = np.random.default_rng(0)
    cluster = ct.simulate_cluster(nodes=1, minutes=10, job_types=("np",))
    (trace,) = list(cluster)
    values = np.full_like(trace.values, 0.0)
    values[..., 0] = 0.55 + 0.02 * rng.normal(size=values.shape[:2])
    values[..., 1] = 1 - values[..., 0]
    strange = Trace(trace.node, trace.cpus, trace.start_s, trace.schema, values, trace.valid, trace.spans)
    twin = TraceDetector(detector)
    assert len(twin.score([strange]).unusual())
    assert len(twin.events([strange])) == 0


def test_events_are_a_table_with_reasons(detector: Detector):  # noqa: F811
    cluster = ct.simulate_cluster(minutes=16, fault="hung-job")
    events = TraceDetector(detector).events(cluster, every_s=30)
    (row,) = events.to_pandas().to_dict("records")
    assert row["job"] in {span.job for span in cluster.jobs if span.anomaly}
    assert (row["question"], row["cause"]) == ("change", "idle")
    assert "idle was" in row["reason"]
    assert row["next_step"]
    assert np.isnan(row["end_s"])
    assert events.to_arrow().num_rows == 1
    assert events.caption() == "1 event, 1 still open at the end"


def test_the_title_of_a_hung_rank_names_the_thread_and_what_the_others_do(detector: Detector):  # noqa: F811
    """The ranks that wait poll in the kernel. That is the larger change, and it is not the news."""
    cluster = ct.simulate_cluster(minutes=16, fault="hung-rank")
    (span,) = {(span.job, span.node) for span in cluster.jobs if span.anomaly == "hung-rank"}
    (event,) = TraceDetector(detector).events(cluster, every_s=20).events
    ((node, (cpu,)),) = event.places
    assert (event.job, node) == span
    trace = next(trace for trace in cluster if trace.node == node)
    assert trace.values[trace.cpus.index(cpu), -60:, trace.schema.index("other")].mean() > 0.9
    assert f"1 of 8 threads ({node} CPU {cpu}) looks hung, idle for" in event.title
    assert event.title.endswith("while the other 7 are busy")


def test_looks_that_are_too_far_apart_are_refused(detector: Detector):  # noqa: F811
    with pytest.raises(ct.TwinError, match="between 1 and 30 s, not 60"):
        TraceDetector(detector).events(ct.simulate_cluster(minutes=3), every_s=60)


def test_a_job_log_is_no_telemetry(detector: Detector):  # noqa: F811
    with pytest.raises(ct.TwinError, match="telemetry is a recording or traces, not Jobs"):
        TraceDetector(detector).events(ct.example_log(50))


def test_telemetry_that_is_too_short_is_refused(detector: Detector):  # noqa: F811
    with pytest.raises(ct.TwinError, match="needs 100 s"):
        TraceDetector(detector).events(ct.simulate_cluster(minutes=1))
