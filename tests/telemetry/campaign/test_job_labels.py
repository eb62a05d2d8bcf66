"""The labels of a job: type, anomaly, affected CPU, onset."""

from __future__ import annotations

from clustertwin.telemetry.campaign.job_labels import spans_of
from clustertwin.telemetry.campaign.plan import PlannedJob


def planned(kind: str, threads: int = 2, onset_s: float | None = None) -> PlannedJob:
    return PlannedJob("01", kind, threads, 10.0, 0, onset_s)


def test_a_normal_job_is_one_span_without_anomaly() -> None:
    (span,) = spans_of(planned("np"), "a-01", {"n1": (0, 1)}, 100.0, 110.0)
    assert (span.job, span.node, span.cpus, span.start_s, span.end_s) == ("a-01", "n1", (0, 1), 100.0, 110.0)
    assert (span.job_type, span.anomaly, span.onset_s) == ("np", "", None)


def test_bad_io_is_an_anomaly_and_its_own_type() -> None:
    (span,) = spans_of(planned("bad-io"), "j", {"n1": (0, 1)}, 0.0, 10.0)
    assert (span.job_type, span.anomaly) == ("bad-io", "bad-io")


def test_a_throttled_cpu_leaves_its_neighbours_healthy() -> None:
    healthy, affected = spans_of(planned("throttled", 3), "j", {"n1": (0, 1, 2)}, 0.0, 10.0)
    assert (healthy.cpus, healthy.job_type, healthy.anomaly) == ((0, 1), "np", "")
    assert (affected.cpus, affected.job_type, affected.anomaly) == ((2,), "np", "throttled")


def test_a_job_of_one_cpu_is_affected_there() -> None:
    (affected,) = spans_of(planned("throttled", 1), "j", {"n1": (5,)}, 0.0, 10.0)
    assert (affected.cpus, affected.anomaly) == ((5,), "throttled")


def test_a_hung_rank_makes_its_peers_wait_on_every_node() -> None:
    spans = spans_of(planned("hung-rank", 4, onset_s=3.0), "j", {"n1": (0, 1), "n2": (2, 3)}, 100.0, 110.0)
    assert [(span.node, span.cpus, span.anomaly) for span in spans] == [
        ("n1", (0, 1), "hung-rank/peer"),
        ("n2", (2,), "hung-rank/peer"),
        ("n2", (3,), "hung-rank"),
    ]
    assert {(span.job_type, span.onset_s) for span in spans} == {("mpi-4", 103.0)}


def test_a_failed_job_is_neither_its_type_nor_idle() -> None:
    (span,) = spans_of(planned("np"), "j", {"n1": (0, 1)}, 0.0, 4.0, failed=True)
    assert span.job_type == "failed"
